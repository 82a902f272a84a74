"""The trace view: what ran when, per stream and thread."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from kernelscope.analysis.trace_view import TimelineView
from kernelscope.report.html.cells import texts
from kernelscope.report.html.parts import Part, View
from kernelscope.report.html.sources import Sources

_PIXELS = (1_600, 12_800)
_STEP_PIXELS = 16_384
_MOST_MARKS = 60_000
_MOST_STEPS = 2_000


def view(sources: Sources) -> View:
    """The trace view."""
    what = (
        "What ran when, per GPU stream and host thread. Zoom with the buttons, the keys + and -, or Ctrl and"
        " the wheel; drag, or use the arrow keys, to move; point at something for its name."
    )
    return View("trace", "Trace view", what, _parts(sources))


def _parts(sources: Sources) -> list[Part]:
    timeline = TimelineView(sources.trace)
    if timeline.tracks.is_empty():
        return [*sources.missing("operators", "kernels")]
    steps = sources.breakdown.filter(pl.col("step").is_not_null())
    frames = [_fitting(timeline, pixels) for pixels in _PIXELS]
    if steps.height > 1:
        median = steps.sort("total_ns", "start_ns").row(steps.height // 2, named=True)
        start, end = median["start_ns"], median["start_ns"] + median["total_ns"]
        frames.append(_fitting(timeline, _STEP_PIXELS, start, end))
    what = (
        "Bars are events, or where many are narrower than a pixel, what takes most of that time. The median"
        " step is there in most detail; kernelscope convert --to perfetto writes every event."
    )
    return [
        Timeline(
            "trace", "Timeline", what, timeline.tracks, frames, steps.head(_MOST_STEPS), sources.origin_ns
        )
    ]


@dataclass(frozen=True, slots=True)
class Level:
    """What is seen of a stretch of time: the answer of :func:`kernelscope.analysis.timeline`."""

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
    while True:
        marks = timeline.show(start_ns=start, end_ns=end, pixels=pixels)
        if marks.height <= _MOST_MARKS or pixels < _PIXELS[0] // 8:
            return Level(start, end, pixels, marks.head(_MOST_MARKS))
        pixels //= 2


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timeline that can be zoomed: coarse and fine levels of which the page takes what fits."""

    id: str
    title: str
    what: str
    tracks: pl.DataFrame
    levels: Sequence[Level]
    steps: pl.DataFrame
    origin_ns: int

    def payload(self) -> dict[str, Any]:
        """The part as the page's script takes it."""
        every = pl.concat([level.marks.select("name", "category") for level in self.levels])
        names = texts(every["name"])
        categories = texts(every["category"])
        lanes = pl.concat([level.marks.select("track", "lane") for level in self.levels])
        deep = dict(lanes.group_by("track").agg(pl.col("lane").max() + 1).iter_rows())
        found: list[dict[str, Any]] = []
        at = 0
        for level in self.levels:
            until = at + level.marks.height
            found.append(self._level(level, names["of"][at:until], categories["of"][at:until]))
            at = until
        steps = self.steps.select(pl.col("start_ns") - self.origin_ns, "total_ns", "step")
        return {
            "kind": "timeline",
            "id": self.id,
            "title": self.title,
            "what": self.what,
            "tracks": [
                {"label": label, "lanes": deep.get(track, 0)}
                for track, label in self.tracks.select("track", "label").iter_rows()
            ],
            "names": names["texts"],
            "short": names["short"],
            "categories": categories["texts"],
            "levels": found,
            "steps": [list(row) for row in steps.iter_rows()],
        }

    def _level(self, level: Level, names: list[Any], categories: list[Any]) -> dict[str, Any]:
        marks = level.marks
        starts = marks["start_ns"] - self.origin_ns
        return {
            "start": level.start_ns - self.origin_ns,
            "end": level.end_ns - self.origin_ns,
            "pixels": level.pixels,
            "track": marks["track"].to_list(),
            "lane": marks["lane"].to_list(),
            # Differences are short numbers, which compress well.
            "start_steps": starts.diff().fill_null(starts).to_list(),
            "length": (marks["end_ns"] - marks["start_ns"]).to_list(),
            "busy": (100 * marks["busy_share"]).round().cast(pl.Int64).to_list(),
            "events": marks["events"].to_list(),
            "name": names,
            "category": categories,
        }
