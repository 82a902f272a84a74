"""Hardware counters on traces small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from events import Events

from kernelscope import analysis

FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
FADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"


def counted(e: Events, name: str, ts: float, **counters: float) -> None:
    e.add("cuda_profiler_range", name, ts, 5, args=counters, pid=0, tid=0)


def two_kernels() -> Events:
    e = Events()
    e.op("aten::linear", 0, 50, Input_Dims=[[8, 64], [32, 64], []], Input_type=["float", "float", ""])
    e.op("aten::mm", 10, 30, Input_Dims=[[8, 64], [64, 32]], Input_type=["float", "float"])
    e.call(12, 1, 1)
    e.call(14, 1, 2, name="cudaLaunchKernelExC")
    e.add("cuda_driver", "cuLaunchKernel", 14.2, 0.5, args={"correlation": 3})
    counted(e, "gemm", 1000, **{FFMA: 16000, FADD: 100, READ: 4000, WRITTEN: 1000})
    counted(e, "reduce", 1010, **{FFMA: 384, FADD: 0, READ: 0, WRITTEN: 0})
    return e


def test_counters_of_an_operators_kernels(tmp_path: Path) -> None:
    first, second = analysis.counters_with_operators(two_kernels().read(tmp_path)).to_dicts()
    assert (first["name"], first["correlation"], second["correlation"]) == ("gemm", 1, 2)
    assert first["op_stack"] == ["aten::linear", "aten::mm"]
    assert (first["top_level_op"], first["bottom_level_op"]) == ("aten::linear", "aten::mm")
    assert (first["measured_flops"], first["measured_bytes"]) == (32100.0, 5000.0)
    assert first["intensity"] == 32100 / 5000
    assert second["intensity"] is None
    modelled = 2 * 8 * 64 * 32
    assert {row["modelled_flops"] for row in (first, second)} == {modelled}
    assert {row["operator_flops"] for row in (first, second)} == {32100.0 + 768.0}
    assert first["ratio"] == 32868 / modelled
    assert (first[FFMA], first[FADD]) == (16000.0, 100.0)


def test_ranges_that_are_not_as_many_as_launches_belong_to_none(tmp_path: Path) -> None:
    e = two_kernels()
    counted(e, "surplus", 1020, **{FFMA: 1})
    counted(e, "surplus", 1030, **{FFMA: 1})
    found = analysis.counters_with_operators(e.read(tmp_path))
    assert found.height == 4
    unknown: list[Any] = [
        "launch_row",
        "correlation",
        "op_row",
        "op_stack",
        "top_level_op",
        "model_row",
        "ratio",
    ]
    assert all(found[column].null_count() == 4 for column in unknown)
    assert found["measured_flops"].null_count() == 0


def test_counters_that_say_nothing_of_flops(tmp_path: Path) -> None:
    e = Events()
    e.call(12, 1, 1)
    counted(e, "gemm", 1000, sm__cycles_active=5.0)
    row = analysis.counters_with_operators(e.read(tmp_path)).row(0, named=True)
    assert (row["measured_flops"], row["measured_bytes"], row["op_stack"]) == (None, None, None)
    assert row["sm__cycles_active"] == 5.0


def test_a_trace_without_counters(tmp_path: Path) -> None:
    e = Events()
    e.op("aten::mm", 0, 10)
    assert analysis.counters_with_operators(e.read(tmp_path)).is_empty()
