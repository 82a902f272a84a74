//! Tables of what GPUs do.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A kernel, copy, memset or whole-graph execution on a GPU.
    GpuOps, GpuOpRow, "gpu_ops";
    recorded {
        row,
        /// kernel, memcpy, memset or graph.
        kind: Symbol,
        name,
        /// Name of a kernel without namespaces, arguments and template arguments, if recorded.
        short_name: Option<Symbol>,
        /// Name of a kernel as the compiler wrote it, if recorded. In Kineto traces, only if it differs from
        /// `name`.
        mangled_name: Option<Symbol>,
        category, device, stream, start_ns, dur_ns, correlation, external_id,
        /// Duration as recorded, if it is impossible. Then `dur_ns` ends where the next operation of the
        /// stream begins, or where the capture ends. Null if `dur_ns` is as recorded.
        recorded_dur_ns: Option<i64> as duration,
        /// `row` in `flows` of the end of an arrow that leads to the operation, if the profiler links
        /// launches only by arrows.
        arrow_row: Option<u32> as link,
        /// Context id.
        context: Option<i32> as id,
        /// Green context id.
        green_context: Option<i32>,
        /// Process that launched the operation. Null if it was not recorded.
        pid: Option<i64>,
        /// Timestamp at which the operation was queued, ns, if recorded. A recorded 0 is null.
        queued_ns: Option<i64> as time,
        /// Launch grid: blocks in x, y and z.
        grid: Option<[i32; 3]>,
        /// Thread block: threads in x, y and z.
        block: Option<[i32; 3]>,
        /// Cluster of thread blocks: blocks in x, y and z. Null if the launch has no cluster.
        cluster: Option<[i32; 3]>,
        /// Registers per thread.
        registers: Option<i32>,
        /// Shared memory per block, static and dynamic, bytes.
        shared_memory_bytes: Option<i32>,
        /// Static part of the shared memory per block, bytes, if recorded.
        static_shared_memory_bytes: Option<i32>,
        /// Dynamic part of the shared memory per block, bytes, if recorded.
        dynamic_shared_memory_bytes: Option<i32>,
        /// Local memory per thread, bytes, if recorded.
        local_memory_per_thread_bytes: Option<i32>,
        /// Blocks of the launch divided by the number of SMs, as recorded.
        blocks_per_sm: Option<f64>,
        /// Warps of the launch divided by the number of SMs, as recorded.
        warps_per_sm: Option<f64>,
        /// Estimated achieved occupancy in percent, as recorded.
        occupancy_pct: Option<f64>,
        /// Bytes copied or set.
        bytes: Option<i64>,
        /// Direction of a copy, such as `Host-to-Device`, if recorded separately from the name.
        copy_kind: Option<Symbol>,
        /// Kind of memory that a copy reads, such as `Pageable`, if recorded separately from the name.
        source_memory: Option<Symbol>,
        /// Kind of memory that a copy or memset writes, if recorded separately from the name.
        destination_memory: Option<Symbol>,
        /// Memory bandwidth as recorded, 10^9 bytes per second.
        bandwidth_gb_per_s: Option<f64>,
        /// CUDA graph that the operation belongs to. Null for eager operations.
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
        /// `row` of the call that launched the operation.
        launch_row: Option<u32> as link,
        /// `row` of the operator that launched the operation.
        op_row: Option<u32> as link,
        /// `row` in `ranges` of the NVTX range that encloses the launching call; see `launches`.
        range_row: Option<u32> as link,
        /// How the operator or range was found, or why there is none: external_id, containment,
        /// gpu_external_id, external_id_order (the launch was found by external id, kind and order, without a
        /// correlation id), arrow, nvtx_range, several_ranges (several ranges of the process enclose the
        /// call), no_op, no_launch, no_correlation.
        link: Option<Symbol>,
        /// `row` in `captured_nodes` of the node that this operation replays, if a graph launch replayed it.
        /// Null if no capture is known or several nodes match.
        captured_node_row: Option<u32> as link,
        /// `row` in `captured_ops` of the operator that added this node when the graph was captured.
        captured_op_row: Option<u32> as link,
        /// How the node was found. `exact`: by node ids, or because the operations of the whole launch have
        /// the same names as the nodes of the graph. `aligned`: the launch and the graph differ, and every
        /// best alignment assigns the same node. `inferred`: the capture does not name its kernels, or its
        /// batch size is the next larger one.
        r#match: Option<Symbol>,
        step,
        /// Whether the operation is a collective or a point-to-point transfer between devices, including one
        /// with a fused norm or addition.
        is_communication: Option<bool>,
        /// `communication` for a communication kernel or graph, otherwise its `kind`.
        activity: Option<Symbol>,
    }
}

