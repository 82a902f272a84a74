//! Table `launches`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A call of the CUDA, HIP or other device runtime or driver API.
    Launches, LaunchRow, "launches";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// Category as recorded (`cat`).
        category: Option<Symbol>,
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
        /// API id of the call (`cbid` of CUPTI, `cid` of ROCm).
        callback_id: Option<i32> as id,
        /// Version that nsys appends to the name, as in `cudaLaunchKernel_v7000`.
        api_version: Option<i32>,
        /// What the call returned; null for success, and where it is not recorded.
        error: Option<i32>,
    }
    derived {
        /// Process id; null where the source has a text (see `threads`).
        pid: Option<i64> as id,
        /// Thread id; null where the source has a text (see `threads`).
        tid: Option<i64> as id,
        /// `row` of the op that made the call.
        op_row: Option<u32> as link,
        /// `row` in `ranges` of the innermost NVTX range of the thread that encloses the call. Ranges of
        /// PyTorch's `emit_nvtx` are its operators, so this is what `op_row` is in other traces.
        range_row: Option<u32> as link,
        /// Number of the profiler step the row belongs to.
        step: Option<i32>,
        /// What the call does, where its name says so: `launch` (it starts a kernel or a graph) or `wait` (the
        /// host waits until the GPU has done its work, as in a synchronisation, a copy that is not
        /// asynchronous, or an allocation of memory).
        activity: Option<Symbol>,
    }
}
