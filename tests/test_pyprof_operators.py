"""PyProf's records and report of traces of PyTorch's profiler, whose operators stand for its markers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kernelscope as ks
from events import Events
from kernelscope import analysis
from kernelscope.cli.main import main
from kernelscope.compat import pyprof


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A linear layer forward and backward, and a copy of a number beside it."""
    events = Events()
    shapes = {
        "Input Dims": [[8, 64], [64, 32]],
        "Input type": ["float", "float"],
        "Concrete Inputs": ["", ""],
    }
    for name, at, inner, sequence in (
        ("aten::linear", 0, "aten::mm", 5),
        ("autograd::engine::evaluate_function: MmBackward0", 100, "aten::mm", 5),
    ):
        events.op(name, at, 50, **{"Sequence number": sequence})
        events.op(inner, at + 5, 30, **{"Sequence number": sequence, **shapes})
        events.call(at + 10, 5, at + 1)
        events.kernel("sgemm_128x64_nn", at + 20, 9, at + 1)
    events.op("aten::fill_", 200, 20, **{
        "Input Dims": [[4], []], "Input type": ["long int", "Scalar"], "Concrete Inputs": ["", "7"],
    })  # fmt: skip
    events.call(205, 5, 9)
    events.kernel("void at::native::vectorized_elementwise_kernel<4>(int)", 230, 3, 9)
    return events.write(tmp_path / "trace.json")


def test_records_have_the_operators(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", str(path)]) == 0
    found = [ast.literal_eval(line) for line in capsys.readouterr().out.splitlines()]
    assert [(record["op"], record["dir"], record["seqId"]) for record in found] == [
        (["mm"], "fprop", [5]), (["mm"], "bprop", [5]), (["fill_"], "fprop", []),
    ]  # fmt: skip
    (fill,) = found[2]["marker"]
    assert ast.literal_eval(fill)["args"] == [
        {"name": "", "type": "tensor", "shape": (4,), "dtype": "int64"},
        {"name": "", "type": "int", "value": 7},
    ]
    assert next(pyprof.read_records(map(repr, found))).ops == ["mm"]


def test_their_work_is_that_of_the_operators(path: Path) -> None:
    trace = ks.read(path)
    table = pyprof.pyprof_table(trace)
    costs = analysis.costs(trace).filter(name="aten::mm")
    assert table["flops"].to_list()[:2] == costs["flops"].to_list() == [2 * 8 * 64 * 32] * 2
    moved = costs["bytes_read"] + costs["bytes_written"]
    assert table["bytes"].to_list()[:2] == moved.to_list()
    assert table["params"].to_list()[2] == "[4]int64"


def test_the_report_takes_such_a_trace(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prof", "-c", "idx,op,flops", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["Idx Op FLOPs", "1 mm 32768"]
