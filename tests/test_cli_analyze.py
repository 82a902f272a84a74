"""``kernelscope analyze``: what it reads, where the report goes, and how it fails."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_text_goes_to_stdout(cli: Run, tiny: Path) -> None:
    done = cli("analyze", tiny)
    assert (done.returncode, done.stderr) == (0, "")
    assert "aten::mm" in done.stdout
    assert "gemm[bold]" in done.stdout
    assert "\x1b" not in done.stdout, "no colours where nobody looks"


def test_json_is_one_object(cli: Run, tiny: Path) -> None:
    document = json.loads(cli("analyze", tiny, "--format", "json").stdout)
    assert {"schema_version", "trace", "steps", "breakdown", "ops", "kernels", "diagnostics"} <= set(document)


def test_out_keeps_stdout_empty(cli: Run, tiny: Path, tmp_path: Path) -> None:
    done = cli("analyze", tiny, "--format", "json", "--out", "report.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((tmp_path / "report.json").read_text())["schema_version"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_folders_of_files(cli: Run, tiny: Path, tmp_path: Path, form: str) -> None:
    assert cli("analyze", tiny, "--format", form, "--out", "report").returncode == 0
    read = pl.read_csv if form == "csv" else pl.read_parquet
    assert read(tmp_path / "report" / f"kernels.{form}")["name"].to_list() == ["gemm[bold]"]


def test_html_is_one_page(cli: Run, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("itables", reason="itables, which ships the tables of the page, is not installed")
    done = cli("analyze", tiny, "--format", "html", "--out", "report.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    "arguments", [["--format", "csv"], ["--format", "parquet"], ["--top", "0"], ["--format", "html"]]
)
def test_usage(cli: Run, tiny: Path, arguments: list[str]) -> None:
    done = cli("analyze", tiny, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_named_annotation_makes_steps(cli: Run, tmp_path: Path) -> None:
    spans = [
        {"ph": "X", "cat": "user_annotation", "name": "train", "pid": 1, "tid": 1, "ts": 100 * n, "dur": 90}
        for n in range(3)
    ]
    path = tmp_path / "named.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": spans}))
    document = json.loads(cli("analyze", path, "--format", "json", "--step-range", "train").stdout)
    assert [step["total_ns"] for step in document["steps"]] == [90_000] * 3


def test_place_that_cannot_be_written(cli: Run, tiny: Path) -> None:
    done = cli("analyze", tiny, "--format", "json", "--out", tiny / "report.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
