//! Table `ranges`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// An NVTX range or mark.
    Ranges, RangeRow, "ranges";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// NVTX domain; null for the default domain.
        domain: Option<Symbol>,
        /// NVTX category.
        category: Option<Symbol>,
        /// push_pop, start_end or mark.
        kind: Symbol,
        /// Number of the (pid, tid) pair the event is drawn on; key of `threads`.
        track: u32 as track,
        /// Start, ns on the trace's clock.
        start_ns: i64 as time,
        /// Duration, ns; null where the source does not say or says nonsense.
        dur_ns: Option<i64> as duration,
        /// Thread that ended a start/end range, where it is not the one that started it.
        end_tid: Option<i64>,
        /// `op_id` that PyTorch's emit_nvtx appends to the text.
        op_id: Option<i64>,
        /// Autograd sequence number in the text.
        sequence: Option<i64>,
        /// Input sizes in the text.
        sizes: Option<Symbol>,
    }
    derived {
        /// Process id; null where the source has a text (see `threads`).
        // No `id`: another thread of the process may end a range.
        pid: Option<i64>,
        /// Thread id; null where the source has a text (see `threads`).
        tid: Option<i64>,
        /// `row` of the innermost enclosing push/pop range of the thread.
        parent_row: Option<u32> as link,
        /// Number of enclosing push/pop ranges.
        depth: Option<u32> as count,
        /// Number of the step the row belongs to.
        step: Option<i32>,
        /// What the range encloses, where its name says so: as in `ops`.
        activity: Option<Symbol>,
    }
}
