"""Costs, kernel names and rooflines: on traces small enough to work out by hand, and the laws they obey."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import draws
import kernelscope as ks
from events import GRADIENT, V100, Events
from kernelscope import analysis
from kernelscope.analysis.costs.costed import set_apart
from kernelscope.analysis.costs.work import count_operators, pair_pieces
from kernelscope.analysis.grouping import Classes
from kernelscope.analysis.kernels.kernel_math import kernel_math, rule_of, rules, with_kernel_math
from kernelscope.errors import InvalidArgumentError

NATIVE = "at::native::(anonymous namespace)::"
HALF = ["c10::Half", "c10::Half"]
MM = {"Input_Dims": [[8, 64], [64, 32]], "Input_type": HALF}
MM_FLOPS, MM_READ, MM_WRITTEN = 2 * 8 * 64 * 32, 2 * (8 * 64 + 64 * 32), 2 * 8 * 32


class Launcher(Events):
    """Each call of ``work`` launches one kernel from whatever operator encloses the time."""

    def work(self, ts: float, dur: float = 10, name: str = "kernel", **args: Any) -> None:
        number = next(self.ids)
        self.call(ts, 0.5, number)
        self.kernel(name, 1000 + ts * 20, dur, number, **args)


def only(frame: pl.DataFrame, name: str) -> dict[str, Any]:
    return frame.filter(name=name).row(0, named=True)


def test_the_innermost_operator_with_a_model_counts(tmp_path: Path) -> None:
    e = Launcher()
    e.op("aten::linear", 0, 50, Input_Dims=[[8, 64], [32, 64], []], Input_type=[*HALF, ""])
    e.op("aten::mm", 10, 30, **MM)
    e.op("mylib::unknown", 12, 20)
    e.work(15)
    e.work(20, 30)
    found = analysis.costs(e.read(tmp_path))
    assert found["name"].to_list() == ["aten::mm"]
    row = found.row(0, named=True)
    assert (row["flops"], row["bytes_read"], row["bytes_written"]) == (MM_FLOPS, MM_READ, MM_WRITTEN)
    assert (row["status"], row["device_ns"], row["kernels"], row["dtype"]) == ("exact", 40_000, 2, "float16")


def test_shapes_that_only_the_wrapper_has(tmp_path: Path) -> None:
    e = Launcher()
    e.op("aten::matmul", 0, 50, **MM)
    e.op("aten::mm", 10, 30)
    e.work(15)
    row = analysis.costs(e.read(tmp_path)).row(0, named=True)
    assert (row["name"], row["flops"]) == ("aten::matmul", MM_FLOPS)


def test_a_wrapper_with_a_kernel_of_its_own_counts_nothing_twice(tmp_path: Path) -> None:
    e = Launcher()
    e.op("aten::matmul", 0, 50, **MM)
    e.work(1)
    e.op("aten::mm", 10, 30, **MM)
    e.work(15)
    found = analysis.costs(e.read(tmp_path))
    assert sorted(found["name"]) == ["aten::matmul", "aten::mm"]
    assert found["flops"].sum() == MM_FLOPS
    assert found["bytes_read"].sum() == MM_READ


@pytest.mark.parametrize(
    ("zeros", "written"), [([9, 4], 0), ([9, 3], 144)], ids=["the result", "something else"]
)
def test_a_result_is_written_once_though_it_is_filled_first(
    zeros: list[int], written: int, tmp_path: Path
) -> None:
    e = Launcher()
    values = {"Concrete_Inputs": ["", "", "9", "-1", "False"]}
    e.op(
        "aten::embedding_dense_backward", 0, 50,
        Input_Dims=[[2, 4], [2], [], [], []], Input_type=["float", "long int", "", "", ""], **values,
    )  # fmt: skip
    e.op("aten::zero_", 5, 10, Input_Dims=[zeros], Input_type=["float"])
    e.op("aten::fill_", 6, 8, Input_Dims=[zeros, []], Input_type=["float", "Scalar"])
    e.work(8)
    e.work(20)
    found = analysis.costs(e.read(tmp_path))
    assert only(found, "aten::embedding_dense_backward")["bytes_written"] == written
    assert only(found, "aten::fill_")["bytes_written"] == 4 * zeros[0] * zeros[1]


def test_calls_inside_say_how_large_a_result_is(tmp_path: Path) -> None:
    e = Launcher()
    for ts, name, inner, values in (
        (0, "aten::index", "aten::as_strided", ["", "[5, 4]", "[0, 1]", ""]),
        (100, "aten::nonzero", "aten::resize_", ["", "[2, 3]", ""]),
        (200, "aten::index", "aten::as_strided", ["", "[0, 4]", "[0, 1]", ""]),
        (300, "aten::index", "aten::as_strided", ["", "[5, 4", "[0, 1]", ""]),
        (400, "aten::nonzero", "aten::view", ["", "[2, 3]"]),
    ):
        kind = "float" if name == "aten::index" else "bool"
        e.op(name, ts, 50, Input_Dims=[[9, 4], []], Input_type=[kind, ""])
        dims = [[9, 4], *[[]] * (len(values) - 1)]
        e.op(inner, ts + 5, 10, Input_Dims=dims, Input_type=["float"], Concrete_Inputs=values)
        e.work(ts + 20)
    found = analysis.costs(e.read(tmp_path))
    assert found["bytes_written"].to_list() == [80, 48, 0, None, 9 * 4 * 2 * 8]
    assert found["status"].to_list() == ["estimate", "exact", "estimate", "missing_shape", "estimate"]


def test_what_is_not_known_is_null_and_says_why(tmp_path: Path) -> None:
    e = Launcher()
    e.op("mylib::secret", 0, 10)
    e.work(5)
    e.op("aten::mm", 20, 10, Input_Dims=[[8, 64], None], Input_type=HALF)
    e.work(25)
    e.op("aten::mm", 40, 10, Input_Dims=[[8, 64], [64, 32]], Input_type=["", "mystery"])
    e.work(45)
    e.work(60)
    found = analysis.costs(e.read(tmp_path))
    assert found["status"].to_list() == ["unknown_op", "missing_shape", "unknown_dtype"]
    assert found["flops"].to_list() == [None, None, MM_FLOPS]
    assert found["bytes_read"].to_list() == [None, None, None]
    assert found["device_ns"].to_list() == [10_000, 10_000, 10_000]
    assert all(found["note"])


def test_a_gradient_without_shapes_costs_what_its_forward_says(tmp_path: Path) -> None:
    e = Launcher()
    e.op("MyLinear", 0, 20, Sequence_number=5, Fwd_thread_id=0)
    e.op("aten::mm", 2, 10, Sequence_number=5, **MM, Fwd_thread_id=0)
    e.work(5)
    e.op("MyLinearBackward", 100, 30, tid=8, Sequence_number=5, Fwd_thread_id=1)
    e.events.append({"ph": "s", "id": 5, "pid": 7, "tid": 7, "ts": 2, "cat": "fwdbwd", "name": "fwdbwd"})
    e.events.append(
        {"ph": "f", "id": 5, "pid": 7, "tid": 8, "ts": 100, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"}
    )
    number = next(e.ids)
    e.add("cuda_runtime", "cudaLaunchKernel", 110, 1, tid=8, args={"correlation": number})
    e.kernel("secret", 4000, 10, number)
    found = analysis.costs(e.read(tmp_path))
    row = only(found, "MyLinearBackward")
    assert (row["flops"], row["status"]) == (2 * MM_FLOPS, "estimate")
    assert (row["bytes_read"], row["bytes_written"]) == (MM_READ + MM_WRITTEN, MM_READ)
    assert "forward" in row["note"]


def test_a_result_is_as_large_as_the_gradient_by_it(tmp_path: Path) -> None:
    e = Launcher()
    conv = {"Input_Dims": [[1, 3, 8, 8], [4, 3, 3, 3], [], []], "Input_type": ["float", "float", "", ""]}
    e.op("aten::cudnn_convolution", 0, 20, Sequence_number=5, **conv, Fwd_thread_id=0)
    e.work(5)
    e.op(
        "CudnnConvolutionBackward",
        100,
        30,
        tid=8,
        Sequence_number=5,
        Input_Dims=[[1, 4, 6, 6]],
        Fwd_thread_id=1,
    )
    e.events.append({"ph": "s", "id": 5, "pid": 7, "tid": 7, "ts": 0, "cat": "fwdbwd", "name": "fwdbwd"})
    e.events.append(
        {"ph": "f", "id": 5, "pid": 7, "tid": 8, "ts": 100, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"}
    )
    row = only(analysis.costs(e.read(tmp_path)), "aten::cudnn_convolution")
    assert row["flops"] == 2 * 4 * 3 * 9 * 36


@pytest.mark.parametrize(
    ("kernel", "size"),
    [
        ("void at::native::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)", 4),
        (f"void {NATIVE}CatArrayBatchedCopy<{NATIVE}OpaqueType<2u>, unsigned int>()", 2),
        (f"void {NATIVE}multi_tensor_apply_kernel<Lists<2>, BinaryOpScalarFunctor<c10::BFloat16, 2>>", 2),
    ],
)  # fmt: skip
def test_the_element_type_of_a_list_follows_from_the_kernel(tmp_path: Path, kernel: str, size: int) -> None:
    e = Launcher()
    e.op("aten::cat", 0, 20, Input_Dims=[[[4, 8], [4, 8]], []], Input_type=["TensorList", "Scalar"])
    e.work(5, name=kernel)
    row = analysis.costs(e.read(tmp_path)).row(0, named=True)
    assert (row["bytes_read"], row["bytes_written"]) == (64 * size, 64 * size)
    assert row["status"] == "estimate"


def test_sizes_of_experts_follow_from_the_launch(tmp_path: Path) -> None:
    e = Launcher()
    types = ["c10::BFloat16", "c10::BFloat16", ""]
    e.op("vllm::moe_forward", 0, 20, Input_Dims=[[888, 3072], [888, 128], []], Input_type=types)
    first = "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_swiGlu_dynBatch_sm100f"
    e.work(5, name=first, grid=[8, 342, 1])
    e.work(8, name="bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_dynBatch_sm100f", grid=[24, 342, 1])
    row = analysis.costs(e.read(tmp_path)).row(0, named=True)
    # 8 x 128 columns of gate and value make an inner size of 512; (342 - 128) x 16 + 128 = 888 x 4 rows.
    assert row["flops"] == 2 * 888 * 4 * 3072 * 512 * 3
    weights = 128 * 3 * 3072 * 512
    assert row["bytes_read"] == 888 * (3072 + 128) * 2 + weights // 2 + weights // 32
    assert row["status"] == "estimate"
    assert "launched kernels" in row["note"]


def test_host_work_counts_each_outermost_operator_once(tmp_path: Path) -> None:
    e = Events()
    e.op("aten::linear", 0, 50, Input_Dims=[[8, 64], [32, 64], []], Input_type=[*HALF, ""])
    e.op("aten::mm", 10, 30, **MM)
    e.op("aten::copy_", 15, 5, Input_Dims=[[8, 32], [8, 32]], Input_type=HALF)
    e.op("aten::matmul", 60, 20, **MM)
    found = analysis.costs(e.read(tmp_path))
    assert found["name"].to_list() == ["aten::mm", "aten::matmul"]
    assert found["flops"].to_list() == [MM_FLOPS, MM_FLOPS]
    assert found["device_ns"].null_count() == 2


def test_an_empty_trace_has_no_costs(tmp_path: Path) -> None:
    e = Events()
    e.annotation("ProfilerStep#1", 0, 10)
    assert analysis.costs(e.read(tmp_path)).is_empty()


def test_damaged_inputs_cost_nothing_but_their_row(tmp_path: Path) -> None:
    e = Launcher()
    damaged: list[Any] = [
        None, "text", 7, [], [None], [[-1, 2], [2, 3]], [[2**70, 2], [2, 2]], [[[[[]]]]], [[1.5, 2], [2, 3]],
        [[True, 2], [2, 3]], {"a": 1}, [[2, 3]], [[2, 3], [4, 5]],
    ]  # fmt: skip
    for index, dims in enumerate(damaged):
        e.op("aten::mm", 100 * index, 50, Input_Dims=dims, Input_type=HALF)
        e.work(100 * index + 10)
    found = analysis.costs(e.read(tmp_path))
    assert found.height == len(damaged)
    assert found["status"].unique().to_list() == ["missing_shape"]
    assert (
        found.select(pl.col("flops", "bytes_read", "bytes_written").null_count()).row(0)
        == (len(damaged),) * 3
    )


NAMES = st.sampled_from(
    [
        *("aten::mm", "aten::linear", "aten::addmm", "aten::conv2d", "aten::cudnn_convolution", "aten::cat"),
        *("aten::_foreach_add_", "aten::copy_", "aten::sum", "vllm::moe_forward", "record_param_comms"),
        *("vllm::unified_attention", "triton_poi_fused_add_0", "mylib::secret", "MmBackward0", "", "aten::"),
    ]
)
SIZE = st.sampled_from([0, 1, 3, 64, 2**20, 2**62, 2**70, -1, 1.5, True, None, "8"])
SHAPE = st.lists(SIZE, max_size=4)
ENTRY = st.one_of(SHAPE, st.lists(SHAPE, max_size=3), st.none(), st.text(max_size=3), st.integers())
DIMS = st.one_of(
    st.lists(ENTRY, max_size=4), st.none(), st.text(max_size=4), st.dictionaries(st.text(), st.integers())
)
KIND = st.sampled_from(
    ["float", "c10::Half", "c10::BFloat16", "long int", "TensorList", "Scalar", "", "mystery", 7]
)
TYPES = st.one_of(st.lists(KIND, max_size=5), st.none())
VALUES = st.one_of(
    st.lists(st.sampled_from(["", "1", "[1, 1]", "[1", "True", "nan", "9" * 400, 5]), max_size=6), st.none()
)
KERNELS = st.sampled_from(
    [
        *(
            "volta_sgemm_128x64_nn",
            "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
            "secret",
            "",
            "Memcpy HtoD",
        ),
        *("ncclDevKernel_AllReduce", "void at::native::CatArrayBatchedCopy<float, unsigned int>(float*)"),
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_swiGlu",
    ]
)
GRID = st.sampled_from([[8, 342, 1], [0, 0, 0], [], None, [2**40, 2**40, 1], "x"])
CALL = st.tuples(NAMES, st.integers(0, 200), st.integers(0, 120), DIMS, TYPES, VALUES, st.integers(0, 3))
WORK = st.tuples(KERNELS, st.integers(0, 300), st.integers(-5, 90), GRID, st.integers(0, 2))


def busy_ns(work: pl.DataFrame) -> int:
    """The time in which the GPUs do anything."""
    moments = {
        (device, moment)
        for device, start, length in work.select("device", "start_ns", "dur_ns").iter_rows()
        for moment in range(start, start + (length or 0))
    }
    return len(moments)


@pytest.mark.slow
@settings(max_examples=draws.count(30, 1_200), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(CALL, max_size=12), st.lists(WORK, max_size=12))
def test_no_trace_costs_the_report(calls: list[Any], work: list[Any]) -> None:
    e = Events(V100 | {"name": "Tesla V100-SXM2-32GB"})
    for name, start, length, dims, types, values, sequence in calls:
        inputs = {"Input_Dims": dims, "Input_type": types, "Concrete_Inputs": values}
        e.op(name, start, length, Sequence_number=sequence, **inputs)
    for number, (name, start, length, grid, stream) in enumerate(work):
        e.call(start % 200, 1, number)
        e.kernel(name, 500 + start, length, number, grid=grid, stream=stream)
    with tempfile.TemporaryDirectory() as folder:
        trace = e.read(Path(folder))
    for convention in ("kernelscope", "torch", "tracelens", "pyprof"):
        costs = analysis.costs(trace, convention=convention)
        assert costs["op_row"].is_unique().all()
        known = costs.filter(pl.col("status").is_in(["exact", "estimate", "unknown_dtype"]))
        assert known.filter((pl.col("flops") < 0) | (pl.col("bytes_read") < 0)).is_empty()
        unknown = costs.filter(pl.col("status").is_in(["missing_shape", "unknown_op"]))
        assert unknown["flops"].null_count() == unknown.height
    linked = trace.gpu_ops.filter(pl.col("op_row").is_not_null())
    table = analysis.roofline(trace, by=("kernel", "name"))
    assert table["device_ns"].sum() == linked["dur_ns"].sum()
    assert (table["saveable_ns"].sum() or 0) <= busy_ns(trace.gpu_ops) + table.height
    analysis.efficiency(trace)
    analysis.cost_coverage(trace)


SXM2 = V100 | {"name": "Tesla V100-SXM2-32GB"}
# 2 * 1024^3 FLOP in half precision: 17.18 us at 125 TFLOP/s; 3 * 2 MiB: 6.99 us at 900 GB/s.
SQUARE_MM = {"Input_Dims": [[1024, 1024], [1024, 1024]], "Input_type": ["c10::Half", "c10::Half"]}
SQUARE_FLOPS = 2 * 1024**3
COMPUTE_NS = SQUARE_FLOPS / 125e12 * 1e9
# Reads 16 MiB and writes 8 MiB: 27.96 us; more than the L2 of 6 MiB holds.
ADD = {"Input_Dims": [[2048, 1024], [2048, 1024], []], "Input_type": ["float", "float", "Scalar"]}
MEMORY_NS = 24 * 2**20 / 900e9 * 1e9
TC = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"
ADD_KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


class KernelTimes(Events):
    """Each operator launches kernels that run at the given times."""

    def run(self, name: str, ts: float, kernels: list[tuple[str, float, float]], **args: Any) -> None:
        self.op(name, ts, 9, **args)
        for offset, (kernel, start, dur) in enumerate(kernels):
            number = next(self.ids)
            self.call(ts + 1 + offset, 0.5, number)
            self.kernel(kernel, start, dur, number, stream=7 + offset)


def two_operators(*devices: dict[str, Any]) -> KernelTimes:
    e = KernelTimes(*(devices or (SXM2,)))
    e.annotation("ProfilerStep#3", 0, 500)
    e.run("aten::mm", 10, [(TC, 100, 40)], **SQUARE_MM)
    e.run("aten::add", 30, [(ADD_KERNEL, 200, 50)], **ADD)
    return e


def rows(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in frame.to_dicts()}


def test_what_binds_and_what_could_be_saved(tmp_path: Path) -> None:
    found = rows(analysis.roofline(two_operators().read(tmp_path)))
    mm, add = found["aten::mm"], found["aten::add"]
    assert (mm["bound"], mm["limit_type"], mm["flops"]) == ("compute", "fp16", SQUARE_FLOPS)
    assert mm["attainable_ns"] == round(COMPUTE_NS)
    assert mm["saveable_ns"] == round(40_000 - COMPUTE_NS)
    assert mm["attained_pct"] == pytest.approx(100 * COMPUTE_NS / 40_000)
    assert mm["flops_per_s"] == pytest.approx(SQUARE_FLOPS / 40e-6)
    assert mm["intensity"] == pytest.approx(SQUARE_FLOPS / (6 * 2**20))
    assert mm["attainable_flops_per_s"] == pytest.approx(125e12)
    assert (mm["tensor_core_ns"], mm["missed_ns"]) == (40_000, 0)
    assert (add["bound"], add["attainable_ns"]) == ("memory", round(MEMORY_NS))
    assert add["bytes_per_s"] == pytest.approx(24 * 2**20 / 50e-6)
    assert (mm["flag"], add["flag"]) == (None, None)


def test_kernels_share_their_operators_cost_by_time(tmp_path: Path) -> None:
    e = KernelTimes(SXM2)
    e.run("aten::mm", 10, [(TC, 100, 30), ("splitKreduce_kernel", 140, 10)], **SQUARE_MM)
    trace = e.read(tmp_path)
    found = analysis.roofline(trace, by=("kernel",)).sort("device_ns", descending=True)
    assert found["flops"].to_list() == [SQUARE_FLOPS * 3 // 4, SQUARE_FLOPS // 4]
    assert analysis.roofline(trace, by=())["kernels"].to_list() == [2]
    assert analysis.roofline(trace, by=())["flops"].to_list() == [SQUARE_FLOPS]


def test_a_product_that_could_use_tensor_cores(tmp_path: Path) -> None:
    e = KernelTimes(SXM2)
    e.run("aten::mm", 10, [("volta_sgemm_128x64_nn", 100, 400)], **SQUARE_MM)
    row = analysis.roofline(e.read(tmp_path)).row(0, named=True)
    assert (row["tensor_core_ns"], row["missed_ns"]) == (0, 400_000)
    assert row["attainable_ns"] == round(COMPUTE_NS)


def test_overlapping_work_saves_no_more_than_the_gpu_was_busy(tmp_path: Path) -> None:
    e = KernelTimes(SXM2)
    e.run("aten::mm", 10, [(TC, 100, 40), (TC, 100, 40), (TC, 120, 40)], **SQUARE_MM)
    trace = e.read(tmp_path)
    found = analysis.roofline(trace, by=()).row(0, named=True)
    # Busy in [100, 160) only.
    assert found["device_ns"] == 120_000
    assert found["saveable_ns"] == pytest.approx(60_000 - COMPUTE_NS, abs=2)


def test_work_that_waits_for_others_has_no_roof(tmp_path: Path) -> None:
    e = KernelTimes(SXM2)
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
    assert row["flops_per_s"] == pytest.approx(SQUARE_FLOPS / 40e-6)
    assert (row["attainable_ns"], row["attained_pct"], row["saveable_ns"]) == (None, None, None)
    named = rows(analysis.roofline(trace, gpu="v100-sxm2"))["aten::mm"]
    assert named["attainable_ns"] == round(COMPUTE_NS)
    measured = {"fp16": 100e12, "bandwidth": 800e9}
    given = rows(analysis.roofline(trace, peak=measured))
    assert given["aten::mm"]["attainable_ns"] == round(SQUARE_FLOPS / 100e12 * 1e9)
    assert given["aten::add"]["attainable_ns"] == round(MEMORY_NS * 900 / 800)


def test_more_than_physics_says_why(tmp_path: Path) -> None:
    e = KernelTimes(SXM2)
    small = {"Input_Dims": [[1024, 1024], [1024, 1024], []], "Input_type": ["float", "float", "Scalar"]}
    e.run("aten::add", 10, [(ADD_KERNEL, 100, 11.3)], **small)
    e.run("aten::mm", 30, [(TC, 200, 9.5)], **SQUARE_MM)
    e.run("aten::sub", 50, [(ADD_KERNEL, 300, 11.3)], **ADD)
    conv = {"Input_Dims": [[32, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []]}
    types = ["float", "float", "", *(["ScalarList"] * 3), "Scalar", "ScalarList", "Scalar"]
    values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    winograd = "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"
    arguments = {**conv, "Input_type": types, "Concrete_Inputs": values}
    e.run("aten::convolution", 70, [(winograd, 400, 300.5)], **arguments)
    found = rows(analysis.roofline(e.read(tmp_path)))
    assert "L2" in found["aten::add"]["flag"]
    assert "above the limit of the GPU" in found["aten::mm"]["flag"]
    assert "above the limit of the GPU" in found["aten::sub"]["flag"]
    assert "fewer operations" in found["aten::convolution"]["flag"]
    assert found["aten::mm"]["saveable_ns"] == 0


def test_utilisation_of_a_step(tmp_path: Path) -> None:
    row = analysis.efficiency(two_operators().read(tmp_path)).row(0, named=True)
    flops = SQUARE_FLOPS + 2 * 1024 * 1024
    assert (row["step"], row["flops"], row["total_ns"], row["known_pct"]) == (3, flops, 500_000, 100.0)
    assert (row["peak_type"], row["peak_flops_per_s"], row["gpus"]) == ("fp16", 125e12, 1)
    assert row["mfu_pct"] == pytest.approx(100 * flops / 500e-6 / 125e12)


WORDS = {"Input_Dims": [[32000, 64], [4, 128]], "Input_type": ["float", "long int"]}
PLACES = {"Input_Dims": [[128, 64], [1, 128]], "Input_type": ["float", "long int"]}


def recomputing() -> KernelTimes:
    """A forward product, and the backward pass with the same one again before its two gradients."""
    e = KernelTimes(SXM2)
    e.annotation("ProfilerStep#3", 0, 500)
    for at, table in enumerate((WORDS, PLACES, WORDS)):
        e.op("aten::embedding", 1 + 2 * at, 1, Sequence_number=1 + at, **table)
    e.run("aten::mm", 10, [(TC, 100, 40)], Sequence_number=4, **SQUARE_MM)
    e.op(GRADIENT, 30, 50, Sequence_number=4, Fwd_thread_id=1)
    e.op("aten::embedding", 31, 1, Sequence_number=5, **WORDS)
    e.run("aten::mm", 33, [(TC, 150, 40)], Sequence_number=6, **SQUARE_MM)
    e.run("aten::mm", 45, [(TC, 200, 40)], **SQUARE_MM)
    e.run("aten::mm", 60, [(TC, 250, 40)], **SQUARE_MM)
    return e


def test_recomputed_flops_are_no_flops_of_the_model(tmp_path: Path) -> None:
    trace = recomputing().read(tmp_path)
    row = analysis.efficiency(trace).row(0, named=True)
    assert (row["flops"], row["recompute_flops"]) == (4 * SQUARE_FLOPS, SQUARE_FLOPS)
    assert row["hfu_pct"] == pytest.approx(100 * 4 * SQUARE_FLOPS / 500e-6 / 125e12)
    assert row["mfu_pct"] == pytest.approx(0.75 * row["hfu_pct"])
    assert row["model_flops_per_s_per_gpu"] == pytest.approx(3 * SQUARE_FLOPS / 500e-6)
    assert analysis.overview(trace, costs=True)["mfu_pct"].item() == pytest.approx(row["mfu_pct"])
    products = analysis.costs(trace).filter(name="aten::mm")
    assert products["phase"].to_list() == ["forward", "recompute", "backward", "backward"]
    kernels = analysis.kernel_table(trace, by=("phase",)).sort("phase")
    assert kernels.select("phase", "calls").rows() == [("backward", 2), ("forward", 1), ("recompute", 1)]


def test_tokens_are_what_the_forward_pass_looks_up(tmp_path: Path) -> None:
    """Neither positions nor what is recomputed count."""
    trace = recomputing().read(tmp_path)
    found = analysis.efficiency(trace).row(0, named=True)
    assert (found["tokens"], found["tokens_per_s"]) == (2 * 4 * 128, pytest.approx(1024 / 500e-6))
    [rank] = analysis.efficiency([trace], tokens=7).to_dicts()
    assert (rank["rank"], rank["step"], rank["tokens"]) == (0, 3, 7)


def test_ranks_of_a_lake_have_the_efficiency_of_their_traces(tmp_path: Path) -> None:
    jobs = [{"rank": rank, "world_size": 2} for rank in range(2)]
    paths = [recomputing().write(tmp_path / f"rank{job['rank']}.json", distributedInfo=job) for job in jobs]
    ks.batch.run(paths, tmp_path / "lake")
    found = analysis.efficiency(ks.scan(tmp_path / "lake"))
    alone = analysis.efficiency(ks.read(paths[0]))
    assert found["rank"].to_list() == [0, 1]
    for rank in range(2):
        assert found.filter(rank=rank).drop("rank").equals(alone)


def test_all_gpu_time_counts_in_the_known_share(tmp_path: Path) -> None:
    """Work of no operator is GPU time of the step, and its FLOPs are not known."""
    e = two_operators()
    # Launched by the step itself, as a graph is; then by an operator whose FLOPs no model counts.
    number = next(e.ids)
    e.call(40, 1, number, name="cudaGraphLaunch")
    e.kernel("replayed", 300, 850, number)
    fused = {"Input_Dims": [[64], [64]], "Input_type": ["float", "float"]}
    e.run("triton_poi_fused_martian_0", 60, [("triton_poi_fused_martian_0", 1200, 60)], **fused)
    trace = e.read(tmp_path)
    row = analysis.efficiency(trace).row(0, named=True)
    assert (row["device_ns"], row["known_pct"]) == (1_000_000, pytest.approx(9.0))
    coverage = {row["status"]: row["device_ns"] for row in analysis.cost_coverage(trace).to_dicts()}
    assert (coverage["exact"], coverage["unknown_op"], coverage["unlinked"]) == (90_000, 60_000, 850_000)
    assert coverage["estimate"] == 0
    assert analysis.roofline(trace)["known_ns"].sum() == 90_000
    assert analysis.overview(trace, costs=True)["known_pct"].item() == pytest.approx(9.0)


def test_gpus_without_an_operator_count_in_the_peak(tmp_path: Path) -> None:
    e = KernelTimes(SXM2, SXM2 | {"id": 1})
    e.run("aten::mm", 10, [(TC, 100, 40)], **SQUARE_MM)
    number = next(e.ids)
    e.call(20, 1, number, name="cudaGraphLaunch")
    e.kernel("replayed", 100, 40, number, device=1)
    row = analysis.efficiency(e.read(tmp_path)).row(0, named=True)
    assert (row["gpus"], row["peak_flops_per_s"]) == (2, 2 * 125e12)


def test_a_little_more_than_a_peak_says_why(tmp_path: Path) -> None:
    e = KernelTimes(SXM2)
    e.run("aten::add", 10, [(ADD_KERNEL, 100, MEMORY_NS / 1000 / 1.02)], **ADD)
    row = analysis.roofline(e.read(tmp_path)).row(0, named=True)
    assert row["attained_pct"] == pytest.approx(102.0, abs=0.1)
    assert row["flag"].startswith("less than 5 % above a peak")


def test_a_trace_without_steps_is_one(tmp_path: Path) -> None:
    e = KernelTimes(SXM2)
    e.run("aten::mm", 10, [(TC, 100, 40)], **SQUARE_MM)
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
    with pytest.raises(InvalidArgumentError, match="the peaks are"):
        analysis.roofline(trace, peak={"fp99": 1e12})
    with pytest.raises(InvalidArgumentError, match="the peaks are"):
        analysis.efficiency(trace, peak={"fp16": float("nan")})


def test_a_trace_without_gpu_work(tmp_path: Path) -> None:
    e = Events(SXM2)
    e.op("aten::mm", 0, 10, **SQUARE_MM)
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


EXAMPLES = [(rule, name, math) for rule in rules() for name, math in rule.examples]


@pytest.mark.parametrize(("rule", "name", "math"), EXAMPLES, ids=[name[:60] for _, name, _ in EXAMPLES])
def test_examples(rule: object, name: str, math: str) -> None:
    assert rule_of(name) is rule
    assert kernel_math(name).math == (math or None)


def test_every_rule_has_an_example_and_says_whose_names_it_knows() -> None:
    assert all(rule.examples and rule.about for rule in rules())


def test_a_name_that_fits_nothing_is_unknown() -> None:
    assert kernel_math("my_secret_kernel(float*)") == (None, None)
    assert kernel_math("") == (None, None)
    assert kernel_math("x" * 100_000) == (None, None)


def test_frames_keep_their_rows() -> None:
    names = [
        "volta_sgemm_128x64_nn",
        None,
        "nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN",
        "volta_sgemm_128x64_nn",
    ]
    frame = pl.DataFrame({"name": pl.Series(names, dtype=pl.Categorical), "n": [1, 2, 3, 4]})
    found = with_kernel_math(frame)
    assert found["tensor_cores"].to_list() == [False, None, True, False]
    assert found["math"].to_list() == [None, None, "bf16", None]
    assert found["n"].to_list() == [1, 2, 3, 4]


@pytest.mark.parametrize("change", [str.upper, str.title, str.swapcase, str.lower])
@pytest.mark.parametrize("end", ["", "\u212a"])
def test_capitals_do_not_matter_where_the_pattern_says_so(change: Callable[[str], str], end: str) -> None:
    for _, example, _ in EXAMPLES:
        name = change(example) + end
        assert rule_of(name) is next((rule for rule in rules() if re.search(rule.text, name)), None)


Piece = tuple[int, int | None, int]
PIECES = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 2500), st.integers(0, 2))


@given(
    st.lists(PIECES, min_size=1, max_size=20),
    st.lists(st.integers(0, 1), min_size=4, max_size=4),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=3, max_size=3),
    st.data(),
)
def test_figures_are_sums_over_the_work_of_a_pair(
    pieces: list[Piece], kinds: list[int], marks: list[tuple[int, int]], data: st.DataObject
) -> None:
    ops, durations, classes = (list(column) for column in zip(*pieces, strict=True))
    lasts = [duration or 0 for duration in durations]
    frame = pl.DataFrame(
        {"op": ops, "of_class": classes, "dur_ns": lasts, "busy_ns": [each / 2 for each in lasts]},
        schema_overrides={"op": pl.UInt32, "of_class": pl.UInt32},
    ).with_columns(pl.Series("is_timed", [each is not None for each in durations]))
    schema = {"cores": pl.UInt8, "math": pl.UInt8}
    marked = pl.DataFrame(marks, schema, orient="row").with_columns(needs_fewer=pl.lit(value=False))
    found = pair_pieces(frame.with_row_index("at"), pl.Series(kinds, dtype=pl.UInt32), marked)
    count = found.pairs.height
    limits = st.lists(st.none() | st.floats(0, 5000), min_size=count, max_size=count)
    least = pl.Series(data.draw(limits), dtype=pl.Float64)
    of_pairs = pl.DataFrame({"least_ns": least, "compute_ns": least, "memory_ns": least / 2})
    figures = found.figures(
        of_pairs.with_columns(through_ns=pl.lit(None, pl.Float64), is_estimate=pl.lit(value=False))
    )
    of_op = {op: [at for at, other in enumerate(ops) if other == op] for op in ops}
    total = {op: sum(lasts[at] for at in own) for op, own in of_op.items()}
    first_longest = lambda places: min(places, key=lambda at: (-lasts[at], at), default=None)  # noqa: E731

    def traits(at: int) -> tuple[int, int, int, int]:
        own = of_op[ops[at]]
        told = first_longest([other for other in own if marks[classes[other]][1]])
        cores = max(marks[classes[other]][0] for other in own)
        return kinds[ops[at]], classes[at], cores, 0 if told is None else marks[classes[told]][1]

    def share(at: int) -> float:
        return lasts[at] / total[ops[at]] if total[ops[at]] else 1 / len(of_op[ops[at]])

    pairs = found.pairs.rows()
    for pair, row in zip(pairs, figures.iter_rows(named=True), strict=True):
        members = [at for at in range(len(pieces)) if traits(at) == pair]
        limit = least[pairs.index(pair)]
        assert (row["pieces"], row["device_ns"]) == (len(members), sum(lasts[at] for at in members))
        assert row["is_timed"] == any(durations[at] is not None for at in members)
        assert row["shares"] == pytest.approx(sum(map(share, members)))
        saved = [max(lasts[at] / 2 - limit * share(at), 0) for at in members if limit is not None]
        assert row["saveable_ns"] == pytest.approx(sum(saved))
        assert (row["longest_at"], row["longest_ns"]) == (at := first_longest(members), lasts[at])
        over = [at for at in members if limit is not None and limit > total[ops[at]]]
        assert row["flagged_at"] == first_longest(over)
    assert found.pieces["pair"].to_list() == [pairs.index(traits(at)) for at in range(len(pieces))]
    calls = [len({op for op, other in zip(ops, classes, strict=True) if other == each}) for each in range(3)]
    assert count_operators(found.pieces, found.pairs["class"], 3).to_list() == calls


def test_calls_are_set_apart_by_their_class_and_last_entry() -> None:
    places = pl.Series([0, 2, 3, 2, 4, None], dtype=pl.UInt32)
    classes = Classes(pl.Series([0, 1, 0, 1, 1, 2], dtype=pl.UInt32), pl.DataFrame({"name": ["a", "b", "c"]}))
    apart = set_apart(classes, places, pl.Series([7, 8, 7, 9, 7, 7], dtype=pl.UInt32))
    assert apart.keys[apart.of].rows() == [("a", 7), ("b", 0), ("a", 9), ("b", 7), ("b", 7), ("c", 0)]
    assert apart.keys.height == 5
