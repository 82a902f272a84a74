"""A second, slow and independent reader of Kineto JSON, to check the fast one against.

It reads with ``json.load`` and links with plain dictionaries and sorted lists, straight from the
rules in the documentation, and gives the rows of the tables of :class:`kernelscope.Trace` with the
columns that are named here.
"""

from __future__ import annotations

import bisect
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any

Row = dict[str, Any]

COMMUNICATION_OP = re.compile(
    r"nccl:|gloo:|mpi:|ucc:|xccl:|hccl:|c10d::|c10d_functional::|_c10d_functional::|record_param_comms"
)
# What a part of a kernel's name begins with; its arguments are cut off before.
CUSTOM = "cross_device_reduce|multimem|(one|two)_?[sS]hot|all_?[rR]educe|all_?[gG]ather|reduce_?[sS]catter"
LIBRARY = "nccl|rccl|msccl|nvshmem|deep_ep|hccl|internode|intranode"
COMMUNICATION_KERNEL = re.compile(rf"(.*[^A-Za-z])?({LIBRARY}|{CUSTOM}|ep::)", re.DOTALL)
ARGUMENTS = re.compile(r"<(?!unnamed>)|\((?!anonymous namespace\))")
GENERATED = re.compile(r"triton_")


def end(row: Row) -> int:
    return row["start_ns"] + (row["dur_ns"] or 0)


def is_timed(event: Row) -> bool:
    """Whether an event has a start, and not 0 for both its times."""
    return event["start_ns"] is not None and (event["start_ns"], event["dur_ns"]) != (0, 0)


def doubt(gpu_ops: list[Row]) -> None:
    """Ends what contains a whole later operation of its stream where the next of any length begins."""
    streams: dict[Any, list[Row]] = {}
    for work in gpu_ops:
        place = (work["device"], work["context"], work["stream"])
        if None not in (work["device"], work["stream"]) and work["dur_ns"]:
            streams.setdefault(place, []).append(work)
    for works in streams.values():
        works.sort(key=lambda work: work["start_ns"])
        for at in reversed(range(len(works))):
            work = works[at]
            behind = takewhile(lambda other, work=work: other["start_ns"] < end(work), works[at + 1 :])
            later = [other for other in behind if other["start_ns"] > work["start_ns"]]
            if any(end(other) < end(work) for other in later):
                work["recorded_dur_ns"] = work["dur_ns"]
                work["dur_ns"] = later[0]["start_ns"] - work["start_ns"]


def link(rows: dict[str, list[Row]]) -> None:
    """Fills parents, operators of launches and GPU work, and Python parents."""
    nest(rows["ops"])
    ids = OpIds(rows)
    link_launches(rows, ids)
    link_gpu_ops(rows, ids)
    frames = {row["python_id"]: row["row"] for row in rows["python"]}
    for row in rows["python"]:
        row["parent_row"] = frames.get(row["python_parent_id"])


def nest(all_ops: list[Row]) -> None:
    """The tree of each thread: in order of (start, -end), what does not contain the next is closed."""
    for ops in threads_of(all_ops).values():
        stack: list[Row] = []
        for op in ops:
            while stack and (op["start_ns"] >= end(stack[-1]) or end(op) > end(stack[-1])):
                stack.pop()
            op["parent_row"] = stack[-1]["row"] if stack else None
            op["depth"] = len(stack)
            stack.append(op)


def threads_of(ops: list[Row]) -> dict[int, list[Row]]:
    threads: defaultdict[int, list[Row]] = defaultdict(list)
    for op in ops:
        threads[op["track"]].append(op)
    for found in threads.values():
        found.sort(key=lambda op: (op["start_ns"], -end(op)))
    return threads


class OpIds:
    """Operators by External id, and whether the ids of launches and GPU work can be trusted."""

    def __init__(self, rows: dict[str, list[Row]]) -> None:
        self.ops: dict[int, Row] = {}
        for op in rows["ops"]:
            if op["external_id"]:
                self.ops.setdefault(op["external_id"], op)
        linked = [row for row in rows["launches"] + rows["gpu_ops"] if row["external_id"] is not None]
        same = sum(row["external_id"] == row["correlation"] for row in linked)
        self.legacy = bool(linked) and same >= 0.99 * len(linked)

    def named(self, row: Row) -> Row | None:
        return None if self.legacy else self.ops.get(row["external_id"])


