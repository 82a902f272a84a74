"""Finds the innermost slice around each of many moments or other slices."""

import polars as pl

from kernelscope.analysis.calls import Places, nearest
from kernelscope.analysis.tree import nest

# Calls nest a dozen deep; how far up one looks for one that still runs.
_MOST_CLIMBS = 64
# What stands at place 0, which means "none": it never ends.
_NOBODY = pl.Series([0], dtype=pl.UInt32)
_NEVER = pl.Series([2**63 - 1], dtype=pl.Int64)


def innermost(points: pl.DataFrame, slices: pl.DataFrame, *, counts: pl.Series | None = None) -> pl.Series:
    """``row`` of the innermost slice of the same thread around each point; null for none.

    A slice lasts from its start until just before its end. What lasts itself must end no later than the
    slice. ``counts`` says which slices count; others are looked through.

    Columns: of ``points``, needs ``track``, ``start_ns`` and ``dur_ns`` (0 for a moment); of ``slices``,
        ``row``, ``parent_row`` (of the slice around it), ``track``, ``start_ns`` and ``dur_ns``.
    """
    if points.is_empty() or slices.is_empty():
        return pl.Series("row", [None] * points.height, dtype=pl.UInt32)
    places = Places(slices["row"])
    found = _last_started(points, slices, places)
    starts = points["start_ns"]
    until = starts + points["dur_ns"].fill_null(0)
    ends = pl.concat([_NEVER, slices["start_ns"] + slices["dur_ns"].fill_null(0)])
    all_count = pl.repeat(True, slices.height, dtype=pl.Boolean, eager=True)
    counted = pl.concat([pl.Series([True]), all_count if counts is None else counts])
    parents = pl.concat([_NOBODY, places.of(slices["parent_row"])])
    for _ in range(_MOST_CLIMBS):
        end = ends.gather(found)
        climbs = (end <= starts) | (end < until) | ~counted.gather(found)
        if not climbs.any():
            rows = pl.concat([pl.Series([None], dtype=pl.UInt32), slices["row"]])
            return rows.gather(found).alias("row")
        found = pl.select(pl.when(climbs).then(parents.gather(found)).otherwise(found)).to_series()
    return _nested(points, slices if counts is None else slices.filter(counts))


def _last_started(points: pl.DataFrame, slices: pl.DataFrame, places: Places) -> pl.Series:
    """The place of the slice that started last on each point's thread, before the point or with it."""
    tracks = points["track"].unique()
    started = slices.select("row", "track", "start_ns", "dur_ns").filter(
        pl.col("track").is_in(tracks.implode())
    )
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
    return places.of(joined.sort("at")["slice_row"])


def _nested(points: pl.DataFrame, slices: pl.DataFrame) -> pl.Series:
    """The same by nesting everything, which takes longer, but not the longer the deeper slices nest."""
    largest = slices["row"].max()
    first = (largest if isinstance(largest, int) else 0) + 1
    columns = ("row", "track", "start_ns", "dur_ns")
    numbered = points.with_columns(row=pl.int_range(first, first + pl.len(), dtype=pl.UInt32))
    around = nest(pl.concat([slices.select(columns), numbered.select(columns)]))
    places = Places(around["row"])
    parents = pl.concat([_NOBODY, places.of(around["parent_row"])])
    # Another point may lie between.
    is_slice = pl.concat([pl.Series([False]), around["row"] < first])
    rows = pl.concat([pl.Series([None], dtype=pl.UInt32), around["row"]])
    return rows.gather(nearest(is_slice, parents).gather(places.of(numbered["row"]))).alias("row")
