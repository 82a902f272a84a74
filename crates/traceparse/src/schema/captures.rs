//! Tables of captured CUDA and HIP graphs. They tell what a replayed kernel was when its graph was made.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A graph that a stream captured, in this trace or in one that was named as its capture.
    CapturedGraphs, CapturedGraphRow, "captured_graphs";
    recorded {
        /// Number of the row; unique over all tables of the trace.
        row: u32 as row,
        /// Name of the annotation around the capture, such as `capture_32_DECODE`.
        name: Option<Symbol>,
        /// Path of the trace that holds the capture; null for the trace itself.
        source: Option<Symbol>,
        /// Batch size in the name of the annotation.
        batch_size: Option<i64>,
        /// Begin of the capture, ns on the clock of the trace that holds it.
        start_ns: i64 as time,
        /// Duration of the capture, ns; null where its end is not in the trace.
        dur_ns: Option<i64> as duration,
        /// Number of nodes: kernels, copies and memsets; of Nsight Systems also those that do no work.
        nodes: u32 as count,
        /// How many pieces of GPU work of the trace are nodes of this graph.
        replayed: u32 as count,
    }
    derived {}
}

table! {
    /// An op or annotation during the capture of a graph that made a node, or lies around one that did. Its times
    /// are those of the capture, and no host time of the replay.
    CapturedOps, CapturedOpRow, "captured_ops";
    recorded {
        /// Number of the row; unique over all tables of the trace.
        row: u32 as row,
        /// `row` in `captured_graphs`.
        graph_row: u32 as link,
        /// `row` of the innermost op of the capture that encloses this one.
        parent_row: Option<u32> as link,
        /// Number of enclosing ops of the capture.
        depth: u32 as count,
        name,
        /// Start, ns on the clock of the trace that holds the capture.
        start_ns: i64 as time,
        /// Duration, ns, in the capture.
        dur_ns: Option<i64> as duration,
        /// Input shapes as JSON text; a tensor list nests one level deeper.
        input_dims: Option<Symbol>,
        /// Input element types as JSON text.
        input_types: Option<Symbol>,
        /// Input strides in elements, as JSON text, nested as `input_dims`.
        input_strides: Option<Symbol>,
        /// Values of scalar inputs as JSON text; "" for tensors.
        concrete_inputs: Option<Symbol>,
        /// Whether the op is an annotation of code and no operator.
        is_annotation: Option<bool>,
        /// forward, backward, optimizer or other.
        phase: Option<Symbol>,
        /// Innermost `nn.Module` instance that the op ran in, such as `Linear_3`.
        module: Option<Symbol>,
        /// The modules around the op from the root, with `/` between.
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
        /// Number of the row; unique over all tables of the trace.
        row: u32 as row,
        /// `row` in `captured_graphs`.
        graph_row: u32 as link,
        /// `row` in `captured_ops` of the op that made the node; null where none did, as for kernels that
        /// Triton launches, or where it is not in the file.
        captured_op_row: Option<u32> as link,
        /// `row` in `launches` of the call that made the node; null where another trace holds it.
        launch_row: Option<u32> as link,
        /// `row` in `ranges` of the innermost NVTX range around that call; null where another trace holds it.
        range_row: Option<u32> as link,
        /// kernel, memcpy or memset; null where the call that made the node does not tell.
        kind: Option<Symbol>,
        /// Name of the kernel; null where the recorder does not say it.
        name: Option<Symbol>,
        /// Launch grid: blocks in x, y and z.
        grid: Option<[i32; 3]>,
        /// Thread block: threads in x, y and z.
        block: Option<[i32; 3]>,
        /// Shared memory per block, bytes, where recorded.
        shared_memory_bytes: Option<i32>,
        /// The modules around the call from the root, with `/` between.
        module_path: Option<Symbol>,
        /// Python call stack of the call, leaf first, separated by `;`.
        call_stack: Option<Symbol>,
    }
    derived {}
}
