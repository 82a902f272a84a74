"""A second, slow and independent reader of Kineto JSON, to check the fast one against.

It reads with ``json.load`` and links with plain dictionaries and sorted lists, straight from the
rules in the documentation, and gives frames with the names and main columns of
:class:`kernelscope.Trace`. Columns that no test compares (modules, phases) are null.
"""

from __future__ import annotations

import bisect
import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl

from slow_steps import fill_steps, find_steps

I, F, U, B, C = pl.Int64, pl.Float64, pl.UInt32, pl.Boolean, pl.Categorical

SLICE = {"row": U, "name": C, "category": C, "track": U, "start_ns": I, "dur_ns": I}
THREAD = {"pid": I, "tid": I}
SCHEMAS: dict[str, dict[str, Any]] = {
    "ops": SLICE
    | {
        "external_id": I,
        "sequence": I,
        "forward_thread": I,
        "input_dims": C,
        "input_types": C,
        "input_strides": C,
    }
    | {"concrete_inputs": C, "call_stack": C}
    | THREAD
    | {"parent_row": U, "depth": U, "step": I, "phase": C, "module": C},
    "launches": SLICE | {"correlation": I, "external_id": I} | THREAD | {"op_row": U, "step": I},
    "gpu_ops": {
        "row": U,
        "kind": C,
        "name": C,
        "category": C,
        "device": I,
        "stream": I,
        "start_ns": I,
        "dur_ns": I,
    }
    | {"correlation": I, "external_id": I, "grid": C, "block": C, "registers": I, "shared_memory_bytes": I}
    | {"blocks_per_sm": F, "warps_per_sm": F, "occupancy_pct": F, "bytes": I, "bandwidth_gb_per_s": F}
    | {"graph_id": I, "launch_row": U, "op_row": U, "link": C, "step": I, "is_communication": B},
    "python": {
        "row": U,
        "name": C,
        "track": U,
        "start_ns": I,
        "dur_ns": I,
        "python_id": I,
        "python_parent_id": I,
    }
    | {"module_id": I}
    | THREAD
    | {"parent_row": U},
    "gpu_annotations": {
        "row": U,
        "name": C,
        "device": I,
        "stream": I,
        "start_ns": I,
        "dur_ns": I,
        "external_id": I,
    },
    "syncs": {"row": U, "name": C, "category": C, "device": I, "stream": I, "start_ns": I, "dur_ns": I}
    | {"correlation": I},
    "memory": {"row": U, "name": C, "track": U, "start_ns": I, "bytes": I, "total_allocated_bytes": I}
    | {"total_reserved_bytes": I, "device_type": I, "device_id": I}
    | THREAD,
    "counters": {"row": U, "name": C, "start_ns": I},
    "spans": {**SLICE, "kind": C},
    "instants": {"row": U, "name": C, "start_ns": I},
    "flows": {"row": U, "id": I, "category": C, "kind": C, "start_ns": I},
    "metadata": {"row": U, "name": C},
    "steps": {
        "step": I,
        "name": C,
        "row": U,
        "start_ns": I,
        "total_ns": I,
        "host_start_ns": I,
        "host_dur_ns": I,
    }
    | {
        "is_partial": B,
        "kernel_ns": I,
        "memcpy_ns": I,
        "memset_ns": I,
        "communication_ns": I,
        "runtime_ns": I,
    }
    | {"dataloader_ns": I, "cpu_exec_ns": I, "other_ns": I},
    "devices": {"device": I, "name": C, "total_memory_bytes": I, "compute_major": I, "compute_minor": I}
    | {
        "sm_count": I,
        "warp_size": I,
        "max_threads_per_block": I,
        "max_threads_per_sm": I,
        "registers_per_block": I,
    }
    | {"registers_per_sm": I, "shared_memory_per_block_bytes": I, "shared_memory_per_block_optin_bytes": I}
    | {"shared_memory_per_sm_bytes": I},
    "threads": {"track": U, "pid": I, "tid": I},
    "diagnostics": {"code": C, "severity": C, "count": I, "first_offset": I, "message": C},
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
    "shared_memory_per_sm_bytes": "sharedMemPerMultiprocessor",
}
GPU_KINDS = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
OP_CATEGORIES = {"cpu_op", "operator", "user_annotation", "python"}
NO_OPERATOR = "user_annotation"

Row = dict[str, Any]


@dataclass(frozen=True)
class SlowTrace:
    """Has the attributes of :class:`kernelscope.Trace` that analyses and tests use."""

    meta: SimpleNamespace
    tables: dict[str, pl.DataFrame]
    stats: SimpleNamespace = field(default_factory=SimpleNamespace)

    def __getattr__(self, name: str) -> pl.DataFrame:
        try:
            return self.__dict__["tables"][name]
        except KeyError:
            raise AttributeError(name) from None


def ns(value: Any) -> int | None:
    """Microseconds as written, in whole ns; exact, since no float is involved."""
    if value is None or isinstance(value, bool):
        return None
    return int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_EVEN))


