"""NVTX ranges: on the host, projected onto the GPU, and the kernels under each."""

from collections.abc import Iterator
from functools import partial
from typing import Any

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
from kernelscope.compat.nsys.report import (
    HOST_BY,
    NVTX,
    Question,
    Report,
    distribution_headings,
    in_buckets,
    ordered_parts,
    parse_fields,
    selected,
    spread,
    summary_headings,
    sums_by_text,
)
from kernelscope.trace import Trace

_STYLES = {"push_pop": "PushPop", "start_end": "StartEnd", "annotation": "PushPop"}


def _style() -> pl.Expr:
    """The style of a range as nsys calls it."""
    return pl.col("kind").cast(pl.String).replace_strict(_STYLES, default=None)


def _range_id(trace: Trace, row: str) -> pl.Expr:
    """The number of a range in its table: the rowid of a database, else the row of the trace."""
    tables: dict[str, Any] = trace.meta.properties.get("tables", {}) if trace.meta.format == "nsys" else {}
    shift: int = tables.get(NVTX, {}).get("row_of_rowid_0") or 0
    return pl.col(row).cast(pl.Int64) - shift


def _with_range_numbers(
    ranges: pl.DataFrame, chosen: pl.Series, ids: pl.Series, parents: pl.Series
) -> pl.DataFrame:
    """Adds to the ranges at the positions ``chosen`` their text and their place among all ranges.

    ``ids`` are the numbers of all ranges, ``parents`` the positions of the ranges around them.

    Columns: adds ``name``, ``range_id``, ``parent_id``, and ``range_stack``: the numbers of all ranges around
        it and its own, outermost first, as ``:1:2:3``.
    """
    return ranges.with_columns(
        range_text(ranges).alias("name"),
        ids.gather(chosen).alias("range_id"),
        ids.gather(parents.gather(chosen)).alias("parent_id"),
        _stacks(chosen, ids, parents).alias("range_stack"),
    )


def _stacks(chosen: pl.Series, ids: pl.Series, parents: pl.Series) -> pl.Series:
    # Many ranges share a parent, so each level outward has fewer of them.
    levels = [chosen]
    while len(outer := parents.gather(levels[-1]).drop_nulls().unique().sort()):
        levels.append(outer)
    outer, stacks = chosen.clear(), pl.Series(dtype=pl.String)
    for level in reversed(levels):
        around = stacks.gather(positions(outer, parents.gather(level))).fill_null("")
        outer, stacks = level, around + ":" + ids.gather(level).cast(pl.String)
    return stacks


