"""Estimates without operators: worked figures, and what may never be estimated."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

import kernelscope as ks
from events import Events
from kernelscope.analysis import costs, estimated_costs
from kernelscope.analysis.replays import with_replayed_ops
from oracles.traces import TRACES, need

if TYPE_CHECKING:
    from pathlib import Path

CLASSIC = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x5_tn"
CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x32_64x6_tn_align8>(Params)"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN_SK0_WS64"
FLASH = "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, true>(Flash_fwd_params)"


def one(
    tmp_path: Path, *kernels: str, step: str | None = None, **args: object
) -> dict[str, dict[str, object]]:
    """The estimates of replayed kernels by name."""
    events = Events()
    if step:
        events.annotation(step, 0, 100)
    events.call(1, 5, 1, name="cudaGraphLaunch")
    for number, name in enumerate(kernels):
        events.kernel(name, 10 + 3 * number, 2, 1, **args)
    trace = events.read(tmp_path)
    found = estimated_costs(trace, query_heads=8)
    assert (found["status"] == "estimate").all()
    assert found["limit"].null_count() == 0
    return {row["name"]: row for row in found.to_dicts()}


def test_products_are_bounded_by_their_tiles(tmp_path: Path) -> None:
    found = one(tmp_path, CLASSIC, CUTLASS, TENSILE, grid=[512, 2, 3], block=[256, 1, 1])
    assert found[CLASSIC]["outputs_at_most"] == 128 * 64 * 512 * 2 * 3
    assert found[CLASSIC]["tile"] == "128x64"
    assert found[CLASSIC]["math"] == "bf16"
    assert found[CUTLASS]["outputs_at_most"] == 64 * 32 * 512 * 2 * 3
    # 512 threads of the first axis are two blocks.
    assert found[TENSILE]["outputs_at_most"] == 256 * 32 * 2 * 2 * 3
    assert all(row["flops"] is None and row["category"] == "gemm" for row in found.values())


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas",
        "cutlass3x_sm90_tensorop_s64x256x16gemm_f16_f16_f32_f16_f16_128x256x64_0_tnn_align8",
        "Cijk_Ailk_Bljk_BBS_MT256x256x64_MI16x16x1_SK3_WS64",
    ],
)
def test_blocks_that_go_on_bound_nothing(name: str, tmp_path: Path) -> None:
    row = one(tmp_path, name, grid=[132, 1, 1], block=[384, 1, 1])[name]
    assert (row["category"], row["outputs_at_most"], row["tile"]) == ("gemm", None, None)


def test_without_a_grid_the_tile_is_all(tmp_path: Path) -> None:
    for sizes in ({}, {"grid": [0, 1, 1]}, {"grid": [2**31 - 1] * 3}):
        row = one(tmp_path / str(len(str(sizes))), CLASSIC, **sizes)[CLASSIC]
        assert (row["tile"], row["outputs_at_most"]) == ("128x64", None)


def test_attention_of_decoding(tmp_path: Path) -> None:
    """Two requests with 10 and 20 keys: 30 pairs a head; 8 heads of 128, two products, 2 FLOPs each."""
    step = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk30sqsq2sqsk30)"
    combine = "flash_fwd_splitkv_combine_kernel"
    found = one(tmp_path, FLASH, "kernel_unified_attention_3d", combine, "rms_norm", step=step)
    figures = ("attended_pairs", "kv_tokens", "flops")
    assert [found[FLASH][figure] for figure in figures] == [30, 30, 30 * 8 * 128 * 4]
    # Its name tells no size of heads.
    unified = found["kernel_unified_attention_3d"]
    assert [unified[figure] for figure in figures] == [30, 30, None]
    assert "head_size=" in str(unified["limit"])
    assert [found[combine][figure] for figure in figures] == [None] * 3
    assert (found["rms_norm"]["category"], found["rms_norm"]["flops"]) == ("norm", None)


def test_attention_of_prompts(tmp_path: Path) -> None:
    """Prompts of 4 and of 2 tokens behind 3 known ones: 10 pairs, and 4 + 5."""
    step = "execute_6_context_2(sq6sk9sqsq20sqsk26)_generation_0(sq0sk0sqsq0sqsk0)"
    row = one(tmp_path, FLASH, step=step)[FLASH]
    assert (row["attended_pairs"], row["kv_tokens"]) == (19, 9)


@pytest.mark.parametrize(
    "step",
    [
        None,
        "step[DECODE bs=2]",
        # Prompts and decoding.
        "execute_3_context_1(sq1sk9sqsq1sqsk9)_generation_2(sq2sk30sqsq2sqsk30)",
        # No requests have such sums.
        "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq9sk1sqsq2sqsk30)",
        "execute_0_context_0(sq0sk0sqsq0sqsk0)_generation_0(sq0sk0sqsq0sqsk0)",
    ],
)
def test_attention_whose_lengths_are_unknown(step: str | None, tmp_path: Path) -> None:
    row = one(tmp_path, FLASH, step=step)[FLASH]
    assert (row["attended_pairs"], row["kv_tokens"], row["flops"]) == (None, None, None)


def test_what_costs_know_is_not_estimated(tmp_path: Path) -> None:
    events = Events()
    half = ["c10::Half", "c10::Half"]
    events.op("aten::mm", 0, 10, Input_Dims=[[8, 64], [64, 32]], Input_type=half)
    events.call(1, 2, 1)
    events.kernel(CLASSIC, 20, 5, 1, grid=[1, 1, 1])
    events.op("mylib::unknown", 30, 10)
    events.call(31, 2, 2)
    events.kernel("relu_kernel", 40, 7, 2)
    events.kernel("softmax", 60, 3, 99)
    trace = events.read(tmp_path)
    assert estimated_costs(trace).select("name", "device_ns").rows() == [
        ("relu_kernel", 7000),
        ("softmax", 3000),
    ]
    known = costs(trace).filter(pl.col("status") == "exact")
    assert known["device_ns"].sum() + 10_000 == trace.gpu_ops["dur_ns"].sum()
    empty = Events().read(tmp_path / "empty")
    assert estimated_costs(empty).columns == estimated_costs(trace).columns
    for option in ({"query_heads": 0}, {"head_size": 70_000}):
        with pytest.raises(ks.errors.InvalidArgumentError, match="1 to 65,536"):
            estimated_costs(trace, **option)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_bounds_hold_where_the_capture_tells_the_sizes(engine: str) -> None:
    """A capture gives grids, and operators with shapes; without the latter the bound must be above them."""
    path = need(TRACES / f"{engine}-decode-graph-mi300.json.gz")
    bare = ks.read(path)
    assert (
        estimated_costs(bare)["device_ns"].sum()
        + costs(bare)
        .filter(pl.col("status").is_in(["exact", "estimate", "unknown_dtype"]))["device_ns"]
        .sum()
        == bare.gpu_ops["dur_ns"].sum()
    )
    told = with_replayed_ops(ks.read(path, capture=TRACES / f"graph-capture/{engine}-decode-bs32.json.gz"))
    named = told.ops.select(
        op_row="row", op=pl.col("name").cast(pl.String), dims=pl.col("input_dims").cast(pl.String)
    )
    products = told.gpu_ops.join(named, on="op_row").filter(pl.col("op").is_in(["aten::mm", "aten::addmm"]))
    sizes = {}
    for name, grid, dims in products.select("name", "grid", "dims").rows():
        left, right = [dim for dim in json.loads(dims) if len(dim) == 2][:2]
        sizes[str(name), str(grid)] = left[0] * right[1]
    lone = replace(
        told, ops=told.ops.clear(), gpu_ops=told.gpu_ops.with_columns(op_row=pl.lit(None, pl.UInt32))
    )
    found = {(row["name"], row["grid"]): row for row in estimated_costs(lone).to_dicts()}
    assert len(sizes) > 1
    for key, size in sizes.items():
        assert size <= found[key]["outputs_at_most"] <= 8 * size
