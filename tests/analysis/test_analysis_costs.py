"""Which operator each kernel's cost comes from, on traces small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from events import Events

from kernelscope import analysis

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
