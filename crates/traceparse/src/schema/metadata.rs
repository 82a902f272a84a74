//! Table `metadata`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A metadata event: names, labels and sort order of processes and threads.
    MetadataEvents, MetadataRow, "metadata";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// Number of the (pid, tid) pair the event is drawn on; key of `threads`.
        track: u32 as track,
        /// Time stamp as recorded, ns.
        start_ns: Option<i64> as time,
        /// The argument: its text, or JSON text if it is no string.
        value: Option<Symbol>,
    }
    derived {
        /// Process id; null where the source has a text (see `threads`).
        pid: Option<i64> as id,
        /// Thread id; null where the source has a text (see `threads`).
        tid: Option<i64> as id,
    }
}
