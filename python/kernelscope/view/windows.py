"""The timeline: its tracks, and the part shown in a window of the screen.

Times are ns since the first event of the trace, as on every page and in every table of a report.
"""

import json
from typing import Any

import polars as pl

from kernelscope.analysis.timeline import KINDS, TimelineView
from kernelscope.memo import per_trace
from kernelscope.report.names import safe
from kernelscope.report.parts.cells import texts_of_classes
from kernelscope.report.parts.window import origin_ns
from kernelscope.report.text.summary import epoch_ns
from kernelscope.trace import Trace
from kernelscope.view.parameters import Parameters

MOST_MARKS = 60_000
"""Maximum number of marks in an answer; a window with more is shown on fewer pixels."""

CATEGORIES = (
    "kernel", "memcpy", "memset", "graph", "communication", "operator", "annotation", "range", "launch",
    "python",
)  # fmt: skip
"""Categories of marks, in the order of the legend."""

_MOST_PIXELS = 32_768
_MOST_STEPS = 5_000
_LONGEST_NAME = 256


@per_trace
def timeline_of(trace: Trace) -> TimelineView:
    """Returns the timeline of all events on tracks."""
    return TimelineView(trace, kinds=KINDS)


def described(trace: Trace, _asked: Parameters) -> dict[str, Any]:
    """Returns the structure of the timeline: its extent, tracks, steps and categories.

    ``epoch`` is the first moment in ns since 1970 as text, because it exceeds the range of JavaScript's
    numbers, or null.
    """
    origin = origin_ns(trace)
    timeline = timeline_of(trace)
    epoch = epoch_ns(trace, origin)
    steps = trace.steps.filter(~pl.col("is_partial"), pl.col("step").is_not_null()).sort("start_ns", "step")
    shown = steps.head(_MOST_STEPS).select("step", pl.col("start_ns") - origin, "total_ns")
    return {
        "start": timeline.start_ns - origin,
        "end": timeline.end_ns - origin,
        "epoch": None if epoch is None else str(epoch),
        "tracks": _tracks(trace, timeline),
        "categories": CATEGORIES,
        "present": _present(trace),
        "steps": [list(step) for step in shown.iter_rows()],
    }


def _present(trace: Trace) -> list[str]:
    """The categories of which the trace has events."""
    communicates = trace.gpu_ops["is_communication"].fill_null(value=False)
    found = set(trace.gpu_ops["kind"].filter(~communicates).unique().cast(pl.String).to_list())
    annotations = trace.ops["is_annotation"]
    there = {
        "communication": communicates.any(),
        "annotation": annotations.any(),
        "operator": not annotations.all(),
        "range": (trace.ranges["kind"] == "push_pop").any(),
        "launch": trace.launches.height > 0,
        "python": trace.python.height > 0,
    }
    return [name for name in CATEGORIES if name in found or there.get(name)]


def _tracks(trace: Trace, timeline: TimelineView) -> list[dict[str, Any]]:
    """The tracks, each with its group (a GPU, or a process) and how many lanes it has."""
    if timeline.tracks.is_empty():
        return []
    # On one pixel, each lane of a track has a mark.
    lanes = timeline.show(pixels=1).group_by("track").agg(lanes=pl.col("lane").max() + 1)
    devices = dict(trace.devices.select("device", pl.col("name").cast(pl.String)).iter_rows())
    processes = dict(
        trace.threads.filter(pl.col("process_name").is_not_null())
        .select("pid", pl.col("process_name").cast(pl.String))
        .iter_rows()
    )
    tracks = timeline.tracks.join(lanes, on="track", how="left", maintain_order="left")
    return [
        {
            "track": track["track"],
            "kind": track["track_kind"],
            "label": safe(track["label"]),
            "group": _group(track, devices, processes),
            "lanes": track["lanes"] or 1,
        }
        for track in tracks.iter_rows(named=True)
    ]


def _group(track: dict[str, Any], devices: dict[int, str | None], processes: dict[int, str | None]) -> str:
    """The GPU or the process that a track belongs to."""
    if track["track_kind"] == "stream":
        device = track["device"]
        name = devices.get(device)
        return f"GPU {'?' if device is None else device}" + (f" ({safe(name)})" if name else "")
    pid = track["pid"]
    name = processes.get(pid)
    return f"Process {'?' if pid is None else pid}" + (f" ({safe(name)})" if name else "")


def window(trace: Trace, asked: Parameters) -> bytes:
    """Returns the marks of ``[start, end)`` on ``pixels`` pixels, of the requested ``tracks``.

    The answer contains its number of pixels. Its marks are columns: ``track``, ``lane``, ``start``,
    ``length``, ``busy`` (percent), ``events``, ``category`` and ``name`` (positions in ``categories`` and in
    ``names``, which are cut to 256 characters and have ``short`` forms) and ``row``.
    """
    timeline, origin = timeline_of(trace), origin_ns(trace)
    span = timeline.end_ns - timeline.start_ns
    start = asked.between("start", timeline.start_ns - origin - span, timeline.end_ns - origin + span)
    end = asked.between("end", start + 1, timeline.end_ns - origin + 2 * span)
    pixels = asked.between("pixels", 1, _MOST_PIXELS)
    tracks = asked.numbers("tracks")
    marks, pixels = _fitting(timeline, start + origin, end + origin, pixels, tracks)
    names, name_of = texts_of_classes(marks["name"])
    place = {name: number for number, name in enumerate(CATEGORIES)}
    columns = marks.select(
        "track",
        "lane",
        start=pl.col("start_ns") - origin,
        length=pl.col("end_ns") - pl.col("start_ns"),
        busy=(100 * pl.col("busy_share")).round().cast(pl.Int64).fill_null(100),
        events="events",
        category=pl.col("category").cast(pl.String).replace_strict(place, return_dtype=pl.UInt8),
        name=name_of,
        row="row",
    )
    head = {
        "start": start,
        "end": end,
        "pixels": pixels,
        "tracks": tracks,
        "names": [text[:_LONGEST_NAME] for text in names["texts"]],
        "short": names["short"],
    }
    # Polars writes the columns, in a fifth of the time of the standard library and while others run.
    return json.dumps(head).encode()[:-1] + b', "marks": ' + _columns_as_json(columns) + b"}"


def _fitting(
    timeline: TimelineView, start_ns: int, end_ns: int, pixels: int, tracks: list[int]
) -> tuple[pl.DataFrame, int]:
    """The marks of a window on as many pixels as give no more than ``MOST_MARKS``, and how many these are."""
    while pixels > 1:
        marks = timeline.show_at_most(
            MOST_MARKS, start_ns=start_ns, end_ns=end_ns, pixels=pixels, only=tracks
        )
        if marks is not None:
            return marks, pixels
        pixels //= 2
    # Lanes are as many as a file makes them.
    return timeline.show(start_ns=start_ns, end_ns=end_ns, pixels=1, only=tracks).head(MOST_MARKS), 1


def _columns_as_json(frame: pl.DataFrame) -> bytes:
    return frame.select(pl.all().implode()).write_ndjson().strip().encode()
