//! Tables of what the events belong to, and of what was found while reading.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A training or inference step, and where its time went on any GPU and in any process.
    /// The eight parts are disjoint, in order of priority, and sum to `total_ns`.
    Steps, StepRow, "steps";
    recorded {
        /// Step number: as in the name, else counted; null for a trace without steps, taken as one.
        step: Option<i32>,
        name,
        /// `row` in `ops` or `ranges` of the annotation; of the process whose comes first, if several
        /// processes mark the step.
        row: Option<u32> as link,
        /// Start, ns: of the annotation, or the end of the previous step's GPU work if that is later.
        start_ns: i64 as time,
        /// Wall time, ns: to the end of the annotation or of the step's GPU work, whichever is later.
        total_ns: i64 as duration,
        /// Start of the annotation, ns.
        host_start_ns: i64 as time,
        /// Duration of the annotation, ns.
        host_dur_ns: i64 as duration,
        /// Whether the trace ends before the step's GPU work does: such a step is left out of averages.
        is_partial: bool,
        /// What a step of serving computes, where its annotation says so: prefill, decode, or mixed.
        phase: Option<Symbol>,
        /// Requests of a step of serving.
        requests: Option<i64>,
        /// Tokens that go through the model in a step of serving, all requests together.
        tokens: Option<i64>,
        /// Keys that a step of serving attends to, those of earlier steps included, all requests together.
        key_tokens: Option<i64>,
        /// How sure a step is that nobody marked and that was found in what was launched: the share of its marks
        /// that come in turn, 0 to 1; null for marked steps.
        confidence: Option<f64>,
        /// A kernel runs that is not communication, ns.
        kernel_ns: i64 as duration,
        /// A copy runs, none of the above, ns.
        memcpy_ns: i64 as duration,
        /// A memset runs, none of the above, ns.
        memset_ns: i64 as duration,
        /// Communication runs on a GPU, none of the above, ns.
        communication_ns: i64 as duration,
        /// The host is inside a runtime call, none of the above, ns.
        runtime_ns: i64 as duration,
        /// The host loads data, none of the above, ns.
        dataloader_ns: i64 as duration,
        /// The host runs an operator or annotation, also one that starts a collective, none of the above, ns.
        cpu_exec_ns: i64 as duration,
        /// The rest, ns.
        other_ns: i64 as duration,
    }
    derived {}
}

table! {
    /// A step as one GPU and its process saw it: a row per step and GPU with work.
    /// The eight parts are disjoint, in order of priority, and sum to `total_ns`. The host is the process
    /// that launched on the GPU, and every process that launched on none.
    GpuSteps, GpuStepRow, "gpu_steps";
    recorded {
        /// Step number, as in `steps`.
        step: Option<i32>,
        name, device,
        /// Process that launched the work of the GPU; null where the source does not say.
        pid: Option<i64>,
        /// Start, ns, as in `steps`.
        start_ns: i64 as time,
        /// Wall time, ns, as in `steps`.
        total_ns: i64 as duration,
        /// Whether the trace ends before the step's GPU work does, as in `steps`.
        is_partial: bool,
        /// A kernel runs on the GPU that is not communication, ns.
        kernel_ns: i64 as duration,
        /// A copy runs, none of the above, ns.
        memcpy_ns: i64 as duration,
        /// A memset runs, none of the above, ns.
        memset_ns: i64 as duration,
        /// Communication runs on the GPU, none of the above, ns.
        communication_ns: i64 as duration,
        /// The host is inside a runtime call, none of the above, ns.
        runtime_ns: i64 as duration,
        /// The host loads data, none of the above, ns.
        dataloader_ns: i64 as duration,
        /// The host runs an operator or annotation, also one that starts a collective, none of the above, ns.
        cpu_exec_ns: i64 as duration,
        /// The rest, ns.
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
        /// Streaming multiprocessors or compute units.
        sm_count: Option<i64>,
        /// Threads in a warp or wavefront.
        warp_size: Option<i64>,
        /// Limit of threads per block.
        max_threads_per_block: Option<i64>,
        /// Limit of resident threads per SM.
        max_threads_per_sm: Option<i64>,
        /// Limit of registers per block.
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
    /// A track: a thread, a stream or any other row that events are drawn on.
    Threads, ThreadRow, "threads";
    recorded {
        /// Number of the track.
        track: u32 as track,
        /// Process id or device index; null if it is a text.
        pid: Option<i64>,
        /// Thread or stream id; null if it is a text.
        tid: Option<i64>,
        /// Process id where it is a text.
        pid_text: Option<Symbol>,
        /// Thread id where it is a text.
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
    /// A kind of repair, drop or doubt met while reading.
    Diagnostics, DiagnosticRow, "diagnostics";
    recorded {
        /// Stable name of the finding.
        code: Symbol,
        /// info, repaired or lost.
        severity: Symbol,
        /// How often it was met.
        count: i64,
        /// Byte offset of the first, in the uncompressed source.
        first_offset: Option<i64>,
        /// Table of the database, or `table.column`, that it is about.
        source: Option<Symbol>,
        /// rowid of the first, in that table.
        first_rowid: Option<i64>,
        /// What it is and what was done.
        message: Symbol,
    }
    derived {}
}
