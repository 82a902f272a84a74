"""Views of a trace without data, and the profiler options that would record it."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.advice.record import matching, names_like
from kernelscope.analysis.costs.counters import CATEGORY
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_LAYERS = r"^layer:|nn\.Module: |^\[pl\]\[module\]"


class View(NamedTuple):
    """A view: how to detect that it has no data, the missing data, and how to record it.

    There is one remedy per profiler; the remedy of Kineto is the default. ``rocm`` is Kineto on AMD GPUs.
    """

    is_empty: Callable[[Trace], bool]
    why: str
    kineto: str
    nsys: str
    nvprof: str | None = None
    rocm: str | None = None


@per_trace
def missing_views(trace: Trace) -> pl.DataFrame:
    """Views without data in ``trace``, each with the reason and the remedy as sentences.

    A view that is not a row has data. The views are: ``steps``, ``operators``, ``input_shapes``,
    ``call_stacks``, ``python``, ``modules``, ``phases``, ``kernels``, ``launch_sizes``, ``gpu_limits``,
    ``links``, ``memory``, ``memory_lifetimes``, ``memory_reserved``, ``roofline``, ``ranges``,
    ``communication``, ``synchronisation``, ``counters`` (of kernels) and ``gpu_metrics`` (sampled).

    Columns: ``view``, ``why`` (the missing data) and ``remedy`` (how to record it). Order: as above.
    Example: ``dict(missing_views(trace).select("view", "remedy").iter_rows()).get("memory")``
    """
    recorder = "rocm" if _is_rocm(trace) else trace.meta.format
    rows = [
        (name, view.why, getattr(view, recorder, None) or view.kineto)
        for name, view in VIEWS.items()
        if view.is_empty(trace)
    ]
    schema = {"view": pl.String, "why": pl.String, "remedy": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _is_rocm(trace: Trace) -> bool:
    return trace.meta.format == "kineto" and not names_like(trace, "launches", "^hip[A-Z]").is_empty()


def _no_rows(table: str) -> Callable[[Trace], bool]:
    return lambda trace: trace.tables[table].is_empty()


def _no_values(table: str, column: str) -> Callable[[Trace], bool]:
    def is_empty(trace: Trace) -> bool:
        values = trace.tables[table][column]
        return values.null_count() == values.len()

    return is_empty


def _no_modules(trace: Trace) -> bool:
    if not _no_values("python", "module_id")(trace) or not _no_values("ops", "module_hierarchy")(trace):
        return False
    return all(names_like(trace, table, _LAYERS).is_empty() for table in ("ops", "ranges"))


def _no_stacks(trace: Trace) -> bool:
    return _no_values("ops", "call_stack")(trace) and trace.python.is_empty()


def _no_shapes(trace: Trace) -> bool:
    return _no_values("ops", "input_dims")(trace) and _no_values("ranges", "sizes")(trace)


def _no_kernels(trace: Trace) -> bool:
    return not (trace.gpu_ops["kind"] == "kernel").any()


def _no_communication(trace: Trace) -> bool:
    # Gloo works on the host.
    ran = trace.gpu_ops["is_communication"].any() or (trace.ops["activity"] == "communication").any()
    return trace.collectives.is_empty() and not ran


def _no_links(trace: Trace) -> bool:
    unlinked = _no_values("gpu_ops", "op_row")(trace) and _no_values("gpu_ops", "range_row")(trace)
    return unlinked and not trace.gpu_ops.is_empty()


def _no_counters(trace: Trace) -> bool:
    # Samples of whole GPUs and of networks are counters, too, and of no kernel.
    return matching(trace.counters["category"], f"^{CATEGORY}$").is_empty()


_CPU = "Profile with activities=[ProfilerActivity.CPU, ...]."
_CUDA = "Profile with activities=[..., ProfilerActivity.CUDA] on a machine with a GPU."
_NSYS_CUDA = "Record with nsys profile --trace=cuda,nvtx."
_NSYS_OPS = "Run the program inside torch.autograd.profiler.emit_nvtx(), or import kernelscope.capture in it."
_EMIT_SHAPES = "Record with emit_nvtx(record_shapes=True), or with kernelscope.capture."

VIEWS: Mapping[str, View] = {
    "steps": View(
        _no_values("steps", "step"),
        "The trace marks no steps, so it counts as one step.",
        kineto="Call prof.step() after every iteration, or name a range with --step-range.",
        nsys="Mark iterations with torch.cuda.nvtx.range_push, and name the range with --step-range.",
    ),
    "operators": View(
        _no_rows("ops"), "The trace has no operators.", kineto=_CPU, nsys=_NSYS_OPS, nvprof=_NSYS_OPS
    ),
    "input_shapes": View(
        _no_shapes,
        "The shapes of operator inputs were not recorded.",
        kineto="Profile with record_shapes=True.",
        nsys=_EMIT_SHAPES,
        nvprof=_EMIT_SHAPES,
    ),
    "call_stacks": View(
        _no_stacks,
        "Neither call stacks nor Python frames were recorded.",
        kineto="Profile with with_stack=True.",
        nsys="Record with nsys profile --python-backtrace, or profile with torch.profiler.",
    ),
    "python": View(
        _no_rows("python"),
        "Python frames were not recorded.",
        kineto="Profile with with_stack=True.",
        nsys="Profile with torch.profiler, with_stack=True.",
    ),
    "modules": View(
        _no_modules,
        "Calls of nn.Module were not recorded.",
        kineto="Profile with with_stack=True, which records every nn.Module.",
        nsys="Run the program with kernelscope.capture, which opens a range for every module.",
    ),
    "phases": View(
        _no_values("ops", "phase"),
        "The phase (forward, backward, optimizer) of the operators is unknown.",
        kineto=_CPU,
        nsys=_NSYS_OPS,
    ),
    "kernels": View(_no_kernels, "The trace has no kernels.", kineto=_CUDA, nsys=_NSYS_CUDA),
    "launch_sizes": View(
        _no_values("gpu_ops", "grid"),
        "Launch sizes of kernels were not recorded, so occupancy is unknown.",
        kineto="Profile GPU operations with a recent PyTorch. Older versions omit launch sizes on AMD GPUs.",
        nsys=_NSYS_CUDA,
    ),
    "gpu_limits": View(
        _no_values("devices", "sm_count"),
        "The GPUs are not described, so occupancy and peaks are unknown.",
        kineto="Record with PyTorch 1.9 or later and export_chrome_trace, or name the GPU with --gpu.",
        nsys="Export again with nsys export --type sqlite, or name the GPU with --gpu.",
    ),
    "links": View(
        _no_links,
        "No GPU operation could be linked to the operator that launched it.",
        kineto=_CPU,
        nsys=_NSYS_OPS,
    ),
    "memory": View(
        _no_rows("memory"),
        "Allocations were not recorded.",
        kineto="Profile with profile_memory=True.",
        nsys="Record with nsys profile --cuda-memory-usage=true.",
    ),
    "memory_lifetimes": View(
        _no_values("memory", "address"),
        "Addresses of allocations were not recorded, so no allocation can be matched with its free.",
        kineto="Profile with profile_memory=True and PyTorch 1.10 or later.",
        nsys="Record with nsys profile --cuda-memory-usage=true.",
    ),
    "memory_reserved": View(
        _no_values("memory", "total_reserved_bytes"),
        "Reserved memory was not recorded, so fragmentation is unknown.",
        kineto="Profile with profile_memory=True and PyTorch 1.10 or later.",
        nsys="Profile with torch.profiler and profile_memory=True: nsys does not record the allocator.",
    ),
    "roofline": View(
        _no_shapes,
        "Without input shapes, FLOPs and bytes are unknown.",
        kineto="Profile with record_shapes=True.",
        nsys=_EMIT_SHAPES,
        nvprof=_EMIT_SHAPES,
    ),
    "ranges": View(
        _no_rows("ranges"),
        "The trace has no NVTX ranges.",
        kineto="Kineto records no NVTX ranges: record with nsys profile --trace=cuda,nvtx.",
        nsys="Record with nsys profile --trace=cuda,nvtx, and mark ranges in the program.",
        rocm="Kineto records no ROCTX ranges: mark them with torch.profiler.record_function.",
    ),
    "communication": View(
        _no_communication,
        "No collective ran during the recording.",
        kineto="Profile a step of a distributed job. PyTorch 2.2 or later records sizes and groups.",
        nsys=_NSYS_CUDA,
    ),
    "synchronisation": View(
        _no_rows("syncs"),
        "Waits between streams and events were not recorded.",
        kineto="Profile with experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True).",
        nsys=_NSYS_CUDA,
        rocm="Kineto records no waits between streams on AMD GPUs.",
    ),
    "counters": View(
        _no_counters,
        "No hardware counters of kernels were recorded.",
        # Kineto took its range profiler out in June 2026, and samples counters since August (PR 1530).
        kineto=(
            "Profile with experimental_config=_ExperimentalConfig(profiler_metrics=[...]) and PyTorch "
            "until May 2026. Later versions only sample whole GPUs."
        ),
        nsys=(
            "nsys records no counters of kernels. Profile with torch.profiler of PyTorch until May 2026 "
            "and experimental_config=_ExperimentalConfig(profiler_metrics=[...])."
        ),
        rocm="Kineto records no counters on AMD GPUs: record with rocprofv3 --pmc.",
    ),
    "gpu_metrics": View(
        _no_values("counters", "device"),
        "GPU metrics were not sampled.",
        kineto="Record with nsys profile --gpu-metrics-devices=all.",
        nsys="Record with nsys profile --gpu-metrics-devices=all (--gpu-metrics-device before 2024).",
        rocm="Neither Kineto nor rocprofv3 samples metrics of whole GPUs.",
    ),
}
"""Every view by name."""
