"""Summaries of GPU work: kernels, copies and memsets, graphs, and API calls beside them."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.nsys.kernel_names import kernel_name
from kernelscope.analysis.nsys.report import GPU_BY, HOST_BY, Field, Figure, Question, Report, broken_down
from kernelscope.analysis.nsys.statistics import distribution, in_order, summary, summary_fields

if TYPE_CHECKING:
    from kernelscope.trace import Trace

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMORY = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_NAMES = ("name", "short_name", "mangled_name")
_CATEGORIES = {
    "kernel": "CUDA_KERNEL",
    "memcpy": "MEMORY_OPER",
    "memset": "MEMORY_OPER",
    "graph": "CUDA_GRAPH",
}


def _work(trace: "Trace", *kinds: str) -> pl.DataFrame:
    frame = trace.gpu_ops.filter(pl.col("kind").is_in(kinds))
    return broken_down(trace, frame)


def _kernel_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    frame = kernel_name(trace, _work(trace, "kernel"), question)
    return in_order(
        summary(frame, [*question.by, "name"]), "total_ns", ascending=["instances", "name", *question.by]
    )


def _kernel_gb_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    frame = kernel_name(trace, _work(trace, "kernel"), question)
    keys = [*question.by, "grid", "block", "name"]
    return in_order(
        summary(frame, keys), "total_ns", ascending=["instances", "name", "grid", "block", *question.by]
    )


def _memory_time_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    keys = [*question.by, "name"]
    return in_order(
        summary(_work(trace, "memcpy", "memset"), keys), "total_ns", ascending=["name", *question.by]
    )


def _memory_size_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    size = pl.col("bytes")
    sized = _work(trace, "memcpy", "memset").filter(size.is_not_null())
    table = sized.group_by([*question.by, "name"]).agg(
        size.sum().alias("total_bytes"),
        pl.len().cast(pl.Int64).alias("instances"),
        *distribution(size, "bytes"),
    )
    return in_order(table, "total_bytes", ascending=["name", *question.by])


def _gpu_rows(trace: "Trace", question: Question) -> pl.DataFrame:
    work = _work(trace, *_CATEGORIES)
    kernels = kernel_name(trace, work.filter(pl.col("kind") == "kernel"), question)
    others = work.filter(pl.col("kind") != "kernel").with_columns(pl.col("name").cast(pl.String))
    rows = pl.concat([kernels.with_columns(pl.col("name").cast(pl.String)), others], how="diagonal")
    category = pl.col("kind").cast(pl.String).replace_strict(_CATEGORIES, default=None)
    return rows.select(*question.by, "dur_ns", "name", category=category)


def _gpu_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    table = summary(_gpu_rows(trace, question), [*question.by, "category", "name"])
    return in_order(table, "total_ns", ascending=["instances", "name", *question.by])


def _api_gpu_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    calls = broken_down(trace, trace.launches).select(
        *question.by, "dur_ns", pl.col("name").cast(pl.String), category=pl.lit("CUDA_API")
    )
    rows = pl.concat([calls, _gpu_rows(trace, question)])
    return in_order(
        summary(rows, [*question.by, "category", "name"]), "total_ns", ascending=["instances", "name"]
    )


_BY = ("device", "stream", "pid")
_KERNEL_ARGUMENTS = ("base", "mangled", "nvtx-name")
_GPU = {"gpu_ops": ("kind", "dur_ns", *_NAMES, *_BY)}
_BYTES = (
    Field("Total (MB)", "total_bytes", Figure.MEGABYTES),
    Field("Count", "instances"),
    *(
        Field(f"{heading} (MB)", f"{name}_bytes", Figure.MEGABYTES)
        for heading, name in (
            ("Avg", "mean"),
            ("Med", "median"),
            ("Min", "min"),
            ("Max", "max"),
            ("StdDev", "std"),
        )
    ),
    Field("Operation", "name"),
)

REPORTS = (
    Report(
        name="cuda_gpu_kern_sum",
        doc="CUDA GPU kernel summary",
        fields=(*summary_fields("Instances"), Field("Name", "name")),
        build=_kernel_sum,
        sources=(KERNEL,),
        tables=_GPU,
        kinds=("kernel",),
        by=GPU_BY,
        arguments=_KERNEL_ARGUMENTS,
    ),
    Report(
        name="cuda_gpu_kern_gb_sum",
        doc="CUDA GPU kernel summary by grid and block",
        fields=(
            *summary_fields("Instances"),
            Field("GridXYZ", "grid", Figure.TRIPLE),
            Field("BlockXYZ", "block", Figure.TRIPLE),
            Field("Name", "name"),
        ),
        build=_kernel_gb_sum,
        sources=(KERNEL,),
        tables={"gpu_ops": (*_GPU["gpu_ops"], "grid", "block")},
        kinds=("kernel",),
        by=GPU_BY,
        arguments=_KERNEL_ARGUMENTS,
    ),
    Report(
        name="cuda_gpu_mem_time_sum",
        doc="CUDA GPU copies and memsets by time",
        fields=(*summary_fields("Count"), Field("Operation", "name")),
        build=_memory_time_sum,
        sources=MEMORY,
        tables=_GPU,
        kinds=("memcpy", "memset"),
        by=GPU_BY,
    ),
    Report(
        name="cuda_gpu_mem_size_sum",
        doc="CUDA GPU copies and memsets by size",
        fields=_BYTES,
        build=_memory_size_sum,
        sources=MEMORY,
        tables={"gpu_ops": ("kind", "name", "bytes", *_BY)},
        kinds=("memcpy", "memset"),
        by=GPU_BY,
    ),
    Report(
        name="cuda_gpu_sum",
        doc="CUDA GPU summary: kernels, copies, memsets and whole graphs",
        fields=(*summary_fields("Instances"), Field("Category", "category"), Field("Operation", "name")),
        build=_gpu_sum,
        sources=(KERNEL, *MEMORY, GRAPH),
        tables=_GPU,
        by=GPU_BY,
        arguments=_KERNEL_ARGUMENTS,
    ),
    Report(
        name="cuda_api_gpu_sum",
        doc="CUDA API and GPU summary in one",
        fields=(*summary_fields("Instances"), Field("Category", "category"), Field("Operation", "name")),
        build=_api_gpu_sum,
        sources=(RUNTIME, KERNEL, *MEMORY, GRAPH),
        tables={**_GPU, "launches": ("name", "dur_ns")},
        by=HOST_BY,
        arguments=_KERNEL_ARGUMENTS,
    ),
)