def integer(value: Any) -> int | None:
    try:
        return None if value is None or isinstance(value, (list, dict)) else int(value)
    except ValueError:
        return None


def number(value: Any) -> float | None:
    return None if value is None or isinstance(value, (list, dict)) else float(value)


def text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, default=float)


class Reader:
    """Sorts events into tables and links them."""

    def __init__(self, document: Any) -> None:
        self.top: dict[str, Any] = document if isinstance(document, dict) else {"traceEvents": document}
        self.rows: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
        self.tracks: dict[tuple[str, str], int] = {}

    def read(self) -> dict[str, pl.DataFrame]:
        for index, event in enumerate(self.top.get("traceEvents") or []):
            self.sort_in(index, event)
        self.nest_ops()
        self.link_launches()
        self.link_gpu_ops()
        steps = find_steps(self.rows)
        self.rows["steps"] = fill_steps(steps, self.rows)
        for row in self.rows["python"]:
            row["parent_row"] = None
        ids = {row["python_id"]: row["row"] for row in self.rows["python"]}
        for row in self.rows["python"]:
            row["parent_row"] = ids.get(row["python_parent_id"])
        for properties in self.top.get("deviceProperties") or []:
            self.rows["devices"].append({column: properties.get(key) for column, key in DEVICE_KEYS.items()})
        return {name: pl.DataFrame(self.rows[name], schema=schema) for name, schema in SCHEMAS.items()}

    def sort_in(self, index: int, event: Row) -> None:
        args = event.get("args") or {}
        category = event.get("cat")
        kind = (category or "").lower()
        pid, tid = event.get("pid"), event.get("tid")
        row: Row = {
            "row": index,
            "name": event.get("name"),
            "category": category,
            "start_ns": ns(event.get("ts")),
        }
        row |= {"dur_ns": ns(event.get("dur")), "pid": integer_or_none(pid), "tid": integer_or_none(tid)}
        row["track"] = self.tracks.setdefault((str(pid), str(tid)), len(self.tracks))
        row["external_id"] = integer(args.get("External id", args.get("external id")))
        row["correlation"] = integer(args.get("correlation"))
        ph = event.get("ph")
        if row["name"] in ("[memory]", "[OutOfMemory]"):
            self.rows["memory"].append(row | memory_columns(args))
        elif ph == "X":
            self.sort_slice(row, kind, args, pid)
        elif ph in ("s", "t", "f"):
            self.rows["flows"].append(row | {"id": integer(event.get("id")), "kind": ph})
        else:
            self.rows[{"M": "metadata", "C": "counters"}.get(ph, "instants")].append(row)

    def sort_slice(self, row: Row, kind: str, args: Row, pid: Any) -> None:
        if kind in OP_CATEGORIES:
            self.rows["ops"].append(row | op_columns(args))
        elif kind == "runtime" or kind.endswith(("_runtime", "_driver")):
            self.rows["launches"].append(row)
        elif kind in GPU_KINDS:
            self.rows["gpu_ops"].append(row | gpu_columns(args, pid) | {"kind": GPU_KINDS[kind]})
        elif kind == "python_function":
            ids = {
                "python_id": "Python id",
                "python_parent_id": "Python parent id",
                "module_id": "Python module id",
            }
            self.rows["python"].append(row | {column: args.get(key) for column, key in ids.items()})
        elif kind in ("gpu_user_annotation", "cuda_sync", "cuda_event", "xpu_sync"):
            where = {
                "device": integer(args.get("device", pid)),
                "stream": integer(args.get("stream", row["tid"])),
            }
            self.rows["gpu_annotations" if kind == "gpu_user_annotation" else "syncs"].append(row | where)
        elif kind == "cuda_profiler_range":
            self.rows["counters"].append(row)
        else:
            self.rows["spans"].append(row | {"kind": "X"})

    def nest_ops(self) -> None:
        """The tree of each thread: in order of (start, -end), what does not contain the next is closed."""
        threads: defaultdict[int, list[Row]] = defaultdict(list)
        for row in self.rows["ops"]:
            threads[row["track"]].append(row)
        for ops in threads.values():
            ops.sort(key=lambda op: (op["start_ns"], -end(op)))
            stack: list[Row] = []
            for op in ops:
                while stack and (op["start_ns"] >= end(stack[-1]) or end(op) > end(stack[-1])):
                    stack.pop()
                op["parent_row"] = stack[-1]["row"] if stack else None
                op["depth"] = len(stack)
                stack.append(op)

    def link_launches(self) -> None:
        """By External id where that is not merely the correlation id, else the innermost enclosing operator."""
        by_id: dict[int, Row] = {}
        for op in self.rows["ops"]:
            if op["external_id"]:
                by_id.setdefault(op["external_id"], op)
        enclosing = self.enclosing_operators()
        linked = [
            row for row in self.rows["launches"] + self.rows["gpu_ops"] if row["external_id"] is not None
        ]
        same = sum(row["external_id"] == row["correlation"] for row in linked)
        legacy = bool(linked) and same >= 0.99 * len(linked)
        for launch in self.rows["launches"]:
            inside = enclosing(launch)
            named = by_id.get(launch["external_id"]) if launch["external_id"] and not legacy else None
            if named is not None and launch["external_id"] == launch["correlation"] and named is not inside:
                named = None
            launch["link"] = "external_id" if named is not None else "containment"
            op = named if named is not None else inside
            launch["op_row"] = op["row"] if op else None
        self.by_id, self.legacy = by_id, legacy

    def enclosing_operators(self) -> Any:
        """A function from a launch to the innermost operator that encloses it on its thread."""
        threads: defaultdict[int, list[Row]] = defaultdict(list)
        rows = {op["row"]: op for op in self.rows["ops"]}
        for op in self.rows["ops"]:
            threads[op["track"]].append(op)
        starts: dict[int, list[int]] = {}
        for track, ops in threads.items():
            ops.sort(key=lambda op: (op["start_ns"], -end(op)))
            starts[track] = [op["start_ns"] for op in ops]

        def find(launch: Row) -> Row | None:
            ops = threads.get(launch["track"])
            if not ops:
                return None
            at = bisect.bisect_right(starts[launch["track"]], launch["start_ns"]) - 1
            op = ops[at] if at >= 0 else None
            while op and (end(op) < end(launch) or (op["category"] or "").lower() == NO_OPERATOR):
                op = rows.get(op["parent_row"])
            return op

        return find

    def link_gpu_ops(self) -> None:
        launches = {
            row["correlation"]: row for row in self.rows["launches"] if row["correlation"] is not None
        }
        names = {op["row"]: op["name"] or "" for op in self.rows["ops"]}
        for work in self.rows["gpu_ops"]:
            launch = launches.get(work["correlation"])
            named = by_id_or_none(self, work)
            if launch is not None:
                work["launch_row"], work["op_row"] = launch["row"], launch["op_row"]
                work["link"] = launch["link"] if launch["op_row"] is not None else "no_op"
            elif named is not None:
                work["op_row"], work["link"] = named["row"], "gpu_external_id"
            else:
                work["link"] = "no_launch" if work["correlation"] else "no_correlation"
            work["is_communication"] = work["kind"] == "kernel" and (
                work.pop("collective") is not None
                or (work["name"] or "").startswith(("nccl", "rccl", "hccl"))
                or names.get(work.get("op_row"), "").startswith(("nccl:", "gloo:"))
            )


