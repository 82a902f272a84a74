"""Steps, the figures at a glance, the views that stay empty, and what a screen shows."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean
from typing import Any

from slow_reader import Interval, Row, end
from twin.figures import Figures, Rows

PARTS = (
    "kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "dataloader_ns", "cpu_exec_ns",
    "other_ns",
)  # fmt: skip


def step_breakdown(rows: Rows, *, include_partial: bool) -> list[tuple[Any, ...]]:
    """Step, whole time, parts, start, name, whether it is cut off, GPU and process; in order."""
    steps = rows["gpu_steps"] or rows["steps"]
    steps = [step for step in steps if include_partial or not step["is_partial"]]
    steps.sort(key=lambda step: step["start_ns"])
    columns = ("step", "total_ns", *PARTS, "start_ns", "name", "is_partial", "device")
    return [(*(step.get(name) for name in columns), None) for step in steps]


def overview(rows: Rows, summary: Figures) -> dict[str, Any]:
    """``summary`` is that of the GPUs."""
    whole = [step for step in rows["steps"] if not step["is_partial"]]
    used = [gpu for gpu in summary.values() if gpu["kernels"]]
    kernel_ns = sum(gpu["gpu_kernel_ns"] for gpu in used)
    found: dict[str, Any] = {
        "gpus": len(used),
        "steps": len(whole),
        "partial_steps": len(rows["steps"]) - len(whole),
        "kernels": sum(gpu["kernels"] for gpu in used),
        "gpu_kernel_ns": kernel_ns,
        "operators": len(rows["ops"]),
        "launches": len(rows["launches"]),
    }
    found["step_ns"] = mean(step["total_ns"] for step in whole) if whole else None
    on_gpus = [step for step in rows["gpu_steps"] or rows["steps"] if not step["is_partial"]]
    found |= {part: mean(step[part] for step in on_gpus) if on_gpus else None for part in PARTS}
    shares = [gpu["utilisation"] for gpu in used]
    found["utilisation"] = mean(shares) if shares and None not in shares else None
    for name in ("occupancy_pct", "tensor_core_share"):
        values = [gpu[name] for gpu in used]
        known = values and None not in values and kernel_ns
        weighted = sum((gpu[name] or 0) * gpu["gpu_kernel_ns"] for gpu in used)
        found[name] = weighted / kernel_ns if known else None
    return {name: float(value) if isinstance(value, int) and name in ("step_ns", *PARTS) else value
            for name, value in found.items()}  # fmt: skip


def missing_views(rows: Rows) -> set[str]:
    """Of the views that the tables of the slow reader can tell about."""
    ops, works, memory = rows["ops"], rows["gpu_ops"], rows["memory"]
    has = {
        "steps": any(step["step"] is not None for step in rows["steps"]),
        "operators": bool(ops),
        "input_shapes": any(op["input_dims"] is not None for op in ops),
        "roofline": any(op["input_dims"] is not None for op in ops),
        "call_stacks": any(op["call_stack"] for op in ops) or bool(rows["python"]),
        "python": bool(rows["python"]),
        "kernels": any(work["kind"] == "kernel" for work in works),
        "launch_sizes": any(work["grid"] is not None for work in works),
        "gpu_limits": any(device.get("sm_count") is not None for device in rows["devices"]),
        "links": not works or any(work["op_row"] is not None for work in works),
        "memory": bool(memory),
        "memory_lifetimes": any(record["address"] is not None for record in memory),
        "memory_reserved": any(record["total_reserved_bytes"] is not None for record in memory),
        "synchronisation": bool(rows["syncs"]),
        "counters": any(row["category"] == "cuda_profiler_range" for row in rows["counters"]),
    }
    return {view for view, is_there in has.items() if not is_there}


KNOWN_VIEWS = (
    "steps", "operators", "input_shapes", "roofline", "call_stacks", "python", "kernels", "launch_sizes",
    "gpu_limits", "links", "memory", "memory_lifetimes", "memory_reserved", "synchronisation", "counters",
)  # fmt: skip


def tracked(rows: Rows) -> list[tuple[Any, Row]]:
    """Every event of the screen with its track: device and stream, or thread."""
    found = [(("stream", work["device"], work["stream"]), work) for work in rows["gpu_ops"]]
    host = [*rows["ops"], *rows["launches"]]
    return found + [(("thread", event["pid"], event["tid"]), event) for event in host]


def timeline(rows: Rows, window: Interval) -> Figures:
    """By track, how many events start in the window, and the sum of their times in it."""
    sums: defaultdict[Any, dict[str, int]] = defaultdict(lambda: {"events": 0, "busy_ns": 0})
    for track, event in tracked(rows):
        start, stop = event["start_ns"], end(event)
        sums[track]["events"] += window[0] <= start < window[1]
        sums[track]["busy_ns"] += max(0, min(stop, window[1]) - max(start, window[0]))
    return {track: figures for track, figures in sums.items() if any(figures.values())}
