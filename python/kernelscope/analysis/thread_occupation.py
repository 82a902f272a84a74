"""What a host thread was busy with while something else waited for it."""

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from polars._typing import AsofJoinStrategy

    from kernelscope.trace import Trace


def longest_on_thread(trace: "Trace", waits: pl.DataFrame) -> pl.DataFrame:
    """The outermost operator or annotation, steps left out, that occupied a thread longest during each wait.

    A trace without operators has NVTX ranges instead.

    Columns: of ``waits``, needs ``row``, ``track`` (of the thread), ``start_ns``, ``until_ns``; gives
        ``row``, ``host_row``, ``host``, ``host_ns``, for the waits in which there was one.
    Units: ns.
    """
    asked = waits[["row", "track", "start_ns", "until_ns"]].filter(pl.col("until_ns") > pl.col("start_ns"))
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
    spans = _with_place(asked, held, "first", at="start_ns", edge="end_ns", strategy="forward")
    spans = _with_place(spans, held, "last", at="until_ns", edge="start_ns", strategy="backward")
    spans = spans.filter(pl.col("last") >= pl.col("first"))
    pairs = spans.select(
        "row", "start_ns", "until_ns", place=pl.int_ranges("first", pl.col("last") + 1, dtype=pl.UInt32)
    ).explode("place")
    meeting = held[["start_ns", "end_ns", "host_row", "host"]][pairs["place"]]
    pairs = pairs.hstack(meeting.rename({"start_ns": "start_ns_held"}))
    shared = pl.min_horizontal("until_ns", "end_ns") - pl.max_horizontal("start_ns", "start_ns_held")
    return (
        pairs.filter(shared > 0)
        .with_columns(host_ns=shared)
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


def _with_place(
    asked: pl.DataFrame, held: pl.DataFrame, name: str, *, at: str, edge: str, strategy: "AsofJoinStrategy"
) -> pl.DataFrame:
    """Adds the place of the first or last of ``held`` whose ``edge`` lies beyond, or before, ``at``.

    Columns: of ``asked``, and ``name``. Rows without such a place are left out.
    """
    keys = held.select("track", pl.col("place").alias(name), _at=edge).sort("_at")
    found = asked.sort(at).join_asof(
        keys, left_on=at, right_on="_at", by="track", strategy=strategy, check_sortedness=False
    )
    return found.drop("_at").drop_nulls(name)
