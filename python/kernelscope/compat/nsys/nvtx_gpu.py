"""NVTX ranges on the GPU: what nsys calls their projection, and the kernels under each."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.grouping import positions
from kernelscope.analysis.ranges.projection import enclosing_pairs, host_ranges, project
from kernelscope.compat.nsys.names import (
    TEXT_COLUMNS,
    kernel_name_columns,
    range_text,
    text_keys,
    with_kernel_names,
)
from kernelscope.compat.nsys.nvtx_ranges import RANGE_NUMBERS, range_id, style, with_range_numbers
from kernelscope.compat.nsys.parts import in_buckets, ordered_parts, sums_by_text
from kernelscope.compat.nsys.report import HOST_BY, NVTX, Field, Figure, Question, Report, selected
from kernelscope.compat.nsys.statistics import distribution_fields, spread
from kernelscope.trace import Trace


def _projected(trace: Trace) -> tuple[pl.DataFrame, list[str]]:
    """Every range with GPU work, and the columns that tell their texts apart."""
    return text_keys(trace, project(trace, host_ranges(trace, *TEXT_COLUMNS)))


def _projection_trace(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    del question
    outside = _outside(trace)
    ranges, _ = _projected(trace)
    ids = ranges.select(range_id(trace, "row"))["row"]
    del trace
    ranges = ranges.with_columns(style=style())
    parents = positions(ranges["row"], ranges["parent_row"])

    def shown(chosen: pl.Series) -> pl.DataFrame:
        return with_range_numbers(ranges[chosen], chosen, ids, parents).select(_SHOWN)

    yield pl.concat([shown(parents.head(0)), outside], how="diagonal_relaxed")
    for chosen in ordered_parts(ranges["start_ns"]):
        yield shown(chosen)


def _outside(trace: Trace) -> pl.DataFrame:
    """GPU work whose call lies in no range, by thread."""
    inside = enclosing_pairs(trace, host_ranges(trace)).select("launch_row").unique()
    work = trace.gpu_ops.select("launch_row", "start_ns", "dur_ns").drop_nulls()
    left = work.join(inside, on="launch_row", how="anti")
    left = left.join(trace.launches.select("pid", "tid", launch_row="row"), on="launch_row")
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


def _projection_sum(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    ranges, keys = _projected(trace)
    columns = ("gpu_span_ns", "dur_ns", "launches", "depth", "children", "kind", *keys)
    rows = selected(trace, ranges, question.by, *columns)
    del trace, ranges

    def finish(part: pl.DataFrame) -> pl.DataFrame:
        return part.with_columns(range_text(part).alias("name"), style=style())

    yield from sums_by_text(
        rows,
        [*question.by, *keys, "kind"],
        "gpu_span_ns",
        finish,
        ascending=["name", "style", *question.by],
        sums={"range_ns": "dur_ns", "launches": "launches"},
        means={"mean_launches": "launches", "mean_depth": "depth", "mean_children": "children"},
    )


def _kernel_sum(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    kernels = trace.gpu_ops.select(
        "row", "launch_row", "dur_ns", "kind", "name", *kernel_name_columns(question)
    )
    kernels = with_kernel_names(kernels.filter(pl.col("kind") == "kernel"), trace, question)
    kernels = kernels.select("row", "launch_row", "dur_ns", "name")
    ranges = host_ranges(trace, *TEXT_COLUMNS)
    pairs = enclosing_pairs(trace, ranges).select("range", "launch_row")
    ranges, keys = text_keys(trace, ranges)
    keys = [*keys, "kind", "pid", "tid"]
    ranges = ranges.select(keys).with_row_index("range")
    calls = trace.launches.select("pid", "tid", launch_row="row")
    del trace
    alone = kernels.join(pairs.select("launch_row").unique(), on="launch_row", how="anti")
    outside = _without_range(alone, calls)
    del alone, calls
    kernels = kernels.drop_nulls("launch_row").rename({"name": "kernel"})
    buckets = ranges.height // _BUCKET_RANGES + 1
    table = pl.concat(
        [
            _kernels_of(part.join(pairs, on="range"), keys, kernels)
            for part in in_buckets(ranges, keys, buckets)
        ]
    )
    del ranges, pairs, kernels
    texts = range_text(table)
    order = ["text", "style", "pid", "tid", "total_ns", "name"]
    flags = [False, False, False, False, True, False]
    yield outside.sort(order, descending=flags, nulls_last=False).select(_KERNELS_SHOWN)
    for chosen in ordered_parts(texts.fill_null("")):
        part = table[chosen].with_columns(pl.col("kernel").cast(pl.String).alias("name"), style=style())
        part = part.with_columns(texts.gather(chosen).alias("text"))
        yield part.sort(order, descending=flags, nulls_last=False).select(_KERNELS_SHOWN)


def _kernels_of(pairs: pl.DataFrame, keys: list[str], kernels: pl.DataFrame) -> pl.DataFrame:
    """Kernels by the text, style and thread of ranges around their launch."""
    inside = pairs.join(kernels, on="launch_row")
    keys = [*keys, "kernel"]
    counts = inside.group_by(keys).agg(pl.col("range").n_unique().cast(pl.Int64).alias("ranges"))
    # A kernel counts once under a text, however many ranges of that text are around it.
    once = inside.unique([*keys, "row"], keep="any")
    return spread(once, keys, "dur_ns", "ns").join(counts, on=keys, how="left", nulls_equal=True)


def _without_range(kernels: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Kernels whose call lies in no range, or was not recorded."""
    placed = kernels.join(calls, on="launch_row", how="left")
    nothing = pl.lit(None, pl.String)
    table = spread(placed, ["pid", "tid", "name"], "dur_ns", "ns")
    return table.with_columns(
        pl.col("name").cast(pl.String), text=nothing, style=nothing, ranges=pl.lit(0, pl.Int64)
    )


_BUCKET_RANGES = 1 << 18
_KERNELS_SHOWN = (
    "text", "style", "pid", "tid", "name", "ranges", "instances", "total_ns", "mean_ns", "median_ns",
    "min_ns", "max_ns", "std_ns",
)  # fmt: skip
_SHOWN = (
    "name", "gpu_start_ns", "gpu_span_ns", "start_ns", "dur_ns", "style", "pid", "tid", "launches", "depth",
    "children", "range_id", "parent_id", "range_stack",
)  # fmt: skip
_WORK = ("start_ns", "dur_ns", "launch_row")
_TABLES = {
    "ranges": ("start_ns", "dur_ns", "kind", *TEXT_COLUMNS),
    "launches": ("start_ns", "dur_ns"),
    "gpu_ops": _WORK,
    "extra_args": (),
    "threads": (),
}

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
            *distribution_fields("ns", prefix="Proj "),
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
            *RANGE_NUMBERS,
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
            *distribution_fields("ns"),
            Field("Kernel Name", "name"),
        ),
        build=_kernel_sum,
        sources=(NVTX,),
        tables={**_TABLES, "gpu_ops": ("kind", "name", *_WORK)},
        kinds=("kernel",),
        only_launching=True,
        arguments=("base", "mangled"),
    ),
)
