//! Table `python`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A call of a Python function or an `nn.Module`.
    PythonFrames, PythonRow, "python";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// Number of the (pid, tid) pair the event is drawn on; key of `threads`.
        track: u32 as track,
        /// Start, ns on the trace's clock.
        start_ns: i64 as time,
        /// Duration, ns; null where the source does not say or says nonsense.
        dur_ns: Option<i64> as duration,
        /// `Python id` as recorded.
        python_id: Option<i64> as id,
        /// `Python parent id` as recorded; null for roots.
        python_parent_id: Option<i64> as id,
        /// Instance number, on frames of an `nn.Module`.
        module_id: Option<i32>,
        /// Call stack as recorded.
        call_stack: Option<Symbol>,
        /// `Ev Idx`: order of collection inside the profiler.
        event_index: Option<i64> as id,
        /// False: the end was not seen, and the duration reaches to the end of the window.
        finished: Option<bool>,
    }
    derived {
        /// Process id; null where the source has a text (see `threads`).
        pid: Option<i64> as id,
        /// Thread id; null where the source has a text (see `threads`).
        tid: Option<i64> as id,
        /// `row` of the calling frame.
        parent_row: Option<u32> as link,
    }
}
