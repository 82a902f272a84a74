"""The critical path of a trace, as a track of its own and as arrows between the events that it passes."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.dependencies.path import window_of
from kernelscope.analysis.dependencies.segments import segments
from kernelscope.analysis.grouping import gather_rows
from kernelscope.report.perfetto.chrome_events import first_free_id, places_of_tracks
from kernelscope.trace import Trace

TRACK = "Critical path"
"""Name of the process and the thread of the track."""


def path_events(trace: Trace, category: str, tids: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yields the parts of the critical path of the trace, and arrows where it changes tracks.

    A part is named after its reason. Its arguments are the number of segments, and the event and the
    dependency of the longest.

    Columns: as ``added_events``. ``tids`` has ``row`` and ``tid`` of events that are drawn elsewhere.
    """
    graph = dependencies(trace)
    if graph.events.is_empty():
        return
    path = segments(graph, graph.replay, [window_of(trace, graph, None, None, None, 0)])
    path = path.with_columns(event_name=graph.events["name"].cast(pl.String).gather(path["event"]))
    longest = pl.col("dur_ns").arg_max()
    # Neighbours that are bound by the same are one slice.
    parts = path.group_by(pl.col("bound_by").rle_id().alias("part"), maintain_order=True).agg(
        pl.col("bound_by", "start_ns").first(),
        pl.col("dur_ns").sum(),
        pl.col("event_name", "edge").get(longest),
        pl.len().cast(pl.Int64).alias("segments"),
    )
    yield parts.select(
        ph=pl.lit("X"),
        cat=pl.lit(category),
        name="bound_by",
        ts="start_ns",
        dur="dur_ns",
        pid_text=pl.lit(TRACK),
        tid_text=pl.lit(TRACK),
        **{"n:segments": pl.col("segments"), "s:longest": pl.col("event_name"), "s:its edge": pl.col("edge")},
    )
    times = graph.times[path["event"]].rename({"start_ns": "first_ns", "end_ns": "last_ns"})
    yield _arrows(trace, path.hstack(times), category, tids)


def _arrows(trace: Trace, path: pl.DataFrame, category: str, tids: pl.DataFrame) -> pl.DataFrame:
    """Both ends of an arrow from each segment to the next one, if that is on another track."""
    rows = path["row"]
    on_gpu = gather_rows(rows, trace.gpu_ops, "device", "stream").cast(pl.Int64)
    tables = (trace.ops, trace.launches, trace.python, trace.ranges)
    tracks = [gather_rows(rows, table, "track")["track"] for table in tables]
    placed = path.hstack(on_gpu).with_columns(pl.select(track=pl.coalesce(tracks)).to_series())
    placed = placed.join(places_of_tracks(trace.threads), on="track", how="left", maintain_order="left")
    placed = placed.join(tids.rename({"tid": "moved"}), on="row", how="left", maintain_order="left")
    first, last = pl.col("first_ns"), pl.col("last_ns")
    ends = placed.drop_nulls("row").select(
        pid=pl.coalesce("device", "pid"),
        tid=pl.coalesce("moved", "stream", "tid"),
        pid_text="pid_text",
        tid_text=pl.when(pl.col("moved").is_null()).then("tid_text"),
        # Inside the event: the segment may be the wait before its start.
        leaves_ns=(pl.col("start_ns") + pl.col("dur_ns") - 1).clip(first, last),
        enters_ns=pl.col("start_ns").clip(first, last),
    )
    places = pl.struct("pid", "tid", "pid_text", "tid_text")
    leaves = ends.select((places != places.shift(-1)).fill_null(value=False)).to_series()
    # The arrows of launches and gradients come first.
    first_id = first_free_id(trace) + 2 * (trace.gpu_ops.height + trace.ops.height + 1)
    arrow = {
        "cat": pl.lit(category),
        "name": pl.lit("critical path"),
        "id": pl.int_range(pl.len(), dtype=pl.Int64) + first_id,
    }
    shown = pl.exclude("leaves_ns", "enters_ns")
    starts = ends.filter(leaves).select(shown, **arrow, ph=pl.lit("s"), ts="leaves_ns")
    into = ends.filter(leaves.shift(1, fill_value=False))
    return pl.concat(
        [starts, into.select(shown, **arrow, ph=pl.lit("f"), bp=pl.lit("e"), ts="enters_ns")], how="diagonal"
    )
