//! Tables of what the host does.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A CPU operator or annotation.
    Ops, OpRow, "ops";
    recorded {
        row, name, category, track, start_ns, dur_ns, external_id,
        /// Autograd sequence number, shared by a forward operator and its backward.
        sequence: Option<i64>,
        /// Profiler's index of the thread that ran the forward, above 0 only on backward operators. This is
        /// not a tid.
        forward_thread: Option<i32>,
        /// Input shapes as JSON text; a tensor list nests one level deeper.
        input_dims: Option<Symbol>,
        /// Element types of the inputs as JSON text.
        input_types: Option<Symbol>,
        /// Strides of the inputs in elements, as JSON text, nested like `input_dims`.
        input_strides: Option<Symbol>,
        /// Values of scalar inputs as JSON text; "" for tensors.
        concrete_inputs: Option<Symbol>,
        /// Python call stack as recorded, leaf first, separated by `;`.
        call_stack: Option<Symbol>,
        /// TorchScript module hierarchy as recorded.
        module_hierarchy: Option<Symbol>,
        /// `Record function id`, or `op_id` in an NVTX range. It joins with a PyTorch execution trace.
        record_function_id: Option<i64> as id,
        event_index, finished,
    }
    derived {
        pid, tid,
        /// `row` of the innermost operator of the same thread that encloses this one.
        parent_row: Option<u32> as link,
        /// Number of enclosing operators on the thread.
        depth: Option<u32> as count,
        step,
        /// Activity of the operator, derived from its name: `step` (marks a step), `data_loading`,
        /// `communication` (starts or awaits a collective or transfer) or `optimizer` (runs an optimizer step
        /// or zeroes gradients).
        activity: Option<Symbol>,
        /// Whether this is an annotation in the code and not an operator, judged by its category, or by a
        /// name that only annotations have, such as `Optimizer.step#SGD.step`.
        is_annotation: Option<bool>,
        /// forward, backward, optimizer or other.
        phase: Option<Symbol>,
        /// On a backward operator: `row` of the forward operator that it differentiates.
        forward_row: Option<u32> as link,
        caller_track,
        /// Innermost `nn.Module` instance that ran the operator, such as `Linear_3`. A backward operator has
        /// the module of its forward operator, otherwise the module in which the thread called `backward`.
        module: Option<Symbol>,
        /// `row` in `python` of that module's call.
        module_row: Option<u32> as link,
    }
}

table! {
    /// A call of the CUDA, HIP or other device runtime or driver API.
    Launches, LaunchRow, "launches";
    recorded {
        row, name, category, track, start_ns, dur_ns, correlation, external_id,
        /// API id of the call (`cbid` of CUPTI, `cid` of ROCm).
        callback_id: Option<i32> as id,
        /// Version that nsys appends to the name, as in `cudaLaunchKernel_v7000`.
        api_version: Option<i32>,
        /// Return code of the call. Null for success and if it was not recorded.
        error: Option<i32>,
        /// Kernel that the call launches, if the call names it, as in ROCm.
        kernel: Option<Symbol>,
        /// Launch grid in the call's arguments: blocks in x, y and z.
        grid: Option<[i32; 3]>,
        /// Thread block in the call's arguments: threads in x, y and z.
        block: Option<[i32; 3]>,
        /// Shared memory per block in the call's arguments, bytes.
        shared_memory_bytes: Option<i32>,
    }
    derived {
        pid, tid,
        /// `row` of the operator that made the call.
        op_row: Option<u32> as link,
        /// `row` in `ranges` of the innermost NVTX range of the thread that encloses the call. Ranges of
        /// PyTorch's `emit_nvtx` are operators, so this column replaces `op_row`. If the thread has no such
        /// range, the only range of the process (a start/end range that another thread ended) that encloses
        /// the call.
        range_row: Option<u32> as link,
        step,
        /// Activity of the call, derived from its name: `launch` (starts a kernel or a graph) or `wait` (the
        /// host waits until the GPU has finished, as in a synchronisation, a synchronous copy, or an
        /// allocation of memory).
        activity: Option<Symbol>,
        caller_track,
    }
}

table! {
    /// A call of a Python function or an `nn.Module`.
    PythonFrames, PythonRow, "python";
    recorded {
        row, name, track, start_ns, dur_ns,
        /// `Python id` as recorded.
        python_id: Option<i64> as id,
        /// `Python parent id` as recorded; null for roots.
        python_parent_id: Option<i64> as id,
        /// Instance number of an `nn.Module`, on its frames.
        module_id: Option<i32>,
        /// Call stack as recorded.
        call_stack: Option<Symbol>,
        event_index, finished,
    }
    derived {
        pid, tid,
        /// `row` of the calling frame.
        parent_row: Option<u32> as link,
    }
}

table! {
    /// A host event without a timestamp: recorded at 0 with duration 0. It is in no other table and excluded
    /// from all figures.
    UntimedEvents, UntimedEventRow, "untimed_events";
    recorded {
        row,
        /// operator, annotation, call (of a runtime or driver), frame (of Python) or memory.
        kind: Symbol,
        name, category, track, correlation, external_id,
        /// Start as recorded, ns.
        recorded_start_ns: Option<i64> as time,
        /// Duration as recorded, ns.
        recorded_dur_ns: Option<i64> as duration,
    }
    derived { pid, tid, }
}

table! {
    /// An NVTX range or mark.
    Ranges, RangeRow, "ranges";
    recorded {
        row, name,
        /// NVTX domain. Null for the default domain.
        domain: Option<Symbol>,
        /// NVTX category.
        category: Option<Symbol>,
        /// push_pop, start_end or mark.
        kind: Symbol,
        track, start_ns, dur_ns,
        /// Thread that ended a start/end range, if another thread started it.
        end_tid: Option<i64>,
        /// `op_id` that PyTorch's emit_nvtx appends to the text.
        op_id: Option<i64>,
        /// Autograd sequence number in the text.
        sequence: Option<i64>,
        /// Input sizes in the text.
        sizes: Option<Symbol>,
    }
    derived {
        /// Process id. Null if the source has a text (see `threads`).
        // No `id`: another thread of the process may end a range.
        pid: Option<i64>,
        /// Thread id. Null if the source has a text (see `threads`).
        tid: Option<i64>,
        /// `row` of the innermost enclosing push/pop range of the thread.
        parent_row: Option<u32> as link,
        /// Number of enclosing push/pop ranges.
        depth: Option<u32> as count,
        /// Number of the step the row belongs to.
        step: Option<i32>,
        /// Activity of the code inside the range, derived from its name as in `ops`.
        activity: Option<Symbol>,
    }
}
