"""Calls of the host: how they nest, what is open while work is launched, and whose time a moment is."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from slow_reader import Row, end
from twin.figures import Rows, grouped


def _encloses(op: Row, call: Row) -> bool:
    inside = op["start_ns"] <= call["start_ns"] and end(call) <= end(op)
    return op["track"] == call["track"] and inside


def launching(rows: Rows) -> Iterator[tuple[Row, Row | None]]:
    """Each GPU work with the call that launched it.

    The operator that an id names stands for a launch that was not recorded or lies elsewhere.
    """
    calls = {call["row"]: call for call in rows["launches"]}
    ops = {op["row"]: op for op in rows["ops"]}
    for work in rows["gpu_ops"]:
        call, op = calls.get(work["launch_row"]), ops.get(work["op_row"])
        yield work, op if op is not None and (call is None or not _encloses(op, call)) else call


def around(rows: Rows) -> Iterator[tuple[Row, list[Row]]]:
    """Each GPU work with the annotations that are open at the launch, the innermost last.

    Those of the thread that launches it are inside those of the thread that waits for its backward pass.
    """
    opened = grouped((op for op in rows["ops"] if op["is_annotation"]), lambda op: op["track"])
    found: dict[int, list[Row]] = {}
    for work, place in launching(rows):
        if place is not None and place["row"] not in found:
            found[place["row"]] = []
            for track in (place.get("caller_track"), place["track"]):
                enclosing = [op for op in opened.get(track, ()) if _encloses(op, {**place, "track": track})]
                enclosing.sort(key=lambda op: (op["start_ns"], -end(op), op["row"]))
                found[place["row"]] += enclosing
        yield work, [] if place is None else found[place["row"]]


def moments(slices: list[Row]) -> Iterator[tuple[int, Row]]:
    """For how long which slice of one thread is the one that started last."""
    ordered = sorted(slices, key=lambda row: (row["start_ns"], -end(row)))
    bounds = sorted({moment for row in slices for moment in (row["start_ns"], end(row))})
    running: list[tuple[int, int]] = []
    begun = 0
    for begin, stop in pairwise(bounds):
        while begun < len(ordered) and ordered[begun]["start_ns"] <= begin:
            heapq.heappush(running, (-begun, end(ordered[begun])))
            begun += 1
        while running and running[0][1] <= begin:
            heapq.heappop(running)
        if running:
            yield stop - begin, ordered[-running[0][0]]


def own_times(slices: list[Row], others: list[Row]) -> dict[int, int]:
    """How long each slice itself runs: a moment of a thread is that of the slice or other that started last.

    Others lie in slices of the same time.
    """
    beside = {id(row) for row in others}
    found: defaultdict[int, int] = defaultdict(int)
    for members in grouped(slices + others, lambda row: row["track"]).values():
        for lasted, row in moments(members):
            if id(row) not in beside:
                found[row["row"]] += lasted
    return found


class Tree:
    """The operators and annotations of a trace; where ``collapse``, repeats of a name count as one call.

    ``kept`` has for each row the one that stands for it, ``parent`` for those the one around it.
    """

    def __init__(self, ops: list[Row], *, collapse: bool) -> None:
        self.ops = {op["row"]: op for op in ops}
        inside = grouped(ops, lambda op: op["parent_row"])
        self.kept: dict[int, int] = {}
        for op in sorted(ops, key=lambda op: op["depth"]):
            above: Any = op["parent_row"]
            repeats = above is not None and len(inside[above]) == 1
            repeats = repeats and self.ops[above]["name"] == op["name"]
            self.kept[op["row"]] = self.kept[above] if collapse and repeats else op["row"]
        self.parent: dict[int, int | None] = {}
        for row, kept in self.kept.items():
            if row == kept:
                above = self.ops[row]["parent_row"]
                self.parent[row] = None if above is None else self.kept[above]

    def upwards(self, row: int | None) -> Iterator[int]:
        """What stands for a call, and for all around it."""
        at = None if row is None else self.kept.get(row)
        while at is not None:
            yield at
            at = self.parent[at]


def running_at(ops: list[Row], starts: list[Row]) -> dict[int, Row]:
    """The call of each thread that started last and still runs when each of ``starts`` happens.

    A call runs from its start until just before its end.
    """
    found: dict[int, Row] = {}
    threads = grouped(ops, lambda op: op["track"])
    for track, moments_of in grouped(starts, lambda row: row["track"]).items():
        ordered = sorted(threads.get(track, ()), key=lambda op: (op["start_ns"], -end(op), op["row"]))
        running: list[tuple[int, int]] = []
        begun = 0
        for moment in sorted(moments_of, key=lambda row: row["start_ns"]):
            at = moment["start_ns"]
            while begun < len(ordered) and ordered[begun]["start_ns"] <= at:
                heapq.heappush(running, (-begun, end(ordered[begun])))
                begun += 1
            while running and running[0][1] <= at:
                heapq.heappop(running)
            if running:
                found[moment["row"]] = ordered[-running[0][0]]
    return found
