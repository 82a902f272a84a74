"""Calls of the CUDA API and of the operating system, and each kernel from its call to its end."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from kernelscope.analysis.grouping import positions, sizes_as_text
from kernelscope.compat.nsys.names import kernel_name_columns, with_kernel_names
from kernelscope.compat.nsys.report import (
    HOST_BY,
    KERNEL,
    PART_ROWS,
    RUNTIME,
    Question,
    Report,
    distribution,
    distribution_headings,
    in_order,
    ordered_parts,
    ordered_summary,
    parse_fields,
    selected,
    summary_headings,
)
from kernelscope.trace import Trace


def versioned_name(launches: pl.DataFrame) -> pl.Expr:
    """Returns the name in CUPTI's form, with the version of the function: ``cudaLaunchKernel_v7000``."""
    version = pl.lit("_v") + pl.col("api_version").cast(pl.String)
    name = pl.col("name").cast(pl.String)
    return pl.coalesce(name + version, name) if "api_version" in launches.columns else name


def _api_times(trace: Trace, question: Question) -> pl.DataFrame:
    return selected(trace, trace.launches, question.by, "dur_ns", "name")


def _api_sum(trace: Trace, question: Question) -> pl.DataFrame:
    return ordered_summary(_api_times(trace, question), question.by, "name")


