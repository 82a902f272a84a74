"""Costs of operators that a database knows by their NVTX ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernelscope as ks
from kernelscope import analysis
from nsys_database import Database


@pytest.fixture
def trace(tmp_path: Path) -> ks.Trace:
    """A wrapper and the product in it with a kernel, as emit_nvtx marks them; and a range of the program."""
    database = Database(tmp_path / "t.sqlite")
    database.range("step, whatever it does", 0, 900)
    database.range("aten::linear, seq = 3, op_id = 8, sizes = [[8, 64], [32, 64], []]", 10, 200)
    database.range("aten::mm, seq = 3, op_id = 9, sizes = [[8, 64], [64, 32]]", 20, 100)
    database.call(30, 40)
    database.kernel(1000, 41_000)
    database.call(300, 310, correlation=2)
    database.kernel(50_000, 60_000, correlation=2)
    return ks.read(database.close())


def test_ranges_stand_for_operators(trace: ks.Trace) -> None:
    assert trace.ops.is_empty()
    mm, other = analysis.costs(trace).sort("op_row", descending=True).to_dicts()
    # The sizes are in the text of the range, the types are not.
    assert (mm["name"], mm["flops"], mm["bytes_read"]) == ("aten::mm", 2 * 8 * 64 * 32, None)
    assert (mm["status"], mm["device_ns"]) == ("unknown_dtype", 40_000)
    assert (other["status"], other["flops"], other["device_ns"]) == ("unknown_op", None, 10_000)


def test_their_roofline(trace: ks.Trace) -> None:
    table = analysis.roofline(trace, by=("name", "input_dims"), gpu="h100-sxm5")
    row = table.filter(name="aten::mm").row(0, named=True)
    assert row["input_dims"] == "[[8, 64], [64, 32]]"
    assert row["flops_per_s"] == pytest.approx(2 * 8 * 64 * 32 / 40e-6)
    # Without types there is no peak to hold it against.
    assert (row["attainable_ns"], row["saveable_ns"]) == (None, None)
