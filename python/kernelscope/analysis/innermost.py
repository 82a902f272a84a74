"""Finds the innermost slice around each of many moments or other slices."""

from collections.abc import Callable
from typing import TypeAlias

import polars as pl

from kernelscope.analysis.row_lookup import positions
from kernelscope.analysis.tree import CallTree, nest

# Calls nest a dozen deep; how far up one looks for one that still runs.
_MOST_CLIMBS = 64
# How many slices there have to be for each point to make looking for the few that matter worthwhile.
_FEW = 16
# What stands at place 0, which means "none".

Counts: TypeAlias = Callable[[pl.Series], pl.Series]
"""Says of the slices at some places whether each counts."""


def innermost(points: pl.DataFrame, slices: pl.DataFrame, *, counts: "Counts | None" = None) -> pl.Series:
    """``row`` of the innermost slice of the same thread around each point; null for none.

    A slice lasts from its start until just before its end. What lasts itself must end no later than the
    slice. ``counts`` says which of the slices at some places count; others are looked through.

    Columns: of ``points``, needs ``track``, ``start_ns`` and ``dur_ns`` (0 for a moment); of ``slices``,
        ``row``, which ascends, ``parent_row`` (of the slice around it), ``track``, ``start_ns`` and
        ``dur_ns``.
    """
    rows = slices["row"]
    nothing = pl.repeat(None, points.height, dtype=pl.UInt32, eager=True)
    if points.is_empty() or slices.is_empty():
        return nothing.alias("row")
    # Of the points that still look for their slice: number, time, and the place of the slice to look at.
    asked = points.select(
        "start_ns",
        until=pl.col("start_ns") + pl.col("dur_ns").fill_null(0),
        point=pl.int_range(pl.len(), dtype=pl.UInt32),
        place=positions(rows, _last_started(points, slices)),
    ).drop_nulls("place")
    settled: list[pl.DataFrame] = []
    for _ in range(_MOST_CLIMBS):
        place = asked["place"]
        end = slices["start_ns"].gather(place) + slices["dur_ns"].gather(place).fill_null(0)
        climbs = (end <= asked["start_ns"]) | (end < asked["until"])
        if counts is not None:
            climbs = climbs | ~counts(place)
        settled.append(asked.filter(~climbs).select("point", "place"))
        above = positions(rows, slices["parent_row"].gather(place))
        asked = asked.with_columns(place=above).filter(climbs).drop_nulls("place")
        if asked.is_empty():
            found = pl.concat(settled)
            return nothing.scatter(found["point"], rows.gather(found["place"])).alias("row")
    return _nested(points, slices if counts is None else slices.filter(counts(_places(slices))))


def _places(slices: pl.DataFrame) -> pl.Series:
    return pl.int_range(slices.height, dtype=pl.UInt32, eager=True)


def _last_started(points: pl.DataFrame, slices: pl.DataFrame) -> pl.Series:
    """The slice that started last on each point's thread, before the point or with it."""
    started = slices.select("row", "track", "start_ns", "dur_ns")
    if points.height * _FEW < slices.height:
        started = _near(points, started)
    # Of those that start together the innermost comes last.
    started = started.sort("start_ns", pl.col("dur_ns").fill_null(0), "row", descending=[False, True, False])
    ordered = points.select("track", "start_ns", at=pl.int_range(pl.len())).sort("start_ns")
    joined = ordered.join_asof(
        started.select("track", "start_ns", slice_row="row"),
        on="start_ns",
        by="track",
        strategy="backward",
        check_sortedness=False,
    )
    return joined.sort("at")["slice_row"]


def _near(points: pl.DataFrame, slices: pl.DataFrame) -> pl.DataFrame:
    """The slices that start when the last before any of a few points does: the others need no sorting."""
    wanted: list[pl.DataFrame] = []
    for (track,), of_track in points.group_by("track"):
        here = slices.filter(pl.col("track") == track)
        starts = here["start_ns"]
        starts = starts if starts.is_sorted() else starts.sort()
        after = starts.search_sorted(of_track["start_ns"], side="right")
        last = starts.gather(after.filter(after > 0) - 1).unique()
        wanted.append(here.filter(pl.col("start_ns").is_in(last.implode())))
    return pl.concat(wanted)


def _nested(points: pl.DataFrame, slices: pl.DataFrame) -> pl.Series:
    """The same by nesting everything, which takes longer, but not the longer the deeper slices nest."""
    largest = slices["row"].max()
    first = (largest if isinstance(largest, int) else 0) + 1
    columns = ("row", "track", "start_ns", "dur_ns")
    numbered = points.with_columns(row=pl.int_range(first, first + pl.len(), dtype=pl.UInt32))
    around = nest(pl.concat([slices.select(columns), numbered.select(columns)]))
    tree = CallTree(around)
    # Another point may lie between.
    tree.retain(around["row"] < first)
    return tree.kept().gather(positions(around["row"], numbered["row"])).alias("row")
