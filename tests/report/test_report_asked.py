"""Reports of a trace that was read only as far as they ask for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.report import FORMATS, asked_tables, render
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
        tables = asked_tables(form)
        if tables is None:
            continue
        whole, asked = (report_of(path, form, folder, some) for some in (None, tables))
        assert whole.keys() == asked.keys()
        for name, report in whole.items():
            assert asked[name] == report, (form, name)


def test_files_of_tables_hold_all_of_them() -> None:
    assert [form for form in FORMATS if asked_tables(form) is None] == ["parquet"]


@pytest.mark.parametrize("name", TRACES)
def test_reports_of_real_traces_need_no_more(name: str, shared: Path, tmp_path: Path) -> None:
    check(shared / "traces" / name, tmp_path)


@pytest.mark.parametrize("name", RANGES)
def test_pages_of_odd_ranges_need_no_more(name: str, shared: Path, tmp_path: Path) -> None:
    path = shared / f"oracles/nsys-stats/edge/{name}.sqlite"
    whole, asked = (report_of(path, "html", tmp_path, some) for some in (None, asked_tables("html")))
    for views in (whole, asked):
        # A column that the file lacks is only missed where it is asked for.
        del views["diagnostics"]
    assert asked == whole


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
    tables = asked_tables("html")
    assert tables is not None
    whole, asked = ks.read(path), ks.read(path, tables=tables)
    assert whole.flows["id"].null_count() < asked.flows["id"].null_count() == whole.flows.height
    for name, columns in tables.items():
        frame, full = asked.tables[name], whole.tables[name]
        assert frame.select(columns).equals(full.select(columns)), name
        others = frame.select(pl.exclude(columns))
        assert others.null_count().row(0) == (frame.height,) * others.width, name
