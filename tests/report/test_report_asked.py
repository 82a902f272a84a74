"""Reports of a trace that was read only as far as they ask for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.report import asked_tables, render
from kernelscope.report.html.views import every_view

# Every format and era, apart from the two largest files.
TRACES = (
    "kineto/a100-nccl-rank0of2-2024.json.gz",
    "kineto/alexnet-cupti-counters-2023.json.gz",
    "kineto/cpu-only-rank34.json.gz",
    "kineto/eager-b200-rank0of8.json.gz",
    "kineto/mi250-minitoy-rocm.json.gz",
    "kineto/qwen1.5-0.5b-h100.json.gz",
    "kineto/resnet50-v100-2021.json.gz",
    "kineto/sampled-rank0of128.json.gz",
    "kineto/sglang-qwen3-8b-mi300.json.gz",
    "nsys/cpu-nvtx-2023.4.sqlite",
    "nsys/cuda-graphs-2025.5.2.sqlite",
    "nsys/h100-2gpu-emit-nvtx-2026.2.sqlite",
)


def reports_of(path: Path, folder: Path, tables: dict[str, list[str]] | None) -> dict[str, Any]:
    trace = ks.read(path, tables=tables)
    found: dict[str, Any] = {view.id: view.payload() for view in every_view(trace)}
    for form in ("text", "json"):
        out = folder / f"report.{form}"
        render(trace, format=form, out=out)
        found[form] = out.read_text()
    return found


def check(path: Path, folder: Path) -> None:
    whole, asked = (reports_of(path, folder, tables) for tables in (None, asked_tables()))
    assert whole.keys() == asked.keys()
    for name, report in whole.items():
        assert json.dumps(asked[name]) == json.dumps(report), name


@pytest.mark.parametrize("name", TRACES)
def test_reports_of_real_traces_need_no_more(name: str, shared: Path, tmp_path: Path) -> None:
    check(shared / "traces" / name, tmp_path)


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
    whole, asked = ks.read(path), ks.read(path, tables=asked_tables())
    assert whole.flows["id"].null_count() < asked.flows["id"].null_count() == whole.flows.height
    for name, columns in asked_tables().items():
        frame, full = asked.tables[name], whole.tables[name]
        assert frame.select(columns).equals(full.select(columns)), name
        others = frame.select(pl.exclude(columns))
        assert others.null_count().row(0) == (frame.height,) * others.width, name
