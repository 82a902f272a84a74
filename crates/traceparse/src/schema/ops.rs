//! Table `ops`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A CPU operator or annotation.
    Ops, OpRow, "ops";
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
        /// `External id` as recorded. Wrong in files of 2022 to 2024: use the row links instead.
        external_id: Option<i64> as id,
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
        /// `Record function id`: joins with a PyTorch execution trace.
        record_function_id: Option<i64> as id,
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
        /// `row` of the innermost op of the same thread that encloses this one.
        parent_row: Option<u32> as link,
        /// Number of enclosing ops on the thread.
        depth: Option<u32> as count,
        /// Number of the profiler step the row belongs to.
        step: Option<i32>,
        /// What the op does, where its name says so: `step` (it marks one), `data_loading`, `communication` or
        /// `optimizer` (a step of one, or its zeroing of gradients).
        activity: Option<Symbol>,
        /// Whether the op is an annotation of code and no operator: by its category, or by a name that only
        /// annotations have, such as `Optimizer.step#SGD.step`.
        is_annotation: Option<bool>,
        /// forward, backward, optimizer or other.
        phase: Option<Symbol>,
        /// On a backward op: `row` of the forward op it differentiates.
        forward_row: Option<u32> as link,
        /// Innermost `nn.Module` instance that the op ran in, such as `Linear_3`; a backward op has its
        /// forward op's.
        module: Option<Symbol>,
        /// `row` in `python` of that module's call.
        module_row: Option<u32> as link,
    }
}
