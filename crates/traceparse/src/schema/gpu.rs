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
        /// Name of a kernel without namespaces, arguments and template arguments, where recorded.
        short_name: Option<Symbol>,
        /// Name of a kernel as the compiler wrote it, where recorded; of Kineto where `name` is another.
        mangled_name: Option<Symbol>,
        category, device, stream, start_ns, dur_ns, correlation, external_id,
        /// The duration as recorded, where it cannot be: work that contains a whole later one of its stream ends where
        /// the next one begins, and what is longer than the capture with that; `dur_ns` says so. Null where `dur_ns` is as recorded.
        recorded_dur_ns: Option<i64> as duration,
        /// `row` in `flows` of the end of an arrow that leads to the work, where the recorder links by nothing else.
        arrow_row: Option<u32> as link,
        /// Context id.
        context: Option<i32> as id,
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
        /// gpu_external_id, external_id_order (the launch was found by external id, kind and order, without a
        /// correlation id), arrow, nvtx_range, several_ranges (of the process enclose the call), no_op, no_launch,
        /// no_correlation.
        link: Option<Symbol>,
        /// On work that a graph launch replayed: `row` in `captured_nodes` of the node that it is; null where no
        /// capture is known, or several nodes may be it.
        captured_node_row: Option<u32> as link,
        /// `row` in `captured_ops` of the op that made this node when the graph was captured.
        captured_op_row: Option<u32> as link,
        /// How the node was found. `exact`: by the ids of nodes, or because the work of the whole launch is
        /// that of the graph, name for name. `aligned`: the launch and the graph differ, and the node is the
        /// same in every best alignment. `inferred`: the capture does not name its kernels, or its batch
        /// size is the next larger one.
        r#match: Option<Symbol>,
        step,
        /// Whether the work is a collective or point-to-point transfer between devices, also one with a norm or an
        /// addition fused into it.
        is_communication: Option<bool>,
        /// `communication` for a kernel or graph that is such, else its `kind`.
        activity: Option<Symbol>,
    }
}

table! {
    /// GPU work whose time is not known: recorded at 0 or far outside of the recording, or without a start.
    UntimedGpuOps, UntimedGpuOpRow, "untimed_gpu_ops";
    recorded {
        row,
        /// kernel, memcpy, memset or graph.
        kind: Symbol,
        name, category, device, stream, correlation, external_id,
        /// `row` in `flows` of the end of an arrow that leads to the work: see `gpu_ops`.
        arrow_row: Option<u32> as link,
        /// Context id.
        context: Option<i32> as id,
        /// Process that launched the work; null where the source does not say.
        pid: Option<i64>,
        /// Bytes copied or set.
        bytes: Option<i64>,
        /// The start as recorded, ns; null where none was, as databases say with 0 for start and end.
        recorded_start_ns: Option<i64> as time,
        /// The duration as recorded, ns.
        recorded_dur_ns: Option<i64> as duration,
    }
    derived {
        /// `row` of the call that launched the work.
        launch_row: Option<u32> as link,
        /// `row` of the op that the work belongs to.
        op_row: Option<u32> as link,
    }
}

table! {
    /// The span on a GPU stream of all work launched under one annotation; not work itself.
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
    /// A synchronisation or event record on a stream, event or context; timed on the CPU, but for MTIA's.
    Syncs, SyncRow, "syncs";
    recorded {
        row, name, category,
        /// Process that made the call; null where the source does not say.
        pid: Option<i64>,
        device,
        /// Stream id; null for a whole context.
        stream: Option<i64>,
        start_ns, dur_ns, correlation, external_id,
        /// `cuda_sync_kind` as recorded.
        kind: Option<Symbol>,
        /// CUDA event waited on or recorded; null where unknown.
        event_id: Option<i64>,
        /// Stream that recorded the awaited event; null where unknown.
        wait_stream: Option<i64>,
        /// Correlation id of the `cudaEventRecord` call waited on; null where unknown.
        wait_correlation: Option<i64>,
    }
    derived {
        /// `row` of the API call with the same correlation id.
        launch_row: Option<u32> as link,
    }
}

table! {
    /// What is known of a collective: arguments recorded with an op, an NVTX range or the kernel that ran it; and
    /// what the host runs itself, as gloo does.
    Collectives, CollectiveRow, "collectives";
    recorded {
        /// `row` of the op, GPU op or NVTX range that carries the arguments, or of the op that is the collective.
        row: u32 as link,
        /// op, gpu_op or range: the table of that row.
        source: Symbol,
        /// Collective name, such as `allreduce`.
        name: Option<Symbol>,
        /// Element type.
        dtype: Option<Symbol>,
        /// Message size as NCCL tells it, bytes: what one rank gives to an all-gather and gets from a
        /// reduce-scatter, and to each peer of an all-to-all, else the whole; several calls of one kernel added.
        bytes: Option<i64>,
        /// Elements sent by this rank.
        in_elements: Option<i64>,
        /// Elements received by this rank.
        out_elements: Option<i64>,
        /// Input split sizes as recorded.
        in_split: Option<Symbol>,
        /// Output split sizes as recorded.
        out_split: Option<Symbol>,
        /// Ranks in the process group.
        group_size: Option<i64>,
        /// Process group name.
        process_group: Option<Symbol>,
        /// Process group description.
        process_group_description: Option<Symbol>,
        /// Ranks of the group as recorded; the recorder cuts the list at 30.
        process_group_ranks: Option<Symbol>,
        /// Rank inside the group.
        rank: Option<i64>,
        /// Sending rank of a point-to-point transfer.
        source_rank: Option<i64>,
        /// Receiving rank of a point-to-point transfer.
        destination_rank: Option<i64>,
        /// Rank that a broadcast, reduce, gather or scatter begins or ends at.
        root_rank: Option<i64>,
        /// Operation of a reduction, where recorded.
        reduction: Option<Symbol>,
        /// Sequence number in the group.
        sequence: Option<i64>,
        /// Identifier of the communicator's operation.
        comms_id: Option<u64>,
        /// Whether the call returned before completion.
        is_async: Option<bool>,
        /// `row` of the op, such as `c10d::allreduce_`, that handed the collective over to a thread of gloo or MPI.
        call_row: Option<u32> as link,
    }
    derived {}
}
