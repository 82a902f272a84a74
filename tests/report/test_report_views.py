"""The views shown when asked for, of traces read only as far as they are needed."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.cells import cell_len

import draws
import kernelscope as ks
from kernelscope.cli.analyze import on_request
from kernelscope.report import FORMATS, render, required_tables
from kernelscope.report.html.page import every_view

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


def test_every_view_on_request_is_an_option_of_the_command() -> None:
    assert on_request() == ("modules", "memory", "annotations", "categories", "launches", "gaps", "missing")


def test_views_show_what_is_there(tmp_path: Path) -> None:
    text = text_of(network(tmp_path), tmp_path, *on_request())
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
    text = " ".join(text_of(ks.read(path), tmp_path, *on_request()).split())
    assert "Modules Calls of nn.Module were not recorded. Profile with with_stack=True" in text
    assert "Memory Allocations were not recorded. Profile with profile_memory=True." in text
    assert "Launches The trace has no kernels. Profile with activities=" in text


@pytest.mark.parametrize("width", [60, 100, 180])
def test_hostile_names_stay_text_and_fit(tmp_path: Path, width: int) -> None:
    text = text_of(network(tmp_path, HOSTILE), tmp_path, *on_request(), width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold red]" in text


def test_real_traces_fit(shared: Path, tmp_path: Path) -> None:
    for path in sorted((shared / "traces").glob("*/*.*")):
        lines = text_of(ks.read(path), tmp_path, *on_request(), width=100).splitlines()
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
    assert {row["view"] for row in document["missing_views"]} >= {"steps", "ranges"}


# Every format and era, apart from the two largest files.
TRACES = (
    "kineto/a100-nccl-rank0of2-2024.json.gz", "kineto/alexnet-cupti-counters-2023.json.gz",
    "kineto/cpu-only-rank34.json.gz", "kineto/eager-b200-rank0of8.json.gz",
    "kineto/mi250-minitoy-rocm.json.gz", "kineto/qwen1.5-0.5b-h100.json.gz",
    "kineto/resnet50-v100-2021.json.gz", "kineto/sampled-rank0of128.json.gz",
    "kineto/sglang-qwen3-8b-mi300.json.gz", "nsys/cpu-nvtx-2023.4.sqlite", "nsys/cuda-graphs-2025.5.2.sqlite",
    "nsys/h100-2gpu-emit-nvtx-2026.2.sqlite",
)  # fmt: skip

# Of each odd kind of NVTX range, such as those that another thread or process ends.
RANGES = ("coll", "cross", "dom1", "dom2", "domid", "graph", "ident", "nest", "open", "prec", "startend")


def report_of(path: Path, form: str, folder: Path, tables: dict[str, list[str]] | None) -> dict[str, str]:
    """The files of a report, or the views of the page."""
    trace = ks.read(path, tables=tables)
    if form == "html":
        return {view.id: json.dumps(view.payload()) for view in every_view(trace)}
    out = folder / ("whole" if tables is None else "asked")
    render(trace, format=form, out=out)
    files = out.iterdir() if out.is_dir() else [out]
    found = {file.name.replace(out.name, form): file.read_text() for file in files}
    shutil.rmtree(out) if out.is_dir() else out.unlink()
    return found


def check(path: Path, folder: Path) -> None:
    for form in FORMATS:
        tables = required_tables(form)
        if tables is None:
            continue
        whole, asked = (report_of(path, form, folder, some) for some in (None, tables))
        assert whole.keys() == asked.keys()
        for name, report in whole.items():
            assert asked[name] == report, (form, name)


def test_files_of_tables_hold_all_of_them() -> None:
    assert [form for form in FORMATS if required_tables(form) is None] == ["parquet"]


@pytest.mark.parametrize("name", draws.some(TRACES, 5))
def test_reports_of_real_traces_need_no_more(name: str, shared: Path, tmp_path: Path) -> None:
    check(shared / "traces" / name, tmp_path)


@pytest.mark.parametrize("name", draws.some(RANGES, 4))
def test_pages_of_odd_ranges_need_no_more(name: str, shared: Path, tmp_path: Path) -> None:
    path = shared / f"oracles/nsys-stats/edge/{name}.sqlite"
    whole, asked = (report_of(path, "html", tmp_path, some) for some in (None, required_tables("html")))
    for views in (whole, asked):
        # A column that the file lacks is only missed where it is asked for.
        del views["diagnostics"]
    assert asked == whole


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kineto", "nsys", "nvprof"])
def test_reports_of_demo_traces_need_no_more(kind: str, tmp_path: Path) -> None:
    from kernelscope.cli.main import main

    assert main(["demo", "--kind", kind, "--size", "3MB", "--out", str(tmp_path / "demo")]) == 0
    (path,) = (
        p for p in (tmp_path / "demo").iterdir() if p.suffix in (".json", ".sqlite", ".sql", ".nvprof")
    )
    check(path, tmp_path)


def test_what_is_not_asked_for_is_null(shared: Path) -> None:
    path = shared / "traces/kineto/qwen1.5-0.5b-h100.json.gz"
    tables = required_tables("html")
    assert tables is not None
    whole, asked = ks.read(path), ks.read(path, tables=tables)
    assert whole.flows["id"].null_count() < asked.flows["id"].null_count() == whole.flows.height
    for name, columns in tables.items():
        frame, full = asked.tables[name], whole.tables[name]
        assert frame.select(columns).equals(full.select(columns)), name
        others = frame.select(pl.exclude(columns))
        assert others.null_count().row(0) == (frame.height,) * others.width, name


@pytest.mark.slow
def test_a_new_view_is_one_file(tmp_path: Path) -> None:
    package = Path(ks.__file__).parent
    copy = tmp_path / "copy" / "kernelscope"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "report" / "views" / "answer.py").write_text(
        "import polars as pl\n\nfrom kernelscope.report.parts import Note, Page\n\n"
        "ORDER = 95\nTABLES = ('gpu_ops',)\nON_REQUEST = True\n"
        "PAGE = Page('answer', 'Answer', 'An answer.')\n\n\n"
        "def frames(trace):\n    return {'answer': pl.DataFrame({'value': [42]})}\n\n\n"
        "def text(trace, shape):\n    return ['The answer is 42']\n\n\n"
        "def page(trace):\n    return [Note('The answer is 42')]\n"
    )
    network(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(copy.parent)}

    def analyze(*options: str) -> str:
        command = [sys.executable, "-m", "kernelscope", "analyze", "trace.json", *options]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert "The answer is 42" not in analyze()
    assert "The answer is 42" in analyze("--also", "answer")
    assert json.loads(analyze("--format", "json"))["answer"] == [{"value": 42}]
    analyze("--format", "csv", "--out", "folder")
    assert (tmp_path / "folder" / "answer.csv").read_text() == "value\n42\n"
    analyze("--format", "html", "--out", "page.html")
    shown = (tmp_path / "page.html").read_text()
    assert '"id":"answer","title":"Answer"' in shown
    packed = re.search(r'id="view-answer">([^<]+)<', shown)
    assert packed is not None
    assert json.loads(gzip.decompress(base64.b64decode(packed[1])))["parts"][0]["text"] == "The answer is 42"
