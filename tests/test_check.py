"""Laws of the answers: they hold on every trace there is, and each can be broken."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from events import Events
from kernelscope.check import LAWS, check
from oracles.traces import SHARED, files, read


def network(folder: Path) -> ks.Trace:
    """Two steps of an operator with an inner one, each with a kernel, a copy and what waits for them."""
    events = Events({"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 80 * 2**30, "numSms": 132})
    for step in range(2):
        at = 100 * step
        events.annotation(f"ProfilerStep#{step}", at, 90)
        events.op("aten::linear", at + 5, 40, Input_Dims=[[64, 64], [64, 64]], Input_type=["float", "float"])
        events.op("aten::mm", at + 10, 20, Input_Dims=[[64, 64], [64, 64]], Input_type=["float", "float"])
        events.call(at + 15, 5, 2 * step + 1)
        events.kernel("sgemm", at + 25, 30, 2 * step + 1)
        events.call(at + 50, 5, 2 * step + 2, name="cudaMemcpyAsync")
        events.copy(at + 60, 10, 2 * step + 2)
    return events.read(folder)


def changed(trace: ks.Trace, table: str, *columns: pl.Expr) -> ks.Trace:
    return replace(trace, **{table: getattr(trace, table).with_columns(*columns)})


def test_all_laws_hold(tmp_path: Path) -> None:
    assert [verdict for verdict in check(network(tmp_path)) if verdict.faults] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "table", "column"),
    [
        ("links", "ops", pl.lit(999, pl.UInt32).alias("parent_row")),
        ("nesting", "ops", pl.col("start_ns") - 50_000 * (pl.col("parent_row").is_null())),
        ("ranges", "gpu_ops", -pl.col("dur_ns")),
        ("steps", "steps", pl.col("total_ns") + 1),
        ("steps", "gpu_steps", pl.col("total_ns") + 1),
        ("device_time", "gpu_ops", pl.lit(999, pl.UInt32).alias("op_row")),
        ("costs", "gpu_ops", -pl.col("dur_ns")),
        ("within", "gpu_ops", pl.col("start_ns") + 10**15 * (pl.col("row") == pl.col("row").max())),
        ("serial", "gpu_ops", pl.col("dur_ns") * 100),
        ("launched", "gpu_ops", pl.lit(999, pl.UInt32).alias("launch_row")),
        ("clocks", "launches", pl.col("start_ns") + 10**6),
        ("correlations", "launches", pl.lit(1, pl.Int64).alias("correlation")),
    ],
)
def test_a_law_can_be_broken(tmp_path: Path, law: str, table: str, column: pl.Expr) -> None:
    statements = {law.find.__name__: law.statement for law in LAWS}
    broken = {verdict.law for verdict in check(changed(network(tmp_path), table, column)) if verdict.faults}
    assert statements[law] in broken


RECORDED = (
    "traces/**/*.json.gz",
    "traces/nsys/*.sqlite",
    "oracles/pyprof/*.s*q*l*",
    "oracles/tb-plugin/unit/*.trace.json",
    "oracles/nsys-stats/edge/*.sqlite",
)


@pytest.mark.parametrize("path", [path for pattern in RECORDED for path in files(SHARED, pattern)])
def test_laws_hold_on_real_traces(path: Path) -> None:
    assert [verdict for verdict in check(read(path)) if verdict.faults and not verdict.of_file] == []


def test_a_fault_of_the_file_is_told_apart(cli: Callable[..., Any], tmp_path: Path) -> None:
    events = Events()
    events.call(100, 5, 1)
    events.kernel("sgemm", 40, 10, 1)
    events.write(tmp_path / "trace.json")
    broken = [verdict for verdict in check(ks.read(tmp_path / "trace.json")) if verdict.faults]
    assert [verdict.of_file for verdict in broken] == [True]
    assert "1 of 1 operations start before their launch, by up to 60.00 us" in broken[0].faults[0]
    done = cli("info", "--check", tmp_path / "trace.json")
    assert done.returncode == 0
    assert done.stdout.count("\nFILE ") == 1
    assert "BROKEN" not in done.stdout


@pytest.mark.slow
def test_the_command_prints_the_laws(cli: Callable[..., Any], tmp_path: Path) -> None:
    network(tmp_path)
    done = cli("info", "--check", tmp_path / "trace.json")
    assert done.returncode == 0
    assert done.stdout.count("\nholds ") == len(LAWS)
    document = json.loads(cli("info", "--check", "--format", "json", tmp_path / "trace.json").stdout)
    assert [law["law"] for law in document["laws"]] == [law.statement for law in LAWS]
    assert not any(law["faults"] for law in document["laws"])
