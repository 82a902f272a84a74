"""Steps and their breakdown for the slow reader: plain lists of intervals, priorities by subtraction."""

from __future__ import annotations

import re
from typing import Any

from slow_links import COMMUNICATION_OP, end

Row = dict[str, Any]
Interval = tuple[int, int]

ROLES = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_exec")
DATALOADER = re.compile(r"enumerate\(DataLoader\)#.*\.__next__$|enumerate\(DataPipe\)#", re.DOTALL)


def union(intervals: list[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for start, stop in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        elif stop > start:
            merged.append((start, stop))
    return merged


def intersect(a: list[Interval], b: list[Interval]) -> list[Interval]:
    found, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        start, stop = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < stop:
            found.append((start, stop))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return found


def subtract(a: list[Interval], b: list[Interval]) -> list[Interval]:
    left: list[Interval] = []
    j = 0
    for start, stop in a:
        while j < len(b) and b[j][1] <= start:
            j += 1
        k = j
        while k < len(b) and b[k][0] < stop:
            if b[k][0] > start:
                left.append((start, b[k][0]))
            start = max(start, b[k][1])
            k += 1
        if start < stop:
            left.append((start, stop))
    return left


def length(intervals: list[Interval]) -> int:
    return sum(stop - start for start, stop in intervals)


def find_steps(rows: dict[str, list[Row]]) -> list[Row]:
    """Steps with their device extension; also fills the ``step`` column of launches and GPU work."""
    marks = [op for op in rows["ops"] if (op["name"] or "").startswith("ProfilerStep#")]
    marks.sort(key=lambda op: op["start_ns"])
    steps: list[Row] = [
        {
            "step": int(op["name"][13:]),
            "name": op["name"],
            "row": op["row"],
            "host": (op["start_ns"], end(op)),
        }
        for op in marks
    ]
    if not steps:
        operators = [op for op in rows["ops"] if (op["category"] or "").lower() != "user_annotation"]
        extent = operators or rows["ops"] or rows["gpu_ops"] or rows["launches"]
        if not extent:
            return []
        span = (min(row["start_ns"] for row in extent), max(end(row) for row in extent))
        steps = [{"step": None, "name": None, "row": None, "host": span}]
    of_launch: dict[int, Row] = {}
    for launch in rows["launches"]:
        inside = (s for s in steps if launch["start_ns"] >= s["host"][0] and end(launch) <= s["host"][1])
        step = next(inside, None)
        if step is not None:
            launch["step"] = step["step"]
            of_launch[launch["row"]] = step
    for step in steps:
        step["work"] = []
    for work in rows["gpu_ops"]:
        step = of_launch.get(work.get("launch_row"))
        if step is not None:
            work["step"] = step["step"]
            step["work"].append(work)
    for op in rows["ops"]:
        inside = [s for s in steps if s["host"][0] <= op["start_ns"] < s["host"][1]]
        op["step"] = inside[-1]["step"] if inside else None
    extend(steps, [work for work in rows["gpu_ops"] if of_launch.get(work.get("launch_row")) is None])
    return steps


def extend(steps: list[Row], outside: list[Row]) -> None:
    """Each step ends with its GPU work and begins where the step before ended."""
    counts = [len(step["work"]) for step in steps]
    previous = steps[0]["host"][0]
    if steps[0]["work"]:
        first = min(work["start_ns"] for work in steps[0]["work"])
        previous = max([previous] + [end(work) for work in outside if end(work) < first])
    for step in steps:
        start, stop = step["host"]
        if any(counts):
            start = max(previous, start)
            stop = max([stop] + [end(work) for work in step["work"]])
            stop = max(stop, start)
            previous = stop
        step["span"], step["is_partial"] = (start, stop), False
    last = len(steps) - 1
    while any(counts) and last > 0 and counts[last] == 0:
        steps[last]["is_partial"] = True
        last -= 1
    if any(counts) and last > 0 and counts[last] < 0.8 * counts[last - 1]:
        steps[last]["is_partial"] = True


def roles(rows: dict[str, list[Row]]) -> dict[str, list[Interval]]:
    """The time each role is active, as a union over threads, streams and devices."""
    found: dict[str, list[Interval]] = {role: [] for role in ROLES}
    for work in rows["gpu_ops"]:
        role = "communication" if work["is_communication"] else work["kind"]
        found[role].append((work["start_ns"], end(work)))
    for launch in rows["launches"]:
        found["runtime"].append((launch["start_ns"], end(launch)))
    for op in rows["ops"]:
        name = op["name"] or ""
        if name.startswith("ProfilerStep#"):
            continue
        role = "cpu_exec"
        if DATALOADER.match(name):
            role = "dataloader"
        elif COMMUNICATION_OP.match(name):
            role = "communication"
        found[role].append((op["start_ns"], end(op)))
    return {role: union(intervals) for role, intervals in found.items()}


def fill_steps(steps: list[Row], rows: dict[str, list[Row]]) -> list[Row]:
    """Rows of the table ``steps``."""
    kept: list[Row] = []
    left = union([step["span"] for step in steps])
    parts: dict[str, list[Interval]] = {}
    for role, intervals in roles(rows).items():
        parts[role] = intersect(left, intervals)
        left = subtract(left, intervals)
    for work in rows["gpu_ops"]:
        if work.get("launch_row") is None:
            # Nothing says where it was launched; it belongs to the step it begins in.
            inside = [s for s in steps if s["span"][0] <= work["start_ns"] < s["span"][1]]
            work["step"] = inside[-1]["step"] if inside else None
    for step in steps:
        start, stop = step["span"]
        row = {"step": step["step"], "name": step["name"], "row": step["row"], "start_ns": start}
        row |= {"total_ns": stop - start, "host_start_ns": step["host"][0]}
        row |= {"host_dur_ns": step["host"][1] - step["host"][0], "is_partial": step["is_partial"]}
        row |= {f"{role}_ns": length(intersect(part, [(start, stop)])) for role, part in parts.items()}
        row["other_ns"] = row["total_ns"] - sum(row[f"{role}_ns"] for role in parts)
        kept.append(row)
    return kept
