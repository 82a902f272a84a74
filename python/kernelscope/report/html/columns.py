"""The columns that tables of the page show: title, unit and what each means."""

from typing import NamedTuple


class Column(NamedTuple):
    """A column: its title, its unit and a sentence on what it means.

    Units: text, ns, bytes, count, number, percent (0 to 100), share (0 to 1), FLOP, FLOP/s, B/s, flag.
    """

    title: str
    unit: str
    what: str


_NAMES = {
    "name": Column("Name", "text", "The name as recorded."),
    "op": Column("Operator", "text", "The operator that launched the kernel."),
    "kernel": Column("Kernel", "text", "The kernel, copy or memset that ran on the GPU."),
    "input_dims": Column("Input shapes", "text", "The sizes of the inputs as recorded."),
    "input_types": Column("Input types", "text", "The element types of the inputs as recorded."),
    "call_stack": Column("Call stack", "text", "The Python lines from which the operator was called."),
    "module": Column("Module", "text", "The nn.Module inside which it ran."),
    "module_path": Column("Module", "text", "The place in the tree of modules."),
    "model": Column("Cost model", "text", "The model that counted the operator's FLOPs and bytes."),
    "family": Column("Family", "text", "The kind of operator."),
    "dtype": Column("Type", "text", "The element type in which it computes."),
    "status": Column("Cost known", "text", "Whether the FLOPs and bytes are known, and if not, why."),
    "bound": Column("Bound by", "text", "What limits it: computing, memory, communication or the bus."),
    "limit_type": Column("Peak of", "text", "The type whose peak is the limit."),
    "flag": Column("Beyond a peak", "text", "Why more than 1.05 of a peak seems to be achieved."),
    "domain": Column("Domain", "text", "The NVTX domain."),
    "code": Column("Code", "text", "The name of the finding."),
    "severity": Column(
        "Severity", "text", "lost, repaired or info; of recommendations: high, medium or low."
    ),
    "message": Column("Message", "text", "What was found."),
    "place": Column("Where first", "text", "Byte, or table and row, of the first."),
    "grid": Column("Grid", "text", "Thread blocks in x, y and z."),
    "block": Column("Block", "text", "Threads of a block in x, y and z."),
    "limited_by": Column("Occupancy limited by", "text", "Which resource of an SM runs out first."),
    "link": Column("Link", "text", "How the operator was found, or why there is none."),
    "collective": Column("Collective", "text", "The name of the collective operation."),
    "group_name": Column("Group", "text", "The process group."),
    "compute_capability": Column("Capability", "text", "CUDA compute capability."),
    "launch_metrics": Column("Figures", "text", "Recorded, or derived from launch sizes and device limits."),
    "note": Column("Note", "text", "What was assumed, or is missing."),
    "table": Column("Table", "text", "A table of the trace; `kernelscope schema` documents it."),
}

_TIMES = {
    "total_ns": ("Total", "Summed duration."),
    "mean_ns": ("Mean", "Mean duration of a call."),
    "median_ns": ("Median", "Half of the calls take no longer."),
    "min_ns": ("Shortest", "The shortest call."),
    "max_ns": ("Longest", "The longest call."),
    "std_ns": ("Std. dev.", "Standard deviation over the calls."),
    "start_ns": ("Start", "Start since the first event of the trace."),
    "dur_ns": ("Host time", "Time on the host."),
    "host_total_ns": ("Host total", "Wall time on the host, with what it calls."),
    "host_self_ns": ("Host self", "Time on the host less operators and runtime calls inside."),
    "device_total_ns": ("Device total", "GPU time launched by it and by what it calls; overlaps are added."),
    "device_self_ns": ("Device self", "GPU time launched by it but by nothing that it calls."),
    "device_ns": ("Device", "GPU time; overlaps are added."),
    "gpu_span_ns": ("GPU span", "From the start of its first to the end of its last GPU work."),
    "gpu_busy_ns": ("GPU busy", "Time in which any of its GPU work runs."),
    "gpu_exclusive_ns": ("GPU own", "The same for the work of which it is the innermost range."),
    "attainable_ns": ("Attainable", "The least time that the GPU's peaks allow for this work."),
    "saveable_ns": ("Saveable", "Busy time beyond the attainable."),
    "saving_ns": ("Saving", "Time that could be saved at most, as estimated."),
    "missed_ns": ("Without tensor cores", "Time of products that tensor cores could do and did not."),
    "span_ns": ("Span", "The time looked at: from the first step's start to the last one's end."),
    "busy_ns": ("Busy", "At least one kernel runs."),
    "idle_ns": ("Idle", "Neither kernel nor copy nor memset runs."),
    "copy_ns": ("Copying only", "Only copies or memsets run."),
    "kernel_ns": ("Kernel", "A kernel runs that is no communication."),
    "memcpy_ns": ("Memory copy", "A copy runs, and no kernel."),
    "memset_ns": ("Memory set", "A memset runs, and nothing of the above."),
    "communication_ns": ("Communication", "Communication runs, and nothing of the above."),
    "runtime_ns": ("Runtime call", "The host is inside a runtime call, and nothing of the above happens."),
    "dataloader_ns": ("Data loading", "The host loads data, and nothing of the above happens."),
    "cpu_exec_ns": ("Other host work", "The host runs an operator or annotation, and nothing of the above."),
    "other_ns": ("Nothing recorded", "Nothing that was recorded happens."),
}

