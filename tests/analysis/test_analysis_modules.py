"""The tree of modules, from each of the records that can tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from events import Events

from kernelscope import analysis

if TYPE_CHECKING:
    from pathlib import Path


class Modules(Events):
    """Events with calls of modules, as ``with_stack`` records them."""

    def module(self, name: str, ts: float, dur: float, *, parent: int | None = None, tid: int = 7) -> int:
        python_id = next(self.ids)
        args = {"Python id": python_id, "Python module id": 0, "Python parent id": parent}
        self.add("python_function", f"nn.Module: {name}", ts, dur, tid=tid, args=args)
        return python_id

    def launch(self, ts: float, kernel_us: float, correlation: int) -> None:
        self.call(ts, 1, correlation)
        self.kernel("k", ts + 1000, kernel_us, correlation)


def row(table: pl.DataFrame, path: str) -> dict[str, Any]:
    return table.row(by_predicate=pl.col("path") == path, named=True)


def test_a_module_has_what_ran_in_it_and_no_time_twice(tmp_path: Path) -> None:
    events = Modules()
    net = events.module("Net_0", 0, 100)
    linear = events.module("Linear_0", 10, 40, parent=net)
    events.op("aten::linear", 15, 20)
    events.op("aten::mm", 16, 10)
    events.launch(17, 7, 1)
    events.op("aten::add", 60, 10)
    events.launch(61, 3, 2)
    del linear
    table = analysis.module_table(events.read(tmp_path))
    assert table["path"].to_list() == ["Net_0", "Net_0/Linear_0"]
    assert row(table, "Net_0/Linear_0") == {
        "path": "Net_0/Linear_0",
        "parent_path": "Net_0",
        "depth": 1,
        "module": "Linear_0",
        "class": "Linear",
        "calls": 1,
        "operators": 1,
        "host_total_ns": 40_000,
        "host_self_ns": 20_000,
        "device_total_ns": 7_000,
        "device_self_ns": 7_000,
        "backward_host_ns": 0,
        "backward_device_ns": 0,
        "cpu_memory_bytes": None,
        "device_memory_bytes": None,
        "flops": None,
        "backward_flops": None,
    }
    net_row = row(table, "Net_0")
    assert net_row["host_self_ns"] == 100_000 - 40_000 - 10_000
    assert (net_row["device_total_ns"], net_row["device_self_ns"]) == (10_000, 3_000)


def test_a_module_that_two_others_call_has_a_row_in_each(tmp_path: Path) -> None:
    events = Modules()
    for start, name in ((0, "A_0"), (100, "B_0"), (200, "A_0")):
        parent = events.module(name, start, 50)
        events.module("Shared_0", start + 5, 10 if name == "A_0" else 30, parent=parent)
    table = analysis.module_table(events.read(tmp_path))
    assert table.select("path", "calls", "host_total_ns").rows() == [
        ("A_0", 2, 100_000),
        ("A_0/Shared_0", 2, 20_000),
        ("B_0", 1, 50_000),
        ("B_0/Shared_0", 1, 30_000),
    ]


def test_gradients_count_for_the_module_of_their_forward(tmp_path: Path) -> None:
    events = Modules()
    events.module("Net_0", 0, 100)
    events.op("aten::mm", 10, 10, Sequence_number=5, Fwd_thread_id=0)
    node = "autograd::engine::evaluate_function: MmBackward0"
    events.op(node, 300, 30, tid=8, Sequence_number=5, Fwd_thread_id=1)
    events.op("MmBackward0", 305, 20, tid=8, Sequence_number=5, Fwd_thread_id=1)
    events.op("aten::mm", 310, 10, tid=8)
    events.add("cuda_runtime", "cudaLaunchKernel", 312, 1, tid=8, args={"correlation": 9})
    events.kernel("k", 1300, 4, 9)
    net = row(analysis.module_table(events.read(tmp_path)), "Net_0")
    assert (net["operators"], net["device_total_ns"]) == (1, 0)
    assert (net["backward_host_ns"], net["backward_device_ns"]) == (30_000, 4_000)


def test_kernels_that_python_launches_without_an_operator_count(tmp_path: Path) -> None:
    events = Modules()
    events.module("Net_0", 0, 100)
    events.launch(20, 6, 1)
    assert row(analysis.module_table(events.read(tmp_path)), "Net_0")["device_self_ns"] == 6_000


def test_annotations_of_lightning_are_modules(tmp_path: Path) -> None:
    events = Events()
    events.annotation("[pl][module]torch.nn.Sequential: encoder", 0, 100)
    events.annotation("[pl][module]torch.nn.Linear: encoder.0", 10, 40)
    events.op("aten::mm", 20, 10)
    events.call(21, 1, 1)
    events.kernel("k", 500, 5, 1)
    table = analysis.module_table(events.read(tmp_path))
    assert table.select("path", "class", "operators", "host_self_ns", "device_total_ns").rows() == [
        ("encoder", "torch.nn.Sequential", 0, 60_000, 5_000),
        ("encoder/encoder.0", "torch.nn.Linear", 1, 30_000, 5_000),
    ]


def test_the_hierarchy_of_torchscript_makes_a_tree_without_calls(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 10, Module_Hierarchy="TOP(Net)::forward.fc(Linear)::forward")
    events.op("aten::add", 20, 5, Module_Hierarchy="TOP(Net)::forward.SELF(Net)::helper")
    table = analysis.module_table(events.read(tmp_path))
    assert table.select("path", "class", "calls", "operators", "host_total_ns", "host_self_ns").rows() == [
        ("TOP", "Net", None, 1, 15_000, 5_000),
        ("TOP/fc", "Linear", None, 1, 10_000, 10_000),
    ]


@pytest.mark.parametrize("depth", [50, 450])
def test_deep_modules_lose_no_gpu_time(tmp_path: Path, depth: int) -> None:
    events = Modules()
    parent = None
    for level in range(depth):
        parent = events.module(f"M_{level}", level, 2000 - 2 * level, parent=parent)
    events.op("aten::mm", depth + 1, 5)
    events.launch(depth + 2, 8, 1)
    table = analysis.module_table(events.read(tmp_path))
    assert table.height == min(depth, 200)
    assert table["device_total_ns"].unique().to_list() == [8_000]
    assert table["device_self_ns"].sum() == 8_000


def test_flops_are_those_of_the_operators_inside(tmp_path: Path) -> None:
    events = Modules()
    net = events.module("Net_0", 0, 100)
    events.module("Linear_0", 10, 40, parent=net)
    events.op("aten::mm", 15, 20, Input_Dims=[[4, 8], [8, 2]], Input_type=["float", "float"])
    trace = events.read(tmp_path)
    table = analysis.module_table(trace, costs=True)
    assert table["flops"].to_list() == [2 * 4 * 8 * 2] * 2
    assert table["backward_flops"].to_list() == [0, 0]


def test_a_trace_without_modules_has_an_empty_table(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 10)
    empty = analysis.module_table(events.read(tmp_path))
    modules = Modules()
    modules.module("Net_0", 0, 100)
    assert empty.is_empty()
    assert empty.schema == analysis.module_table(modules.read(tmp_path)).schema
