"""The databases that ``kernelscope demo`` writes are read back, and hold what their truth says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.cli import main
from kernelscope.compat import pyprof


def demo(folder: Path, *arguments: str) -> tuple[Path, dict[str, Any]]:
    """The database, and its truth."""
    assert main(["demo", "--truth", "--out", str(folder), *arguments]) == 0
    (truth,) = folder.glob("*.truth.json")
    (database,) = (path for path in folder.iterdir() if path != truth)
    return database, json.loads(truth.read_text())


@pytest.fixture(scope="module")
def nsys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return demo(tmp_path_factory.mktemp("nsys"), "--kind", "nsys", "--ranks", "2", "--size", "3MB")


@pytest.fixture(scope="module")
def nvprof(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return demo(tmp_path_factory.mktemp("nvprof"), "--kind", "nvprof", "--size", "2MB")


def totals(frame: pl.DataFrame) -> dict[str, tuple[int, int]]:
    """Calls and time by name."""
    named = frame.with_columns(pl.col("name").cast(pl.String))
    grouped = named.group_by("name").agg(pl.len(), pl.col("dur_ns").sum())
    return {name: (calls, total) for name, calls, total in grouped.iter_rows()}


def said(table: dict[str, dict[str, int]], time: str = "total_ns") -> dict[str, tuple[int, int]]:
    return {name: (row["calls"], row[time]) for name, row in table.items()}


@pytest.mark.parametrize("kind", ["nsys", "nvprof"])
def test_every_process_is_as_it_was_made(kind: str, request: pytest.FixtureRequest) -> None:
    path, truth = request.getfixturevalue(kind)
    trace = ks.read(path, strict=True)
    assert (trace.meta.format, trace.meta.file_bytes) == (kind, truth["file_bytes"])
    assert len(truth["processes"]) == (2 if kind == "nsys" else 1)
    for process in truth["processes"]:
        of_process = pl.col("pid") == process["pid"]
        kernels = trace.gpu_ops.filter(of_process & (pl.col("kind") == "kernel"))
        assert totals(kernels) == said(process["kernels"])
        assert totals(trace.launches.filter(of_process)) == said(process["launches"])
        operators = trace.ranges.filter(of_process & pl.col("op_id").is_not_null())
        assert totals(operators) == said(process["ops"], "host_total_ns")
        assert trace.ranges.filter(of_process).height == process["ranges"]


@pytest.mark.parametrize("kind", ["nsys", "nvprof"])
def test_work_is_linked_to_the_operator_that_launched_it(kind: str, request: pytest.FixtureRequest) -> None:
    path, truth = request.getfixturevalue(kind)
    trace = ks.read(path)
    for process in truth["processes"]:
        work = trace.gpu_ops.filter(pl.col("pid") == process["pid"])
        assert work["launch_row"].null_count() == process["gpu_ops_without_launch"]
        ranges = trace.ranges.select(range_row="row", op="name", is_operator=pl.col("op_id").is_not_null())
        linked = work.join(ranges, on="range_row").filter("is_operator")
        by_op = linked.group_by(pl.col("op").cast(pl.String)).agg(pl.len(), pl.col("dur_ns").sum())
        found = {name: (count, total) for name, count, total in by_op.iter_rows()}
        expected = {
            name: (row["gpu_ops"], row["device_self_ns"])
            for name, row in process["ops"].items()
            if row["gpu_ops"]
        }
        assert found == expected


def test_steps_are_found(nsys: tuple[Path, dict[str, Any]]) -> None:
    path, truth = nsys
    steps = ks.read(path).steps
    expected = [step["step"] for step in truth["processes"][0]["steps"]]
    assert steps["step"].drop_nulls().unique().sort().to_list() == expected


def test_graphs_are_there(nsys: tuple[Path, dict[str, Any]]) -> None:
    trace = ks.read(nsys[0])
    nodes = trace.gpu_ops.filter(pl.col("graph_id").is_not_null())
    assert nodes.height > 10
    assert nodes["launch_row"].n_unique() < nodes.height


def test_pyprof_explains_every_kernel_of_an_operator(nsys: tuple[Path, dict[str, Any]]) -> None:
    table = pyprof.pyprof_table(ks.read(nsys[0]))
    products = table.filter(pl.col("op").is_in(["mm", "addmm", "bmm", "linear"]))
    assert products.height > 10
    assert products["flops"].null_count() == 0
    assert set(table["dir"].unique()) == {"fprop", "bprop"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "nvprof", "--ranks", "2"], "ranks must be 1"),
        (["--kind", "nsys", "--gzip"], "--gzip"),
    ],
)
def test_what_makes_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["demo", "--out", str(tmp_path / "d"), "--size", "1MB", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_file_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "mine.sqlite"
    assert main(["demo", "--kind", "nsys", "--size", "1MB", "--out", str(out)]) == 0
    assert "1 processes" in capsys.readouterr().out or out.exists()
    assert [path.name for path in out.parent.iterdir()] == ["mine.sqlite"]
