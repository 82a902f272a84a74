"""Small programs for the tests of rules, and how their advice is looked at."""

from pathlib import Path
from typing import Any

import polars as pl

import kernelscope as ks
from events import V100, Events
from kernelscope import analysis

H100 = V100 | {"name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "totalGlobalMem": 80 * 2**30}
MI300 = {"id": 0, "name": "AMD Instinct MI300X", "totalGlobalMem": 192 * 2**30, "warpSize": 64}
MI300 |= {"computeMajor": 9, "computeMinor": 4}


class Program(Events):
    """Steps of 1,000 us each, and what runs in them. The host waits for the GPU at the end."""

    def __init__(self, *devices: dict[str, Any], steps: int = 1) -> None:
        super().__init__(*devices)
        self.count = 0
        self.called = 0.0
        self.ends: dict[int, float] = {}
        for step in range(steps):
            self.annotation(f"ProfilerStep#{step}", 1000 * step, 1000)

    def run(self, name: str, ts: float, dur: float, *, launched: float | None = None, **args: Any) -> None:
        """A kernel, which by default is launched early if it follows another one, or else 9 us before."""
        self._launch(ts, dur, args.get("stream", 7), launched)
        self.kernel(name, ts, dur, self.count, **args)

    def transfer(self, name: str, ts: float, dur: float, size: int) -> None:
        self._launch(ts, dur, 7, None, name="cudaMemcpyAsync")
        args = {"device": 0, "stream": 7, "correlation": self.count, "bytes": size}
        self.add("gpu_memcpy", name, ts, dur, args=args, pid=0, tid=7)

    def _launch(self, ts: float, dur: float, stream: int, launched: float | None, **call: Any) -> None:
        if launched is None:
            launched = self.called if ts <= self.ends.get(stream, 0) else ts - 9
        self.count += 1
        self.call(launched, 1, self.count, **call)
        self.called = max(self.called, launched + 1)
        self.ends[stream] = ts + dur

    def read(self, folder: Path, **top: Any) -> ks.Trace:
        """The trace, with the wait at the end."""
        events, called, end = self.events, self._end("cuda_runtime"), self._end("kernel", "gpu_memcpy")
        if called < end:
            self.events = [*events]
            self.call(called, end - called, 99_999, name="cudaDeviceSynchronize")
        trace = super().read(folder, **top)
        self.events = events
        return trace

    def _end(self, *kinds: str) -> float:
        return max(
            (event["ts"] + event["dur"] for event in self.events if event.get("cat") in kinds), default=0
        )

    def allocation(self, ts: float, total: int, *, reserved: int = 0, size: int = 512) -> None:
        args = {"Addr": 64, "Bytes": size, "Device Type": 1, "Device Id": 0}
        args |= {"Total Allocated": total, "Total Reserved": reserved}
        where = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "pid": 7, "tid": 7}
        self.events.append(where | {"name": "[memory]", "ts": ts, "args": args})


def advice(program: Program, folder: Path) -> pl.DataFrame:
    """What is recommended for ``program``; every row must be complete and cite rows of the trace."""
    trace = program.read(folder)
    table = analysis.recommendations(trace)
    for row in table.to_dicts():
        assert row["severity"] in ("high", "medium", "low")
        assert all(row[text].endswith((".", ")")) for text in ("evidence", "remedy"))
        cited = trace.tables[row["table"]]["row"].to_list()
        assert set(row["rows"]) <= set(cited)
        assert len(row["rows"]) == min(row["cited"], 100) > 0
        assert row["saving_ns"] is None or 0 <= row["saving_share"] <= 1
    return table


def spoke(table: pl.DataFrame, rule: str) -> dict[str, Any]:
    rows = table.filter(id=rule).to_dicts()
    assert len(rows) == 1, f"{rule} did not speak, but {table['id'].to_list()}"
    return rows[0]


def silent(table: pl.DataFrame, rule: str) -> None:
    assert rule not in table["id"].to_list()


def launches(program: Program, *, gap: float, count: int = 100, dur: float = 6) -> Program:
    """Kernels that end before the host launches the next one."""
    for index in range(count):
        at = 10 + index * (dur + gap)
        program.run("vectorized_elementwise_kernel<4, Add>", at, dur, launched=at - gap / 2)
    return program


def precise(device: dict[str, Any], kernel: str) -> Program:
    program = Program(device)
    program.op("aten::mm", 0.5, 5)
    program.run(kernel, 10, 900, launched=1)
    return program
