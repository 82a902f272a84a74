//! Table `spans`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A slice that no other table holds: profiler spans, profiling overhead, unknown categories.
    Spans, SpanRow, "spans";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// Category as recorded (`cat`).
        category: Option<Symbol>,
        /// `ph` as recorded.
        kind: Symbol,
        /// Number of the (pid, tid) pair the event is drawn on; key of `threads`.
        track: u32 as track,
        /// Start, ns on the trace's clock.
        start_ns: i64 as time,
        /// Duration, ns; null where the source does not say or says nonsense.
        dur_ns: Option<i64> as duration,
        /// Correlation id, shared by a launch and the GPU work it started.
        correlation: Option<i64> as id,
        /// `External id` as recorded. Wrong in files of 2022 to 2024: use the row links instead.
        external_id: Option<i64> as id,
    }
    derived {
        /// Process id; null where the source has a text (see `threads`).
        pid: Option<i64> as id,
        /// Thread id; null where the source has a text (see `threads`).
        tid: Option<i64> as id,
    }
}
