//! Table `flows`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// One end of an arrow between two events.
    Flows, FlowRow, "flows";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// Flow id; the ends of an arrow share id and category.
        id: Option<i64> as id,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// Category as recorded (`cat`).
        category: Option<Symbol>,
        /// `s` start, `t` step, `f` end.
        kind: Symbol,
        /// Number of the (pid, tid) pair the event is drawn on; key of `threads`.
        track: u32 as track,
        /// Start, ns on the trace's clock.
        start_ns: i64 as time,
    }
    derived {
        /// Process id; null where the source has a text (see `threads`).
        pid: Option<i64> as id,
        /// Thread id; null where the source has a text (see `threads`).
        tid: Option<i64> as id,
    }
}
