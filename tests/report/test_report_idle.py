"""What the report says of idle time and exposed communication."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kernelscope as ks
from kernelscope.report import render


def launched(
    number: int, ts: float, start: float, dur: float, *, name: str, stream: int
) -> list[dict[str, Any]]:
    call = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 7,
        "tid": 7,
        "ts": ts,
        "dur": 2,
    }
    work = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": dur}
    args = {"correlation": number, "device": 0, "stream": stream}
    return [call | {"args": {"correlation": number}}, work | {"args": args}]


@pytest.fixture
def trace(tmp_path: Path) -> ks.Trace:
    host = {"ph": "X", "pid": 7, "tid": 7}
    events = [
        {**host, "cat": "cpu_op", "name": "aten::slow", "ts": 30, "dur": 60, "args": {"External id": 1}},
        *launched(1, 0, 5, 15, name="gemm", stream=7),
        *launched(2, 85, 100, 40, name="ncclDevKernel_AllReduce", stream=20),
        *launched(3, 87, 130, 50, name="gemm", stream=7),
        *launched(4, 90, 184, 6, name="gemm", stream=7),
    ]
    path = tmp_path / "idle.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return ks.read(path)


def test_text(trace: ks.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    render(trace, format="text")
    text = capsys.readouterr().out
    assert "30.00 us of 40.00 us is exposed (75.0 %)" in text
    lines = text.splitlines()
    assert "GPU idle: 84.00 us" in lines
    (host,) = [line.split("  ") for line in lines if line.startswith("waiting for the host")]
    assert [cell.strip() for cell in host if cell] == [
        "waiting for the host to launch",
        "80.00 us",
        "95.2 %",
        "1",
        "80.00 us",
    ]
    assert any(line.startswith("between works in the queue") and "4.000 us" in line for line in lines)
    (operator,) = [
        line for line in lines[lines.index("What the host did meanwhile") :] if "aten::slow" in line
    ]
    assert "80.00 us" in operator


def test_json(trace: ks.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    render(trace, format="json")
    document = json.loads(capsys.readouterr().out)
    (overlap,) = document["overlap"]
    assert (overlap["communication_ns"], overlap["exposed_ns"]) == (40_000, 30_000)
    assert {row["cause"]: row["idle_ns"] for row in document["idle"]} == {
        "host_wait": 80_000,
        "kernel_wait": 4_000,
    }
    assert {row["host"]: row["idle_ns"] for row in document["idle_hosts"]} == {
        "aten::slow": 80_000,
        None: 4_000,
    }
    (gpu,) = document["gpu_time"]
    assert gpu["idle_ns"] == 84_000


def test_nothing_is_said_where_there_is_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    event = {"ph": "X", "pid": 7, "tid": 7, "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5}
    path = tmp_path / "host.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    render(ks.read(path), format="text")
    text = capsys.readouterr().out
    assert "idle:" not in text
    assert "exposed" not in text
