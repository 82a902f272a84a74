"""The critical path in the timeline: the events that it passes, and how much later another one could end."""

from typing import Any

import polars as pl

from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.dependencies.path import window_of
from kernelscope.analysis.dependencies.segments import segments
from kernelscope.analysis.grouping import gather_events, gather_rows, positions
from kernelscope.analysis.steps.breakdown import step_times
from kernelscope.memo import per_trace
from kernelscope.report.parts.window import origin_ns
from kernelscope.trace import Trace
from kernelscope.view.parameters import Parameters
from kernelscope.view.places import event, place
from kernelscope.view.windows import timeline_of

MOST_ARROWS = 30
"""Maximum number of changes of streams and threads in a window that are drawn as arrows."""

_MOST_PIXELS = 32_768


@per_trace
def _path(trace: Trace) -> pl.DataFrame:
    """The critical path of the trace.

    Columns: ``start_ns`` and ``end_ns`` of each segment, ``bound_by``, ``row`` (of the event, or null),
        ``track`` (of the timeline), ``runner`` (a thread with its Python frames, or a stream), and ``around``
        (row of the operator around a Python frame).
    """
    graph = dependencies(trace)
    window = () if graph.events.is_empty() else (window_of(trace, graph, None, None, None, 0),)
    path = segments(graph, graph.replay, window)
    end_ns = pl.col("start_ns") + pl.col("dur_ns")
    found = path.select("start_ns", "bound_by", "row", end_ns=end_ns).hstack(_tracks(trace, path))
    return found.with_columns(_operators_around(trace, found))


def _tracks(trace: Trace, path: pl.DataFrame) -> pl.DataFrame:
    """``track`` and ``runner`` of each segment."""
    on_gpu = gather_rows(path["row"], trace.gpu_ops, "device", "stream", "pid")
    kinds = {"gpu_ops": "stream", "python": "python"}
    kind = path["table"].replace_strict(kinds, default="thread").alias("track_kind")
    thread = gather_events(path["row"], trace, "track")["track"]
    track = timeline_of(trace).tracks_of(on_gpu.with_columns(thread, kind))
    placed = pl.DataFrame({"track": track, "thread": thread.cast(pl.Int64)})
    # Below 0, as threads have numbers of their own.
    stream = -1 - pl.col("track").cast(pl.Int64)
    return placed.select("track", runner=pl.coalesce("thread", stream))


def _operators_around(trace: Trace, path: pl.DataFrame) -> pl.Series:
    """The innermost operator around each segment of a Python frame, whose track is folded at first."""
    ends = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    runner = pl.col("track").cast(pl.Int64)
    ops = trace.ops.select("row", "parent_row", "start_ns", runner=runner, until=ends)
    is_python = pl.col("row").is_in(trace.python["row"].implode())
    asked = path.with_row_index("at").filter(is_python).select("at", "runner", "start_ns", "end_ns")
    begun = ops.sort("start_ns", "until", descending=[False, True])
    found = asked.sort("start_ns").join_asof(begun, on="start_ns", by="runner", check_sortedness=False)
    found = found.drop_nulls("row")
    around = pl.Series("around", [None], pl.UInt32).new_from_index(0, path.height)
    while found.height:
        is_over = found["until"] < found["end_ns"]
        done = found.filter(~is_over)
        around = around.scatter(done["at"], done["row"])
        above = found.filter(is_over).drop_nulls("parent_row").select("at", "end_ns", row="parent_row")
        found = above.join(ops.select("row", "parent_row", "until"), on="row")
    return around


