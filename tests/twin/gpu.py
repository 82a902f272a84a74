"""What the GPUs did: classes of time, how busy and how full they were, and copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Any

from slow_reader import Interval, Row, end, intersect, length, subtract
from twin.figures import Figures, Rows, duration, grouped, kind_of, share, spans, whole_span
from twin.occupancy import launch_of

Flags = dict[tuple[str | None, int | None], bool | None]
"""Whether the kernels of a name use tensor cores on a device; what a name says is tested elsewhere."""


def temporal_breakdown(rows: Rows) -> Figures:
    found: Figures = {}
    for device, works in grouped(rows["gpu_ops"], lambda work: work["device"]).items():
        kinds = {name: spans(w for w in works if kind_of(w) == name) for name in ("compute", "communication")}
        every = spans(works)
        begin, stop = min(work["start_ns"] for work in works), max(end(work) for work in works)
        exposed = subtract(kinds["communication"], kinds["compute"])
        active = length(kinds["compute"]) + length(exposed)
        parts = {
            "compute": length(kinds["compute"]),
            "communication": length(exposed),
            "memory": length(every) - active,
            "idle": stop - begin - length(every),
        }
        found[device] = {"span_ns": stop - begin}
        for name, part in parts.items():
            found[device] |= {f"{name}_ns": part, f"{name}_share": share(part, stop - begin)}
    return found


def comm_comp_overlap(rows: Rows, *by: str) -> Figures:
    computing = {
        device: spans(work for work in works if kind_of(work) == "compute")
        for device, works in grouped(rows["gpu_ops"], lambda work: work["device"]).items()
    }
    calls = [work for work in rows["gpu_ops"] if kind_of(work) == "communication"]
    found: Figures = {}
    for key, members in grouped(calls, lambda work: tuple(work[name] for name in by)).items():
        total, both = 0, 0
        for device, works in grouped(members, lambda work: work["device"]).items():
            covered = spans(works)
            total += length(covered)
            both += length(intersect(covered, computing[device]))
        found[key] = {
            "calls": len(members),
            "communication_ns": total,
            "overlap_ns": both,
            "exposed_ns": total - both,
            "overlap": share(both, total),
        }
    return found


def looked_at(rows: Rows) -> Interval:
    """From the start of the first whole step to the end of the last; without steps, all GPU work."""
    steps = [step for step in rows["steps"] if not step["is_partial"]]
    if steps:
        return min(s["start_ns"] for s in steps), max(s["start_ns"] + s["total_ns"] for s in steps)
    return whole_span(rows["gpu_ops"]) or (0, 0)


def filled(works: Iterable[Row], sizes: dict[int, Row], window: Interval) -> float | None:
    """The integral of the share of SMs that have a block, over a window; None where no size is known."""
    changes: list[tuple[int, float]] = []
    known = False
    for work in works:
        blocks = sizes[work["row"]]["blocks_per_sm"]
        if blocks is None:
            continue
        start, stop = max(work["start_ns"], window[0]), min(end(work), window[1])
        if start < stop:
            known = True
            changes += [(start, blocks), (stop, -blocks)]
    changes.sort()
    total, running, open_works = 0.0, 0.0, 0
    for (at, change), (until, _) in pairwise(changes):
        running += change
        open_works += 1 if change > 0 else -1
        if open_works:
            total += min(1.0, running) * (until - at)
    return total if known else None


def gpu_summary(rows: Rows, flags: Flags) -> Figures:
    window = looked_at(rows)
    span = window[1] - window[0]
    whole = [window]
    sizes = {work["row"]: launch_of(work, rows["devices"]) for work in rows["gpu_ops"]}
    names = {op["row"]: op for op in rows["ops"]}
    found: Figures = {}
    for device, works in grouped(rows["gpu_ops"], lambda work: work["device"]).items():
        kernels = [work for work in works if work["kind"] == "kernel"]
        busy = length(intersect(spans(kernels), whole))
        found[device] = {
            "window_ns": span if span > 0 else None,
            "busy_ns": busy,
            "utilisation": share(busy, span),
            "kernels": len(kernels),
            "gpu_kernel_ns": sum(map(duration, kernels)),
            "occupancy_pct": _mean_occupancy(kernels, sizes, window),
            "tensor_core_share": _tensor_core_share(kernels, names, flags),
        }
        inside = filled(kernels, sizes, window)
        if inside is not None:
            found[device]["sm_efficiency"] = share(inside, span)
    return {device: figures for device, figures in found.items() if device is not None}


def _mean_occupancy(kernels: list[Row], sizes: dict[int, Row], window: Interval) -> float | None:
    weighted, total = 0.0, 0
    for kernel in kernels:
        occupancy = sizes[kernel["row"]]["occupancy_pct"]
        inside = min(end(kernel), window[1]) - max(kernel["start_ns"], window[0])
        if occupancy is not None and inside > 0:
            weighted += occupancy * inside
            total += inside
    return weighted / total if total else None


def _tensor_core_share(kernels: list[Row], ops: dict[int, Row], flags: Flags) -> float | None:
    """Of the time of kernels that operators launched; None where it is not known of one."""
    used, total = 0, 0
    for kernel in kernels:
        op = ops.get(kernel["op_row"])
        if op is None or op["is_annotation"]:
            continue
        on_cores = flags[kernel["name"], kernel["device"]]
        if on_cores is None:
            return None
        total += duration(kernel)
        used += duration(kernel) if on_cores else 0
    return share(used, total)


def recording(rows: Rows) -> Interval | None:
    """The extent of host and GPU work."""
    return whole_span([*rows["ops"], *rows["launches"], *rows["gpu_ops"]])


def gpu_timeline(rows: Rows, parts: int) -> Figures:
    session = [span for span in rows["spans"] if span["name"] == "PyTorch Profiler (0)" and span["dur_ns"]]
    extent = (session[0]["start_ns"], end(session[0])) if session else recording(rows)
    if extent is None or extent[0] == extent[1]:
        return {}
    step = 1_000
    while extent[1] - extent[0] > step * parts:
        step *= 10
    edges = [extent[0] + step * place for place in range(max(1, (extent[1] - extent[0]) // step))]
    edges.append(extent[1])
    sizes = {work["row"]: launch_of(work, rows["devices"]) for work in rows["gpu_ops"]}
    found: Figures = {}
    kernels = [work for work in rows["gpu_ops"] if work["kind"] == "kernel" and work["device"] is not None]
    for device, works in grouped(kernels, lambda work: work["device"]).items():
        if not spans(works):
            continue
        is_sized = any(sizes[work["row"]]["blocks_per_sm"] and duration(work) for work in works)
        for start, stop in pairwise(edges):
            near = [work for work in works if work["start_ns"] < stop and end(work) > start]
            busy = length(intersect(spans(near), [(start, stop)]))
            found[device, start] = {"dur_ns": stop - start, "utilisation": busy / (stop - start)}
            if is_sized:
                full = filled(near, sizes, (start, stop)) or 0.0
                found[device, start]["sm_efficiency"] = full / (stop - start)
    return found


def copy_rate(work: Row) -> int | None:
    """Whole bytes a second: counted, else recorded."""
    if work["bytes"] is not None and duration(work) > 0:
        return round(work["bytes"] * 1e9 / work["dur_ns"])
    recorded = work["bandwidth_gb_per_s"]
    return None if recorded is None else round(recorded * 1e9)


def _copies(rows: Rows) -> dict[Any, list[Row]]:
    copies = [work for work in rows["gpu_ops"] if work["kind"] in ("memcpy", "memset")]
    return grouped(copies, lambda work: (work["device"], work["name"].partition("(")[0].rstrip(" ")))


def memory_bandwidth(rows: Rows) -> Figures:
    found: Figures = {}
    for (device, name), works in _copies(rows).items():
        rates = [(work, copy_rate(work)) for work in works]
        running = [(work, rate) for work, rate in rates if rate is not None and duration(work) > 0]
        changes: defaultdict[int, int] = defaultdict(int)
        for work, rate in running:
            changes[work["start_ns"]] += rate
            changes[end(work)] -= rate
        now = 0
        for at in sorted(changes):
            now += changes[at]
            found[device, name, at] = {"bytes_per_s": now}
    return found


def memory_bandwidth_summary(rows: Rows) -> Figures:
    found: Figures = {}
    for key, works in _copies(rows).items():
        sizes = [work["bytes"] for work in works]
        moved = None if None in sizes else sum(sizes)
        busy = length(spans(works))
        rates = [rate for rate in map(copy_rate, works) if rate is not None]
        found[key] = {
            "copies": len(works),
            "bytes": moved,
            "busy_ns": busy,
            "bytes_per_s": None if moved is None or not busy else moved * 1e9 / busy,
            "bytes_per_s_p50": float(median(rates)) if rates else None,
            "bytes_per_s_max": float(max(rates)) if rates else None,
        }
    return found