def link_launches(rows: dict[str, list[Row]], ids: OpIds) -> None:
    """By External id where that is not merely the correlation id, else the innermost enclosing operator."""
    # Annotations launch nothing themselves, and hide no operator that they overlap in part.
    operators = [dict(op) for op in rows["ops"] if op["category"] != "user_annotation"]
    nest(operators)
    threads = threads_of(operators)
    starts = {track: [op["start_ns"] for op in ops] for track, ops in threads.items()}
    by_row = {op["row"]: op for op in operators}
    for launch in rows["launches"]:
        at = bisect.bisect_right(starts.get(launch["track"], []), launch["start_ns"]) - 1
        inside = threads[launch["track"]][at] if at >= 0 else None
        while inside and end(inside) < end(launch):
            inside = by_row.get(inside["parent_row"])
        named = ids.named(launch)
        agrees = named is not None and inside is not None and named["row"] == inside["row"]
        if launch["external_id"] == launch["correlation"] and not agrees:
            named = None
        op = named or inside
        launch["link"] = "external_id" if named else "containment"
        launch["op_row"] = op["row"] if op else None


def link_gpu_ops(rows: dict[str, list[Row]], ids: OpIds) -> None:
    launches = {row["correlation"]: row for row in rows["launches"] if row["correlation"] is not None}
    names = {op["row"]: op["name"] or "" for op in rows["ops"]}
    for work in rows["gpu_ops"]:
        launch = launches.get(work["correlation"])
        named = ids.named(work) if work["external_id"] != work["correlation"] else None
        if launch is not None:
            work["launch_row"], work["op_row"] = launch["row"], launch["op_row"]
            work["link"] = launch["link"] if launch["op_row"] is not None else "no_op"
        elif named is not None:
            work["op_row"], work["link"] = named["row"], "gpu_external_id"
        else:
            work["link"] = "no_launch" if work["correlation"] else "no_correlation"
        name = work["name"] or ""
        communicates = COMMUNICATION_KERNEL.match(ARGUMENTS.split(name, maxsplit=1)[0])
        work["is_communication"] = (
            work.pop("collective") is not None
            or (communicates is not None and GENERATED.match(name) is None)
            or work["category"] == "collective_comm"
            or (
                work["kind"] == "kernel"
                and COMMUNICATION_OP.match(names.get(work.get("op_row"), "")) is not None
            )
        )


Interval = tuple[int, int]

ROLES = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_exec")
DATALOADER = re.compile(r"enumerate\(DataLoader\)#.*\.__next__$|enumerate\(DataPipe\)#", re.DOTALL)
STEP = re.compile(r"ProfilerStep#\s*[+-]?\d+\s*$")
SERVING = re.compile(
    r"execute_new_\d+_cached_\d+$|execute_(\d+_)?context_\d+\(.*\)_generation_\d+\(.*\)$"
    r"|step\[\w+ (.* )?bs=\d+( .*)?\]$|.*_forward_step .*\b\d+ ctx reqs.*\b\d+ gen reqs",
    re.DOTALL,
)
OPTIMIZER = re.compile(r"Optimizer\.")
OP_ACTIVITIES = (
    ("step", STEP),
    ("data_loading", DATALOADER),
    ("communication", COMMUNICATION_OP),
    ("optimizer", OPTIMIZER),
)
ANNOTATION = re.compile(
    rf"{STEP.pattern}|{OPTIMIZER.pattern}|{DATALOADER.pattern}|(Distributed)?DataParallel\.forward$",
    re.DOTALL,
)
LAUNCH = re.compile("LaunchKernel|LaunchCooperativeKernel|GraphLaunch|^runFunction|EnqueueKernelLaunch")
WAIT = re.compile(
    r"synchronize(Stream)?$|urQueueFinish$|urEventWait$|(ze|tops)\w*Synchronize|"
    r"(cuda|hip|mu|sycl|cu)\w*Synchronize|(cuda|hip)Memcpy([23]D)?$"
    r"|(cuda|hip|cu)(Malloc|Free|MemAlloc|MemFree)(Host)?(_v2)?$"
)


