"""What holds of the costs and rooflines of any trace, however damaged."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import polars as pl
from events import V100, Events
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelscope import analysis

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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
