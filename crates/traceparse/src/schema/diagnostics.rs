//! Table `diagnostics`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A kind of repair, drop or doubt met while reading.
    Diagnostics, DiagnosticRow, "diagnostics";
    recorded {
        /// Stable name of the finding.
        code: Symbol,
        /// info, repaired or lost.
        severity: Symbol,
        /// How often it was met.
        count: i64,
        /// Byte offset of the first, in the uncompressed source.
        first_offset: Option<i64>,
        /// Table of the database, or `table.column`, that it is about.
        source: Option<Symbol>,
        /// rowid of the first, in that table.
        first_rowid: Option<i64>,
        /// What it is and what was done.
        message: Symbol,
    }
    derived {}
}
