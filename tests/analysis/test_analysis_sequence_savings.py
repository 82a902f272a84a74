"""Sequences worth fusing or launching as a graph, against small programs whose savings are known."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from events import Events
from kernelscope import analysis
from oracles.traces import SHARED, files, read

US = 1000
MUL, GEMM = "void at::native::vectorized_elementwise_kernel<4, MulFunctor>", "sm80_xmma_gemm_f32"


def layers(count: int) -> Events:
    """Layers of a matrix product and three elementwise kernels, limited by the host: 100 us each."""
    events = Events()
    events.annotation("ProfilerStep#1", 0, 100 * count + 20)
    for layer in range(count):
        for place, name in enumerate((GEMM, MUL, MUL, MUL)):
            at, number = 100 * layer + 25 * place, 4 * layer + place + 1
            events.op("aten::mm" if name == GEMM else "aten::mul", at, 20)
            events.call(at + 5, 10, number)
            events.kernel(name, at + 20, 4 + place, number)
    return events


def test_layers_that_the_host_limits(tmp_path: Path) -> None:
    found = analysis.sequence_savings(layers(3).read(tmp_path))
    graph, fused = found.iter_rows(named=True)
    assert (fused["change"], fused["works"], fused["runs"], fused["gpu_ns"]) == ("fuse", 3, 3, 54 * US)
    assert (fused["kernels"], fused["ops"]) == ([MUL] * 3, ["aten::mul"] * 3)
    # Two operators of 20 us fewer in each layer, but the last ends with 20 us that only the host takes.
    assert fused["saving_ns"] == 3 * 2 * 20 * US
    assert (graph["change"], graph["works"], graph["runs"]) == ("graph", 12, 1)
    assert graph["kernels"] == [GEMM, MUL, MUL, MUL] * 3
    assert graph["saving_share"] == graph["saving_ns"] / (320 * US)
    assert graph["saving_ns"] > fused["saving_ns"]


def test_a_wait_ends_a_run(tmp_path: Path) -> None:
    events = layers(2)
    events.call(70, 3, 90, name="cudaStreamSynchronize")
    found = analysis.sequence_savings(events.read(tmp_path)).filter(change="graph")
    assert sorted(found["works"]) == [3, 5]
    # Two and three elementwise kernels: the wait parts those of the first layer.
    fused = analysis.sequence_savings(events.read(tmp_path)).filter(change="fuse")
    assert sorted(fused.select("works", "runs").rows()) == [(2, 1), (3, 1)]


def test_a_graph_saves_launches_and_no_kernels(tmp_path: Path) -> None:
    events = Events()
    events.annotation("ProfilerStep#1", 0, 2_000)
    for number in range(3):
        events.call(20 * number, 10, number + 1)
        events.kernel(GEMM, 20 + 500 * number, 500, number + 1)
    events.call(60, 1_470, 9, name="cudaStreamSynchronize")
    for number in range(3, 6):
        events.call(1_200 + 120 * number, 10, number + 1)
        events.kernel("other", 1_215 + 120 * number, 5, number + 1)
    [row] = analysis.sequence_savings(events.read(tmp_path), most=1).iter_rows(named=True)
    assert (row["change"], row["kernels"]) == ("graph", ["other"] * 3)
    assert row["saving_ns"] > 200 * US


def test_nothing_to_merge(tmp_path: Path) -> None:
    events = Events()
    events.kernel(GEMM, 0, 10, 1)
    assert analysis.sequence_savings(events.read(tmp_path)).is_empty()
    assert analysis.sequence_savings(Events().read(tmp_path)).is_empty()


@pytest.mark.parametrize("path", [*files(SHARED, "traces/kineto/*.json.gz"), *files(SHARED, "traces/nsys/*")])
def test_laws(path: Path) -> None:
    trace = read(path)
    found = analysis.sequence_savings(trace, most=3)
    assert found.group_by("change").len().filter(pl.col("len") > 3).is_empty()
    assert found["saving_ns"].is_sorted(descending=True)
    total = analysis.step_times(trace)["total_ns"].sum()
    for row in found.iter_rows(named=True):
        assert 0 < row["saving_ns"] <= total
        assert len(row["kernels"]) == len(row["ops"]) == min(row["works"], 20)
        assert row["row"] in trace.gpu_ops["row"]


def test_command(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = layers(3).write(tmp_path / "t.json")
    text = cli("sequences", path).stdout
    for part in ("Sequences of kernels to merge", "aten::mul, aten::mul, aten::mul", "fuse", "120.0 us"):
        assert part in text
    rows = json.loads(cli("sequences", path, "--format", "json").stdout)["sequence_savings"]
    assert [row["change"] for row in rows] == ["graph", "fuse"]
    lines = cli("sequences", path, "--format", "csv").stdout.splitlines()
    assert lines[0].startswith("change,works,runs,gpu_ns,saving_ns")
    assert "aten::mul; aten::mul; aten::mul" in lines[2]
    events = Events()
    for number in range(3):
        events.call(20 * number, 10, number + 1)
        events.kernel(MUL, 20 * number + 15, 4, number + 1)
    # Without operators, kernels have names, too.
    assert "vectorized_elementwise" in cli("sequences", events.write(tmp_path / "alone.json")).stdout
    empty = Events().write(tmp_path / "empty.json")
    assert "None would save time" in cli("sequences", empty).stdout
