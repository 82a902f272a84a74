//! Tables of what the host does.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A CPU operator or annotation.
    Ops, OpRow, "ops";
    recorded {
        row, name, category, track, start_ns, dur_ns, external_id,
        /// Autograd sequence number; shared by a forward operator and its backward.
        sequence: Option<i64>,
        /// Profiler's index of the thread that ran the forward; above 0 only on backward operators. Not
        /// a tid.
        forward_thread: Option<i32>,
        /// Input shapes as JSON text; a tensor list nests one level deeper.
        input_dims: Option<Symbol>,
        /// Input element types as JSON text.
        input_types: Option<Symbol>,
        /// Input strides in elements, as JSON text, nested as `input_dims`.
        input_strides: Option<Symbol>,
        /// Values of scalar inputs as JSON text; "" for tensors.
        concrete_inputs: Option<Symbol>,
        /// Python call stack as recorded, leaf first, separated by `;`.
        call_stack: Option<Symbol>,
        /// TorchScript module hierarchy as recorded.
        module_hierarchy: Option<Symbol>,
        /// `Record function id`, or `op_id` in an NVTX range: joins with a PyTorch execution trace.
        record_function_id: Option<i64> as id,
        event_index, finished,
    }
    derived {
        pid, tid,
        /// `row` of the innermost op of the same thread that encloses this one.
        parent_row: Option<u32> as link,
        /// Number of enclosing ops on the thread.
        depth: Option<u32> as count,
        step,
        /// What the op does, where its name says so: `step` (it marks one), `data_loading`, `communication` (it
        /// starts a collective or transfer, or waits for one) or `optimizer` (a step of one, or its zeroing of
        /// gradients).
        activity: Option<Symbol>,
        /// Whether the op is an annotation of code and no operator: by its category, or by a name that only
        /// annotations have, such as `Optimizer.step#SGD.step`.
        is_annotation: Option<bool>,
        /// forward, backward, optimizer or other.
        phase: Option<Symbol>,
        /// On a backward op: `row` of the forward op it differentiates.
        forward_row: Option<u32> as link,
        caller_track,
        /// Innermost `nn.Module` instance that the op ran in, such as `Linear_3`. A backward op has its forward
        /// op's, else the one that the thread which called `backward` is in.
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
        /// What the call returned; null for success, and where it is not recorded.
        error: Option<i32>,
        /// Kernel that the call launches, where the call says it, as ROCm's does.
        kernel: Option<Symbol>,
        /// Launch grid as the call says it: blocks in x, y and z.
        grid: Option<[i32; 3]>,
        /// Thread block as the call says it: threads in x, y and z.
        block: Option<[i32; 3]>,
        /// Shared memory per block as the call says it, bytes.
        shared_memory_bytes: Option<i32>,
    }
    derived {
        pid, tid,
        /// `row` of the op that made the call.
        op_row: Option<u32> as link,
        /// `row` in `ranges` of the innermost NVTX range of the thread that encloses the call. Ranges of
        /// PyTorch's `emit_nvtx` are its operators, so this is what `op_row` is in other traces. Where the thread
        /// has none, that of the process (a start/end range that another thread ended) if it is the only one that
        /// encloses the call.
        range_row: Option<u32> as link,
        step,
        /// What the call does, where its name says so: `launch` (it starts a kernel or a graph) or `wait` (the
        /// host waits until the GPU has done its work, as in a synchronisation, a copy that is not
        /// asynchronous, or an allocation of memory).
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
        /// Instance number, on frames of an `nn.Module`.
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
    /// A host event without a timestamp: recorded at 0 without a duration. It is in no other table and in no
    /// figure.
    UntimedEvents, UntimedEventRow, "untimed_events";
    recorded {
        row,
        /// operator, annotation, call (of a runtime or driver), frame (of Python) or memory.
        kind: Symbol,
        name, category, track, correlation, external_id,
        /// The start as recorded, ns.
        recorded_start_ns: Option<i64> as time,
        /// The duration as recorded, ns.
        recorded_dur_ns: Option<i64> as duration,
    }
    derived { pid, tid, }
}

table! {
    /// An NVTX range or mark.
    Ranges, RangeRow, "ranges";
    recorded {
        row, name,
        /// NVTX domain; null for the default domain.
        domain: Option<Symbol>,
        /// NVTX category.
        category: Option<Symbol>,
        /// push_pop, start_end or mark.
        kind: Symbol,
        track, start_ns, dur_ns,
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