def path(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns where the critical path of the trace leads in ``[start, end)`` on ``pixels`` pixels.

    ``rows`` are the events on which it is for at least a pixel. ``spans`` (track, start, end) are the
    times in which it is on each track. ``parts`` (reason and ns) sum to the part of the window with events.
    ``arrows`` lead from stream or thread to another, unless there are more than ``MOST_ARROWS``.
    """
    origin = origin_ns(trace)
    start = asked.whole("start") + origin
    end = max(asked.whole("end") + origin, start + 1)
    pixel = max((end - start) // asked.between("pixels", 1, _MOST_PIXELS), 1)
    here = _path(trace).filter(pl.col("end_ns") > start, pl.col("start_ns") < end)
    here = here.with_columns(pl.col("start_ns").clip(start), pl.col("end_ns").clip(None, end))
    parts = here.group_by("bound_by").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    placed = here.drop_nulls("track")
    passed = pl.concat([placed, placed.with_columns(row="around").drop_nulls("row")])
    lengths = passed.group_by("row").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("length"))
    return {
        "rows": lengths.filter(pl.col("length") >= pixel)["row"].sort().to_list(),
        "spans": [list(span) for span in _spans(placed, pixel, origin).iter_rows()],
        "parts": [list(part) for part in parts.sort("ns", "bound_by", descending=[True, False]).iter_rows()],
        "arrows": _arrows(trace, placed),
    }


def _spans(placed: pl.DataFrame, pixel: int, origin: int) -> pl.DataFrame:
    """The times in which the path is on each track, without gaps below a pixel."""
    ordered = placed.sort("track", "start_ns")
    is_far = pl.col("start_ns") - pl.col("end_ns").shift(1) > pixel
    is_new = is_far | (pl.col("track") != pl.col("track").shift(1))
    spans = ordered.group_by("track", is_new.fill_null(value=True).cum_sum().alias("at"), maintain_order=True)
    found = spans.agg(pl.col("start_ns").min() - origin, pl.col("end_ns").max() - origin)
    return found.drop("at")


def _arrows(trace: Trace, placed: pl.DataFrame) -> list[dict[str, Any]]:
    """The changes of streams and threads, from the event that the path leaves to the next one."""
    changes = (placed["runner"] != placed["runner"].shift(-1)).fill_null(value=False).arg_true()
    if not 0 < changes.len() <= MOST_ARROWS:
        return []
    leaves, enters = placed[changes], placed[changes + 1]
    passed = {*leaves["row"].to_list(), *enters["row"].to_list()}
    places = {row: place(trace, event(trace, row).values) for row in passed}
    origin = origin_ns(trace)

    def at(row: int, time: int) -> dict[str, Any]:
        """Where the event is, at the time of the path, which may wait before its start."""
        where = places[row]
        first, last = where["start"], where["start"] + where["length"]
        return {**where, "start": min(max(time - origin, first), last)}

    return [
        {"from": at(row, end), "to": at(other, start)}
        for row, end, other, start in zip(
            leaves["row"], leaves["end_ns"], enters["row"], enters["start_ns"], strict=True
        )
    ]


def slack(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns as facts how long the event ``row`` is on the path of its step, or how much later it could end.

    An event of no step has the whole trace in its place.
    """
    graph = dependencies(trace)
    row = asked.whole("row")
    at = positions(graph.events["row"], pl.Series([row], dtype=pl.UInt32))[0] if 0 <= row < 2**32 else None
    if at is None:
        return {"facts": [], "status": "the graph of dependencies does not contain such events"}
    start_ns, end_ns = graph.times.row(at)
    since, until = pl.col("start_ns"), pl.col("start_ns") + pl.col("total_ns")
    own = step_times(trace).filter(since <= start_ns, until >= end_ns).select("start_ns", end_ns=until)
    window = own.row(0) if own.height else window_of(trace, graph, None, None, None, 0)
    on_path = segments(graph, graph.replay, [window]).filter(row=row)["dur_ns"].sum()
    subject = "step" if own.height else "trace"
    if on_path:
        what = f"The {subject} would be shorter by at most this without the event."
        return {"facts": [["On the path", on_path, "ns", what]], "status": None}
    later = pl.DataFrame(graph.replay.slack(window[1])).to_series()[at]
    what = f"By how much it could end later without the {subject} ending later."
    return {"facts": [["Slack", later, "ns", what]], "status": None}