def by_id_or_none(reader: Reader, work: Row) -> Row | None:
    external = work["external_id"]
    if not external or reader.legacy or external == work["correlation"]:
        return None
    return reader.by_id.get(external)


def end(row: Row) -> int:
    return row["start_ns"] + (row["dur_ns"] or 0)


def integer_or_none(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def op_columns(args: Row) -> Row:
    dims = args.get("Input Dims", args.get("Input dims"))
    return {
        "sequence": integer(args.get("Sequence number")),
        "forward_thread": integer(args.get("Fwd thread id")),
        "input_dims": text(dims),
        "input_types": text(args.get("Input type")),
        "input_strides": text(args.get("Input Strides")),
        "concrete_inputs": text(args.get("Concrete Inputs")),
        "call_stack": text(args.get("Call stack")),
    }


def gpu_columns(args: Row, pid: Any) -> Row:
    return {
        "device": integer(args.get("device", pid)),
        "stream": integer(args.get("stream")),
        "grid": text(args.get("grid")),
        "block": text(args.get("block")),
        "registers": integer(args.get("registers per thread")),
        "shared_memory_bytes": integer(args.get("shared memory")),
        "blocks_per_sm": number(args.get("blocks per SM")),
        "warps_per_sm": number(args.get("warps per SM")),
        "occupancy_pct": number(args.get("est. achieved occupancy %")),
        "bytes": integer(args.get("bytes")),
        "bandwidth_gb_per_s": number(args.get("memory bandwidth (GB/s)")),
        "graph_id": integer(args.get("graph id")) or None,
        "collective": args.get("Collective name"),
    }


def memory_columns(args: Row) -> Row:
    return {
        "bytes": integer(args.get("Bytes")),
        "total_allocated_bytes": integer(args.get("Total Allocated")),
        "total_reserved_bytes": integer(args.get("Total Reserved")),
        "device_type": integer(args.get("Device Type")),
        "device_id": integer(args.get("Device Id")),
    }


def read(path: str | Path) -> SlowTrace:
    """Reads a valid Kineto JSON file, plain or gzip."""
    raw = Path(path).read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    document = json.loads(raw, parse_float=Decimal)
    reader = Reader(document)
    tables = reader.read()
    distributed = reader.top.get("distributedInfo") or {}
    meta = SimpleNamespace(
        path=str(path),
        format="kineto",
        rank=distributed.get("rank"),
        world_size=distributed.get("world_size"),
        host=reader.top.get("host_name"),
        base_time_ns=reader.top.get("baseTimeNanoseconds"),
        properties=reader.top,
    )
    seen = len(reader.top.get("traceEvents") or [])
    return SlowTrace(meta, tables, SimpleNamespace(seen=seen, kept=seen, dropped=0))
