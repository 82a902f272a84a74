"""Reports in files: JSON, CSV and Parquet, and what stays when writing fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kernelscope as ks
from kernelscope import analysis
from kernelscope.errors import InvalidArgumentError
from kernelscope.report import FORMATS, render

ANSWERS = {
    "steps",
    "breakdown",
    "ops",
    "ops_by_shape",
    "kernels",
    "ranges",
    "kernels_by_op",
    "gpus",
    "gpu_time",
    "overlap",
    "idle",
    "idle_hosts",
    "launches_by_call",
    "queues",
    "copies",
    "recommendations",
    "overview",
    "modules",
    "memory",
    "memory_peak",
    "memory_by_op",
    "kernel_launches",
    "op_kernels",
    "gpu_timeline",
    "missing",
    "unlinked",
    "diagnostics",
}


@pytest.fixture
def trace(tiny: Path) -> ks.Trace:
    return ks.read(tiny)


def files_in(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_json(trace: ks.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    render(trace, format="json")
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert list(document)[1:6] == ["trace", "steps", "breakdown", "ops", "kernels"]
    assert document["trace"]["rank"] == 3
    assert document["trace"]["tables"]["gpu_ops"] == 1
    assert document["ops"] == analysis.op_table(trace).to_dicts()
    assert document["kernels"][0]["name"] == "gemm[bold]"
    parts = document["breakdown"][0]
    assert sum(parts[c] for c in analysis.CATEGORIES) == parts["total_ns"]


def test_json_writes_what_json_cannot_as_null(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text('{"schemaVersion": 1, "odd": NaN, "half": "\\ud800", "traceEvents": []}')
    out = tmp_path / "report.json"
    render(ks.read(path), format="json", out=out)
    text = out.read_bytes().decode("utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_folder(trace: ks.Trace, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / "new" / "report"
    render(trace, format=suffix, out=out)
    expected = {f"{name}.{suffix}" for name in ANSWERS} | {"trace.json"}
    if suffix == "parquet":
        expected |= {f"tables/{name}.parquet" for name in trace.tables}
    assert files_in(out) == expected
    read = pl.read_csv if suffix == "csv" else pl.read_parquet
    assert_frame_equal(read(out / f"ops.{suffix}"), analysis.op_table(trace), check_dtypes=suffix != "csv")
    assert json.loads((out / "trace.json").read_text())["rank"] == 3


def test_parquet_holds_every_table(trace: ks.Trace, tmp_path: Path) -> None:
    render(trace, format="parquet", out=tmp_path / "out")
    for name, table in trace.tables.items():
        assert_frame_equal(pl.read_parquet(tmp_path / "out" / "tables" / f"{name}.parquet"), table)


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_twice(trace: ks.Trace, tmp_path: Path, form: str) -> None:
    for out in (tmp_path / "a", tmp_path / "b"):
        render(trace, format=form, out=out)
    if form in ("text", "json"):
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        return
    for name in files_in(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_a_folder_keeps_its_other_files(trace: ks.Trace, tmp_path: Path) -> None:
    out = tmp_path / "report"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    (out / "ops.csv").write_text("old")
    render(trace, format="csv", out=out)
    assert (out / "mine.txt").read_text() == "keep"
    assert (out / "ops.csv").read_text().startswith("name,calls")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_failure_leaves_the_old_results(
    trace: ks.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    out = tmp_path / "report"
    render(trace, format=form, out=out)
    before = {name: (out / name).read_bytes() for name in files_in(out)}
    written: list[Any] = []

    def fail_at_the_third(self: pl.DataFrame, path: Path, **options: Any) -> None:
        written.append(path)
        if len(written) == 3:
            raise OSError("no space left on device")
        path.write_text("new")

    monkeypatch.setattr(pl.DataFrame, f"write_{form}", fail_at_the_third)
    with pytest.raises(OSError, match="no space"):
        render(trace, format=form, out=out)
    assert {name: (out / name).read_bytes() for name in files_in(out)} == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_file_is_replaced_at_once(trace: ks.Trace, tmp_path: Path) -> None:
    target = tmp_path / "real.json"
    target.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(target)
    render(trace, format="json", out=link)
    assert link.is_symlink()
    assert json.loads(target.read_text())["schema_version"] == 1


def test_a_device_is_written_to(trace: ks.Trace) -> None:
    render(trace, out=Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    "options",
    [
        {"format": "pdf"},
        {"format": "csv"},
        {"format": "parquet"},
        {"top": 0},
        {"format": "csv", "out": "a file"},
        {"format": "json", "out": "a folder"},
    ],
)
def test_bad_options_are_refused(trace: ks.Trace, tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "a file").write_text("old")
    (tmp_path / "a folder").mkdir()
    if "out" in options:
        options = {**options, "out": tmp_path / options["out"]}
    with pytest.raises(InvalidArgumentError):
        render(trace, **options)
    assert (tmp_path / "a file").read_text() == "old"
