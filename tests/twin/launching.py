"""Launches, gaps of the GPUs, and the queues of the streams."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from statistics import median
from typing import Any

from slow_reader import Row, end
from twin.figures import Figures, Rows, duration, grouped, mean, quantile, share, whole_span

Course = list[tuple[int, int]]
"""The changes of a queue: when, and how many calls wait from then on."""
SLOW_NS, LATE_NS = 50_000, 100_000


def launches(rows: Rows) -> Figures:
    calls = {call["row"]: call for call in rows["launches"]}
    found: Figures = {}
    for work in rows["gpu_ops"]:
        call = calls.get(work["launch_row"])
        if call is not None:
            delay = max(0, work["start_ns"] - end(call))
            found[work["row"]] = {
                "launch_row": call["row"],
                "call": call["name"],
                "name": work["name"],
                "cpu_dur_ns": call["dur_ns"],
                "gpu_dur_ns": work["dur_ns"],
                "launch_delay_ns": delay,
                "is_short": duration(work) < duration(call) <= SLOW_NS,
                "is_slow_call": duration(call) > SLOW_NS,
                "is_late": delay > LATE_NS,
            }
    return found


def launch_summary(rows: Rows, by: str) -> Figures:
    found: Figures = {}
    for key, pairs in grouped(launches(rows).values(), lambda pair: pair[by]).items():
        figures: dict[str, Any] = {"works": len(pairs)}
        for name in ("cpu_dur_ns", "gpu_dur_ns", "launch_delay_ns"):
            values = [pair[name] or 0 for pair in pairs]
            figures |= {f"{name}_sum": sum(values), f"{name}_max": max(values)}
            figures |= {f"{name}_p{at}": float(quantile(values, at / 100) or 0) for at in (50, 90, 99)}
        flags = {"short": "is_short", "slow_calls": "is_slow_call", "late": "is_late"}
        figures |= {name: sum(pair[flag] for pair in pairs) for name, flag in flags.items()}
        found[key] = figures
    return found


def idle_gaps(rows: Rows, kernel_delay_ns: int, *, per_stream: bool = False) -> Figures:
    calls = {call["row"]: call["start_ns"] for call in rows["launches"]}
    found: Figures = {}

    def place(work: Row) -> tuple[Any, ...]:
        return (work["device"], work["stream"]) if per_stream else (work["device"],)

    for works in grouped(rows["gpu_ops"], place).values():
        reached: int | None = None
        for work in sorted(works, key=lambda work: (work["start_ns"], work["row"])):
            if reached is not None and work["start_ns"] > reached:
                gap, launched = work["start_ns"] - reached, calls.get(work["launch_row"])
                cause = None
                if launched is not None:
                    queued = "kernel_wait" if gap < kernel_delay_ns else "other"
                    cause = "host_wait" if launched > reached else queued
                found[work["row"]] = {
                    "device": work["device"],
                    "stream": work["stream"],
                    "start_ns": reached,
                    "dur_ns": gap,
                    "cause": cause,
                }
            reached = end(work) if reached is None else max(reached, end(work))
    return found


def idle_summary(rows: Rows, kernel_delay_ns: int, *by: str) -> Figures:
    gaps = idle_gaps(rows, kernel_delay_ns, per_stream="stream" in by)
    every = sum(gap["dur_ns"] for gap in gaps.values())
    found: Figures = {}
    for key, members in grouped(gaps.values(), lambda gap: tuple(gap[name] for name in by)).items():
        times = [gap["dur_ns"] for gap in members]
        found[key] = {
            "idle_ns": sum(times),
            "gaps": len(times),
            "share": share(sum(times), every),
            "mean_ns": mean(times),
            "median_ns": float(median(times)),
            "max_ns": max(times),
        }
    return found


def queue_length(rows: Rows) -> dict[Any, Course]:
    """The changes of each stream's queue."""
    calls = {call["row"]: call["start_ns"] for call in rows["launches"]}
    found: dict[Any, Course] = {}
    for stream, works in grouped(rows["gpu_ops"], lambda work: (work["device"], work["stream"])).items():
        left: dict[int, int] = {}
        for work in works:
            call = work["launch_row"]
            if call in calls:
                left[call] = min(work["start_ns"], left.get(call, work["start_ns"]))
        changes = sorted([(calls[call], 0) for call in left] + [(at, 1) for at in left.values()])
        waiting, course = 0, []
        for at, leaves in changes:
            waiting += -1 if leaves else 1
            course.append((at, waiting))
        if course:
            found[stream] = course
    return found


def queue_summary(rows: Rows) -> Figures:
    found: Figures = {}
    for stream, course in queue_length(rows).items():
        lengths = [waiting for _, waiting in course]
        span = course[-1][0] - course[0][0]
        lasts = [(waiting, until - at) for (at, waiting), (until, _) in pairwise(course)]
        found[stream] = {
            "changes": len(course),
            "mean": share(sum(waiting * time for waiting, time in lasts), span),
            "p50": float(quantile(lengths, 0.5) or 0),
            "p90": float(quantile(lengths, 0.9) or 0),
            "max": max(lengths),
            "empty_share": share(sum(time for waiting, time in lasts if waiting == 0), span),
        }
    return found


def queue_blocked(rows: Rows, limit: int) -> Figures:
    extent = whole_span([*rows["ops"], *rows["launches"], *rows["gpu_ops"]])
    whole = 0 if extent is None else extent[1] - extent[0]
    found: Figures = {}
    for stream, course in queue_length(rows).items():
        if any(waiting >= limit for _, waiting in course):
            full = sum(until - at for (at, waiting), (until, _) in pairwise(course) if waiting >= limit)
            found[stream] = {"blocked_ns": full, "share": share(full, whole)}
    return found


def op_launch_delay(rows: Rows) -> Figures:
    calls = {call["row"]: call for call in rows["launches"]}
    ops = {op["row"]: op for op in rows["ops"]}
    launched: defaultdict[int, list[tuple[int, int, int, Row]]] = defaultdict(list)
    for work in rows["gpu_ops"]:
        call = calls.get(work["launch_row"])
        if call is not None and call["op_row"] is not None:
            launched[call["op_row"]].append((call["start_ns"], work["start_ns"], work["row"], work))
    delays: defaultdict[Any, list[tuple[int, int]]] = defaultdict(list)
    for row, works in launched.items():
        works.sort(key=lambda entry: entry[:3])
        names = tuple(work["name"] or "" for *_, work in works)
        delays[ops[row]["name"], names].append(
            (works[0][0] - ops[row]["start_ns"], works[0][1] - works[0][0])
        )
    return {
        key: {
            "calls": len(both),
            "launch_delay_ns": mean([launch for launch, _ in both]),
            "queue_delay_ns": mean([queue for _, queue in both]),
        }
        for key, both in delays.items()
    }
