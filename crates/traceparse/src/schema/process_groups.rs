//! Table `process_groups`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A process group of torch.distributed.
    ProcessGroups, ProcessGroupRow, "process_groups";
    recorded {
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// Description or unique id.
        description: Option<Symbol>,
        /// Backend configuration.
        backend: Option<Symbol>,
        /// Number of ranks.
        size: Option<i64>,
        /// Ranks as JSON text.
        ranks: Option<Symbol>,
    }
    derived {}
}
