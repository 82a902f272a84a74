"""Kernels by any key, by launch size, and in sequences."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from slow_reader import Row, end
from twin.figures import Figures, Rows, deviation, duration, grouped, mean
from twin.gpu import Flags
from twin.occupancy import launch_limits, launch_of
from twin.operators import ON_TENSOR_CORES

Key = Callable[[Row], Any]


def kernels(rows: Rows) -> list[Row]:
    return [work for work in rows["gpu_ops"] if work["kind"] == "kernel"]


def key_of(rows: Rows, *by: str) -> Key:
    """The key of a kernel: its own columns, ``op``, and those of its operator as ``op.name``."""
    ops = {op["row"]: op for op in rows["ops"]}

    def value(work: Row, column: str) -> Any:
        op = ops.get(work["op_row"])
        if column == "op":
            return None if op is None else op["name"]
        if column.startswith("op."):
            return None if op is None else op[column[3:]]
        found: Any = work.get(column)
        return tuple(found) if column in ("grid", "block") and found is not None else found

    return lambda work: tuple(value(work, column) for column in by)


def kernel_table(rows: Rows, flags: Flags, *by: str) -> Figures:
    found: Figures = {}
    for key, works in grouped(kernels(rows), key_of(rows, *by)).items():
        times = [duration(work) for work in works]
        sizes = [launch_of(work, rows["devices"]) for work in works]
        used = {flags[work["name"], work["device"]] for work in works}
        found[key] = {
            "calls": len(times),
            "total_ns": sum(times),
            "mean_ns": mean(times),
            "median_ns": float(median(times)),
            "min_ns": min(times),
            "max_ns": max(times),
            "std_ns": deviation(times),
            "blocks_per_sm": _weighted(times, [size["blocks_per_sm"] for size in sizes]),
            "occupancy_pct": _weighted(times, [size["occupancy_pct"] for size in sizes]),
            "tensor_cores": True if True in used else None if None in used else False,
        }
    return found


def _weighted(times: list[int], values: Iterable[float | None]) -> float | None:
    """The mean weighted by time; where the values known take none, the plain mean.

    Where all launches of a group take no time, they count alike.
    """
    known = [(time, value) for time, value in zip(times, values, strict=True) if value is not None]
    if not known:
        return None
    total = sum(time for time, _ in known)
    if total:
        return sum(time * value for time, value in known) / total
    return sum(value for _, value in known) / len(known)


SIZES = ("grid", "block", "registers", "shared_memory_bytes")
BY_LAUNCH = ("name", "op", *SIZES, "device")


def kernels_by_launch(rows: Rows, flags: Flags) -> Figures:
    """An operator can use tensor cores if its name is of one that can, or some kernel of it does."""
    found: Figures = {}
    names = key_of(rows, "op")
    using = {names(work) for work in kernels(rows) if flags[work["name"], work["device"]]}
    for key, works in grouped(kernels(rows), key_of(rows, *BY_LAUNCH)).items():
        found[key] = {"calls": len(works), "total_ns": sum(map(duration, works))}
        found[key] |= launch_limits(works[0], rows["devices"])
        name = names(works[0])[0]
        eligible = name in ON_TENSOR_CORES or (name,) in using
        found[key]["op_tc_eligible"] = None if name is None else eligible
    return found


def outermost(ops: list[Row], text: str, steps: list[Row]) -> list[Row]:
    """The calls whose name holds a text and that lie in no other such on their thread, steps left out."""
    marks = {step["row"] for step in steps}
    matching = [op for op in ops if op["row"] not in marks and op["name"] is not None and text in op["name"]]
    found: list[Row] = []
    for calls in grouped(matching, lambda op: op["track"]).values():
        reached = None
        for call in sorted(calls, key=lambda op: (op["start_ns"], -end(op))):
            if reached is None or call["start_ns"] >= reached:
                found.append(call)
            reached = end(call) if reached is None else max(reached, end(call))
    return found


def kernel_sequences(rows: Rows, text: str, least: int) -> Figures:
    by_launch = grouped(rows["gpu_ops"], lambda work: work["launch_row"])
    launched = grouped(rows["launches"], lambda call: call["track"])
    for calls in launched.values():
        calls.sort(key=lambda call: call["start_ns"])
    starts = {track: [call["start_ns"] for call in calls] for track, calls in launched.items()}
    found: defaultdict[Any, dict[str, Any]] = defaultdict(
        lambda: dict.fromkeys(("calls", "works", "short", "gpu_dur_ns", "cpu_dur_ns"), 0)
    )
    for call in outermost(rows["ops"], text, rows["steps"]):
        times = starts.get(call["track"], [])
        first, last = (bisect.bisect_left(times, at) for at in (call["start_ns"], end(call)))
        inside = [
            (work, launch)
            for launch in launched.get(call["track"], [])[first:last]
            for work in by_launch.get(launch["row"], ())
        ]
        if len(inside) < least:
            continue
        inside.sort(key=lambda pair: (pair[0]["start_ns"], pair[0]["row"]))
        figures = found[call["name"], tuple(work["name"] or "" for work, _ in inside)]
        figures["calls"] += 1
        figures["works"] = len(inside)
        figures["short"] += sum(duration(work) < duration(launch) for work, launch in inside)
        figures["gpu_dur_ns"] += sum(duration(work) for work, _ in inside)
        figures["cpu_dur_ns"] += duration(call)
    return dict(found)
