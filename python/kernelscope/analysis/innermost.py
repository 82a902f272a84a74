"""Finds the innermost slice around each of many moments or other slices."""

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.call_tree import CallTree, nest
from kernelscope.analysis.classes import taken
from kernelscope.analysis.row_lookup import positions


def innermost(points: pl.DataFrame, slices: pl.DataFrame, *, counts: pl.Series | None = None) -> pl.Series:
    """``row`` of the innermost slice of the same thread around each point; null for none.

    A slice lasts from its start until just before its end. What lasts itself must end no later than the
    slice. ``counts`` says which slices count; others are looked through.

    Columns: of ``points``, needs ``track``, ``start_ns`` and ``dur_ns`` (0 for a moment); of ``slices``,
        ``row``, which ascends, ``parent_row`` (of the slice around it), ``track``, ``start_ns`` and
        ``dur_ns``.
    """
    if points.is_empty() or slices.is_empty():
        return pl.repeat(None, points.height, dtype=pl.UInt32, eager=True).alias("row")
    looked_at = slices.select("row", "parent_row", "track", "start_ns", "dur_ns")
    if counts is not None:
        looked_at = looked_at.with_columns(counts.alias("counts"))
    found = _traceparse.innermost_slices(points.select("track", "start_ns", "dur_ns"), looked_at)
    if found is not None:
        return taken(found, "row")
    return _nested(points, slices if counts is None else slices.filter(counts))


def lineage(slices: pl.DataFrame, rows: pl.Series) -> pl.Series:
    """The positions of the slices of these rows and of all around them, in order.

    Columns: of ``slices``, needs ``row``, which ascends, and ``parent_row`` (null for a root).
    """
    links = slices.select("row", "parent_row")
    return taken(_traceparse.slice_lineage(links, rows.alias("row").to_frame()), "at")


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
