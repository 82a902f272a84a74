//! Tables of what the events belong to, and of what was found while reading.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A training or inference step, and where its time went on any GPU and in any process. The eight parts
    /// are disjoint, in order of priority, and sum to `total_ns`.
    Steps, StepRow, "steps";
    recorded {
        /// Step number from the name, otherwise counted. Null for a trace without steps, which counts as one
        /// step.
        step: Option<i32>,
        name,
        /// `row` in `ops` or `ranges` of the annotation. If several processes mark the step, the annotation
        /// that starts first.
        row: Option<u32> as link,
        /// Start, ns: start of the annotation, or end of the previous step's GPU operations if that is later.
        start_ns: i64 as time,
        /// Wall time, ns, to the end of the annotation or of the step's GPU operations, whichever is later.
        total_ns: i64 as duration,
        /// Start of the annotation, ns.
        host_start_ns: i64 as time,
        /// Duration of the annotation, ns.
        host_dur_ns: i64 as duration,
        /// Whether the trace ends before the GPU operations of the step. Averages exclude such a step.
        is_partial: bool,
        /// Kind of a serving step if its annotation names it: prefill, decode or mixed.
        phase: Option<Symbol>,
        /// Requests of a serving step.
        requests: Option<i64>,
        /// Tokens that a serving step processes, summed over requests.
        tokens: Option<i64>,
        /// Keys that a serving step attends to, including keys of earlier steps, summed over requests.
        key_tokens: Option<i64>,
        /// Confidence in a step that was inferred from the launches because no annotation marks steps: the
        /// share of its marks that occur in the expected order, 0 to 1. Null for annotated steps.
        confidence: Option<f64>,
        /// Time with a kernel other than communication on a GPU, ns.
        kernel_ns: i64 as duration,
        /// Time with a copy and none of the above, ns.
        memcpy_ns: i64 as duration,
        /// Time with a memset and none of the above, ns.
        memset_ns: i64 as duration,
        /// Time with communication on a GPU and none of the above, ns.
        communication_ns: i64 as duration,
        /// Time with the host inside a runtime API call and none of the above, ns.
        runtime_ns: i64 as duration,
        /// Time with the host loading data and none of the above, ns.
        dataloader_ns: i64 as duration,
        /// Time with the host in an operator or annotation (including one that starts a collective) and none
        /// of the above, ns.
        cpu_exec_ns: i64 as duration,
        /// Remaining time, ns.
        other_ns: i64 as duration,
    }
    derived {}
}

table! {
    /// A step as seen by one GPU and its process: one row per step and GPU with operations. The eight parts
    /// are disjoint, in order of priority, and sum to `total_ns`. The host is the process that launched on
    /// the GPU, and every process that launched on no GPU.
    GpuSteps, GpuStepRow, "gpu_steps";
    recorded {
        /// Step number, as in `steps`.
        step: Option<i32>,
        name, device,
        /// Process that launched the operations of the GPU. Null if it was not recorded.
        pid: Option<i64>,
        /// Start, ns, as in `steps`.
        start_ns: i64 as time,
        /// Wall time, ns, as in `steps`.
        total_ns: i64 as duration,
        /// Whether the trace ends before the GPU operations of the step, as in `steps`.
        is_partial: bool,
        /// Time with a kernel other than communication on the GPU, ns.
        kernel_ns: i64 as duration,
        /// Time with a copy and none of the above, ns.
        memcpy_ns: i64 as duration,
        /// Time with a memset and none of the above, ns.
        memset_ns: i64 as duration,
        /// Time with communication on the GPU and none of the above, ns.
        communication_ns: i64 as duration,
        /// Time with the host inside a runtime API call and none of the above, ns.
        runtime_ns: i64 as duration,
        /// Time with the host loading data and none of the above, ns.
        dataloader_ns: i64 as duration,
        /// Time with the host in an operator or annotation (including one that starts a collective) and none
        /// of the above, ns.
        cpu_exec_ns: i64 as duration,
        /// Remaining time, ns.
        other_ns: i64 as duration,
    }
    derived {}
}

table! {
    /// A GPU that the trace describes or uses.
    Devices, DeviceRow, "devices";
    recorded {
        /// GPU index.
        device: i32,
        /// Product name.
        name: Option<Symbol>,
        /// Memory, bytes.
        total_memory_bytes: Option<i64>,
        /// Compute capability, major.
        compute_major: Option<i64>,
        /// Compute capability, minor.
        compute_minor: Option<i64>,
        /// Number of streaming multiprocessors or compute units.
        sm_count: Option<i64>,
        /// Threads in a warp or wavefront.
        warp_size: Option<i64>,
        /// Maximum number of threads per block.
        max_threads_per_block: Option<i64>,
        /// Maximum number of resident threads per SM.
        max_threads_per_sm: Option<i64>,
        /// Maximum number of registers per block.
        registers_per_block: Option<i64>,
        /// Registers per SM.
        registers_per_sm: Option<i64>,
        /// Default limit of shared memory per block, bytes.
        shared_memory_per_block_bytes: Option<i64>,
        /// Opt-in limit of shared memory per block, bytes.
        shared_memory_per_block_optin_bytes: Option<i64>,
        /// Shared memory per SM, bytes.
        shared_memory_per_sm_bytes: Option<i64>,
    }
    derived {}
}

table! {
    /// A process group of torch.distributed.
    ProcessGroups, ProcessGroupRow, "process_groups";
    recorded {
        name,
        /// Description or unique id.
        description: Option<Symbol>,
        /// Backend configuration.
        backend: Option<Symbol>,
        /// Number of ranks.
        size: Option<i64>,
        /// Ranks as JSON text.
        ranks: Option<Symbol>,
    }
    derived {}
}

table! {
    /// A track: a thread, a stream or any other row on which events are drawn.
    Threads, ThreadRow, "threads";
    recorded {
        /// Number of the track.
        track: u32 as track,
        /// Process id or device index. Null if it is a text.
        pid: Option<i64>,
        /// Thread or stream id. Null if it is a text.
        tid: Option<i64>,
        /// Process id if it is a text.
        pid_text: Option<Symbol>,
        /// Thread id if it is a text.
        tid_text: Option<Symbol>,
        /// Name of the process.
        process_name: Option<Symbol>,
        /// Label of the process, such as `GPU 0`.
        process_label: Option<Symbol>,
        /// Name of the thread or stream.
        thread_name: Option<Symbol>,
        /// Position of the thread in viewers.
        sort_index: Option<i64>,
    }
    derived {}
}

table! {
    /// A kind of repair, drop or doubt found while reading.
    Diagnostics, DiagnosticRow, "diagnostics";
    recorded {
        /// Stable name of the diagnostic.
        code: Symbol,
        /// info, repaired or lost.
        severity: Symbol,
        /// Number of occurrences.
        count: i64,
        /// Byte offset of the first occurrence in the uncompressed source.
        first_offset: Option<i64>,
        /// Table of the database, or `table.column`, that the diagnostic refers to.
        source: Option<Symbol>,
        /// rowid of the first occurrence in that table.
        first_rowid: Option<i64>,
        /// Cause and consequence.
        message: Symbol,
    }
    derived {}
}
