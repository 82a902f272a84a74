"""Samples of GPU metrics and what ran meanwhile, by loops over the rows of a database of nsys."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

Interval = tuple[int, int]
Key = tuple[int, str]


class Sample(NamedTuple):
    start: int
    end: int
    value: float


class Figures(NamedTuple):
    mean_value: float | None
    peak_value: float | None
    samples: int
    covered_ns: int
    time_ns: int


class Recording:
    """The rows of a database whose GPUs have the numbers of CUDA."""

    def __init__(self, path: Path) -> None:
        connection = sqlite3.connect(path)
        names = dict(connection.execute("SELECT metricId, metricName FROM TARGET_INFO_GPU_METRICS"))
        taken: dict[Key, list[tuple[int, int, float | None]]] = defaultdict(list)
        for row in connection.execute("SELECT rowid, timestamp, typeId, metricId, value FROM GPU_METRICS"):
            rowid, at, kind, metric, value = row
            taken[kind % 256, names[metric]].append((at, rowid, known(names[metric], value)))
        self.samples = {key: held(sorted(rows, key=lambda row: row[:2])) for key, rows in taken.items()}
        self.samples = {key: rows for key, rows in self.samples.items() if rows}
        texts = dict(connection.execute("SELECT id, value FROM StringIds"))
        self.kernels = [
            (device, start, end, texts[name], correlation)
            for device, start, end, name, correlation in connection.execute(
                "SELECT deviceId, start, end, demangledName, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
            )
        ]
        self.calls = {
            correlation: (start, end)
            for start, end, correlation in connection.execute(
                "SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            )
        }
        self.ranges = [
            (texts[number] if text is None else text, start, end)
            for text, number, start, end in connection.execute(
                "SELECT text, textId, start, end FROM NVTX_EVENTS WHERE eventType IN (59, 60)"
            )
        ]
        connection.close()

    def of_kernels(self) -> dict[tuple[str, int], list[Interval]]:
        found = defaultdict(list)
        for device, start, end, name, _ in self.kernels:
            found[name, device].append((start, end))
        return found

    def of_ranges(self) -> dict[tuple[str, int], list[Interval]]:
        found = defaultdict(list)
        for text, start, end in self.ranges:
            for device, work in self._inside(start, end).items():
                name = text.partition(", op_id")[0]
                found[name, device].append((min(s for s, _ in work), max(e for _, e in work)))
        return found

    def of_host_ranges(self) -> dict[tuple[str, int], list[Interval]]:
        found = defaultdict(list)
        for text, start, end in self.ranges:
            for device in {device for device, _ in self.samples}:
                found[text.partition(", op_id")[0], device].append((start, end))
        return found

    def of_operators(self) -> dict[tuple[str, int], list[Interval]]:
        found = defaultdict(list)
        for text, start, end in self.ranges:
            if text.startswith("aten::"):
                for device, work in self._inside(start, end).items():
                    found[text.partition(", op_id")[0], device] += work
        return found

    def _inside(self, start: int, end: int) -> dict[int, list[Interval]]:
        """The times of the work whose call lies in a range, by GPU."""
        found = defaultdict(list)
        for device, begin, finish, _, correlation in self.kernels:
            call = self.calls.get(correlation)
            if call and start <= call[0] and call[1] <= end:
                found[device].append((begin, finish))
        return found


def known(name: str, value: float | None) -> float | None:
    """A value that a GPU can have; clocks are stored in Hz, whatever their names say."""
    if value is None or value < 0 or ("%" in name and value > 100):
        return None
    return value / 1e6 if "[MHz]" in name and value >= 1e6 else value


def held(rows: list[tuple[int, int, float | None]]) -> list[Sample]:
    """Until the next, for two usual intervals at most."""
    starts = [row[0] for row in rows]
    steps = sorted(b - a for a, b in pairwise(starts) if b > a)
    usual = steps[(len(steps) - 1) // 2] if steps else 0
    ends = [min(b, a + 2 * usual) for a, b in zip(starts, [*starts[1:], starts[-1] + usual], strict=True)]
    return [Sample(a, b, row[2]) for a, b, row in zip(starts, ends, rows, strict=True) if row[2] is not None]


def figures(samples: Iterable[Sample], times: list[Interval]) -> Figures:
    """Those of the union of ``times``."""
    union: list[list[int]] = []
    for start, end in sorted(times):
        if start >= end:
            continue
        if union and start <= union[-1][1]:
            union[-1][1] = max(union[-1][1], end)
        else:
            union.append([start, end])
    total, covered, taken, values, alone = 0.0, 0, 0, [], []
    for sample in samples:
        for start, end in union:
            part = min(end, sample.end) - max(start, sample.start)
            is_taken = start <= sample.start < end
            taken += is_taken
            covered += max(part, 0)
            total += sample.value * max(part, 0)
            values += [sample.value] * (part > 0 or is_taken)
            alone += [sample.value] * is_taken
    length = sum(end - start for start, end in union)
    if not taken:
        return Figures(None, None, 0, covered, length)
    return Figures(total / covered if covered else sum(alone) / taken, max(values), taken, covered, length)


def table(recording: Recording, times: dict[Any, list[Interval]]) -> dict[tuple[Any, ...], Figures]:
    """A row for each of ``times``, which have the GPU as the last of their key, and metric."""
    rows = {}
    for (*names, device), own in times.items():
        for (gpu, metric), samples in recording.samples.items():
            if gpu == device and any(start < end for start, end in own):
                rows[(*names, device, metric)] = figures(samples, own)
    return rows
