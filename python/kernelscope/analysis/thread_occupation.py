"""What a host thread was busy with while something else waited for it."""

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def longest_on_thread(trace: "Trace", waits: pl.DataFrame) -> pl.DataFrame:
    """The outermost operator or annotation, steps left out, that occupied a thread longest during each wait.

    A trace without operators has NVTX ranges instead.

    Columns: of ``waits``, needs ``row``, ``track`` (of the thread), ``start_ns``, ``until_ns``; gives
        ``row``, ``host_row``, ``host``, ``host_ns``, for the waits in which there was one.
    Units: ns.
    """
    asked = waits.select("row", "track", "start_ns", "until_ns").filter(
        pl.col("until_ns") > pl.col("start_ns")
    )
    held = _outermost(trace, asked["track"].unique())
    if not held["start_ns"].is_sorted():
        held = held.sort("start_ns")
    held = held.sort("track", maintain_order=True).with_row_index("place")
    empty = pl.DataFrame(
        schema={"row": pl.UInt32, "host_row": pl.UInt32, "host": pl.String, "host_ns": pl.Int64}
    )
    if held.is_empty() or asked.is_empty():
        return empty
    # On one thread these do not overlap, so those that meet a wait are neighbours: the first that ends after
    # its start to the last that starts before its end.
    first = _place(asked, held, at="start_ns", edge="end_ns", strategy="forward")
    last = _place(asked, held, at="until_ns", edge="start_ns", strategy="backward")
    spans = asked.join(first, on="row").join(last, on="row", suffix="_last")
    spans = spans.filter(pl.col("place_last") >= pl.col("place")).with_columns(
        place=pl.int_ranges("place", pl.col("place_last") + 1)
    )
    pairs = spans.explode("place").with_columns(pl.col("place").cast(pl.UInt32))
    pairs = pairs.join(held, on="place", how="inner", suffix="_held")
    shared = pl.min_horizontal("until_ns", "end_ns") - pl.max_horizontal("start_ns", "start_ns_held")
    return (
        pairs.with_columns(host_ns=shared)
        .filter(pl.col("host_ns") > 0)
        .sort("host_ns", "host_row", descending=[True, False])
        .unique("row", keep="first", maintain_order=True)
        .select("row", "host_row", pl.col("host").cast(pl.String), "host_ns")
    )


def _outermost(trace: "Trace", tracks: pl.Series) -> pl.DataFrame:
    """Operators and annotations, or else NVTX ranges, of threads that lie in nothing but a step."""
    columns = ("row", "parent_row", "track", "start_ns", "dur_ns", "name")
    spans = trace.ops.select(columns)
    if spans.is_empty():
        spans = trace.ranges.select("kind", *columns).filter(pl.col("kind") == "push_pop")
    steps = trace.steps["row"].drop_nulls().implode()
    inside = pl.col("parent_row").is_null() | pl.col("parent_row").is_in(steps)
    spans = spans.filter(inside & pl.col("track").is_in(tracks.implode()))
    return spans.filter(~pl.col("row").is_in(steps)).select(
        "track",
        "start_ns",
        end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0),
        host_row="row",
        host="name",
    )


def _place(asked: pl.DataFrame, held: pl.DataFrame, *, at: str, edge: str, strategy: str) -> pl.DataFrame:
    """The place of the first or last of ``held`` whose ``edge`` lies beyond, or before, ``at``."""
    keys = held.select("track", "place", _at=edge).sort("_at")
    moments = asked.select("row", "track", _at=at).sort("_at")
    found = moments.join_asof(
        keys,
        on="_at",
        by="track",
        strategy="forward" if strategy == "forward" else "backward",
        check_sortedness=False,
    )
    return found.select("row", pl.col("place").cast(pl.Int64)).drop_nulls()
