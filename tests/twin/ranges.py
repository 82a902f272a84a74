"""The GPU time of annotations, and of ranges where the profiler's annotations stand for these."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from slow_reader import Row, end, length, threads_of
from twin.calls import around, launching
from twin.figures import Figures, Rows, duration, spans

_SUMMED = ("gpu_span_ns", "gpu_busy_ns", "gpu_exclusive_ns", "other_thread_ns", "launches", "gpu_ops")


class Projected:
    """What was launched while each annotation was open, and that of which it is the innermost."""

    def __init__(self, rows: Rows) -> None:
        self.inside: defaultdict[int, list[Row]] = defaultdict(list)
        self.innermost: defaultdict[int, list[Row]] = defaultdict(list)
        self.annotations = [op for op in rows["ops"] if op["is_annotation"]]
        self.call = {work["row"]: call for work, call in launching(rows)}
        for work, opened in around(rows):
            for op in opened:
                self.inside[op["row"]].append(work)
            if opened:
                self.innermost[opened[-1]["row"]].append(work)

    def figures(self, op: Row) -> dict[str, Any]:
        works = self.inside[op["row"]]
        first = min((work["start_ns"] for work in works), default=None)
        last = max((end(work) for work in works), default=None)
        return {
            "device_total_ns": sum(map(duration, works)),
            "gpu_start_ns": first,
            "gpu_end_ns": last,
            "gpu_span_ns": 0 if first is None or last is None else last - first,
            "gpu_busy_ns": length(spans(works)),
            "gpu_exclusive_ns": length(spans(self.innermost[op["row"]])),
            "other_thread_ns": sum(duration(work) for work in works if self._track(work) != op["track"]),
            "gpu_ops": len(works),
        }

    def _track(self, work: Row) -> int | None:
        call = self.call[work["row"]]
        return None if call is None else call["track"]


def annotation_table(rows: Rows, *by: str) -> Figures:
    """The images that the recorder drew are checked by what other tools sum up."""
    projected = Projected(rows)
    found: dict[Any, dict[str, Any]] = {}
    for op in projected.annotations:
        figures = projected.figures(op) | {"calls": 1, "host_total_ns": duration(op)}
        sums = found.setdefault(tuple(op[name] for name in by), {})
        for name, value in figures.items():
            known = [each for each in (sums.get(name), value) if each is not None]
            merge = {"gpu_start_ns": min, "gpu_end_ns": max}.get(name, sum)
            sums[name] = merge(known) if known else None
    for sums in found.values():
        if not rows["gpu_ops"]:
            sums |= {name: None for name in sums if name.startswith(("gpu_", "device_", "other_"))}
    return found


def nvtx_projection(rows: Rows) -> Figures:
    """Each annotation with GPU work, by its row."""
    projected = Projected(rows)
    found: Figures = {}
    nesting = _nesting(projected.annotations)
    for op in projected.annotations:
        row = op["row"]
        parent, depth = nesting[row]
        works = projected.inside[row]
        figures = projected.figures(op)
        del figures["device_total_ns"]
        calls = {call["row"] for work in works if (call := projected.call[work["row"]]) is not None}
        place = {"parent_row": parent, "depth": depth, "launches": len(calls)}
        if works:
            found[row] = {**figures, **place, "start_ns": op["start_ns"], "dur_ns": op["dur_ns"]}
    return found


def _nesting(annotations: list[Row]) -> dict[int, tuple[int | None, int]]:
    """The shortest annotation around each on its thread, and how many are above it in this way."""
    found: dict[int, tuple[int | None, int]] = {}
    for members in threads_of(annotations).values():
        for place, op in enumerate(members):
            # What lies outside comes before, in order of start and the longest first.
            outer = [other for other in members[:place] if end(op) <= end(other)]
            outer.sort(key=lambda other: (duration(other), -other["start_ns"]))
            found[op["row"]] = (outer[0]["row"], found[outer[0]["row"]][1] + 1) if outer else (None, 0)
    return found


def nvtx_table(rows: Rows) -> Figures:
    found: dict[Any, dict[str, Any]] = {}
    projected = Projected(rows)
    names = {op["row"]: op["name"] for op in projected.annotations}
    for row, figures in nvtx_projection(rows).items():
        sums = found.setdefault((None, names[row]), {"ranges": 0})
        sums["ranges"] += 1
        for name in ("dur_ns", *_SUMMED):
            sums[name] = sums.get(name, 0) + (figures[name] or 0)
    return found
