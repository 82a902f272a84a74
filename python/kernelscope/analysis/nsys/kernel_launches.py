"""From the call of each kernel to its end on the GPU."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.nsys.gpu_sums import KERNEL
from kernelscope.analysis.nsys.kernel_names import kernel_name
from kernelscope.analysis.nsys.report import Field, Figure, Question, Report
from kernelscope.analysis.nsys.statistics import PREFIX, distribution, in_order

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def _launched(trace: "Trace", question: Question) -> pl.DataFrame:
    """Every kernel whose call was recorded, with the call; one that runs late waits in a queue."""
    kernels = kernel_name(trace, trace.gpu_ops.filter(pl.col("kind") == "kernel"), question)
    kernels = kernels.select(
        "launch_row",
        "device",
        "name",
        "grid",
        "block",
        kernel_row="row",
        kernel_start_ns="start_ns",
        kernel_ns="dur_ns",
    )
    calls = trace.launches.select(
        "pid", "tid", launch_row="row", api_start_ns="start_ns", api_ns="dur_ns", api_name="name"
    )
    joined = kernels.join(calls, on="launch_row").sort("api_start_ns", "kernel_row")
    api_end, kernel_start = pl.col("api_start_ns") + pl.col("api_ns"), pl.col("kernel_start_ns")
    waited = kernel_start >= api_end
    end = pl.max_horizontal(api_end, kernel_start + pl.col("kernel_ns"))
    return joined.with_columns(
        queue_start_ns=pl.when(waited).then(api_end),
        queue_ns=pl.when(waited).then(kernel_start - api_end),
        total_ns=end - pl.col("api_start_ns"),
    )


def _exec_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    rows = _launched(trace, question)
    keys = ["pid", "tid", "device", "api_name", "name"]
    parts = [
        e
        for name in ("total", "api", "queue", "kernel")
        for e in distribution(pl.col(f"{name}_ns"), f"{name}_ns")
    ]
    table = rows.group_by(keys).agg(
        pl.len().cast(pl.Int64).alias("instances"),
        pl.col("queue_ns").count().cast(pl.Int64).alias("queued"),
        *parts,
    )
    return in_order(table, "mean_total_ns", ascending=keys)


def _distribution_fields(letter: str, name: str) -> tuple[Field, ...]:
    return tuple(
        Field(f"{letter}{heading} (ns)", f"{part}_{name}_ns", figure) for heading, part, figure in PREFIX
    )


_TABLES = {
    "gpu_ops": ("kind", "name", "short_name", "mangled_name", "start_ns", "dur_ns", "device", "launch_row"),
    "launches": ("name", "start_ns", "dur_ns"),
}
_ARGUMENTS = ("base", "mangled", "nvtx-name")

REPORTS = (
    Report(
        name="cuda_kern_exec_trace",
        doc="CUDA kernel launches and executions",
        fields=(
            Field("API Start (ns)", "api_start_ns"),
            Field("API Dur (ns)", "api_ns"),
            Field("Queue Start (ns)", "queue_start_ns"),
            Field("Queue Dur (ns)", "queue_ns"),
            Field("Kernel Start (ns)", "kernel_start_ns"),
            Field("Kernel Dur (ns)", "kernel_ns"),
            Field("Total Dur (ns)", "total_ns"),
            Field("PID", "pid"),
            Field("TID", "tid"),
            Field("DevId", "device"),
            Field("API Function", "api_name"),
            Field("GridXYZ", "grid", Figure.TRIPLE),
            Field("BlockXYZ", "block", Figure.TRIPLE),
            Field("Kernel Name", "name"),
        ),
        build=_launched,
        sources=(KERNEL,),
        tables={**_TABLES, "gpu_ops": (*_TABLES["gpu_ops"], "grid", "block")},
        kinds=("kernel",),
        only_launching=True,
        arguments=_ARGUMENTS,
    ),
    Report(
        name="cuda_kern_exec_sum",
        doc="CUDA kernel launch and execution times",
        fields=(
            Field("PID", "pid"),
            Field("TID", "tid"),
            Field("DevId", "device"),
            Field("Count", "instances"),
            Field("QCount", "queued"),
            *_distribution_fields("T", "total"),
            *_distribution_fields("A", "api"),
            *_distribution_fields("Q", "queue"),
            *_distribution_fields("K", "kernel"),
            Field("API Name", "api_name"),
            Field("Kernel Name", "name"),
        ),
        build=_exec_sum,
        sources=(KERNEL,),
        tables=_TABLES,
        kinds=("kernel",),
        only_launching=True,
        arguments=_ARGUMENTS,
    ),
)