def _api_trace(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    del question
    priorities = _thread_priorities(trace)
    names = trace.threads.select("track", "thread_name")
    calls = trace.launches.select("start_ns", "dur_ns", "name", "correlation", "pid", "tid", "track", "error")
    del trace
    for chosen in ordered_parts(calls["start_ns"]):
        part = calls[chosen]
        joined = part.join(priorities, on="track", how="left", maintain_order="left")
        joined = joined.join(names, on="track", how="left", maintain_order="left")
        yield joined.with_columns(result=pl.col("error").fill_null(0))


def _thread_priorities(trace: Trace) -> pl.DataFrame:
    noted = trace.metadata.filter(pl.col("name").cast(pl.String) == "thread_priority")
    return noted.select("track", priority="value").unique("track", keep="first", maintain_order=True)


def _osrt_times(trace: Trace, question: Question) -> pl.DataFrame:
    spans = selected(trace, trace.spans, question.by, "dur_ns", "name", "category")
    return spans.filter(pl.col("category") == "osrt").drop("category")


def _osrt_sum(trace: Trace, question: Question) -> pl.DataFrame:
    return ordered_summary(_osrt_times(trace, question), question.by, "name")


def _kernels(trace: Trace, question: Question) -> pl.DataFrame:
    """Kernels whose call was recorded, by the name that the arguments ask for."""
    ranges = ("range_row",) * question.has("nvtx-name")
    kernels = trace.gpu_ops.select(
        "kind", "launch_row", "device", "name", "grid", "block", "start_ns", "dur_ns",
        *kernel_name_columns(question), *ranges,
    )  # fmt: skip
    kernels = kernels.filter((pl.col("kind") == "kernel") & pl.col("launch_row").is_not_null())
    return with_kernel_names(kernels, trace, question)


def _calls(trace: Trace) -> pl.DataFrame:
    return trace.launches.select(
        "pid", "tid", launch_row="row", api_start_ns="start_ns", api_ns="dur_ns", api_name="name"
    )


def _launched(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    """Every kernel with its call, in order of the calls."""
    kernels = _kernels(trace, question)
    calls = _calls(trace)
    del trace
    starts = calls["api_start_ns"].gather(positions(calls["launch_row"], kernels["launch_row"]))
    for chosen in ordered_parts(starts):
        yield sizes_as_text(_timed(kernels[chosen], calls))


def _timed(kernels: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Adds calls to kernels; one that runs after its call has ended waited in a queue meanwhile."""
    # Rows of a table ascend: looking them up needs no index of all calls for each part.
    at = positions(calls["launch_row"], kernels["launch_row"])
    joined = pl.concat([kernels.drop("launch_row"), calls.drop("launch_row")[at]], how="horizontal")
    api_end, kernel_start = pl.col("api_start_ns") + pl.col("api_ns"), pl.col("start_ns")
    waited = kernel_start >= api_end
    end = pl.max_horizontal(api_end, kernel_start + pl.col("dur_ns"))
    return joined.with_columns(
        queue_start_ns=pl.when(waited).then(api_end),
        queue_ns=pl.when(waited).then(kernel_start - api_end),
        total_ns=end - pl.col("api_start_ns"),
    ).rename({"start_ns": "kernel_start_ns", "dur_ns": "kernel_ns"})


def _exec_sum(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    kernels = _kernels(trace, question).drop("grid", "block")
    calls = _calls(trace)
    del trace
    keys = ["pid", "tid", "device", "api_name", "name"]
    times = ("total_ns", "api_ns", "queue_ns", "kernel_ns")
    empty = _timed(kernels.head(0), calls).select(*keys, *times)
    parts = (_timed(part, calls).select(*keys, *times) for part in kernels.iter_slices(PART_ROWS))
    rows = pl.concat([empty, *parts])
    del kernels, calls, parts
    table = rows.group_by(keys).agg(
        pl.len().cast(pl.Int64).alias("instances"),
        pl.col("queue_ns").count().cast(pl.Int64).alias("queued"),
        *(part for name in times for part in distribution(pl.col(name), name)),
    )
    yield in_order(table, "mean_total_ns", ascending=keys)


_TABLES = {
    "gpu_ops": ("kind", "name", "start_ns", "dur_ns", "device", "launch_row"),
    "launches": ("name", "start_ns", "dur_ns"),
}
_launch_report = partial(
    Report,
    sources=(KERNEL,),
    kinds=("kernel",),
    only_launching=True,
    arguments=("base", "mangled", "nvtx-name"),
)

REPORTS = (
    Report(
        name="cuda_api_sum",
        doc="CUDA API summary",
        fields=parse_fields(summary_headings("Num Calls"), "Name: name"),
        build=_api_sum,
        sample=_api_times,
        sources=(RUNTIME,),
        tables={"launches": ("name", "dur_ns")},
        by=HOST_BY,
    ),
    Report(
        name="cuda_api_trace",
        doc="CUDA API calls",
        fields=parse_fields(
            "Start (ns): start_ns, Duration (ns): dur_ns, Name: name, Result: result, CorrID: correlation",
            "Pid: pid, Tid: tid, T-Pri: priority, Thread Name: thread_name",
        ),
        build=_api_trace,
        sources=(RUNTIME,),
        tables={
            "launches": ("name", "start_ns", "dur_ns", "correlation", "error"),
            "threads": (),
            "metadata": (),
        },
    ),
    Report(
        name="osrt_sum",
        doc="OS runtime summary",
        fields=parse_fields(summary_headings("Num Calls"), "Name: name"),
        build=_osrt_sum,
        sample=_osrt_times,
        sources=("OSRT_API",),
        tables={"spans": ("name", "category", "dur_ns")},
        by=HOST_BY,
    ),
    _launch_report(
        name="cuda_kern_exec_trace",
        doc="CUDA kernel launches and executions",
        fields=parse_fields(
            "API Start (ns): api_start_ns, API Dur (ns): api_ns",
            "Queue Start (ns): queue_start_ns, Queue Dur (ns): queue_ns",
            "Kernel Start (ns): kernel_start_ns, Kernel Dur (ns): kernel_ns, Total Dur (ns): total_ns",
            "PID: pid, TID: tid, DevId: device, API Function: api_name",
            "GridXYZ: grid, BlockXYZ: block, Kernel Name: name",
        ),
        build=_launched,
        tables={**_TABLES, "gpu_ops": (*_TABLES["gpu_ops"], "grid", "block")},
    ),
    _launch_report(
        name="cuda_kern_exec_sum",
        doc="CUDA kernel launch and execution times",
        fields=parse_fields(
            "PID: pid, TID: tid, DevId: device, Count: instances, QCount: queued",
            distribution_headings("total_ns", prefix="T"),
            distribution_headings("api_ns", prefix="A"),
            distribution_headings("queue_ns", prefix="Q"),
            distribution_headings("kernel_ns", prefix="K"),
            "API Name: api_name, Kernel Name: name",
        ),
        build=_exec_sum,
        tables=_TABLES,
    ),
)
