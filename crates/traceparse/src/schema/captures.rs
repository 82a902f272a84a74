//! Tables of captured CUDA and HIP graphs. They tell what a replayed kernel was when its graph was made.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A CUDA graph that a stream captured, in this trace or in a trace passed as its capture.
    CapturedGraphs, CapturedGraphRow, "captured_graphs";
    recorded {
        /// Number of the row, unique over all tables of the trace.
        row: u32 as row,
        /// Name of the annotation around the capture, such as `capture_32_DECODE`.
        name: Option<Symbol>,
        /// Path of the trace that contains the capture. Null if it is this trace.
        source: Option<Symbol>,
        /// Batch size in the name of the annotation.
        batch_size: Option<i64>,
        /// Start of the capture, ns on the clock of the trace that contains it.
        start_ns: i64 as time,
        /// Duration of the capture, ns. Null if its end is not in the trace.
        dur_ns: Option<i64> as duration,
        /// Number of nodes: kernels, copies and memsets. In Nsight Systems databases, other nodes are
        /// included.
        nodes: u32 as count,
        /// Number of GPU operations of the trace that replay a node of this graph.
        replayed: u32 as count,
    }
    derived {}
}

table! {
    /// An operator or annotation that ran during the capture of a graph and added a node, or encloses one
    /// that did. Its times are those of the capture; they are not the host time of a replay.
    CapturedOps, CapturedOpRow, "captured_ops";
    recorded {
        /// Number of the row, unique over all tables of the trace.
        row: u32 as row,
        /// `row` in `captured_graphs`.
        graph_row: u32 as link,
        /// `row` of the innermost operator of the capture that encloses this one.
        parent_row: Option<u32> as link,
        /// Number of enclosing operators of the capture.
        depth: u32 as count,
        name,
        /// Start, ns on the clock of the trace that contains the capture.
        start_ns: i64 as time,
        /// Duration in the capture, ns.
        dur_ns: Option<i64> as duration,
        /// Input shapes as JSON text; a tensor list nests one level deeper.
        input_dims: Option<Symbol>,
        /// Element types of the inputs as JSON text.
        input_types: Option<Symbol>,
        /// Strides of the inputs in elements, as JSON text, nested like `input_dims`.
        input_strides: Option<Symbol>,
        /// Values of scalar inputs as JSON text; "" for tensors.
        concrete_inputs: Option<Symbol>,
        /// Whether this is an annotation in the code and not an operator.
        is_annotation: Option<bool>,
        /// forward, backward, optimizer or other.
        phase: Option<Symbol>,
        /// Innermost `nn.Module` instance that ran the operator, such as `Linear_3`.
        module: Option<Symbol>,
        /// Enclosing modules from the root, separated by `/`.
        module_path: Option<Symbol>,
        /// Python call stack, leaf first, separated by `;`.
        call_stack: Option<Symbol>,
    }
    derived {}
}

table! {
    /// A node of a captured graph: a kernel, copy or memset, in the order of capture.
    CapturedNodes, CapturedNodeRow, "captured_nodes";
    recorded {
        /// Number of the row, unique over all tables of the trace.
        row: u32 as row,
        /// `row` in `captured_graphs`.
        graph_row: u32 as link,
        /// `row` in `captured_ops` of the operator that added the node. Null if no operator did (kernels
        /// launched by Triton, for example) or if it is not in the file.
        captured_op_row: Option<u32> as link,
        /// `row` in `launches` of the call that added the node. Null if another trace contains it.
        launch_row: Option<u32> as link,
        /// `row` in `ranges` of the innermost NVTX range around that call. Null if another trace contains it.
        range_row: Option<u32> as link,
        /// kernel, memcpy or memset. Null if the call that added the node does not determine it.
        kind: Option<Symbol>,
        /// Name of the kernel. Null if it was not recorded.
        name: Option<Symbol>,
        /// Launch grid: blocks in x, y and z.
        grid: Option<[i32; 3]>,
        /// Thread block: threads in x, y and z.
        block: Option<[i32; 3]>,
        /// Shared memory per block, bytes, where recorded.
        shared_memory_bytes: Option<i32>,
        /// Modules that enclose the call, from the root, separated by `/`.
        module_path: Option<Symbol>,
        /// Python call stack of the call, leaf first, separated by `;`.
        call_stack: Option<Symbol>,
    }
    derived {}
}
