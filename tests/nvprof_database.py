"""Small databases as nvprof writes them, for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profiler_database import ProfilerDatabase

_KEY = "_id_ INTEGER PRIMARY KEY AUTOINCREMENT"
_WORK = "start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT"
_CALL = "cbid INT, start INT, end INT, processId INT, threadId INT, correlationId INT, returnValue INT"
_SIZES = "gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT"
SCHEMA = {
    "StringTable": "_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT",
    "Version": "version INT",
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": f"{_KEY}, {_WORK}, {_SIZES}, registersPerThread INT,"
    " staticSharedMemory INT, dynamicSharedMemory INT, localMemoryPerThread INT, name INT",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_KEY}, {_WORK}, copyKind INT, srcKind INT, dstKind INT, bytes INT",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_KEY}, {_WORK}, memoryKind INT, bytes INT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{_KEY}, {_CALL}",
    "CUPTI_ACTIVITY_KIND_DRIVER": f"{_KEY}, {_CALL}",
    "CUPTI_ACTIVITY_KIND_MARKER": f"{_KEY}, flags INT, timestamp INT, id INT, objectKind INT,"
    " objectId BLOB, name INT, domain INT",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_KEY}, type INT, start INT, end INT, correlationId INT,"
    " contextId INT, streamId INT, cudaEventId INT",
    "CUPTI_ACTIVITY_KIND_DEVICE": f"{_KEY}, id INT, name INT, globalMemorySize INT, numMultiprocessors INT,"
    " numThreadsPerWarp INT, maxWarpsPerMultiprocessor INT, computeCapabilityMajor INT,"
    " computeCapabilityMinor INT, maxThreadsPerBlock INT, maxRegistersPerBlock INT,"
    " maxRegistersPerMultiprocessor INT, maxSharedMemoryPerBlock INT, maxSharedMemoryPerMultiprocessor INT",
}
LAUNCH_KERNEL = 211
MEMCPY_ASYNC = 41


class Database(ProfilerDatabase):
    """A database of nvprof being written."""

    def __init__(self, path: Path, *, without: Sequence[str] = ()) -> None:
        super().__init__(path, SCHEMA, without=without)
        self._marker = 0

    def text(self, value: Any) -> int:
        return self.insert("StringTable", value=value)

    def kernel(self, start: Any, end: Any, name: Any = "k", *, correlation: Any = 1, **changes: Any) -> int:
        values: dict[str, Any] = {
            "deviceId": 0, "contextId": 1, "streamId": 7, "gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128,
            "blockY": 1, "blockZ": 1, "registersPerThread": 32, "staticSharedMemory": 16,
            "dynamicSharedMemory": 32, "localMemoryPerThread": 0,
        }  # fmt: skip
        name = self.text(name) if isinstance(name, (str, bytes)) else name
        values.update(start=start, end=end, correlationId=correlation, name=name)
        return self.insert("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", **{**values, **changes})

    def call(
        self, start: Any, end: Any, *, correlation: Any = 1, pid: int = 7, tid: int = 7, **changes: Any
    ) -> int:
        values: dict[str, Any] = {"cbid": LAUNCH_KERNEL, "returnValue": 0, "processId": pid, "threadId": tid}
        values.update(start=start, end=end, correlationId=correlation)
        table = f"CUPTI_ACTIVITY_KIND_{changes.pop('api', 'RUNTIME')}"
        return self.insert(table, **{**values, **changes})

    def marker(self, flags: Any, at: Any, *, pid: int = 7, tid: int = 7, **changes: Any) -> int:
        thread = struct.pack("<IIi", pid, tid, 0)
        values: dict[str, Any] = {"objectKind": 2, "objectId": thread, "name": 0, "domain": 0}
        values.update(flags=flags, timestamp=at)
        return self.insert("CUPTI_ACTIVITY_KIND_MARKER", **{**values, **changes})

    def range(self, text: Any, start: Any, end: Any, **changes: Any) -> int:
        self._marker += 1
        values = {"id": self._marker, **changes}
        rowid = self.marker(2, start, name=self.text(text), **values)
        if end is not None:
            self.marker(4, end, **values)
        return rowid