def union(intervals: list[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for start, stop in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        elif stop > start:
            merged.append((start, stop))
    return merged


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


def intersect(a: list[Interval], b: list[Interval]) -> list[Interval]:
    return subtract(a, subtract(a, b))


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
    steps = steps or serving_steps(rows["ops"])
    if not steps:
        operators = [op for op in rows["ops"] if (op["category"] or "").lower() != "user_annotation"]
        extent = operators or rows["ops"] or rows["gpu_ops"] or rows["launches"]
        if not extent:
            return []
        span = (min(row["start_ns"] for row in extent), max(end(row) for row in extent))
        steps = [{"step": None, "name": None, "row": None, "host": span}]
    of_launch: dict[int, Row] = {}
    for launch in rows["launches"]:
        inside = [s for s in steps if launch["start_ns"] >= s["host"][0] and end(launch) <= s["host"][1]]
        step = inside[-1] if inside else None
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
    place_straddling_calls(steps, rows)
    return steps


def serving_steps(ops: list[Row]) -> list[Row]:
    """The outermost annotations of serving engines, counted from 0; fills what they and those inside do."""
    is_annotation = lambda op: (op["category"] or "").lower() == "user_annotation"  # noqa: E731
    marks = [op for op in ops if is_annotation(op) and SERVING.match(op["name"] or "")]
    names = {op["name"] for op in marks}
    for op in ops:
        if op["name"] in names:
            op["activity"] = "step"
    steps: list[Row] = []
    for op in sorted(marks, key=lambda op: (op["start_ns"], -end(op))):
        if not any(
            op["track"] == s["track"] and end(op) <= s["host"][1] and op["name"] != s["name"]
            for s in steps[-1:]
        ):
            host = (op["start_ns"], end(op))
            steps.append(
                {"step": len(steps), "name": op["name"], "row": op["row"], "host": host, "track": op["track"]}
            )
    return steps


def place_straddling_calls(steps: list[Row], rows: dict[str, list[Row]]) -> None:
    """A call that reaches over the end of a step extends none, and belongs to the one that it begins in."""
    of_launch: dict[int, int | None] = {}
    for launch in rows["launches"]:
        begun = [s for s in steps if s["host"][0] <= launch["start_ns"] < s["host"][1]]
        if launch.get("step") is None and begun:
            launch["step"] = of_launch[launch["row"]] = begun[-1]["step"]
    for work in rows["gpu_ops"]:
        if work["step"] is None:
            work["step"] = of_launch.get(work["launch_row"])


def extend(steps: list[Row], outside: list[Row]) -> None:
    """Each step ends with its GPU work and begins where the step before ended."""
    counts = [len(step["work"]) for step in steps]
    previous = steps[0]["host"][0]
    # Nothing goes before a step that stands for the whole trace.
    if steps[0]["work"] and steps[0]["name"] is not None:
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


def roles(rows: dict[str, list[Row]], works: list[Row], others: set[Any]) -> dict[str, list[Interval]]:
    """The time each role is active in ``works`` and on the host, but in the processes ``others``."""
    found: dict[str, list[Interval]] = {role: [] for role in ROLES}
    for work in works:
        role = "communication" if work["is_communication"] else work["kind"]
        found[role].append((work["start_ns"], end(work)))
    for launch in rows["launches"]:
        if launch["pid"] not in others:
            found["runtime"].append((launch["start_ns"], end(launch)))
    for op in rows["ops"]:
        name = op["name"] or ""
        if op["pid"] in others or op["activity"] == "step":
            continue
        role = "cpu_exec"
        if DATALOADER.match(name):
            role = "dataloader"
        found[role].append((op["start_ns"], end(op)))
    return {role: union(intervals) for role, intervals in found.items()}


def activity_of_name(name: str) -> str | None:
    """What the name of an operator, annotation or range says that it does."""
    return next((activity for activity, names in OP_ACTIVITIES if names.match(name)), None)


def fill_activities(rows: dict[str, list[Row]]) -> None:
    """The columns ``activity`` and ``is_annotation``, of a trace without NVTX ranges."""
    for op in rows["ops"]:
        name = op["name"] or ""
        op["activity"] = activity_of_name(name)
        is_category = (op["category"] or "").lower() == "user_annotation"
        op["is_annotation"] = is_category or ANNOTATION.match(name) is not None
    for call in rows["launches"]:
        name = call["name"] or ""
        call["activity"] = "launch" if LAUNCH.search(name) else "wait" if WAIT.match(name) else None
    for work in rows["gpu_ops"]:
        is_transfer = work["is_communication"] and work["kind"] not in ("memcpy", "memset")
        work["activity"] = "communication" if is_transfer else work["kind"]


def fill_steps(steps: list[Row], rows: dict[str, list[Row]]) -> list[Row]:
    """Rows of the table ``steps``."""
    kept: list[Row] = []
    for work in rows["gpu_ops"]:
        if work.get("launch_row") is None:
            # Nothing says where it was launched; it belongs to the step it begins in.
            inside = [s for s in steps if s["span"][0] <= work["start_ns"] < s["span"][1]]
            work["step"] = inside[-1]["step"] if inside else None
    for step, parts in zip(steps, parts_of(steps, rows, rows["gpu_ops"], set()), strict=True):
        start, stop = step["span"]
        row = {"step": step["step"], "name": step["name"], "row": step["row"], "start_ns": start}
        row |= {"total_ns": stop - start, "host_start_ns": step["host"][0]}
        row |= {"host_dur_ns": step["host"][1] - step["host"][0], "is_partial": step["is_partial"]}
        kept.append(row | parts)
    return kept


def parts_of(steps: list[Row], rows: dict[str, list[Row]], works: list[Row], others: set[Any]) -> list[Row]:
    """The eight parts of each step."""
    left = union([step["span"] for step in steps])
    taken: dict[str, list[Interval]] = {}
    for role, intervals in roles(rows, works, others).items():
        taken[role] = intersect(left, intervals)
        left = subtract(left, intervals)
    kept: list[Row] = []
    for step in steps:
        start, stop = step["span"]
        row = {f"{role}_ns": length(intersect(part, [(start, stop)])) for role, part in taken.items()}
        kept.append(row | {"other_ns": stop - start - sum(row.values())})
    return kept


def fill_gpu_steps(steps: list[Row], rows: dict[str, list[Row]]) -> list[Row]:
    """Rows of the table ``gpu_steps``: what each GPU does, and the host without other GPUs' processes."""
    launched = {launch["row"]: launch["pid"] for launch in rows["launches"]}
    devices = sorted({work["device"] for work in rows["gpu_ops"] if (work["device"] or 0) >= 0} - {None})
    devices = devices or ([None] if rows["gpu_ops"] else [])
    of_device = {
        device: [work for work in rows["gpu_ops"] if len(devices) == 1 or work["device"] == device]
        for device in devices
    }
    users = {device: {launched.get(work["launch_row"]) for work in works} - {None}
             for device, works in of_device.items()}  # fmt: skip
    everyone: set[Any] = set().union(*users.values())
    kept: list[Row] = []
    for device, works in of_device.items():
        others = everyone - users[device] if users[device] else set()
        for step, parts in zip(steps, parts_of(steps, rows, works, others), strict=True):
            start, stop = step["span"]
            row = {"step": step["step"], "name": step["name"], "start_ns": start, "total_ns": stop - start}
            kept.append(row | {"device": device, "is_partial": step["is_partial"]} | parts)
    return sorted(kept, key=lambda row: row["start_ns"])


COLUMNS = {
    "ops": "row name category start_ns dur_ns external_id sequence forward_thread input_dims input_types "
    "input_strides concrete_inputs call_stack pid tid parent_row depth step activity is_annotation",
    "launches": "row name category start_ns dur_ns correlation external_id pid tid op_row step activity",
    "gpu_ops": "row kind name mangled_name category device context stream start_ns dur_ns recorded_dur_ns "
    "correlation external_id grid block registers shared_memory_bytes bytes graph_id blocks_per_sm "
    "warps_per_sm occupancy_pct bandwidth_gb_per_s is_communication launch_row op_row link step activity",
    "python": "row name start_ns dur_ns python_id python_parent_id module_id pid tid parent_row",
    "gpu_annotations": "row name device stream start_ns dur_ns external_id",
    "syncs": "row name category device stream start_ns dur_ns correlation",
    "memory": "row name start_ns bytes total_allocated_bytes total_reserved_bytes device_type device_id "
    "pid tid",
    "counters": "row name counter start_ns value",
    "spans": "row name category kind start_ns dur_ns",
    "instants": "row name start_ns",
    "flows": "row category kind id start_ns",
    "metadata": "row name",
    "steps": "row name step start_ns total_ns host_start_ns host_dur_ns kernel_ns memcpy_ns memset_ns "
    "communication_ns runtime_ns dataloader_ns cpu_exec_ns other_ns is_partial",
    "gpu_steps": "name step device start_ns total_ns kernel_ns memcpy_ns memset_ns communication_ns "
    "runtime_ns dataloader_ns cpu_exec_ns other_ns is_partial",
    "devices": "name device total_memory_bytes compute_major compute_minor sm_count warp_size "
    "max_threads_per_block max_threads_per_sm registers_per_block registers_per_sm "
    "shared_memory_per_block_bytes shared_memory_per_block_optin_bytes shared_memory_per_sm_bytes",
}
DEVICE_KEYS = {
    "device": "id",
    "name": "name",
    "total_memory_bytes": "totalGlobalMem",
    "compute_major": "computeMajor",
    "compute_minor": "computeMinor",
    "sm_count": "numSms",
    "warp_size": "warpSize",
    "max_threads_per_block": "maxThreadsPerBlock",
    "max_threads_per_sm": "maxThreadsPerMultiprocessor",
    "registers_per_block": "regsPerBlock",
    "registers_per_sm": "regsPerMultiprocessor",
    "shared_memory_per_block_bytes": "sharedMemPerBlock",
    "shared_memory_per_block_optin_bytes": "sharedMemPerBlockOptin",
}
MTIA = "mtia_ccp_events"
PYTHON_KEYS = {
    "python_id": "Python id",
    "python_parent_id": "Python parent id",
    "module_id": "Python module id",
}
MEMORY_KEYS = {
    "address": "Addr",
    "bytes": "Bytes",
    "total_allocated_bytes": "Total Allocated",
    "total_reserved_bytes": "Total Reserved",
    "device_type": "Device Type",
    "device_id": "Device Id",
}
OP_CATEGORIES = {"cpu_op", "operator", "user_annotation", "python"}
CALL_CATEGORIES = {"runtime", "driver"}


def ns(value: Any) -> int | None:
    """Microseconds as written, in whole ns; exact, since no float is involved."""
    if value is None or isinstance(value, bool):
        return None
    return int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_EVEN))


