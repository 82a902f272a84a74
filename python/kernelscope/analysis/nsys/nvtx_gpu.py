"""NVTX ranges on the GPU: what nsys calls their projection, and the kernels under each."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.nsys.kernel_names import kernel_name
from kernelscope.analysis.nsys.nvtx_ranges import NVTX, range_id, range_stacks, style
from kernelscope.analysis.nsys.range_text import TEXT_COLUMNS, range_text
from kernelscope.analysis.nsys.report import HOST_BY, Field, Figure, Question, Report, broken_down
from kernelscope.analysis.nsys.statistics import PREFIX, distribution, in_order
from kernelscope.analysis.nvtx_projection import enclosing_pairs, host_ranges, nvtx_projection

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def _projected(trace: "Trace") -> pl.DataFrame:
    """Every range with GPU work, by its text."""
    ranges = host_ranges(trace)
    texts = ranges.select("row", range_text(trace, ranges).alias("text"))
    projection = nvtx_projection(trace)
    return (
        projection.drop("name")
        .join(texts, on="row", how="left", maintain_order="left")
        .rename({"text": "name"})
    )


def _projection_trace(trace: "Trace", question: Question) -> pl.DataFrame:
    del question
    projection = _projected(trace).with_columns(
        style=style(), range_id=range_id(trace, "row"), parent_id=range_id(trace, "parent_row")
    )
    ranges = projection.with_columns(range_stacks(projection))
    wanted = (
        "name", "gpu_start_ns", "gpu_span_ns", "start_ns", "dur_ns", "style", "pid", "tid", "launches",
        "depth", "children", "range_id", "parent_id", "range_stack",
    )  # fmt: skip
    outside = _outside(trace)
    return pl.concat([outside, ranges.select(wanted)], how="diagonal").select(wanted)


def _outside(trace: "Trace") -> pl.DataFrame:
    """GPU work whose call lies in no range, by thread."""
    pairs = enclosing_pairs(trace, host_ranges(trace)).select("launch_row").unique()
    work = trace.gpu_ops.select("launch_row", "start_ns", "dur_ns").drop_nulls()
    calls = trace.launches.select("pid", "tid", launch_row="row")
    left = work.join(pairs, on="launch_row", how="anti").join(calls, on="launch_row")
    end = pl.col("start_ns") + pl.col("dur_ns")
    return (
        left.group_by("pid", "tid")
        .agg(
            pl.col("start_ns").min().alias("gpu_start_ns"),
            (end.max() - pl.col("start_ns").min()).alias("gpu_span_ns"),
            pl.col("launch_row").n_unique().cast(pl.Int64).alias("launches"),
        )
        .sort("pid", "tid")
    )


def _projection_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    rows = broken_down(trace, _projected(trace).with_columns(style=style()))
    span = pl.col("gpu_span_ns")
    table = rows.group_by([*question.by, "name", "style"]).agg(
        span.sum().alias("total_ns"),
        pl.col("dur_ns").sum().alias("range_ns"),
        pl.len().cast(pl.Int64).alias("instances"),
        *distribution(span, "ns"),
        pl.col("launches").sum().alias("launches"),
        pl.col("launches").mean().alias("mean_launches"),
        pl.col("depth").mean().alias("mean_depth"),
        pl.col("children").mean().alias("mean_children"),
    )
    return in_order(table, "total_ns", ascending=["name", "style", *question.by])


def _kernel_sum(trace: "Trace", question: Question) -> pl.DataFrame:
    kernels = kernel_name(trace, trace.gpu_ops.filter(pl.col("kind") == "kernel"), question)
    kernels = kernels.select("row", "launch_row", "dur_ns", pl.col("name").cast(pl.String))
    ranges = host_ranges(trace)
    texts = ranges.select(
        "pid",
        "tid",
        text=range_text(trace, ranges),
        style=style(),
        range=pl.int_range(pl.len(), dtype=pl.UInt32),
    )
    pairs = enclosing_pairs(trace, ranges).drop("is_innermost").join(texts, on="range")
    keys = ["text", "style", "pid", "tid", "name"]
    inside = pairs.join(kernels, on="launch_row")
    counts = inside.group_by(keys).agg(pl.col("range").n_unique().cast(pl.Int64).alias("ranges"))
    # A kernel counts once under a name, however many ranges of that name are around it.
    once = inside.unique([*keys, "row"], keep="any").select(*keys, "dur_ns")
    calls = trace.launches.select("pid", "tid", launch_row="row")
    outside = kernels.join(pairs.select("launch_row").unique(), on="launch_row", how="anti").join(
        calls, on="launch_row", how="left"
    )
    missing = pl.lit(None, pl.String)
    rows = pl.concat(
        [
            once,
            outside.select(text=missing, style=missing, pid="pid", tid="tid", name="name", dur_ns="dur_ns"),
        ]
    )
    duration = pl.col("dur_ns")
    table = rows.group_by(keys).agg(
        pl.len().cast(pl.Int64).alias("instances"),
        duration.sum().alias("total_ns"),
        *distribution(duration, "ns"),
    )
    table = table.join(counts, on=keys, how="left", nulls_equal=True).with_columns(
        pl.col("ranges").fill_null(0)
    )
    return table.sort(
        ["text", "style", "pid", "tid", "total_ns", "name"],
        descending=[False, False, False, False, True, False],
        nulls_last=False,
    )


_WORK = ("start_ns", "dur_ns", "launch_row")
_TABLES = {
    "ranges": ("start_ns", "dur_ns", "kind", *TEXT_COLUMNS),
    "launches": ("start_ns", "dur_ns"),
    "gpu_ops": _WORK,
    "extra_args": (),
    "threads": (),
}
_PROJECTION_STATISTICS = tuple(
    Field(f"Proj {heading} (ns)", f"{part}_ns", figure) for heading, part, figure in PREFIX
)

REPORTS = (
    Report(
        name="nvtx_gpu_proj_sum",
        doc="NVTX ranges projected onto the GPU, by text",
        fields=(
            Field("Range", "name"),
            Field("Style", "style"),
            Field("Total Proj Time (ns)", "total_ns"),
            Field("Total Range Time (ns)", "range_ns"),
            Field("Range Instances", "instances"),
            *_PROJECTION_STATISTICS,
            Field("Total GPU Ops", "launches"),
            Field("Avg GPU Ops", "mean_launches", Figure.TENTHS),
            Field("Avg Range Lvl", "mean_depth", Figure.TENTHS),
            Field("Avg Num Child", "mean_children", Figure.TENTHS),
        ),
        build=_projection_sum,
        sources=(NVTX,),
        tables=_TABLES,
        only_launching=True,
        by=HOST_BY,
    ),
    Report(
        name="nvtx_gpu_proj_trace",
        doc="NVTX ranges projected onto the GPU",
        fields=(
            Field("Name", "name"),
            Field("Projected Start (ns)", "gpu_start_ns"),
            Field("Projected Duration (ns)", "gpu_span_ns"),
            Field("Orig Start (ns)", "start_ns"),
            Field("Orig Duration (ns)", "dur_ns"),
            Field("Style", "style"),
            Field("PID", "pid"),
            Field("TID", "tid"),
            Field("NumGPUOps", "launches"),
            Field("Lvl", "depth"),
            Field("NumChild", "children"),
            Field("RangeId", "range_id"),
            Field("ParentId", "parent_id"),
            Field("RangeStack", "range_stack"),
        ),
        build=_projection_trace,
        sources=(NVTX,),
        tables=_TABLES,
        only_launching=True,
    ),
    Report(
        name="nvtx_kern_sum",
        doc="Kernels by the NVTX ranges around their launch",
        fields=(
            Field("NVTX Range", "text"),
            Field("Style", "style"),
            Field("PID", "pid"),
            Field("TID", "tid"),
            Field("NVTX Inst", "ranges"),
            Field("Kern Inst", "instances"),
            Field("Total Time (ns)", "total_ns"),
            *(Field(f"{heading} (ns)", f"{part}_ns", figure) for heading, part, figure in PREFIX),
            Field("Kernel Name", "name"),
        ),
        build=_kernel_sum,
        sources=(NVTX,),
        tables={**_TABLES, "gpu_ops": ("kind", "name", "short_name", "mangled_name", *_WORK)},
        kinds=("kernel",),
        only_launching=True,
        arguments=("base", "mangled"),
    ),
)
