"""The views that the text shows when asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import kernelscope as ks
from kernelscope.cli import analyze
from kernelscope.report import render
from kernelscope.report.view_tables import VIEWS

HOSTILE = "[bold red]m[/] \x1b[2J\u202e <script>" + "é" * 200


def text_of(trace: ks.Trace, folder: Path, *also: str, **options: Any) -> str:
    out = folder / "report.txt"
    render(trace, out=out, also=also, **options)
    return out.read_text()


def network(folder: Path, name: str = "Net_0") -> ks.Trace:
    """A module with an operator, a kernel and an allocation, under the name ``name``."""
    where = {"ph": "X", "pid": 7, "tid": 7}
    ids = {"External id": 1, "correlation": 1}
    launch = {"grid": [80, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0}
    memory = {"Addr": 1, "Bytes": 2048, "Device Type": 1, "Device Id": 0, "Total Allocated": 4096}
    events: list[dict[str, Any]] = [
        where
        | {"cat": "python_function", "name": f"nn.Module: {name}", "ts": 0, "dur": 90}
        | {"args": {"Python id": 1, "Python module id": 0}},
        where | {"cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 50, "args": {"External id": 1}},
        where | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 20, "dur": 5, "args": ids},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100, "dur": 40}
        | {"args": {"device": 0, "stream": 7, **ids, **launch}},
        {"ph": "i", "s": "t", "name": "[memory]", "pid": 7, "tid": 7, "ts": 30, "args": memory},
    ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return ks.read(path)


def test_every_view_is_an_option_of_the_command() -> None:
    assert tuple(VIEWS) == analyze._VIEWS


def test_views_show_what_is_there(tmp_path: Path) -> None:
    text = text_of(network(tmp_path), tmp_path, *VIEWS)
    modules, memory = text.index("\nModules\n"), text.index("\nMemory\n")
    assert text.index("\nGPUs") < modules < memory < text.index("\nMissing\n")
    assert "Net_0" in text[modules:memory]
    held = text[memory:]
    assert "GPU0 aten::mm" in held
    assert "GPU0 allocated before the recording" in held
    assert "4.000 KiB" in held


def test_a_view_without_data_says_what_would_have_recorded_it(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    text = " ".join(text_of(ks.read(path), tmp_path, *VIEWS).split())
    assert "Modules Calls of nn.Module were not recorded. Profile with with_stack=True" in text
    assert "Memory Allocations were not recorded. Profile with profile_memory=True." in text
    assert "Launches The trace has no kernels. Profile with activities=" in text


@pytest.mark.parametrize("width", [60, 100, 180])
def test_hostile_names_stay_text_and_fit(tmp_path: Path, width: int) -> None:
    text = text_of(network(tmp_path, HOSTILE), tmp_path, *VIEWS, width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold red]" in text


def test_real_traces_fit(shared: Path, tmp_path: Path) -> None:
    for path in sorted((shared / "traces").glob("*/*.*")):
        lines = text_of(ks.read(path), tmp_path, *VIEWS, width=100).splitlines()
        assert max(cell_len(line) for line in lines[2:]) <= 100, path.name


def test_the_command_takes_views(cli: Callable[..., Any], tmp_path: Path) -> None:
    network(tmp_path)
    done = cli("analyze", tmp_path / "trace.json", "--also", "modules", "--also", "missing")
    assert done.returncode == 0
    assert "\nModules\n" in done.stdout
    assert "\nMemory\n" not in done.stdout
    assert cli("analyze", tmp_path / "trace.json", "--also", "nonsense").returncode == 2


def test_views_are_in_the_json(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    render(network(tmp_path), format="json", out=out)
    document = json.loads(out.read_text())
    assert document["modules"][0]["module"] == "Net_0"
    assert document["memory"][0]["peak_bytes"] == 4096
    assert document["overview"][0]["kernels"] == 1
    assert {row["view"] for row in document["missing"]} >= {"steps", "ranges"}
