"""A second, slow and independent reader of Kineto JSON, to check the fast one against.

It reads with ``json.load`` and links with plain dictionaries and sorted lists, straight from the
rules in the documentation, and gives frames with the names and main columns of
:class:`kernelscope.Trace`. Columns that no test compares (modules, phases) are null.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl

from slow_links import link
from slow_steps import fill_steps, find_steps

I, F, U, B, C = pl.Int64, pl.Float64, pl.UInt32, pl.Boolean, pl.Categorical


def columns(**types: str) -> dict[str, Any]:
    """A schema from a type and the names of its columns."""
    kinds = {"integer": I, "real": F, "row": U, "flag": B, "text": C, "size": pl.Array(pl.Int32, 3)}
    return {name: kinds[kind] for kind, names in types.items() for name in names.split()}


SCHEMAS: dict[str, dict[str, Any]] = {
    "ops": columns(
        row="row track parent_row depth",
        text="name category input_dims input_types input_strides concrete_inputs call_stack phase module",
        integer="start_ns dur_ns external_id sequence forward_thread pid tid step",
    ),
    "launches": columns(
        row="row track op_row",
        text="name category",
        integer="start_ns dur_ns correlation external_id pid tid step",
    ),
    "gpu_ops": columns(
        row="row launch_row op_row",
        text="kind name category link",
        integer="device stream start_ns dur_ns correlation external_id registers shared_memory_bytes bytes "
        "graph_id step",
        real="blocks_per_sm warps_per_sm occupancy_pct bandwidth_gb_per_s",
        flag="is_communication",
        size="grid block",
    ),
    "python": columns(
        row="row track parent_row",
        text="name",
        integer="start_ns dur_ns python_id python_parent_id module_id pid tid",
    ),
    "gpu_annotations": columns(row="row", text="name", integer="device stream start_ns dur_ns external_id"),
    "syncs": columns(row="row", text="name category", integer="device stream start_ns dur_ns correlation"),
    "memory": columns(
        row="row track",
        text="name",
        integer="start_ns bytes total_allocated_bytes total_reserved_bytes device_type device_id pid tid",
    ),
    "counters": columns(row="row", text="name counter", integer="start_ns", real="value"),
    "spans": columns(row="row track", text="name category kind", integer="start_ns dur_ns"),
    "instants": columns(row="row", text="name", integer="start_ns"),
    "flows": columns(row="row", text="category kind", integer="id start_ns"),
    "metadata": columns(row="row", text="name"),
    "steps": columns(
        row="row",
        text="name",
        integer="step start_ns total_ns host_start_ns host_dur_ns kernel_ns memcpy_ns memset_ns "
        "communication_ns runtime_ns dataloader_ns cpu_exec_ns other_ns",
        flag="is_partial",
    ),
    "devices": columns(
        text="name",
        integer="device total_memory_bytes compute_major compute_minor sm_count warp_size "
        "max_threads_per_block max_threads_per_sm registers_per_block registers_per_sm "
        "shared_memory_per_block_bytes shared_memory_per_block_optin_bytes shared_memory_per_sm_bytes",
    ),
    "threads": columns(row="track", integer="pid tid"),
    "diagnostics": columns(text="code severity message", integer="count first_offset"),
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
GPU_KINDS = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
OP_CATEGORIES = {"cpu_op", "operator", "user_annotation", "python"}

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
        link(self.rows)
        self.rows["steps"] = fill_steps(find_steps(self.rows), self.rows)
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
            self.sort_slice(row, kind, args, pid, tid)
        elif ph in ("s", "t", "f"):
            self.rows["flows"].append(row | {"id": integer(event.get("id")), "kind": ph})
        else:
            self.rows[{"M": "metadata", "C": "counters"}.get(ph, "instants")].append(row)

    def sort_slice(self, row: Row, kind: str, args: Row, pid: Any, tid: Any) -> None:
        if kind in OP_CATEGORIES:
            self.rows["ops"].append(row | op_columns(args))
        elif kind == "runtime" or kind.endswith(("_runtime", "_driver")):
            self.rows["launches"].append(row)
        elif kind in GPU_KINDS:
            self.rows["gpu_ops"].append(row | gpu_columns(args, pid, tid) | {"kind": GPU_KINDS[kind]})
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
                "stream": stream(args.get("stream", row["tid"])),
            }
            self.rows["gpu_annotations" if kind == "gpu_user_annotation" else "syncs"].append(row | where)
        elif kind == "cuda_profiler_range":
            values = [{"counter": key, "value": number(value)} for key, value in args.items()]
            self.rows["counters"] += [row | value for value in values]
        else:
            self.rows["spans"].append(row | {"kind": "X"})


def stream(value: Any) -> int | None:
    """A stream id; -1 stands for none."""
    return None if value in (-1, "-1") else integer(value)


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
        "call_stack": text(args.get("Call stack")) or None,
    }


def gpu_columns(args: Row, pid: Any, tid: Any) -> Row:
    return {
        "device": integer(args.get("device", pid)),
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
