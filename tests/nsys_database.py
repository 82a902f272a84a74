"""Small databases as nsys exports them, for tests that break them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

import kernelscope as ks
from profiler_database import ProfilerDatabase

Place = tuple[int, str | None, int | None]

MACHINE = 1 << 48
SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
    "ANALYSIS_DETAILS": "globalVid INTEGER, duration INTEGER, startTime INTEGER, stopTime INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,"
    " shortName INTEGER, mangledName INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER,"
    " gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER,"
    " dynamicSharedMemory INTEGER, localMemoryPerThread INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,"
    " correlationId INTEGER, nameId INTEGER, returnValue INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, category INTEGER, text TEXT,"
    " globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, int64Value INTEGER",
}
TEXTS = {1: "void gemm<float>(int)", 2: "gemm", 3: "_Z4gemm", 4: "cudaLaunchKernel_v7000"}


def global_pid(pid: int) -> int:
    return MACHINE | pid << 24


def global_tid(pid: int, tid: int) -> int:
    return global_pid(pid) | tid


class Database(ProfilerDatabase):
    """A database of nsys being written."""

    def __init__(
        self, path: Path, *, without: Sequence[str] = (), schema: dict[str, str] | None = None
    ) -> None:
        super().__init__(path, {**SCHEMA, **(schema or {})}, without=without)
        if "StringIds" not in without:
            self.connection.executemany("INSERT INTO StringIds VALUES (?, ?)", TEXTS.items())
        self.insert(
            "ANALYSIS_DETAILS", globalVid=MACHINE, duration=1_000_000, startTime=0, stopTime=1_000_000
        )

    def meta(self, table: str, **values: str) -> None:
        for name, value in values.items():
            self.insert(f"META_DATA_{table}", name=name, value=value)

    def kernel(self, start: Any, end: Any, *, pid: int = 7, correlation: Any = 1, **changes: Any) -> int:
        values: dict[str, Any] = {
            "deviceId": 0, "contextId": 1, "streamId": 7, "demangledName": 1, "shortName": 2,
            "mangledName": 3, "registersPerThread": 32, "gridX": 4, "gridY": 2, "gridZ": 1,
            "blockX": 128, "blockY": 1, "blockZ": 1, "staticSharedMemory": 16,
            "dynamicSharedMemory": 32, "localMemoryPerThread": 0,
        }  # fmt: skip
        values.update(start=start, end=end, correlationId=correlation, globalPid=global_pid(pid))
        return self.insert("CUPTI_ACTIVITY_KIND_KERNEL", **{**values, **changes})

    def call(self, start: Any, end: Any, *, pid: int = 7, correlation: Any = 1, **changes: Any) -> int:
        values: dict[str, Any] = {"eventClass": 0, "nameId": 4, "returnValue": 0}
        values.update(start=start, end=end, correlationId=correlation, globalTid=global_tid(pid, pid))
        return self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", **{**values, **changes})

    def range(self, text: Any, start: Any, end: Any, *, pid: int = 7, **changes: Any) -> int:
        values: dict[str, Any] = {"eventType": 59, "text": text, "domainId": 0}
        values.update(start=start, end=end, globalTid=global_tid(pid, pid))
        return self.insert("NVTX_EVENTS", **{**values, **changes})


def findings(trace: ks.Trace, *, severity: str | None = None) -> dict[str, Place]:
    """Count, source and first rowid of every finding."""
    frame = trace.diagnostics
    if severity is not None:
        frame = frame.filter(pl.col("severity") == severity)
    rows = frame.select("code", "count", "source", "first_rowid").iter_rows()
    return {code: (count, source, rowid) for code, count, source, rowid in rows}


def write_training_steps(path: Path) -> Path:
    """A recording of two training steps, ranges called ``train_step``."""
    database = Database(path)
    for step in range(2):
        start = 10_000_000 * step
        database.range("train_step", start, start + 9_000_000)
        for number in range(3):
            at, correlation = start + 1_000_000 * number, 10 * step + number + 1
            database.range(f"aten::mm, op_id = {correlation}", at, at + 900_000)
            database.call(at + 100, at + 5_000, correlation=correlation)
            database.kernel(at + 50_000, at + 800_000, correlation=correlation)
    return database.close()
