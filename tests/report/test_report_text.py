"""The text report: it fits, it escapes, and it says what the answers say."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import kernelscope as ks
from kernelscope.report import render

HOSTILE = "[bold red]k[/] :smile: \x1b[2J\u202e 核心 " + "é" * 200


def trace_of(folder: Path, *, steps: int, name: str = "gemm") -> ks.Trace:
    """``steps`` steps of one operator, one launch and one kernel each."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        at = 1000 * step
        host = {"ph": "X", "pid": 7, "tid": 7}
        own = {"External id": step + 1}
        call = {**own, "correlation": step + 1}
        gpu = {"ph": "X", "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7, **call}}
        events += [
            host | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 900},
            host | {"cat": "cpu_op", "name": "aten::mm", "ts": at + 10, "dur": 100, "args": own},
            host
            | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 20, "dur": 10, "args": call},
            gpu | {"cat": "kernel", "name": name, "ts": at + 200, "dur": 300 + step},
        ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return ks.read(path)


def text_of(trace: ks.Trace, folder: Path, **options: Any) -> str:
    out = folder / "report.txt"
    render(trace, out=out, **options)
    return out.read_text()


@pytest.mark.parametrize("width", [60, 80, 100, 160, 250])
def test_no_line_is_wider_than_asked_for(tmp_path: Path, width: int) -> None:
    text = text_of(trace_of(tmp_path, steps=30, name=HOSTILE), tmp_path, width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("width", [80, 160])
def test_real_traces_fit(shared: Path, tmp_path: Path, width: int) -> None:
    for path in sorted((shared / "traces" / "kineto").glob("*.json.gz")):
        lines = text_of(ks.read(path), tmp_path, width=width).splitlines()
        # The path of the file is never cut.
        assert max(cell_len(line) for line in lines[2:]) <= width, path.name


def test_names_are_neither_markup_nor_control(tmp_path: Path) -> None:
    text = text_of(trace_of(tmp_path, steps=1, name=HOSTILE), tmp_path, width=160)
    assert "[bold red]k[/] :smile:" in text
    assert "核心" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_what_it_says(tmp_path: Path) -> None:
    text = text_of(trace_of(tmp_path, steps=2), tmp_path, width=100)
    lines = text.splitlines()
    assert any(line.startswith("Mean of 2 steps: 900.0 us") for line in lines)
    assert any(line.split()[:5] == ["K", "kernel", "300.5", "us", "33.4"] for line in lines)
    assert any(
        line.split() == "aten::mm 601.0 us 100.0 % 2 601.0 us 180.0 us 200.0 us".split() for line in lines
    )
    assert any(line.startswith("gemm") and "601.0 us  100.0 %      2" in line for line in lines)
    assert "Nothing was repaired and nothing was lost." in text


def test_a_bar_for_each_step_is_as_long_as_the_step(tmp_path: Path) -> None:
    text = text_of(trace_of(tmp_path, steps=3), tmp_path, width=124)
    bars = [line.split()[-1] for line in text.splitlines() if line.strip()[:1].isdecimal() and "KKK" in line]
    assert [len(bar) for bar in bars] == [80, 80, 80]
    # A third of a step is its kernel: 300 of 900 us.
    assert [bar.count("K") for bar in bars] == [27, 27, 27]


def test_of_many_steps_the_longest_are_shown(tmp_path: Path) -> None:
    text = text_of(trace_of(tmp_path, steps=50), tmp_path, width=100)
    assert "The 20 longest of 50 steps, in order of time." in text


def test_top(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, steps=1)
    few, many = (text_of(trace, tmp_path, top=top).count("aten::mm") for top in (1, 10))
    assert few == many == 2


def test_damage_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    good = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + good + ", " + good[:40])
    text = text_of(ks.read(path), tmp_path, width=80)
    assert "What was wrong or odd about the file" in text
    assert "lost" in text
    assert "First at byte" in text


def test_versions_are_readable(tmp_path: Path) -> None:
    path = tmp_path / "versions.json"
    versions = '"cuda_driver_version": 13000, "cuda_runtime_version": 12090, "hip_runtime_version": 60443483'
    path.write_text('{"schemaVersion": 1, ' + versions + ', "nccl_version": "2.27.5", "traceEvents": []}')
    text = text_of(ks.read(path), tmp_path, width=120)
    assert "CUDA driver 13.0, CUDA runtime 12.9, HIP runtime 6.4.43483, NCCL 2.27.5" in text


def test_empty_trace(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": []}')
    text = text_of(ks.read(path), tmp_path)
    for part in ("no steps", "no operators", "no kernels", "no GPU work"):
        assert part in text


def test_ascii_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of(tmp_path, steps=2, name=HOSTILE)
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    render(trace, width=80)
    sys.stdout.flush()
    assert b"aten::mm" in raw.getvalue()


def test_colour_on_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    trace = trace_of(tmp_path, steps=2)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    shown: dict[str, str] = {}
    for kind, stream in {"terminal": Terminal(), "pipe": io.StringIO()}.items():
        monkeypatch.setattr(sys, "stdout", stream)
        render(trace, width=80)
        shown[kind] = stream.getvalue()
    assert "\x1b[32m" in shown["terminal"]
    assert "█" in shown["terminal"]
    assert "\x1b" not in shown["pipe"]
    assert "KKK" in shown["pipe"]


def test_the_weightiest_advice_stands_in_the_text(tmp_path: Path) -> None:
    text = text_of(trace_of(tmp_path, steps=3, name=HOSTILE), tmp_path, width=100)
    start = text.index("What to do")
    assert text.index("Steps") < start < text.index("Operators by")
    assert "GPUs run kernels less than half of the time" in text[start:]
    # The name of a kernel is quoted in the evidence, and stays text.
    assert "\x1b" not in text


def test_nothing_is_said_where_there_is_no_advice(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [op]}))
    assert "What to do" not in text_of(ks.read(path), tmp_path)


def test_advice_is_in_the_json(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, steps=3)
    out = tmp_path / "report.json"
    render(trace, format="json", out=out)
    rows = json.loads(out.read_text())["recommendations"]
    assert {row["id"] for row in rows} >= {"low_utilisation", "gpu_idle"}
    assert all(set(row["rows"]) <= set(trace.tables[row["table"]]["row"]) for row in rows)
