"""The trace view: a timeline per stream and thread."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import polars as pl

from kernelscope.analysis.timeline import TimelineView
from kernelscope.report.parts import Note, Page, Part
from kernelscope.report.parts.cells import texts_of_classes
from kernelscope.report.parts.window import host_events, origin_ns, window_of
from kernelscope.report.views import missing
from kernelscope.trace import Trace

ORDER = 140
TABLES = (*missing.TABLES, "threads")
PAGE = Page(
    "trace",
    "Trace view",
    "Timeline of GPU streams and host threads. Zoom with the buttons, the keys + and -, or Ctrl and "
    "the wheel. Drag or use the arrow keys to move. Hover over an event for its name.",
)
_PIXELS = (1_600, 12_800)
_STEP_PIXELS = 16_384
_MOST_MARKS = 60_000
_MOST_STEPS = 2_000
_MOST_EVENTS = 1_500_000
"""Number of host events above which the timeline has only the streams and a window of the rest."""
_SHIFTED = (
    "On threads, the line of a step is at the start of its annotation. On streams, it is where the "
    "GPU has finished the previous step, because the host runs ahead of the GPU."
)
_TRACK = ["track_kind", "label", "device", "stream", "pid", "tid"]


def page(trace: Trace) -> list[Part]:
    """Returns the trace view."""
    whole = trace.steps.filter(~pl.col("is_partial"), pl.col("step").is_not_null())
    steps = whole.sort("start_ns", "step", maintain_order=True)
    is_large = host_events(trace) > _MOST_EVENTS
    levels = _levels_of_large(trace) if is_large else _levels(trace, steps)
    if not levels:
        return [*missing.notes(trace, "operators", "kernels")]
    tracks, levels = _numbered(levels)
    what = (
        "Bars are events. Where several are narrower than a pixel, the bar shows the one with the "
        "most time. The median step is shown in most detail; kernelscope convert --to perfetto "
        "writes every event."
    )
    if steps.filter(pl.col("host_start_ns") != pl.col("start_ns")).height:
        what += f" {_SHIFTED}"
    shown = Timeline("trace", "Timeline", what, tracks, levels, steps.head(_MOST_STEPS), origin_ns(trace))
    if not is_large:
        return [shown]
    text = f"The trace is large: threads are shown for {window_of(trace).part}, streams for the whole trace."
    return [shown, Note(text)]


def _levels(trace: Trace, steps: pl.DataFrame) -> list["Level"]:
    """The whole trace, and its median step in detail."""
    timeline = TimelineView(trace)
    if timeline.tracks.is_empty():
        return []
    levels = [_fitting(timeline, pixels) for pixels in _PIXELS]
    if steps.height > 1:
        median = steps.sort("total_ns", "start_ns").row(steps.height // 2, named=True)
        start, end = median["start_ns"], median["start_ns"] + median["total_ns"]
        levels.append(_fitting(timeline, _STEP_PIXELS, start, end))
    return levels


def _levels_of_large(trace: Trace) -> list["Level"]:
    """The streams of the whole trace, and everything of the window."""
    streams = TimelineView(trace, kinds=("stream",))
    levels = [] if streams.tracks.is_empty() else [_fitting(streams, pixels) for pixels in _PIXELS]
    return [*levels, _fitting(TimelineView(window_of(trace).trace), _STEP_PIXELS)]


def _numbered(levels: list["Level"]) -> tuple[pl.DataFrame, list["Level"]]:
    """The tracks of all levels, those of the first level in front, and the levels with their numbers."""
    own = [level.marks[["track", *_TRACK]].unique("track", maintain_order=True) for level in levels]
    tracks = pl.concat([places[_TRACK] for places in own]).unique(maintain_order=True)
    tracks = tracks.sort(pl.col("track_kind") != "stream", maintain_order=True).with_row_index("number")
    numbered: list[Level] = []
    for level, places in zip(levels, own, strict=True):
        numbers = places.join(tracks, on=_TRACK, how="left", nulls_equal=True)[["track", "number"]]
        marks = level.marks.join(numbers, on="track", how="left", maintain_order="left")
        marks = marks.sort("number", "lane", "start_ns", maintain_order=True)
        numbered.append(replace(level, marks=marks))
    return tracks, numbered


@dataclass(frozen=True, slots=True)
class Level:
    """The visible rows of a time range: a result of :func:`kernelscope.analysis.timeline`."""

    start_ns: int
    end_ns: int
    pixels: int
    marks: pl.DataFrame


def _fitting(
    timeline: TimelineView, pixels: int, start_ns: int | None = None, end_ns: int | None = None
) -> Level:
    """As many pixels, up to ``pixels``, as give no more than ``_MOST_MARKS`` marks."""
    start = timeline.start_ns if start_ns is None else start_ns
    end = timeline.end_ns if end_ns is None else end_ns
    while pixels >= _PIXELS[0] // 8:
        marks = timeline.show_at_most(_MOST_MARKS, start_ns=start, end_ns=end, pixels=pixels)
        if marks is not None:
            return Level(start, end, pixels, marks)
        pixels //= 2
    marks = timeline.show(start_ns=start, end_ns=end, pixels=pixels)
    return Level(start, end, pixels, marks.head(_MOST_MARKS))


@dataclass(frozen=True, slots=True)
class Timeline(Part):
    """A timeline that can be zoomed: coarse and fine levels, from which the page selects."""

    kind: ClassVar[str] = "timeline"
    id: str
    title: str
    what: str
    tracks: pl.DataFrame
    levels: Sequence[Level]
    steps: pl.DataFrame
    origin_ns: int

    def payload(self) -> dict[str, Any]:
        """Returns the part for the page's script."""
        every = pl.concat([level.marks[["name", "category", "number", "lane"]] for level in self.levels])
        names, name_of = texts_of_classes(every["name"])
        categories, category_of = texts_of_classes(every["category"])
        deep = dict(every.group_by("number").agg(pl.col("lane").max() + 1).iter_rows())
        found: list[dict[str, Any]] = []
        at = 0
        for level in self.levels:
            until = at + level.marks.height
            found.append(self._level(level, name_of[at:until], category_of[at:until]))
            at = until
        steps = self.steps.select(pl.col("start_ns") - self.origin_ns, "total_ns", "step")
        return {
            "kind": self.kind,
            "id": self.id,
            "title": self.title,
            "what": self.what,
            "tracks": [
                {"label": label, "lanes": deep.get(track, 0), "kind": kind}
                for track, label, kind in self.tracks[["number", "label", "track_kind"]].iter_rows()
            ],
            "names": names["texts"],
            "short": names["short"],
            "categories": categories["texts"],
            "levels": found,
            "steps": [list(row) for row in steps.iter_rows()],
            "host_starts": (self.steps["host_start_ns"] - self.origin_ns).to_list(),
        }

    def _level(self, level: Level, names: pl.Series, categories: pl.Series) -> dict[str, Any]:
        marks = level.marks
        starts = marks["start_ns"] - self.origin_ns
        return {
            "start": level.start_ns - self.origin_ns,
            "end": level.end_ns - self.origin_ns,
            "pixels": level.pixels,
            "track": marks["number"].to_list(),
            "lane": marks["lane"].to_list(),
            # Differences are short numbers, which compress well.
            "start_steps": starts.diff().fill_null(starts).to_list(),
            "length": (marks["end_ns"] - marks["start_ns"]).to_list(),
            "busy": (100 * marks["busy_share"]).round().cast(pl.Int64).to_list(),
            "events": marks["events"].to_list(),
            "name": names.to_list(),
            "category": categories.to_list(),
        }
