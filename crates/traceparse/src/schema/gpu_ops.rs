//! Table `gpu_ops`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A kernel, copy, memset or whole-graph execution on a GPU.
    GpuOps, GpuOpRow, "gpu_ops";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// kernel, memcpy, memset or graph.
        kind: Symbol,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// Name of a kernel without namespaces, arguments and template arguments, where recorded.
        short_name: Option<Symbol>,
        /// Name of a kernel as the compiler wrote it, where recorded.
        mangled_name: Option<Symbol>,
        /// Category as recorded (`cat`).
        category: Option<Symbol>,
        /// GPU index.
        device: Option<i32>,
        /// Stream id.
        stream: Option<i64>,
        /// Start, ns on the trace's clock.
        start_ns: i64 as time,
        /// Duration, ns; null where the source does not say or says nonsense.
        dur_ns: Option<i64> as duration,
        /// Correlation id, shared by a launch and the GPU work it started.
        correlation: Option<i64> as id,
        /// `External id` as recorded. Wrong in files of 2022 to 2024: use the row links instead.
        external_id: Option<i64> as id,
        /// Context id.
        context: Option<i32>,
        /// Green context id.
        green_context: Option<i32>,
        /// Process that launched the work; null where the source does not say.
        pid: Option<i64>,
        /// Time stamp at which the work was queued, ns, where recorded; 0 is not recorded.
        queued_ns: Option<i64> as time,
        /// Launch grid: blocks in x, y and z.
        grid: Option<[i32; 3]>,
        /// Thread block: threads in x, y and z.
        block: Option<[i32; 3]>,
        /// Cluster of thread blocks: blocks in x, y and z; null where the launch has none.
        cluster: Option<[i32; 3]>,
        /// Registers per thread.
        registers: Option<i32>,
        /// Shared memory per block, static and dynamic, bytes.
        shared_memory_bytes: Option<i32>,
        /// The static part of the shared memory per block, bytes, where recorded.
        static_shared_memory_bytes: Option<i32>,
        /// The dynamic part of the shared memory per block, bytes, where recorded.
        dynamic_shared_memory_bytes: Option<i32>,
        /// Local memory per thread, bytes, where recorded.
        local_memory_per_thread_bytes: Option<i32>,
        /// Blocks of the launch divided by the number of SMs, as recorded.
        blocks_per_sm: Option<f64>,
        /// Warps of the launch divided by the number of SMs, as recorded.
        warps_per_sm: Option<f64>,
        /// Estimated achieved occupancy in percent, as recorded.
        occupancy_pct: Option<f64>,
        /// Bytes copied or set.
        bytes: Option<i64>,
        /// Direction of a copy, such as `Host-to-Device`, where recorded apart from the name.
        copy_kind: Option<Symbol>,
        /// Kind of memory that a copy reads, such as `Pageable`, where recorded apart from the name.
        source_memory: Option<Symbol>,
        /// Kind of memory that a copy or memset writes, where recorded apart from the name.
        destination_memory: Option<Symbol>,
        /// Memory bandwidth as recorded, 10^9 bytes a second.
        bandwidth_gb_per_s: Option<f64>,
        /// CUDA graph the work belongs to; null for eager work.
        graph_id: Option<i64> as id,
        /// Node of that graph.
        graph_node_id: Option<u64> as id,
        /// Executable graph that a whole-graph execution ran.
        graph_exec_id: Option<i64> as id,
        /// Stream priority.
        priority: Option<i32>,
        /// Hardware channel.
        channel: Option<i32>,
    }
    derived {
        /// `row` of the call that launched the work.
        launch_row: Option<u32> as link,
        /// `row` of the op that the work belongs to.
        op_row: Option<u32> as link,
        /// `row` in `ranges` of the NVTX range that the call which launched the work lies in: see `launches`.
        range_row: Option<u32> as link,
        /// How the op or the range was found, or why there is none: external_id, containment,
        /// gpu_external_id, nvtx_range, no_op, no_launch, no_correlation.
        link: Option<Symbol>,
        /// Number of the profiler step the row belongs to.
        step: Option<i32>,
        /// Whether the work is a collective or point-to-point transfer.
        is_communication: Option<bool>,
        /// `communication` for a kernel or graph that is such, else its `kind`.
        activity: Option<Symbol>,
    }
}
