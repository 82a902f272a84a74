"""The answers on traces small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from events import V100, Events

from kernelscope import analysis, compat
from kernelscope.errors import InvalidArgumentError

TC = "volta_fp16_s884gemm"


@pytest.fixture
def training(tmp_path: Path) -> Any:
    """A step with nested operators, two kernels, a copy, and work of no operator.

    linear [10, 60) holds addmm [20, 50), which holds a launch [22, 27) that itself holds a driver
    call [23, 25), and another launch [30, 34). A copy is launched in the step but in no operator.
    """
    e = Events()
    e.annotation("ProfilerStep#4", 0, 200)
    e.op("aten::linear", 10, 50, Input_Dims=[[2, 3], [3, 4]])
    e.op("aten::addmm", 20, 30, Input_Dims=[[4], [2, 3], [3, 4]])
    e.call(22, 5, 1)
    e.add("cuda_driver", "cuLaunchKernel", 23, 2, args={"correlation": 99})
    e.call(30, 4, 2)
    e.call(100, 10, 3, name="cudaMemcpyAsync")
    shape = {"grid": [80, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0}
    e.kernel(TC, 40, 30, 1, **shape)
    e.kernel("bias", 60, 20, 2, stream=8, **shape)
    e.copy(120, 10, 3)
    e.memory(5, 1000)
    e.memory(20, 64)
    e.memory(50, -16)
    e.memory(55, 512, device_type=1)
    return e.read(tmp_path)


def rows(frame: pl.DataFrame, key: str = "name") -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in frame.to_dicts()}


def test_step_breakdown(training: Any) -> None:
    row = analysis.step_breakdown(training).row(0, named=True)
    # Kernels run in [40, 80), the copy in [120, 130), calls outside of them in 5 + 4 + 10, operators in
    # [10, 60) less calls and kernels.
    parts = {"kernel": 40, "memcpy": 10, "runtime": 19, "cpu_exec": 21, "other": 110}
    assert (row["step"], row["name"], row["total_ns"]) == (4, "ProfilerStep#4", 200_000)
    assert {k: row[f"{k}_ns"] // 1000 for k in parts} == parts
    assert sum(row[c] for c in analysis.CATEGORIES) == row["total_ns"]


def test_step_without_its_gpu_work_is_left_out(tmp_path: Path) -> None:
    e = Events()
    for step in range(3):
        e.annotation(f"ProfilerStep#{step}", 100 * step, 100)
        e.call(100 * step + 10, 5, step + 1)
        if step < 2:
            e.kernel("k", 100 * step + 20, 10, step + 1)
    trace = e.read(tmp_path)
    assert analysis.step_breakdown(trace)["step"].to_list() == [0, 1]
    everything = analysis.step_breakdown(trace, include_partial=True)
    assert everything["is_partial"].to_list() == [False, False, True]


def test_op_table(training: Any) -> None:
    table = rows(analysis.op_table(training))
    assert list(table) == ["aten::addmm", "aten::linear"]
    linear, addmm = table["aten::linear"], table["aten::addmm"]
    assert (linear["host_total_ns"], linear["host_self_ns"]) == (50_000, 20_000)
    # The driver call lies inside a runtime call and is not taken off twice.
    assert (addmm["host_total_ns"], addmm["host_self_ns"]) == (30_000, 21_000)
    assert (linear["device_total_ns"], linear["device_self_ns"]) == (50_000, 0)
    assert (addmm["device_total_ns"], addmm["device_self_ns"]) == (50_000, 50_000)
    assert (addmm["tc_eligible"], linear["tc_eligible"]) == (True, True)
    assert (addmm["tc_self_pct"], addmm["tc_total_pct"], linear["tc_total_pct"]) == (60, 60, 60)
    # Nothing ran on the device in linear itself, so a share of that means nothing.
    assert linear["tc_self_pct"] is None
    memory = ("cpu_memory_bytes", "cpu_self_memory_bytes", "device_memory_bytes", "device_self_memory_bytes")
    assert [linear[c] for c in memory] == [48, 0, 512, 512]
    assert [addmm[c] for c in memory] == [48, 48, 0, 0]


def test_op_table_with_annotations_has_all_device_time_but_the_unlinked(training: Any) -> None:
    table = analysis.op_table(training, annotations=True)
    assert "ProfilerStep#4" in table["name"].to_list()
    unlinked = training.gpu_ops.filter(pl.col("op_row").is_null())
    assert unlinked["name"].cast(pl.String).to_list() == ["Memcpy HtoD"]
    assert table["device_self_ns"].sum() + unlinked["dur_ns"].sum() == training.gpu_ops["dur_ns"].sum()


def test_op_table_by_shape_and_step(training: Any) -> None:
    table = analysis.op_table(training, by=("name", "input_dims", "step"))
    assert table.select("name", "step", "calls").rows() == [("aten::addmm", 4, 1), ("aten::linear", 4, 1)]
    assert "2" in table["input_dims"][0]


def test_repeated_names_collapse_unless_told_not_to(tmp_path: Path) -> None:
    e = Events()
    e.op("aten::to", 0, 100)
    e.op("aten::to", 10, 50)
    e.op("aten::copy_", 20, 30)
    e.call(25, 5, 1)
    e.kernel("copy", 60, 8, 1)
    trace = e.read(tmp_path)
    merged = rows(analysis.op_table(trace))["aten::to"]
    assert (merged["calls"], merged["host_total_ns"], merged["host_self_ns"]) == (1, 100_000, 70_000)
    apart = rows(analysis.op_table(trace, collapse=False))["aten::to"]
    assert (apart["calls"], apart["host_total_ns"], apart["host_self_ns"]) == (2, 150_000, 70_000)
    assert (merged["device_total_ns"], apart["device_total_ns"]) == (8_000, 16_000)


def test_without_gpu_or_memory_the_columns_are_null(tmp_path: Path) -> None:
    e = Events()
    e.op("aten::mm", 0, 10)
    trace = e.read(tmp_path)
    row = analysis.op_table(trace).row(0, named=True)
    nothing = [c for c in row if c.startswith(("device_", "cpu_", "tc_self", "tc_total"))]
    assert len(nothing) == 8
    assert all(row[c] is None for c in nothing)
    assert row["tc_eligible"]
    assert analysis.kernel_table(trace).is_empty()
    assert analysis.gpu_summary(trace).is_empty()


def test_kernel_table(training: Any) -> None:
    table = rows(analysis.kernel_table(training))
    assert list(table) == [TC, "bias"]
    row = table[TC]
    assert (row["calls"], row["total_ns"], row["min_ns"], row["max_ns"]) == (1, 30_000, 30_000, 30_000)
    assert (row["mean_ns"], row["median_ns"], row["std_ns"]) == (30_000, 30_000, None)
    assert (row["tensor_cores"], table["bias"]["tensor_cores"]) == (True, False)
    # One block of 256 threads on each of 80 SMs that hold 2048.
    assert (row["blocks_per_sm"], row["occupancy_pct"]) == (1.0, 12.5)


def test_kernel_table_by_operator_and_stream(training: Any) -> None:
    table = analysis.kernel_table(training, by=("op", "stream"))
    found = table.select("op", "stream", "total_ns").rows()
    assert found == [("aten::addmm", 7, 30_000), ("aten::addmm", 8, 20_000)]
    by_shape = analysis.kernel_table(training, by=("input_dims",))
    assert by_shape["calls"].to_list() == [2]


def test_kernel_table_by_what_it_gives_means_of(training: Any) -> None:
    table = analysis.kernel_table(training, by=("blocks_per_sm", "occupancy_pct"))
    assert table.columns[:3] == ["blocks_per_sm", "occupancy_pct", "calls"]
    assert table[:, :3].rows() == [(1.0, 12.5, 2)]
    assert len(set(table.columns)) == table.width


def test_statistics_of_kernels(tmp_path: Path) -> None:
    e = Events()
    for index, duration in enumerate((1, 2, 6)):
        e.kernel("k", 10 * index, duration, index, **{"est. achieved occupancy %": 10 * duration})
    row = analysis.kernel_table(e.read(tmp_path)).row(0, named=True)
    assert (row["mean_ns"], row["median_ns"]) == (3000, 2000)
    assert row["std_ns"] == pytest.approx(2645.7513)
    # Weighted by time: (10 * 1 + 20 * 2 + 60 * 6) / 9.
    assert row["occupancy_pct"] == pytest.approx(410 / 9)
    assert row["blocks_per_sm"] is None


def test_gpu_summary(training: Any) -> None:
    row = analysis.gpu_summary(training).row(0, named=True)
    assert (row["device"], row["name"], row["compute_capability"]) == (0, "Tesla V100", "7.0")
    assert (row["span_ns"], row["busy_ns"], row["copy_ns"], row["idle_ns"]) == (
        200_000,
        40_000,
        10_000,
        150_000,
    )
    assert row["utilisation"] == 0.2
    # One block per SM from one kernel or from two at once: the SMs are all in use.
    assert row["sm_efficiency"] == pytest.approx(0.2)
    assert row["occupancy_pct"] == pytest.approx(12.5)
    assert row["tensor_core_share"] == pytest.approx(0.6)
    assert (row["kernels"], row["kernel_ns"], row["launch_metrics"]) == (2, 50_000, "derived")


@pytest.mark.parametrize(
    ("name", "device", "answer"),
    [
        ("volta_s884gemm", {}, True),
        ("volta_sgemm_64x64_nt", {}, False),
        ("vectorized_elementwise_kernel", {}, False),
        # Names of recent kernels do not say which instructions they use.
        ("bmm_MxE4m3_sm100f", {"computeMajor": 10}, None),
        ("cutlass_80_simt_sgemm", {"computeMajor": 10}, False),
        ("nvjet_tst_64x64", {"computeMajor": 10}, True),
        ("vectorized_elementwise_kernel", {"computeMajor": 10}, False),
        ("Cijk_Alik_Bljk", {"warpSize": 64}, None),
        ("Cijk_Alik_Bljk", {"warpSize": 64, "id": 3}, None),
        ("any", {"name": "AMD Radeon"}, None),
    ],
)
def test_tensor_cores(tmp_path: Path, name: str, device: dict[str, Any], answer: bool | None) -> None:
    e = Events(V100 | device)
    e.op("aten::mm", 0, 10)
    e.call(5, 1, 1)
    e.kernel(name, 20, 5, 1)
    trace = e.read(tmp_path)
    assert analysis.kernel_table(trace)["tensor_cores"].to_list() == [answer]
    share = None if answer is None else float(answer)
    assert analysis.gpu_summary(trace)["tensor_core_share"].to_list() == [share]


@pytest.mark.parametrize("by", [(), ("nonsense",), ("name", "name")])
def test_bad_grouping_is_refused(training: Any, by: tuple[str, ...]) -> None:
    for table in (analysis.op_table, analysis.kernel_table):
        with pytest.raises(InvalidArgumentError):
            table(training, by=by)


def test_one_column_may_stand_alone(training: Any) -> None:
    assert analysis.op_table(training, by="name").equals(analysis.op_table(training))


def test_key_averages(training: Any) -> None:
    table = rows(compat.torch_profiler.key_averages(training))
    assert table["ProfilerStep*"]["is_annotation"]
    # Runtime calls are children here, the driver call of the runtime call that holds it.
    assert table["aten::addmm"]["cpu_self_ns"] == 21_000
    assert table["cudaLaunchKernel"]["count"] == 2
    assert table["cudaLaunchKernel"]["cpu_self_ns"] == 7_000
    assert (table[TC]["device"], table[TC]["device_self_ns"]) == ("gpu", 30_000)
    assert table["aten::linear"]["device_total_ns"] == 50_000


def test_an_empty_trace_has_empty_answers(tmp_path: Path) -> None:
    trace = Events().read(tmp_path)
    for question in (
        analysis.step_breakdown,
        analysis.op_table,
        analysis.kernel_table,
        analysis.gpu_summary,
        compat.torch_profiler.key_averages,
    ):
        assert question(trace).is_empty()
