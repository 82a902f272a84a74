"""Achieved against attainable, on traces small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from events import V100, Events

from kernelscope import analysis
from kernelscope.errors import InvalidArgumentError

SXM2 = V100 | {"name": "Tesla V100-SXM2-32GB"}
# 2 * 1024^3 FLOP in half precision: 17.18 us at 125 TFLOP/s; 3 * 2 MiB: 6.99 us at 900 GB/s.
MM = {"Input_Dims": [[1024, 1024], [1024, 1024]], "Input_type": ["c10::Half", "c10::Half"]}
MM_FLOPS = 2 * 1024**3
COMPUTE_NS = MM_FLOPS / 125e12 * 1e9
# Reads 16 MiB and writes 8 MiB: 27.96 us; more than the L2 of 6 MiB holds.
ADD = {"Input_Dims": [[2048, 1024], [2048, 1024], []], "Input_type": ["float", "float", "Scalar"]}
MEMORY_NS = 24 * 2**20 / 900e9 * 1e9
TC = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"
ADD_KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


class Launcher(Events):
    """Each operator launches kernels that run at the given times."""

    def run(self, name: str, ts: float, kernels: list[tuple[str, float, float]], **args: Any) -> None:
        self.op(name, ts, 9, **args)
        for offset, (kernel, start, dur) in enumerate(kernels):
            number = next(self.ids)
            self.call(ts + 1 + offset, 0.5, number)
            self.kernel(kernel, start, dur, number, stream=7 + offset)


def two_operators(*devices: dict[str, Any]) -> Launcher:
    e = Launcher(*(devices or (SXM2,)))
    e.annotation("ProfilerStep#3", 0, 500)
    e.run("aten::mm", 10, [(TC, 100, 40)], **MM)
    e.run("aten::add", 30, [(ADD_KERNEL, 200, 50)], **ADD)
    return e


def rows(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in frame.to_dicts()}


def test_what_binds_and_what_could_be_saved(tmp_path: Path) -> None:
    found = rows(analysis.roofline(two_operators().read(tmp_path)))
    mm, add = found["aten::mm"], found["aten::add"]
    assert (mm["bound"], mm["limit_type"], mm["flops"]) == ("compute", "fp16", MM_FLOPS)
    assert mm["attainable_ns"] == round(COMPUTE_NS)
    assert mm["saveable_ns"] == round(40_000 - COMPUTE_NS)
    assert mm["attained_pct"] == pytest.approx(100 * COMPUTE_NS / 40_000)
    assert mm["flops_per_s"] == pytest.approx(MM_FLOPS / 40e-6)
    assert mm["intensity"] == pytest.approx(MM_FLOPS / (6 * 2**20))
    assert mm["attainable_flops_per_s"] == pytest.approx(125e12)
    assert (mm["tensor_core_ns"], mm["missed_ns"]) == (40_000, 0)
    assert (add["bound"], add["attainable_ns"]) == ("memory", round(MEMORY_NS))
    assert add["bytes_per_s"] == pytest.approx(24 * 2**20 / 50e-6)
    assert (mm["flag"], add["flag"]) == (None, None)


def test_kernels_share_their_operators_cost_by_time(tmp_path: Path) -> None:
    e = Launcher(SXM2)
    e.run("aten::mm", 10, [(TC, 100, 30), ("splitKreduce_kernel", 140, 10)], **MM)
    trace = e.read(tmp_path)
    found = analysis.roofline(trace, by=("kernel",)).sort("device_ns", descending=True)
    assert found["flops"].to_list() == [MM_FLOPS * 3 // 4, MM_FLOPS // 4]
    assert analysis.roofline(trace, by=())["kernels"].to_list() == [2]
    assert analysis.roofline(trace, by=())["flops"].to_list() == [MM_FLOPS]


def test_a_product_that_could_use_tensor_cores(tmp_path: Path) -> None:
    e = Launcher(SXM2)
    e.run("aten::mm", 10, [("volta_sgemm_128x64_nn", 100, 400)], **MM)
    row = analysis.roofline(e.read(tmp_path)).row(0, named=True)
    assert (row["tensor_core_ns"], row["missed_ns"]) == (0, 400_000)
    assert row["attainable_ns"] == round(COMPUTE_NS)


def test_overlapping_work_saves_no_more_than_the_gpu_was_busy(tmp_path: Path) -> None:
    e = Launcher(SXM2)
    e.run("aten::mm", 10, [(TC, 100, 40), (TC, 100, 40), (TC, 120, 40)], **MM)
    trace = e.read(tmp_path)
    found = analysis.roofline(trace, by=()).row(0, named=True)
    # Busy in [100, 160) only.
    assert found["device_ns"] == 120_000
    assert found["saveable_ns"] == pytest.approx(60_000 - COMPUTE_NS, abs=2)


def test_work_that_waits_for_others_has_no_roof(tmp_path: Path) -> None:
    e = Launcher(SXM2)
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    e.run("c10d::allreduce_", 10, [(reduce, 100, 40)], Input_Dims=[[1024]], Input_type=["float"])
    e.op("aten::copy_", 30, 9, Input_Dims=[[1024], [1024]], Input_type=["float", "float"])
    e.call(31, 1, 99, name="cudaMemcpyAsync")
    e.copy(200, 10, 99)
    found = rows(analysis.roofline(e.read(tmp_path)))
    assert {name: row["bound"] for name, row in found.items()} == {
        "c10d::allreduce_": "communication",
        "aten::copy_": "bus",
    }
    assert [row["saveable_ns"] for row in found.values()] == [None, None]


def test_an_unknown_gpu_achieves_and_has_no_roof(tmp_path: Path) -> None:
    trace = two_operators(V100 | {"name": "Mystery 9000"}).read(tmp_path)
    row = rows(analysis.roofline(trace))["aten::mm"]
    assert row["flops_per_s"] == pytest.approx(MM_FLOPS / 40e-6)
    assert (row["attainable_ns"], row["attained_pct"], row["saveable_ns"]) == (None, None, None)
    named = rows(analysis.roofline(trace, gpu="v100-sxm2"))["aten::mm"]
    assert named["attainable_ns"] == round(COMPUTE_NS)
    measured = {"fp16": 100e12, "bandwidth": 800e9}
    given = rows(analysis.roofline(trace, peak=measured))
    assert given["aten::mm"]["attainable_ns"] == round(MM_FLOPS / 100e12 * 1e9)
    assert given["aten::add"]["attainable_ns"] == round(MEMORY_NS * 900 / 800)


def test_more_than_physics_says_why(tmp_path: Path) -> None:
    e = Launcher(SXM2)
    small = {"Input_Dims": [[1024, 1024], [1024, 1024], []], "Input_type": ["float", "float", "Scalar"]}
    e.run("aten::add", 10, [(ADD_KERNEL, 100, 11.3)], **small)
    e.run("aten::mm", 30, [(TC, 200, 9.5)], **MM)
    e.run("aten::sub", 50, [(ADD_KERNEL, 300, 11.3)], **ADD)
    conv = {"Input_Dims": [[32, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []]}
    types = ["float", "float", "", *(["ScalarList"] * 3), "Scalar", "ScalarList", "Scalar"]
    values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    winograd = "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"
    arguments = {**conv, "Input_type": types, "Concrete_Inputs": values}
    e.run("aten::convolution", 70, [(winograd, 400, 300.5)], **arguments)
    found = rows(analysis.roofline(e.read(tmp_path)))
    assert "L2" in found["aten::add"]["flag"]
    assert "more than the GPU can do" in found["aten::mm"]["flag"]
    assert "more than the GPU can do" in found["aten::sub"]["flag"]
    assert "fewer operations" in found["aten::convolution"]["flag"]
    assert found["aten::mm"]["saveable_ns"] == 0


def test_utilisation_of_a_step(tmp_path: Path) -> None:
    row = analysis.efficiency(two_operators().read(tmp_path)).row(0, named=True)
    flops = MM_FLOPS + 2 * 1024 * 1024
    assert (row["step"], row["flops"], row["total_ns"], row["known_pct"]) == (3, flops, 500_000, 100.0)
    assert (row["peak_type"], row["peak_flops_per_s"], row["gpus"]) == ("fp16", 125e12, 1)
    assert row["mfu_pct"] == pytest.approx(100 * flops / 500e-6 / 125e12)


def test_a_trace_without_steps_is_one(tmp_path: Path) -> None:
    e = Launcher(SXM2)
    e.run("aten::mm", 10, [(TC, 100, 40)], **MM)
    row = analysis.efficiency(e.read(tmp_path)).row(0, named=True)
    assert (row["step"], row["name"], row["total_ns"]) == (None, "the whole trace", 130_000)


def test_how_much_is_known(tmp_path: Path) -> None:
    e = two_operators()
    e.run("mylib::secret", 60, [("secret", 300, 10)])
    number = next(e.ids)
    e.kernel("nobodys", 400, 10, number)
    found = {row["status"]: row for row in analysis.cost_coverage(e.read(tmp_path)).to_dicts()}
    assert {status: row["device_ns"] for status, row in found.items() if row["device_ns"]} == {
        "exact": 90_000,
        "unknown_op": 10_000,
        "unlinked": 10_000,
    }
    assert found["exact"]["linked_pct"] == pytest.approx(90.0)
    assert found["exact"]["device_pct"] == pytest.approx(100 * 90 / 110)
    assert found["unlinked"]["linked_pct"] is None


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    trace = two_operators().read(tmp_path)
    with pytest.raises(InvalidArgumentError, match="cannot group by nonsense"):
        analysis.roofline(trace, by="nonsense")
    with pytest.raises(InvalidArgumentError, match="not in the table"):
        analysis.roofline(trace, gpu="Mystery 9000")
    with pytest.raises(InvalidArgumentError, match="a peak is one of"):
        analysis.roofline(trace, peak={"fp99": 1e12})
    with pytest.raises(InvalidArgumentError, match="a peak is one of"):
        analysis.efficiency(trace, peak={"fp16": float("nan")})


def test_a_trace_without_gpu_work(tmp_path: Path) -> None:
    e = Events(SXM2)
    e.op("aten::mm", 0, 10, **MM)
    trace = e.read(tmp_path)
    assert analysis.roofline(trace).is_empty()
    assert analysis.efficiency(trace)["flops"].to_list() == [None]
    assert analysis.cost_coverage(trace)["device_ns"].sum() == 0


@pytest.mark.parametrize(
    "by", ["op", "kernel", "model", "family", "step", "stream", "device", "phase", "input_dims"]
)
def test_every_grouping_has_the_same_sums(tmp_path: Path, by: str) -> None:
    trace = two_operators().read(tmp_path)
    whole, parts = analysis.roofline(trace, by=()), analysis.roofline(trace, by=by)
    for column in ("device_ns", "kernels", "flops", "bytes_read", "bytes_written"):
        assert parts[column].sum() == whole[column].sum()
    assert parts["saveable_ns"].sum() == pytest.approx(whole["saveable_ns"].sum(), abs=2)
