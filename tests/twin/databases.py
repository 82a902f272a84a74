"""The rows of databases of nsys and nvprof straight from SQL, linked with dictionaries.

They have the columns of :mod:`slow_reader` that the twins look at, so that these answer for databases, too.
"""

from __future__ import annotations

import re
import sqlite3
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

from slow_reader import ARGUMENTS, COMMUNICATION_KERNEL, Row, end, length, nest
from twin.callers import put_callers
from twin.figures import Figures, Rows, duration, grouped, spans

WORKS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memset",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
}
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_PUSH_POP, _START_END = 59, 60
_ORDER = (*WORKS, _RUNTIME)
# What PyTorch's emit_nvtx writes.
_SEQUENCE = re.compile(r", seq = (\d+)")
_APPENDED = re.compile(r"(, seq = \d+)?(, op_id = \d+)?(, sizes = \[.*\])?(, input_op_ids = \[.*\])?$")
_OPERATOR = re.compile(r"^(aten|autograd|c10d|torch::autograd|profiler)::|^[^ :.#]+Backward\d*$")


class _Tables:
    """A database that is read a table at a time; ``places`` has the row before the first of each table."""

    def __init__(self, path: Path, places: dict[str, Any]) -> None:
        self.connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        self.connection.row_factory = sqlite3.Row
        self.places = {table: dict(place) for table, place in places.items()}

    def texts_of(self, table: str) -> dict[int, str]:
        return dict(self.connection.execute(f"SELECT * FROM {table}").fetchall())

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table with their number in the trace; none where there is no such table."""
        if table not in self.places:
            return []
        first = self.places[table]["row_of_rowid_0"]
        found = self.connection.execute(f"SELECT rowid AS _rowid, * FROM {table}").fetchall()
        return [{**dict(row), "row": first + row["_rowid"]} for row in found]


class Database(_Tables):
    """A database of Nsight Systems."""

    def read(self) -> Rows:
        self.texts = self.texts_of("StringIds")
        ranges = [self._range(row) for row in self.rows("NVTX_EVENTS") if row["eventType"] in (59, 60)]
        calls = [self._call(row) for row in self.rows(_RUNTIME)]
        by_id = {(call["pid"], call["correlation"]): call for call in calls}
        works = [self._work(row, table, by_id) for table in WORKS for row in self.rows(table)]
        return _together(works, calls, ranges)

    def _call(self, row: dict[str, Any]) -> Row:
        name = self.texts[row["nameId"]]
        stem, _, version = name.rpartition("_v")
        return {
            **_timed(row),
            "name": stem if stem and version.isdecimal() else name,
            "correlation": row["correlationId"],
            "thread": row["globalTid"],
            "pid": row["globalTid"] >> 24,
            "op_row": None,
        }

    def _range(self, row: dict[str, Any]) -> Row:
        crosses = row["eventType"] == _START_END and row["endGlobalTid"] not in (None, row["globalTid"])
        is_pushed = row["eventType"] == _PUSH_POP and not row.get("domainId")
        place = {"thread": row["globalTid"], "pid": row["globalTid"] >> 24, "crosses": crosses}
        said = _said(row.get("text") or "", is_pushed=is_pushed)
        return {**_timed(row), **place, **said, "track": row["globalTid"]}

    def _work(self, row: dict[str, Any], table: str, calls: dict[Any, Row]) -> Row:
        kind = WORKS[table]
        call = calls.get((row["globalPid"] >> 24, row["correlationId"]))
        name = self._name(row, kind)
        is_communication = kind == "kernel" and COMMUNICATION_KERNEL.match(name) is not None
        return {**_described(row, kind, call), "name": name, "is_communication": is_communication}

    def _name(self, row: dict[str, Any], kind: str) -> str:
        if kind == "kernel":
            return self.texts[row["demangledName"]]
        if kind == "memcpy":
            query = "SELECT label FROM ENUM_CUDA_MEMCPY_OPER WHERE id = ?"
            label = self.connection.execute(query, (row["copyKind"],)).fetchone()[0]
            return f"[CUDA memcpy {label}]"
        return "[CUDA memset]" if kind == "memset" else f"[CUDA graph {row['graphId']}]"


COPIES = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 10: "Peer-to-Peer"}
NVPROF_WORKS = {
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memset",
}
_BEGINS, _ENDS, _OF_THREAD = 2, 4, 2


# Rows are counted through the tables in this order.
_COUNTED = (
    "CONCURRENT_KERNEL KERNEL MEMCPY MEMCPY2 MEMSET RUNTIME DRIVER SYNCHRONIZATION MARKER OVERHEAD DEVICE"
)


class NvprofDatabase(_Tables):
    """A database of nvprof; ``names`` has what mangled names of kernels stand for."""

    def read(self, names: dict[str, str]) -> Rows:
        texts = self.texts_of("StringTable")
        first = -1
        for table in (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in _COUNTED.split()):
            if table in self.places:
                self.places[table]["row_of_rowid_0"] = first
                first += self.places[table]["rows"]
        tables = (_RUNTIME, "CUPTI_ACTIVITY_KIND_DRIVER")
        calls = [self._call(row) for table in tables for row in self.rows(table)]
        by_id = {call["correlation"]: call for call in calls}
        works: list[Row] = []
        for table, kind in NVPROF_WORKS.items():
            for row in self.rows(table):
                name = "[CUDA memset]"
                if kind == "kernel":
                    name = names.get(texts[row["name"]], texts[row["name"]])
                elif kind == "memcpy":
                    name = f"[CUDA memcpy {COPIES[row['copyKind']]}]"
                matched = COMMUNICATION_KERNEL.match(ARGUMENTS.split(name, maxsplit=1)[0])
                described = _described(row, kind, by_id.get(row["correlationId"]))
                works.append(
                    {**described, "name": name, "is_communication": kind == "kernel" and matched is not None}
                )
        return _together(works, calls, self._ranges(texts))

    def _call(self, row: dict[str, Any]) -> Row:
        thread = (row["processId"], row["threadId"] & 0xFFFF_FFFF)
        where = {"thread": thread, "pid": row["processId"], "op_row": None}
        return {**_timed(row), **where, "name": None, "correlation": row["correlationId"]}

    def _ranges(self, texts: dict[int, str]) -> list[Row]:
        """A marker that begins and one that ends have one id."""
        markers = self.rows("CUPTI_ACTIVITY_KIND_MARKER")
        ends = {row["id"]: row["timestamp"] for row in markers if row["flags"] & _ENDS}
        found: list[Row] = []
        for row in markers:
            if not row["flags"] & _BEGINS:
                continue
            pid, tid, _ = struct.unpack("<IIi", row["objectId"])
            stop, start = ends.get(row["id"]), row["timestamp"]
            times = {"row": row["row"], "start_ns": start, "dur_ns": None if stop is None else stop - start}
            # One of the process encloses the calls of all its threads.
            is_pushed = row["objectKind"] == _OF_THREAD
            place = {"thread": (pid, tid) if is_pushed else None, "pid": pid, "crosses": not is_pushed}
            found.append({**times, **place, **_said(texts.get(row["name"], ""), is_pushed=is_pushed)})
        return found


def _said(text: str, *, is_pushed: bool) -> Row:
    """What the text of a range says: its name, and whether it is an operator; None if it says neither."""
    name = _APPENDED.sub("", text)
    is_operator = _OPERATOR.search(name) is not None or ", seq = " in text or ", sizes = " in text
    is_one = is_operator if is_pushed and (is_operator or name != text) else None
    number = _SEQUENCE.search(text)
    numbered = {"sequence": int(number[1]) if number else None, "forward_thread": None, "activity": None}
    return {"name": name, "is_operator": is_one, "is_annotation": not is_operator, **numbered}


def _together(works: list[Row], calls: list[Row], ranges: list[Row]) -> Rows:
    # What is open in the end lasts until then.
    last = max((end(row) for row in [*ranges, *calls, *works]), default=0)
    for row in ranges:
        row["dur_ns"] = last - row["start_ns"] if row["dur_ns"] is None else row["dur_ns"]
    ops = [row for row in ranges if row["is_operator"] is not None]
    of_threads = grouped((op for op in ops if op["is_operator"]), lambda op: op["thread"])
    for row in [*ops, *calls]:
        row["track"] = row["thread"]
    nest(ops)
    for call in calls:
        near = of_threads.get(call["thread"], ())
        inside = [op for op in near if op["start_ns"] <= call["start_ns"] and end(call) <= end(op)]
        call["op_row"] = max(inside, key=_place)["row"] if inside else None
    op_rows = {call["row"]: call["op_row"] for call in calls}
    for work in works:
        work["op_row"] = op_rows.get(work["launch_row"])
    empty: Rows = {name: [] for name in ("python", "memory", "devices", "steps", "spans", "flows")}
    rows = {**empty, "ops": ops, "gpu_ops": works, "launches": calls, "ranges": ranges}
    put_callers(rows)
    return rows


def _described(row: dict[str, Any], kind: str, call: Row | None) -> Row:
    """What the tables of both recorders say of a piece of work."""
    sizes = {axis: tuple(row[f"{axis}{n}"] for n in "XYZ") if kind == "kernel" else None
             for axis in ("grid", "block")}  # fmt: skip
    shared: list[Any] = [row.get(f"{part}SharedMemory") for part in ("static", "dynamic")]
    return {
        **_timed(row),
        **sizes,
        "kind": kind,
        "device": row["deviceId"],
        "stream": row["streamId"],
        "correlation": row["correlationId"],
        "bytes": row.get("bytes"),
        "registers": row.get("registersPerThread"),
        "shared_memory_bytes": sum(shared) if None not in shared else None,
        "launch_row": None if call is None else call["row"],
        "op_row": None,
        "step": None,
        **dict.fromkeys(("blocks_per_sm", "occupancy_pct", "bandwidth_gb_per_s")),
    }


def _timed(row: dict[str, Any]) -> Row:
    length_of = None if row["end"] is None else row["end"] - row["start"]
    return {"row": row["row"], "start_ns": row["start"], "dur_ns": length_of}


def around(rows: Rows) -> dict[int, list[Row]]:
    """The ranges that enclose each call which launched work, the innermost at the end."""
    launching = {work["launch_row"] for work in rows["gpu_ops"]} - {None}
    known = [row for row in rows["ranges"] if row["dur_ns"] is not None]
    of_threads = grouped(known, lambda row: row["thread"])
    crossing = grouped((row for row in known if row["crosses"]), lambda row: row["pid"])
    found: dict[int, list[Row]] = {}
    for call in rows["launches"]:
        if call["row"] not in launching:
            continue
        start, stop = call["start_ns"], end(call)
        near = [*of_threads.get(call["thread"], ()), *crossing.get(call["pid"], ())]
        near += of_threads.get(call["caller_track"], ())
        inside = {
            row["row"]: row
            for row in near
            if row["start_ns"] <= start and stop <= row["start_ns"] + row["dur_ns"]
        }
        # A range of the thread that waits for the call is around those of the call's own thread.
        by_place = sorted(inside.values(), key=_place)
        found[call["row"]] = sorted(
            by_place, key=lambda row, call=call: (not row["crosses"]) + (row["thread"] == call["thread"])
        )
    return found


def _place(row: Row) -> tuple[bool, int, int, int]:
    """A range of the process is around those of the thread itself."""
    return not row["crosses"], row["start_ns"], -end(row), row["row"]


def nvtx_projection(rows: Rows) -> Figures:
    """By the row of each range with GPU work."""
    enclosing = around(rows)
    inside: defaultdict[int, list[Row]] = defaultdict(list)
    own: defaultdict[int, list[Row]] = defaultdict(list)
    for work in rows["gpu_ops"]:
        ranges = enclosing.get(work["launch_row"], ())
        for row in ranges:
            inside[row["row"]].append(work)
        if ranges:
            own[ranges[-1]["row"]].append(work)
    found: Figures = {}
    for row in rows["ranges"]:
        works = inside.get(row["row"])
        if works:
            first, last = min(work["start_ns"] for work in works), max(map(end, works))
            found[row["row"]] = {
                "gpu_start_ns": first,
                "gpu_end_ns": last,
                "gpu_span_ns": last - first,
                "gpu_busy_ns": length(spans(works)),
                "gpu_exclusive_ns": length(spans(own[row["row"]])),
                "launches": len({work["launch_row"] for work in works}),
                "gpu_ops": len(works),
                "dur_ns": duration(row),
            }
    return found


def sums_by(projection: Figures, names: dict[int, Any]) -> Figures:
    """The figures of ranges of one name added up."""
    found: dict[Any, dict[str, Any]] = {}
    for row, figures in projection.items():
        sums = found.setdefault(names[row], {"ranges": 0})
        sums["ranges"] += 1
        for name in ("dur_ns", "gpu_span_ns", "gpu_busy_ns", "gpu_exclusive_ns", "launches", "gpu_ops"):
            sums[name] = sums.get(name, 0) + figures[name]
    return found
