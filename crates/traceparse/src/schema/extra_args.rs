//! Table `extra_args`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// An argument of an event that has no column of its own.
    ExtraArgs, ExtraArgRow, "extra_args";
    recorded {
        /// `row` of the event.
        row: u32 as link,
        /// Argument name.
        key: Symbol,
        /// Value as JSON text.
        value: Symbol,
    }
    derived {}
}