def integer(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def number(value: Any) -> float | None:
    return None if value is None or isinstance(value, (list, dict)) else float(value)


def text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, default=float)


class Reader:
    """Sorts events into tables and links them."""

    def __init__(self, document: Any, names: Mapping[str, str]) -> None:
        self.top: dict[str, Any] = document if isinstance(document, dict) else {"traceEvents": document}
        self.names = names
        self.rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
        self.tracks: dict[tuple[str, str], int] = {}

    def read(self) -> dict[str, list[Row]]:
        for index, event in enumerate(self.top.get("traceEvents") or []):
            self.sort_in(index, event)
        for table in ("ops", "launches", "python", "gpu_ops"):
            self.rows[table] = list(filter(is_timed, self.rows[table]))
        doubt(self.rows["gpu_ops"])
        link(self.rows)
        fill_activities(self.rows)
        steps = find_steps(self.rows)
        self.rows["steps"] = fill_steps(steps, self.rows)
        self.rows["gpu_steps"] = fill_gpu_steps(steps, self.rows)
        for properties in self.top.get("deviceProperties") or []:
            device = {column: properties.get(key) for column, key in DEVICE_KEYS.items()}
            device["shared_memory_per_sm_bytes"] = properties.get(
                "sharedMemPerMultiprocessor", properties.get("maxSharedMemoryPerMultiProcessor")
            )
            device["name"] = device["name"] or None
            self.rows["devices"].append(device)
        described = {device["device"] for device in self.rows["devices"]}
        used = {work["device"] for work in self.rows["gpu_ops"]} - described - {None}
        self.rows["devices"] += [{"device": device} for device in sorted(used)]
        return self.rows

    def sort_in(self, index: int, event: Row) -> None:
        args = event.get("args") or {}
        category = event.get("cat")
        kind = (category or "").lower()
        pid, tid = event.get("pid"), event.get("tid")
        row: Row = {"row": index, "name": event.get("name"), "category": category}
        row["start_ns"] = ns(event.get("ts"))
        row |= {"dur_ns": ns(event.get("dur")), "pid": integer(pid), "tid": integer(tid)}
        row["track"] = self.tracks.setdefault((str(pid), str(tid)), len(self.tracks))
        row["external_id"] = integer(args.get("External id", args.get("external id")))
        row["correlation"] = integer(args.get("correlation"))
        ph = event.get("ph")
        if row["name"] in ("[memory]", "[OutOfMemory]"):
            values = {column: integer(args.get(key)) for column, key in MEMORY_KEYS.items()}
            self.rows["memory"].append(row | values)
        elif ph == "X":
            self.sort_slice(row, kind, args, pid, tid)
        elif ph in ("s", "t", "f"):
            self.rows["flows"].append(row | {"id": integer(event.get("id")), "kind": ph})
        else:
            self.rows[{"M": "metadata", "C": "counters"}.get(ph, "instants")].append(row)

    def sort_slice(self, row: Row, kind: str, args: Row, pid: Any, tid: Any) -> None:
        if kind in OP_CATEGORIES:
            self.rows["ops"].append(row | op_columns(args))
        elif (work := gpu_kind(kind, row["name"] or "", args)) is not None:
            row |= gpu_columns(args, pid, tid) | {"kind": work, "mangled_name": None}
            if work == "memcpy" and row["bytes"] is None:
                row["bytes"] = integer(args.get("size"))
            if row["name"] in self.names:
                row |= {"name": self.names[row["name"]], "mangled_name": row["name"]}
            self.rows["gpu_ops"].append(row)
        elif kind in CALL_CATEGORIES or kind.endswith(("_runtime", "_driver")) or kind == "hpu_op":
            self.rows["launches"].append(row)
        elif kind == "python_function":
            self.rows["python"].append(row | {column: args.get(key) for column, key in PYTHON_KEYS.items()})
        elif kind in ("cuda_event", MTIA) or kind.endswith(("_user_annotation", "_sync")):
            row["device"] = integer(args.get("device", pid))
            row["stream"] = stream(args.get("stream", row["tid"]))
            self.rows["gpu_annotations" if kind.endswith("_annotation") else "syncs"].append(row)
        elif kind == "cuda_profiler_range":
            values = [{"counter": key, "value": number(value)} for key, value in args.items()]
            self.rows["counters"] += [row | value for value in values]
        else:
            self.rows["spans"].append(row | {"kind": "X"})