_COUNTS = {
    "calls": ("Calls", "How often it ran."),
    "kernels": ("Kernels", "GPU work items."),
    "count": ("Count", "How many."),
    "ranges": ("Ranges", "How many ranges have this name."),
    "launches": ("Launches", "Calls with GPU work inside."),
    "gpu_ops": ("GPU work", "Kernels, copies and memsets launched inside."),
    "events": ("Events", "How many."),
    "rows": ("Rows", "How many rows the table has."),
    "operators": ("Operators", "How many operators."),
    "occurrences": ("Occurrences", "How often the module ran."),
    "device": ("GPU", "The index of the GPU."),
    "stream": ("Stream", "The stream of the GPU."),
    "registers": ("Registers", "Registers of a thread."),
    "group_size": ("Ranks", "Ranks in the process group."),
    "gpus": ("GPUs", "GPUs that work in the trace."),
    "step": ("Step", "The number of the step."),
}

_SIZES = {
    "cpu_memory_bytes": ("Host memory", "Allocated less freed meanwhile, on the host."),
    "cpu_self_memory_bytes": ("Host memory, self", "The same, less what operators inside do."),
    "device_memory_bytes": ("GPU memory", "Allocated less freed meanwhile, on the GPU."),
    "device_self_memory_bytes": ("GPU memory, self", "The same, less what operators inside do."),
    "shared_memory_bytes": ("Shared memory", "Shared memory of a block."),
    "total_memory_bytes": ("Memory", "Memory of the GPU."),
    "bytes": ("Bytes", "Size."),
    "bytes_read": ("Read", "Bytes that have to come from memory at least."),
    "bytes_written": ("Written", "Bytes that have to go to memory at least."),
}

_RATES = {
    "flops": Column("FLOP", "FLOP", "Floating-point operations; a multiply-add counts 2."),
    "flops_per_s": Column("Achieved", "FLOP/s", "FLOPs over the GPU time for which they are known."),
    "bytes_per_s": Column("Bandwidth", "B/s", "Compulsory bytes over the GPU time."),
    "attainable_flops_per_s": Column("Attainable", "FLOP/s", "What the peaks allow for this work."),
    "peak_flops_per_s": Column("Peak", "FLOP/s", "What all GPUs can compute in that type."),
    "intensity": Column("Intensity", "FLOP/B", "Arithmetic intensity: FLOPs per byte of memory traffic."),
    "attained_pct": Column("Attained", "percent", "Attainable time as a share of the time taken."),
    "mfu_pct": Column("FLOPs utilisation", "percent", "FLOPs over wall time, against the peak of all GPUs."),
    "known_pct": Column("Cost known", "percent", "Share of the GPU time whose FLOPs are known."),
    "linked_pct": Column("Of linked", "percent", "Share of the GPU time that has an operator."),
    "device_pct": Column("Of all", "percent", "Share of all GPU time."),
    "share_pct": Column("Share", "percent", "Share of the sum over all rows."),
    "occupancy_pct": Column(
        "Occupancy", "percent", "Warps of an SM in use while it runs, of those it can hold."
    ),
    "blocks_per_sm": Column("Blocks/SM", "number", "Thread blocks of a launch for each SM."),
    "utilisation": Column("Utilisation", "share", "Share of the time in which at least one kernel runs."),
    "sm_efficiency": Column("SM efficiency", "share", "Share of the SMs that have a block, over the time."),
    "tensor_core_share": Column("Tensor cores", "share", "Share of operators' kernel time on tensor cores."),
    "tc_self_pct": Column("TC, self", "percent", "Share of the own device time on tensor cores."),
    "tc_total_pct": Column("TC, total", "percent", "Share of the whole device time on tensor cores."),
    "tc_eligible": Column("TC eligible", "flag", "Whether tensor cores can run it."),
    "tensor_cores": Column("Tensor cores", "flag", "Whether any of its launches runs on tensor cores."),
    "peak_type": Column("Peak of", "text", "The type whose peak is meant."),
}

COLUMNS: dict[str, Column] = {
    **_NAMES,
    **{name: Column(title, "ns", what) for name, (title, what) in _TIMES.items()},
    **{name: Column(title, "count", what) for name, (title, what) in _COUNTS.items()},
    **{name: Column(title, "bytes", what) for name, (title, what) in _SIZES.items()},
    **_RATES,
}
"""Every column by its name in the frames of :mod:`kernelscope.analysis`."""
