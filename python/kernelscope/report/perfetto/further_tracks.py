"""Additional tracks for overlapping events that do not nest, which viewers drop or cut."""

import json
from collections.abc import Sequence

import polars as pl

from kernelscope import _traceparse
from kernelscope.report.perfetto.chrome_events import slices_of
from kernelscope.trace import Trace

RECORDED_TID = "recorded tid"
"""Argument of a moved event with its original location."""


def further_tracks(trace: Trace) -> pl.DataFrame:
    """Returns events that must be moved, so that the events of each track nest or are disjoint.

    Arrows move with their slice.

    Columns: ``row``; ``tid``, of the additional track, unique in its process; ``recorded`` (the tid of the
        event as JSON); ``pid`` and ``pid_text`` of the process; ``name`` of the track.
    Order: by row.
    """
    on_threads, on_gpus = slices_of(trace)
    places = _places(trace, on_gpus)
    slices = _slices(places, on_threads, on_gpus)
    found = pl.DataFrame(_traceparse.nest_tracks(slices.select("group", "start_ns", "dur_ns")))
    slices = slices.with_columns(found["track"])
    moved = slices.filter(pl.col("track") > 0)
    tracks = _numbered(places, moved.select("group", "track").unique().sort("group", "track"))
    moved = pl.concat([moved.select("row", "group", "track"), _arrows(trace, slices, moved)])
    return moved.join(tracks, on=["group", "track"]).drop("group", "track").sort("row")


def move(events: pl.DataFrame, moved: pl.DataFrame) -> pl.DataFrame:
    """Returns the same events, with those in ``moved`` on their additional tracks.

    Columns: the columns of an event; ``moved`` comes from :func:`further_tracks`.
    """
    found = moved.select("row", _tid="tid", _recorded="recorded").filter(
        pl.col("row").is_in(events["row"].implode())
    )
    if found.is_empty():
        return events
    events = events.join(found, on="row", how="left", maintain_order="left")
    is_moved = pl.col("_tid").is_not_null()
    texts = [pl.when(~is_moved).then("tid_text").alias("tid_text")] if "tid_text" in events.columns else []
    tid = pl.coalesce("_tid", pl.col("tid").cast(pl.Int64)).alias("tid")
    recorded = pl.col("_recorded").alias(f"j:{RECORDED_TID}")
    return events.with_columns(tid, recorded, *texts).drop("_tid", "_recorded")


def _places(trace: Trace, on_gpus: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Where events are drawn: tracks, and streams of GPUs that are none, each with a number, ``group``."""
    tracks = trace.threads.select(
        pl.col("pid", "tid"),
        pl.col("pid_text", "tid_text", "thread_name").cast(pl.String),
        group=pl.col("track").cast(pl.UInt32),
    )
    streams = pl.concat([frame.select(pl.col("pid", "tid").cast(pl.Int64)).unique() for frame in on_gpus])
    streams = streams.unique().sort("pid", "tid").with_columns(stream=pl.format("stream {}", "tid"))
    numbers = pl.col("pid_text").is_null() & pl.col("tid_text").is_null()
    tracks = tracks.join(streams, on=["pid", "tid"], how="left", nulls_equal=True, maintain_order="left")
    tracks = tracks.with_columns(pl.when(numbers).then("stream"))
    streams = streams.join(tracks.filter(numbers), on=["pid", "tid"], how="anti", nulls_equal=True)
    streams = streams.with_row_index("group", offset=2**31)
    return pl.concat([tracks, streams], how="diagonal")


def _slices(
    places: pl.DataFrame, on_threads: Sequence[pl.DataFrame], on_gpus: Sequence[pl.DataFrame]
) -> pl.DataFrame:
    """Every event with an end, with the number of its place: ``row``, ``group``, ``start_ns``, ``dur_ns``."""
    frames = [
        frame.select("row", pl.col("track").cast(pl.UInt32).alias("group"), "start_ns", "dur_ns")
        for frame in on_threads
    ]
    numbers = places.filter(pl.col("pid_text").is_null() & pl.col("tid_text").is_null())
    numbers = numbers.select("pid", "tid", "group")
    for frame in on_gpus:
        placed = frame.select("row", pl.col("pid", "tid").cast(pl.Int64), "start_ns", "dur_ns")
        placed = placed.join(numbers, on=["pid", "tid"], how="left", nulls_equal=True, maintain_order="left")
        frames.append(placed.select("row", "group", "start_ns", "dur_ns"))
    return pl.concat(frames)


def _numbered(places: pl.DataFrame, tracks: pl.DataFrame) -> pl.DataFrame:
    """A tid for each further track, above those of its process; and what it is called."""
    small = pl.col("tid").is_between(0, 2**31, closed="left")
    last = places.filter(small).group_by("pid", "pid_text").agg(last=pl.col("tid").max())
    tracks = tracks.join(places, on="group", how="left", maintain_order="left")
    tracks = tracks.join(last, on=["pid", "pid_text"], how="left", nulls_equal=True, maintain_order="left")
    number = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("pid", "pid_text")
    thread = pl.coalesce("thread_name", "stream", "tid_text", pl.format("thread {}", "tid"), pl.lit("events"))
    recorded = [
        json.dumps(tid if text is None else text)
        for tid, text in tracks.select("tid", "tid_text").iter_rows()
    ]
    return tracks.select(
        "group",
        "track",
        tid=pl.col("last").fill_null(0) + number,
        recorded=pl.Series(recorded, dtype=pl.String),
        pid="pid",
        pid_text="pid_text",
        name=pl.format("{} ({})", thread, pl.col("track") + 1),
    )


def _arrows(trace: Trace, slices: pl.DataFrame, moved: pl.DataFrame) -> pl.DataFrame:
    """The ends of arrows where moved slices begin and none that stays does."""
    at = ["group", "start_ns"]
    begins = moved.unique(at, keep="first", maintain_order=True)
    begins = begins.join(slices.filter(pl.col("track") == 0), on=at, how="anti").select(*at, "track")
    ends = trace.flows.select("row", pl.col("track").cast(pl.UInt32).alias("group"), "start_ns")
    return ends.join(begins, on=at).select("row", "group", "track")