def gpu_kind(category: str, name: str, args: Row) -> str | None:
    """The kind of work on a device that a category stands for; none for what is no work."""
    if category == MTIA:
        kind = "memcpy" if name.startswith("dma") else "kernel"
        return None if name in ("event_wait", "event_record") else kind
    if category == "collective_comm":
        return "kernel" if "stream" in args else None
    if category == "hpu_op":
        event = args.get("HW event name")
        return None if event is None else "memcpy" if "DMA" in event else "kernel"
    ending = category.rpartition("_")[2]
    return ending if category == "kernel" or ending in ("memcpy", "memset") else None


def stream(value: Any) -> int | None:
    """A stream id; -1 stands for none."""
    return None if value in (-1, "-1") else integer(value)


def op_columns(args: Row) -> Row:
    dims = args.get("Input Dims", args.get("Input dims"))
    return {
        "sequence": integer(args.get("Sequence number")),
        "forward_thread": integer(args.get("Fwd thread id")),
        "input_dims": text(dims),
        "input_types": text(args.get("Input type")),
        "input_strides": text(args.get("Input Strides")),
        "concrete_inputs": text(args.get("Concrete Inputs")),
        "call_stack": text(args.get("Call stack")) or None,
    }


def gpu_columns(args: Row, pid: Any, tid: Any) -> Row:
    return {
        "device": integer(args.get("device", pid)),
        "context": integer(args.get("context")),
        "stream": stream(args.get("stream", str(tid).removeprefix("stream "))),
        "grid": args.get("grid"),
        "block": args.get("block"),
        "registers": integer(args.get("registers per thread")),
        "shared_memory_bytes": integer(args.get("shared memory")),
        "blocks_per_sm": number(args.get("blocks per SM")),
        "warps_per_sm": number(args.get("warps per SM")),
        "occupancy_pct": number(args.get("est. achieved occupancy %")),
        "bytes": integer(args.get("bytes")),
        "bandwidth_gb_per_s": number(args.get("memory bandwidth (GB/s)")),
        "graph_id": integer(args.get("graph id")) or None,
        "collective": args.get("Collective name"),
        **dict.fromkeys(("recorded_dur_ns", "launch_row", "op_row", "step")),
    }


def read(path: Path, names: Mapping[str, str] | None = None) -> dict[str, list[Row]]:
    """Reads a valid Kineto JSON file, plain or gzip; ``names`` has what each mangled name stands for.

    Python has no demangler. Tests take the names that the package found and check those on their own.
    """
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    return Reader(json.loads(raw, parse_float=Decimal), names or {}).read()


def demangled(gpu_ops: Iterable[Row]) -> dict[str, str]:
    """What each mangled name of kernels stands for, by rows of a table that has both."""
    return {row["mangled_name"]: row["name"] for row in gpu_ops if row["mangled_name"] is not None}