table! {
    /// A GPU operation without a usable timestamp: missing, zero, or far outside the recording.
    UntimedGpuOps, UntimedGpuOpRow, "untimed_gpu_ops";
    recorded {
        row,
        /// kernel, memcpy, memset or graph.
        kind: Symbol,
        name, category, device, stream, correlation, external_id,
        /// `row` in `flows` of the end of an arrow that leads to the operation; see `gpu_ops`.
        arrow_row: Option<u32> as link,
        /// Context id.
        context: Option<i32> as id,
        /// Process that launched the operation. Null if it was not recorded.
        pid: Option<i64>,
        /// Bytes copied or set.
        bytes: Option<i64>,
        /// Start as recorded, ns. Null if missing, which databases write as 0 for start and end.
        recorded_start_ns: Option<i64> as time,
        /// Duration as recorded, ns.
        recorded_dur_ns: Option<i64> as duration,
    }
    derived {
        /// `row` of the call that launched the operation.
        launch_row: Option<u32> as link,
        /// `row` of the operator that launched the operation.
        op_row: Option<u32> as link,
    }
}

table! {
    /// The span on a GPU stream of all operations launched under one annotation. It is not an operation
    /// itself.
    GpuAnnotations, GpuAnnotationRow, "gpu_annotations";
    recorded {
        row, name, device, stream, start_ns, dur_ns, external_id,
    }
    derived {
        /// `row` in `ops` of the annotation.
        op_row: Option<u32> as link,
    }
}

table! {
    /// A synchronisation or event record on a stream, event or context, timed on the CPU (for MTIA, on the
    /// device).
    Syncs, SyncRow, "syncs";
    recorded {
        row, name, category,
        /// Process that made the call. Null if it was not recorded.
        pid: Option<i64>,
        device,
        /// Stream id. Null if it applies to a whole context.
        stream: Option<i64>,
        start_ns, dur_ns, correlation, external_id,
        /// `cuda_sync_kind` as recorded.
        kind: Option<Symbol>,
        /// CUDA event waited for or recorded. Null if unknown.
        event_id: Option<i64>,
        /// Stream that recorded the awaited event. Null if unknown.
        wait_stream: Option<i64>,
        /// Correlation id of the awaited `cudaEventRecord` call. Null if unknown.
        wait_correlation: Option<i64>,
    }
    derived {
        /// `row` of the API call with the same correlation id.
        launch_row: Option<u32> as link,
    }
}

table! {
    /// Arguments of a collective, recorded with an operator, an NVTX range or the kernel that ran it.
    /// Collectives that the host runs itself, such as those of gloo, have a row of their own.
    Collectives, CollectiveRow, "collectives";
    recorded {
        /// `row` of the operator, GPU operation or NVTX range that carries the arguments, or of the operator
        /// that is the collective.
        row: u32 as link,
        /// Table of that row: op, gpu_op or range.
        source: Symbol,
        /// Collective name, such as `allreduce`.
        name: Option<Symbol>,
        /// Element type.
        dtype: Option<Symbol>,
        /// Message size as NCCL counts it, in bytes: what one rank contributes to an all-gather, receives
        /// from a reduce-scatter and sends to each peer of an all-to-all, otherwise the whole message.
        /// Several calls in one kernel are summed.
        bytes: Option<i64>,
        /// Elements sent by this rank.
        in_elements: Option<i64>,
        /// Elements received by this rank.
        out_elements: Option<i64>,
        /// Input split sizes as recorded.
        in_split: Option<Symbol>,
        /// Output split sizes as recorded.
        out_split: Option<Symbol>,
        /// Number of ranks in the process group.
        group_size: Option<i64>,
        /// Process group name.
        process_group: Option<Symbol>,
        /// Process group description.
        process_group_description: Option<Symbol>,
        /// Ranks of the group as recorded. The profiler cuts the list after 30.
        process_group_ranks: Option<Symbol>,
        /// Rank inside the group.
        rank: Option<i64>,
        /// Sending rank of a point-to-point transfer.
        source_rank: Option<i64>,
        /// Receiving rank of a point-to-point transfer.
        destination_rank: Option<i64>,
        /// Root rank of a broadcast, reduce, gather or scatter.
        root_rank: Option<i64>,
        /// Operation of a reduction, if recorded.
        reduction: Option<Symbol>,
        /// Sequence number within the group.
        sequence: Option<i64>,
        /// Identifier of the communicator's operation.
        comms_id: Option<u64>,
        /// Whether the call returned before completion.
        is_async: Option<bool>,
        /// `row` of the operator, such as `c10d::allreduce_`, that passed the collective to a thread of gloo
        /// or MPI.
        call_row: Option<u32> as link,
    }
    derived {}
}
