"""NVTX ranges on the host: summaries by text, and the tree of push/pop ranges."""

from typing import TYPE_CHECKING, Any

import polars as pl

from kernelscope.analysis.nsys.range_text import TEXT_COLUMNS, range_text
from kernelscope.analysis.nsys.report import HOST_BY, Field, Question, Report, broken_down
from kernelscope.analysis.nsys.statistics import in_order, summary, summary_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelscope.trace import Trace

NVTX = "NVTX_EVENTS"
STYLES = {"push_pop": "PushPop", "start_end": "StartEnd", "annotation": "PushPop"}


def style() -> pl.Expr:
    """The style of a range as nsys calls it."""
    return pl.col("kind").cast(pl.String).replace_strict(STYLES, default=None)


def range_id(trace: "Trace", row: str) -> pl.Expr:
    """The number of a range in its table: the rowid of a database, else the row of the trace."""
    tables: dict[str, Any] = trace.meta.properties.get("tables", {}) if trace.meta.format == "nsys" else {}
    shift: int = tables.get(NVTX, {}).get("row_of_rowid_0") or 0
    return pl.col(row).cast(pl.Int64) - shift


def range_stacks(frame: pl.DataFrame) -> pl.Series:
    """The numbers of all ranges around each and its own, outermost first, as ``:1:2:3``.

    Columns: of ``frame``, needs ``range_id`` and ``parent_id``; every parent is in the frame.
    """
    ids = frame["range_id"]
    position = pl.DataFrame({"parent_id": ids, "_at": pl.int_range(frame.height, eager=True)})
    parents = frame.select("parent_id").join(position, on="parent_id", how="left", maintain_order="left")[
        "_at"
    ]
    stacks = ":" + ids.cast(pl.String)
    around = parents
    while around.null_count() < len(around):
        outer = (":" + ids.gather(around).cast(pl.String)).fill_null("")
        stacks = outer + stacks
        around = parents.gather(around)
    return stacks.alias("range_stack")


def _sum(*kinds: str, by_style: bool) -> "Callable[[Trace, Question], pl.DataFrame]":
    def build(trace: "Trace", question: Question) -> pl.DataFrame:
        ranges = trace.ranges.filter(pl.col("kind").is_in(kinds) & pl.col("dur_ns").is_not_null())
        named = broken_down(trace, ranges).select(
            *question.by, "dur_ns", range_text(trace, ranges).alias("name"), style=style()
        )
        keys = ["style", "name"] if by_style else ["name"]
        return in_order(summary(named, [*question.by, *keys]), "total_ns", ascending=["name", *question.by])

    return build


def _push_pop_trace(trace: "Trace", question: Question) -> pl.DataFrame:
    del question
    ranges = trace.ranges.filter((pl.col("kind") == "push_pop") & pl.col("dur_ns").is_not_null())
    ranges = ranges.select(
        "row",
        "parent_row",
        "depth",
        "start_ns",
        "dur_ns",
        "pid",
        "tid",
        range_text(trace, ranges).alias("name"),
    ).sort("start_ns", "row")
    children = (
        ranges.drop_nulls("parent_row")
        .group_by(row="parent_row")
        .agg(pl.col("dur_ns").sum().alias("child_ns"), pl.len().cast(pl.Int64).alias("children"))
    )
    joined = ranges.join(children, on="row", how="left", maintain_order="left").with_columns(
        pl.col("child_ns", "children").fill_null(0),
        range_id=range_id(trace, "row"),
        parent_id=range_id(trace, "parent_row"),
    )
    indent = pl.lit("--").repeat_by("depth").list.join("")
    return joined.with_columns(
        range_stacks(joined),
        end_ns=pl.col("start_ns") + pl.col("dur_ns"),
        own_ns=pl.col("dur_ns") - pl.col("child_ns"),
        name_tree=indent + pl.col("name"),
    ).drop("row", "parent_row")


_SUMS = {"ranges": ("dur_ns", "kind", *TEXT_COLUMNS), "extra_args": ()}

REPORTS = (
    Report(
        name="nvtx_sum",
        doc="NVTX range summary",
        fields=(*summary_fields("Instances"), Field("Style", "style"), Field("Range", "name")),
        build=_sum("push_pop", "start_end", by_style=True),
        sources=(NVTX,),
        tables=_SUMS,
        by=HOST_BY,
    ),
    Report(
        name="nvtx_pushpop_sum",
        doc="NVTX push/pop range summary",
        fields=(*summary_fields("Instances"), Field("Range", "name")),
        build=_sum("push_pop", by_style=False),
        sources=(NVTX,),
        tables=_SUMS,
        by=HOST_BY,
    ),
    Report(
        name="nvtx_startend_sum",
        doc="NVTX start/end range summary",
        fields=(*summary_fields("Instances"), Field("Range", "name")),
        build=_sum("start_end", by_style=False),
        sources=(NVTX,),
        tables=_SUMS,
        by=HOST_BY,
    ),
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
            Field("RangeId", "range_id"),
            Field("ParentId", "parent_id"),
            Field("RangeStack", "range_stack"),
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
