"""Summaries of GPU work: kernels, copies and memsets, graphs, and API calls beside them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.compat.nsys.kernel_names import asked_name, with_range_in_name, with_range_keys
from kernelscope.compat.nsys.report import GPU_BY, HOST_BY, Field, Figure, Question, Report, selected
from kernelscope.compat.nsys.statistics import in_order, share, spread, summary, summary_fields
from kernelscope.compat.nsys.text_sums import sums_by_text

if TYPE_CHECKING:
    from kernelscope.trace import Trace

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMORY = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_CATEGORIES = {
    "kernel": "CUDA_KERNEL",
    "memcpy": "MEMORY_OPER",
    "memset": "MEMORY_OPER",
    "graph": "CUDA_GRAPH",
}


def _work(
    trace: "Trace", question: Question, kinds: tuple[str, ...], *columns: str, ranged: bool = True
) -> pl.DataFrame:
    """GPU work of some kinds with the columns that are needed, kernels by the name that was asked for.

    With ``nvtx-name`` the name has the range in front, or the column ``range_row`` if not ``ranged``.
    """
    chosen = ("range_row", *columns) if question.has("nvtx-name") else columns
    frame = selected(trace, trace.gpu_ops, question.by, "kind", *chosen, *_chosen_names(question))
    is_of_kind = frame.select(pl.col("kind").is_in(kinds)).to_series()
    # As a rule nothing else was read, and a filter copies what it keeps.
    frame = frame if is_of_kind.all() else frame.filter(is_of_kind)
    if not ranged:
        question = replace(
            question, arguments={k: v for k, v in question.arguments.items() if k != "nvtx-name"}
        )
    return asked_name(trace, question)(frame) if "name" in columns else frame


def _chosen_names(question: Question) -> tuple[str, ...]:
    return ("short_name",) * question.has("base") + ("mangled_name",) * question.has("mangled")


def _kernel_sum(trace: "Trace", question: Question) -> "pl.DataFrame | Iterator[pl.DataFrame]":
    if question.has("nvtx-name"):
        return _kernel_sum_by_range(trace, question)
    frame = _work(trace, question, ("kernel",), "dur_ns", "name")
    table = summary(frame, [*question.by, "name"])
    return in_order(table, "total_ns", ascending=["instances", "name", *question.by])


def _kernel_sum_by_range(trace: "Trace", question: Question) -> Iterator[pl.DataFrame]:
    frame = _work(trace, question, ("kernel",), "dur_ns", "name", ranged=False)
    frame, keys = with_range_keys(trace, frame)
    del trace
    keys = [*question.by, "name", *keys]
    tied = ["instances", "name", *question.by]
    yield from sums_by_text(frame.select("dur_ns", *keys), keys, "dur_ns", with_range_in_name, ascending=tied)


def _kernel_gb_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    frame = _work(trace, question, ("kernel",), "dur_ns", "name", "grid", "block")
    table = summary(frame, [*question.by, "grid", "block", "name"])
    return in_order(table, "total_ns", ascending=["instances", "name", "grid", "block", *question.by])


def _memory_time_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    frame = _work(trace, question, _COPIES, "dur_ns", "name")
    table = summary(frame, [*question.by, "name"])
    return in_order(table, "total_ns", ascending=["name", *question.by])


def _memory_size_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    sized = _work(trace, question, _COPIES, "bytes", "name")
    table = spread(sized, [*question.by, "name"], "bytes", "bytes")
    return in_order(table, "total_bytes", ascending=["name", *question.by])


def _gpu_rows(trace: "Trace", question: Question) -> pl.DataFrame:
    rows = _work(trace, question, tuple(_CATEGORIES), "dur_ns", "name")
    return rows.select(*question.by, "dur_ns", "kind", pl.col("name"))


def _gpu_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    table = summary(_gpu_rows(trace, question), [*question.by, "kind", "name"])
    return in_order(_categorised(table), "total_ns", ascending=["instances", "name", "kind", *question.by])


def _api_gpu_sum(trace: "Trace", question: Question) -> Iterator[pl.DataFrame]:
    work = summary(_gpu_rows(trace, question), [*question.by, "kind", "name"])
    calls = summary(selected(trace, trace.launches, question.by, "dur_ns", "name"), [*question.by, "name"])
    del trace
    texts = pl.col("kind", "name").cast(pl.String)
    parts = [part.with_columns(texts) for part in (calls.with_columns(kind=pl.lit("api")), work)]
    table = _categorised(pl.concat(parts, how="diagonal").with_columns(time_pct=share("total_ns")))
    yield in_order(table, "total_ns", ascending=["instances", "name", "kind", *question.by])


def _categorised(table: pl.DataFrame) -> pl.DataFrame:
    categories = {**_CATEGORIES, "api": "CUDA_API"}
    kind = pl.col("kind").cast(pl.String)
    return table.with_columns(category=kind.replace_strict(categories, default=None, return_dtype=pl.String))


_COPIES = ("memcpy", "memset")
_KERNEL_ARGUMENTS = ("base", "mangled", "nvtx-name")
_GPU = {"gpu_ops": ("kind", "dur_ns", "name")}
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
        tables={"gpu_ops": ("kind", "name", "bytes")},
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
        tables={"launches": ("name", "dur_ns"), **_GPU},
        linked=False,
        by=HOST_BY,
        arguments=_KERNEL_ARGUMENTS,
    ),
)
