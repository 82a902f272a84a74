"""Builds small traces, event by event. Times are in microseconds."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import kernelscope as ks

V100 = {
    "id": 0,
    "name": "Tesla V100",
    "totalGlobalMem": 32 * 2**30,
    "computeMajor": 7,
    "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 98304,
    "warpSize": 32,
    "numSms": 80,
}

GRADIENT = "autograd::engine::evaluate_function: MmBackward0"
"""The node of autograd that runs the gradient of a product."""


class Events:
    """Collects events; each method adds one."""

    def __init__(self, *devices: dict[str, Any]) -> None:
        self.devices = list(devices) or [V100]
        self.events: list[dict[str, Any]] = []
        self.ids = count(1)

    def add(self, cat: str, name: str, ts: float, dur: float, **where: Any) -> None:
        args = where.pop("args", {})
        event = {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, "args": args}
        self.events.append(event | where)

    def op(self, name: str, ts: float, dur: float, *, tid: int = 7, **args: Any) -> None:
        """An operator; keyword arguments are recorded with spaces for underscores."""
        recorded = {key.replace("_", " "): value for key, value in args.items()}
        self.add("cpu_op", name, ts, dur, tid=tid, args={"External id": next(self.ids), **recorded})

    def differentiated(self, forward: tuple[float, float], backward: tuple[float, float]) -> None:
        """An operator with a gradient, and the node of it on a thread of autograd: starts and durations."""
        self.op("aten::mm", *forward, Sequence_number=5, Fwd_thread_id=0)
        self.op(GRADIENT, *backward, tid=8, Sequence_number=5, Fwd_thread_id=1)

    def annotation(self, name: str, ts: float, dur: float) -> None:
        self.add("user_annotation", name, ts, dur, args={"External id": next(self.ids)})

    def call(self, ts: float, dur: float, correlation: int, *, name: str = "cudaLaunchKernel") -> None:
        self.add("cuda_runtime", name, ts, dur, args={"correlation": correlation})

    def kernel(self, name: str, ts: float, dur: float, correlation: int, **args: Any) -> None:
        recorded = {"device": 0, "stream": 7, "correlation": correlation, **args}
        where = {"pid": recorded["device"], "tid": recorded["stream"]}
        self.add("kernel", name, ts, dur, args=recorded, **where)

    def copy(self, ts: float, dur: float, correlation: int, *, stream: int = 7) -> None:
        args = {"device": 0, "stream": stream, "correlation": correlation, "bytes": 64}
        self.add("gpu_memcpy", "Memcpy HtoD", ts, dur, args=args, pid=0, tid=stream)

    def memory(self, ts: float, size: int, *, device_type: int = 0) -> None:
        args = {"Bytes": size, "Device Type": device_type, "Device Id": device_type - 1}
        event = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 7}
        self.events.append({**event, "ts": ts, "args": args})

    def write(self, path: Path, **properties: Any) -> Path:
        document = {"schemaVersion": 1, "deviceProperties": self.devices, "traceEvents": self.events}
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document | properties))
        return path

    def read(self, folder: Path, **properties: Any) -> ks.Trace:
        return ks.read(self.write(folder / "trace.json", **properties))
