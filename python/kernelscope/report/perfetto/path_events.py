"""The critical path, as a track of its own and as arrows between the events that it passes."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.dependencies.path import window_of
from kernelscope.analysis.dependencies.segments import segments
from kernelscope.analysis.grouping import gather_events
from kernelscope.report.perfetto.added_events import CATEGORY
from kernelscope.report.perfetto.chrome_events import first_free_id, places_of_tracks
from kernelscope.trace import Trace

TRACK = "Critical path"
"""Name of the process and the thread of the track."""


def path_events(trace: Trace, moved: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yields the critical path of a trace, and arrows where it changes tracks.

    Columns: as ``added_events``. ``moved`` has the events that are drawn elsewhere; see ``further_tracks``.
    """
    graph = dependencies(trace)
    if graph.events.is_empty():
        return
    path = segments(graph, graph.replay, [window_of(trace, graph, None, None, None, 0)])
    path = path.with_columns(name=graph.events["name"].cast(pl.String).gather(path["event"]))
    yield slices_of_path(path)
    yield arrows_of_path(ends_of_arrows(trace, path, moved), first_path_id(trace))


def first_path_id(trace: Trace) -> int:
    """Returns the first id of arrows of the path, which follow the arrows of launches and gradients."""
    return first_free_id(trace) + 2 * (trace.gpu_ops.height + trace.ops.height + 1)


def slices_of_path(path: pl.DataFrame) -> pl.DataFrame:
    """Returns the starts and ends of the slices of a path, named after their reason, and rank if any.

    Their arguments are the number of segments, and the event and the dependency of the longest.

    Columns: as ``added_events``. ``path`` is a critical path with ``name``, of several ranks with ``rank``.
    """
    longest = pl.col("dur_ns").arg_max()
    reason = pl.col("bound_by").cast(pl.String)
    title = pl.format("rank {}: {}", "rank", reason) if "rank" in path.columns else reason
    # Neighbours that are bound by the same are one slice.
    parts = path.with_columns(title=title).group_by(
        pl.col("title").rle_id().alias("part"), maintain_order=True
    )
    parts = parts.agg(
        pl.col("title", "start_ns").first(),
        pl.col("dur_ns").sum(),
        pl.col("name", "edge").get(longest),
        pl.len().cast(pl.Int64).alias("segments"),
    )
    # Perfetto rounds the times of JSON, and drops slices with a duration that then overlap.
    arguments = {"n:segments": pl.col("segments"), "s:longest": pl.col("name"), "s:its edge": pl.col("edge")}
    start = parts.select("part", ph=pl.lit("B"), name="title", ts="start_ns", **arguments)
    end = parts.select("part", ph=pl.lit("E"), name="title", ts=pl.col("start_ns") + pl.col("dur_ns"))
    ends = pl.concat([start, end], how="diagonal").sort("part", "ph").drop("part")
    return ends.with_columns(cat=pl.lit(CATEGORY), pid_text=pl.lit(TRACK), tid_text=pl.lit(TRACK))


def ends_of_arrows(trace: Trace, path: pl.DataFrame, moved: pl.DataFrame) -> pl.DataFrame:
    """Returns where an arrow would enter and leave the event of each segment of a path.

    Columns: ``pid``, ``tid``, ``pid_text`` and ``tid_text`` of the event; ``since_ns`` (start of the
        segment); ``enters_ns`` and ``leaves_ns``, which are inside the event, though the segment may be the
        wait before it. ``moved`` has the events that are drawn elsewhere; see ``further_tracks``.
    """
    path = path.drop_nulls("row")
    placed = gather_events(path["row"], trace, "track", "device", "stream", "start_ns", "dur_ns")
    placed = placed.with_columns(pl.col("device", "stream").cast(pl.Int64))
    placed = placed.with_columns(path.select("row", since_ns="start_ns", path_ns="dur_ns"))
    placed = placed.join(places_of_tracks(trace.threads), on="track", how="left", maintain_order="left")
    elsewhere = moved.select("row", moved="tid")
    placed = placed.join(elsewhere, on="row", how="left", maintain_order="left")
    first = pl.col("start_ns")
    last = first + pl.col("dur_ns").fill_null(0)
    return placed.select(
        pid=pl.coalesce("device", "pid"),
        tid=pl.coalesce("moved", "stream", "tid"),
        pid_text="pid_text",
        tid_text=pl.when(pl.col("moved").is_null()).then("tid_text"),
        since_ns="since_ns",
        enters_ns=pl.col("since_ns").clip(first, last),
        leaves_ns=(pl.col("since_ns") + pl.col("path_ns") - 1).clip(first, last),
    )


def arrows_of_path(ends: pl.DataFrame, first_id: int) -> pl.DataFrame:
    """Returns both ends of an arrow from each segment to the next one, if that is on another track.

    Columns: as ``added_events``. ``ends`` comes from :func:`ends_of_arrows`, in the order of the path.
    """
    places = pl.struct("^(pid|tid).*$")
    leaves = ends.select((places != places.shift(-1)).fill_null(value=False)).to_series()
    arrow = {
        "cat": pl.lit(CATEGORY),
        "name": pl.lit("critical path"),
        "id": pl.int_range(pl.len(), dtype=pl.Int64) + first_id,
    }
    shown = pl.exclude("since_ns", "enters_ns", "leaves_ns")
    starts = ends.filter(leaves).select(shown, **arrow, ph=pl.lit("s"), ts="leaves_ns")
    into = ends.filter(leaves.shift(1, fill_value=False))
    return pl.concat(
        [starts, into.select(shown, **arrow, ph=pl.lit("f"), bp=pl.lit("e"), ts="enters_ns")], how="diagonal"
    )
