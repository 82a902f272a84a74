"""Links for the slow reader: plain dictionaries and sorted lists, straight from the rules."""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from typing import Any

Row = dict[str, Any]

COMMUNICATION_OP = re.compile(
    r"nccl:|gloo:|mpi:|ucc:|xccl:|hccl:|c10d::|c10d_functional::|_c10d_functional::|record_param_comms"
)
CUSTOM = "cross_device_reduce|multimem_all_|multimem_one_shot_|one_shot_all_reduce|two_shot_all_reduce"
LIBRARY = "nccl|rccl|mscclKernel|msccl::|mscclpp|nvshmem"
COMMUNICATION_KERNEL = re.compile(rf"(void )?({LIBRARY})|[^<(]*(\(anonymous namespace\))?[^<(]*({CUSTOM})")


def end(row: Row) -> int:
    return row["start_ns"] + (row["dur_ns"] or 0)


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
    threads = threads_of(rows["ops"])
    starts = {track: [op["start_ns"] for op in ops] for track, ops in threads.items()}
    by_row = {op["row"]: op for op in rows["ops"]}
    for launch in rows["launches"]:
        at = bisect.bisect_right(starts.get(launch["track"], []), launch["start_ns"]) - 1
        inside = threads[launch["track"]][at] if at >= 0 else None
        # Annotations launch nothing themselves.
        while inside and (end(inside) < end(launch) or inside["category"] == "user_annotation"):
            inside = by_row.get(inside["parent_row"])
        named = ids.named(launch)
        if launch["external_id"] == launch["correlation"] and named is not inside:
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
        work["is_communication"] = (
            work.pop("collective") is not None
            or COMMUNICATION_KERNEL.match(work["name"] or "") is not None
            or (
                work["kind"] == "kernel"
                and COMMUNICATION_OP.match(names.get(work.get("op_row"), "")) is not None
            )
        )
