"""NVTX ranges on the host: summaries by text, and the tree of push/pop ranges."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from kernelscope.analysis.grouping import positions
from kernelscope.compat.nsys.names import TEXT_COLUMNS, range_text, text_keys
from kernelscope.compat.nsys.parts import ordered_parts, sums_by_text
from kernelscope.compat.nsys.report import HOST_BY, NVTX, Field, Question, Report, selected
from kernelscope.compat.nsys.statistics import summary_fields
from kernelscope.trace import Trace

_STYLES = {"push_pop": "PushPop", "start_end": "StartEnd", "annotation": "PushPop"}


def style() -> pl.Expr:
    """The style of a range as nsys calls it."""
    return pl.col("kind").cast(pl.String).replace_strict(_STYLES, default=None)


def range_id(trace: Trace, row: str) -> pl.Expr:
    """The number of a range in its table: the rowid of a database, else the row of the trace."""
    tables: dict[str, Any] = trace.meta.properties.get("tables", {}) if trace.meta.format == "nsys" else {}
    shift: int = tables.get(NVTX, {}).get("row_of_rowid_0") or 0
    return pl.col(row).cast(pl.Int64) - shift


def with_range_numbers(
    ranges: pl.DataFrame, chosen: pl.Series, ids: pl.Series, parents: pl.Series
) -> pl.DataFrame:
    """Adds to the ranges at the positions ``chosen`` their text and their place among all ranges.

    ``ids`` are the numbers of all ranges, ``parents`` the positions of the ranges around them.

    Columns: adds ``name``, ``range_id``, ``parent_id``, and ``range_stack``: the numbers of all ranges around
        it and its own, outermost first, as ``:1:2:3``.
    """
    stacks = ":" + ids.gather(chosen).cast(pl.String)
    around = parents.gather(chosen)
    while around.null_count() < len(around):
        stacks = (":" + ids.gather(around).cast(pl.String)).fill_null("") + stacks
        around = parents.gather(around)
    return ranges.with_columns(
        range_text(ranges).alias("name"),
        ids.gather(chosen).alias("range_id"),
        ids.gather(parents.gather(chosen)).alias("parent_id"),
        stacks.alias("range_stack"),
    )


def _summary(name: str, doc: str, *kinds: str, by_style: bool = False) -> Report:
    """A summary of the ranges of some kinds by their text, and by their style if wanted."""

    def finish(part: pl.DataFrame) -> pl.DataFrame:
        part = part.with_columns(range_text(part).alias("name"))
        return part.with_columns(style=style()) if by_style else part

    def build(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
        ranges = selected(trace, trace.ranges, question.by, "row", "dur_ns", "kind", *TEXT_COLUMNS)
        ranges, keys = text_keys(trace, ranges.filter(pl.col("kind").is_in(kinds)))
        del trace
        keys = [*question.by, *(("kind",) * by_style), *keys]
        ranges = ranges.select("dur_ns", *keys)
        tied = ["name", *(("style",) * by_style), *question.by]
        yield from sums_by_text(ranges, keys, "dur_ns", finish, ascending=tied)

    styles = (Field("Style", "style"),) if by_style else ()
    return Report(
        name=name,
        doc=doc,
        fields=(*summary_fields("Instances"), *styles, Field("Range", "name")),
        build=build,
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
    first_id = range_id(trace, "row")
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
        part = with_range_numbers(
            part.with_columns(pl.col("child_ns", "children").fill_null(0)), chosen, ids, parents
        )
        yield part.with_columns(
            end_ns=pl.col("start_ns") + pl.col("dur_ns"),
            own_ns=pl.col("dur_ns") - pl.col("child_ns"),
            name_tree=indent + pl.col("name"),
        )


RANGE_NUMBERS = (
    Field("RangeId", "range_id"),
    Field("ParentId", "parent_id"),
    Field("RangeStack", "range_stack"),
)
"""The columns of :func:`with_range_numbers`."""

REPORTS = (
    _summary("nvtx_sum", "NVTX range summary", "push_pop", "start_end", by_style=True),
    _summary("nvtx_pushpop_sum", "NVTX push/pop range summary", "push_pop"),
    _summary("nvtx_startend_sum", "NVTX start/end range summary", "start_end"),
    Report(
        name="nvtx_pushpop_trace",
        doc="NVTX push/pop ranges and how they nest",
        fields=(
            Field("Start (ns)", "start_ns"),
            Field("End (ns)", "end_ns"),
            Field("Duration (ns)", "dur_ns"),
            Field("DurChild (ns)", "child_ns"),
            Field("DurNonChild (ns)", "own_ns"),
            Field("Name", "name"),
            Field("PID", "pid"),
            Field("TID", "tid"),
            Field("Lvl", "depth"),
            Field("NumChild", "children"),
            *RANGE_NUMBERS,
            Field("NameTree", "name_tree"),
        ),
        build=_push_pop_trace,
        sources=(NVTX,),
        tables={
            "ranges": ("start_ns", "dur_ns", "kind", "parent_row", "depth", *TEXT_COLUMNS),
            "extra_args": (),
        },
    ),
)