def _summary(name: str, doc: str, *kinds: str, by_style: bool = False) -> Report:
    """A summary of the ranges of some kinds by their text, and by their style if wanted."""

    def finish(part: pl.DataFrame) -> pl.DataFrame:
        part = part.with_columns(range_text(part).alias("name"))
        return part.with_columns(style=_style()) if by_style else part

    def chosen(trace: Trace, question: Question) -> tuple[pl.DataFrame, list[str]]:
        ranges = selected(trace, trace.ranges, question.by, "row", "dur_ns", "kind", *TEXT_COLUMNS)
        return text_keys(trace, ranges.filter(pl.col("kind").is_in(kinds)))

    def sample(trace: Trace, question: Question) -> pl.DataFrame:
        return finish(chosen(trace, question)[0]).select(*question.by, *shown, "dur_ns")

    def build(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
        ranges, keys = chosen(trace, question)
        del trace
        keys = [*question.by, *(("kind",) * by_style), *keys]
        ranges = ranges.select("dur_ns", *keys)
        tied = ["name", *(("style",) * by_style), *question.by]
        yield from sums_by_text(ranges, keys, "dur_ns", finish, ascending=tied)

    styles = ("Style: style",) * by_style
    shown = (*("style",) * by_style, "name")
    return Report(
        name=name,
        doc=doc,
        fields=parse_fields(summary_headings("Instances"), *styles, "Range: name"),
        build=build,
        sample=sample,
        sample_columns=(*shown, "dur_ns"),
        sources=(NVTX,),
        tables={"ranges": ("dur_ns", "kind", *TEXT_COLUMNS), "extra_args": ()},
        by=HOST_BY,
    )


def _push_pop_trace(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    del question
    columns = ("row", "parent_row", "depth", "start_ns", "dur_ns", "pid", "tid", "kind", *TEXT_COLUMNS)
    ranges = trace.ranges.select(columns)
    ranges = ranges.filter((pl.col("kind") == "push_pop") & pl.col("dur_ns").is_not_null())
    ranges, _ = text_keys(trace, ranges.drop("kind"))
    first_id = _range_id(trace, "row")
    del trace
    inside = ranges.select("parent_row", "dur_ns").drop_nulls("parent_row").group_by("parent_row")
    children = inside.agg(pl.col("dur_ns").sum().alias("child_ns"), pl.len().alias("children"))
    children = children.sort("parent_row")
    parents = positions(ranges["row"], ranges["parent_row"])
    ids = ranges.select(first_id)["row"]
    indent = pl.lit("--").repeat_by("depth").list.join("")
    for chosen in ordered_parts(ranges["start_ns"]):
        part = ranges[chosen]
        part = pl.concat(
            [part, children[positions(children["parent_row"], part["row"])].drop("parent_row")],
            how="horizontal",
        )
        part = _with_range_numbers(
            part.with_columns(pl.col("child_ns", "children").fill_null(0)), chosen, ids, parents
        )
        yield part.with_columns(
            end_ns=pl.col("start_ns") + pl.col("dur_ns"),
            own_ns=pl.col("dur_ns") - pl.col("child_ns"),
            name_tree=indent + pl.col("name"),
        )


def _projected(trace: Trace) -> tuple[pl.DataFrame, list[str]]:
    """Every range with GPU work, and the columns in which their texts differ."""
    return text_keys(trace, project(trace, host_ranges(trace, *TEXT_COLUMNS), callers=False))


def _projection_trace(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    del question
    outside = _outside(trace)
    ranges, _ = _projected(trace)
    ids = ranges.select(_range_id(trace, "row"))["row"]
    del trace
    ranges = ranges.with_columns(style=_style())
    parents = positions(ranges["row"], ranges["parent_row"])

    def shown(chosen: pl.Series) -> pl.DataFrame:
        return _with_range_numbers(ranges[chosen], chosen, ids, parents)

    yield pl.concat([shown(parents.head(0)), outside], how="diagonal_relaxed")
    for chosen in ordered_parts(ranges["start_ns"]):
        yield shown(chosen)


def _outside(trace: Trace) -> pl.DataFrame:
    """GPU work whose call lies in no range, by thread."""
    inside = enclosing_pairs(trace, host_ranges(trace), callers=False).select("launch_row").unique()
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
        .with_columns(children=pl.lit(0, pl.Int64))
        .sort("pid", "tid")
    )


def _projection_sum(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    ranges, keys = _projected(trace)
    columns = ("gpu_span_ns", "dur_ns", "launches", "depth", "children", "kind", *keys)
    rows = selected(trace, ranges, question.by, *columns)
    del trace, ranges

    def finish(part: pl.DataFrame) -> pl.DataFrame:
        return part.with_columns(range_text(part).alias("name"), style=_style())

    yield from sums_by_text(
        rows,
        [*question.by, *keys, "kind"],
        "gpu_span_ns",
        finish,
        ascending=["name", "style", *question.by],
        sums={"range_ns": "dur_ns", "launches": "launches"},
        means={"mean_launches": "launches", "mean_depth": "depth", "mean_children": "children"},
    )


def _projected_times(trace: Trace, question: Question) -> pl.DataFrame:
    ranges, keys = _projected(trace)
    rows = selected(trace, ranges, question.by, "gpu_span_ns", "kind", *keys)
    rows = rows.with_columns(range_text(rows).alias("name"), style=_style())
    return rows.select(*question.by, "name", "style", "gpu_span_ns")


def _kernel_sum(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    kernels = trace.gpu_ops.select(
        "row", "launch_row", "dur_ns", "kind", "name", *kernel_name_columns(question)
    )
    kernels = with_kernel_names(kernels.filter(pl.col("kind") == "kernel"), trace, question)
    kernels = kernels.select("row", "launch_row", "dur_ns", "name")
    ranges = host_ranges(trace, *TEXT_COLUMNS)
    pairs = enclosing_pairs(trace, ranges, callers=False).select("range", "launch_row")
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
    yield outside.sort(order, descending=flags, nulls_last=False)
    for chosen in ordered_parts(texts.fill_null("")):
        part = table[chosen].with_columns(pl.col("kernel").cast(pl.String).alias("name"), style=_style())
        part = part.with_columns(texts.gather(chosen).alias("text"))
        yield part.sort(order, descending=flags, nulls_last=False)


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
_WORK = ("start_ns", "dur_ns", "launch_row")
_TABLES = {
    "ranges": ("start_ns", "dur_ns", "kind", *TEXT_COLUMNS),
    "launches": ("start_ns", "dur_ns"),
    "gpu_ops": _WORK,
    "extra_args": (),
    "threads": (),
}
_RANGE_NUMBERS = "RangeId: range_id, ParentId: parent_id, RangeStack: range_stack"
"""Columns of :func:`_with_range_numbers`."""

_gpu_report = partial(Report, sources=(NVTX,), only_launching=True)

REPORTS = (
    _summary("nvtx_sum", "NVTX range summary", "push_pop", "start_end", by_style=True),
    _summary("nvtx_pushpop_sum", "NVTX push/pop range summary", "push_pop"),
    _summary("nvtx_startend_sum", "NVTX start/end range summary", "start_end"),
    Report(
        name="nvtx_pushpop_trace",
        doc="NVTX push/pop ranges and their nesting",
        fields=parse_fields(
            "Start (ns): start_ns, End (ns): end_ns, Duration (ns): dur_ns, DurChild (ns): child_ns",
            "DurNonChild (ns): own_ns, Name: name, PID: pid, TID: tid, Lvl: depth, NumChild: children",
            _RANGE_NUMBERS,
            "NameTree: name_tree",
        ),
        build=_push_pop_trace,
        sources=(NVTX,),
        tables={
            "ranges": ("start_ns", "dur_ns", "kind", "parent_row", "depth", *TEXT_COLUMNS),
            "extra_args": (),
        },
    ),
    _gpu_report(
        name="nvtx_gpu_proj_sum",
        doc="NVTX ranges projected onto the GPU, by text",
        fields=parse_fields(
            "Range: name, Style: style, Total Proj Time (ns): total_ns, Total Range Time (ns): range_ns",
            "Range Instances: instances",
            distribution_headings("ns", prefix="Proj "),
            "Total GPU Ops: launches, Avg GPU Ops: mean_launches, Avg Range Lvl: mean_depth",
            "Avg Num Child: mean_children",
        ),
        build=_projection_sum,
        sample=_projected_times,
        sample_columns=("name", "style", "gpu_span_ns"),
        tables=_TABLES,
        by=HOST_BY,
    ),
    _gpu_report(
        name="nvtx_gpu_proj_trace",
        doc="NVTX ranges projected onto the GPU",
        fields=parse_fields(
            "Name: name, Projected Start (ns): gpu_start_ns, Projected Duration (ns): gpu_span_ns",
            "Orig Start (ns): start_ns, Orig Duration (ns): dur_ns, Style: style, PID: pid, TID: tid",
            "NumGPUOps: launches, Lvl: depth, NumChild: children",
            _RANGE_NUMBERS,
        ),
        build=_projection_trace,
        tables=_TABLES,
    ),
    _gpu_report(
        name="nvtx_kern_sum",
        doc="Kernels by the NVTX ranges around their launch",
        fields=parse_fields(
            "NVTX Range: text, Style: style, PID: pid, TID: tid, NVTX Inst: ranges, Kern Inst: instances",
            "Total Time (ns): total_ns",
            distribution_headings("ns"),
            "Kernel Name: name",
        ),
        build=_kernel_sum,
        tables={**_TABLES, "gpu_ops": ("kind", "name", *_WORK)},
        kinds=("kernel",),
        arguments=("base", "mangled"),
    ),
)
