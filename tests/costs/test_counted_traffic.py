"""Costs against what counters of an H200 saw each kernel move and multiply (tests/recorded/h200/README.md).

No operator moves less than its model says, but for what the L2 cache still holds of what was written. Where
one moves more, or multiplies more, the tables say how much and why.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import analysis
from kernelscope.analysis.costs.costed import costed_trace
from kernelscope.analysis.kernels.kernel_math import kernel_math

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "h200"
# Of what a kernel writes, at most the L2 is still there when it ends; what it reads, it reads from memory.
L2_BYTES = 50_000_000
# What small operators move beside their tensors: descriptors, constants, whole sectors.
BESIDE_BYTES = 2_000_000
MORE = 1.1


class Counted(NamedTuple):
    """What was counted of the kernels of one operator beside its row of ``costs``."""

    case: str
    cost: dict[str, Any]
    kernels: list[dict[str, Any]]

    @property
    def key(self) -> tuple[str, str]:
        return self.case, self.cost["name"].removeprefix("aten::").strip("_")

    def sum(self, column: str) -> int:
        return sum(kernel[column] for kernel in self.kernels)


@pytest.fixture(scope="module")
def trace() -> ks.Trace:
    return ks.read(RECORDED / "ops.json.gz")


@pytest.fixture(scope="module")
def operators(trace: ks.Trace) -> list[Counted]:
    """Every operator of the cases that were counted; kernels pair in the order of their begin."""
    rows = list(csv.DictReader((RECORDED / "counters.csv").read_text().splitlines()))
    numbers = ("bytes_read", "bytes_written", "tensor_flops", "ffma_instructions")
    rows = [{**row, **{name: int(row[name]) if row[name] else None for name in numbers}} for row in rows]
    cases = trace.ops.select(
        pl.col("name").cast(pl.String), "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")
    )
    cases = cases.filter(pl.col("name").str.starts_with("case:")).sort("start_ns")
    works = trace.gpu_ops.select("start_ns", pl.col("name").cast(pl.String), pl.col("kind").cast(pl.String))
    works = works.with_columns(owner=costed_trace(trace).work).filter(kind="kernel").sort("start_ns")
    works = works.join_asof(cases.select("start_ns", case="name"), on="start_ns")
    costs = analysis.costs(trace).to_dicts()
    found: dict[int, Counted] = {}
    waiting = iter(rows)
    for work in works.filter(pl.col("case") != "case:lstm").iter_rows(named=True):
        row = next(waiting)
        assert (work["case"], _plain(work["name"])) == (f"case:{row['case']}", row["kernel"])
        operator = found.setdefault(work["owner"], Counted(row["case"], costs[work["owner"]], []))
        operator.kernels.append({**row, "name": work["name"]})
    assert next(waiting, None) is None
    return list(found.values())


def _plain(kernel: str) -> str:
    kernel = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", kernel, maxsplit=1)[0].rpartition("::")[2]


def test_every_cost_is_known(trace: ks.Trace) -> None:
    assert set(analysis.costs(trace)["status"]) == {"exact", "estimate"}
    assert analysis.costs(trace)["bytes_read"].null_count() == 0
    assert "other" not in analysis.kernel_categories(trace)["category"]


TILES = "tiles of the result read their rows and columns again, where the L2 does not keep them"
LAYOUT = "the tensors are brought into another layout and back by kernels of their own"
KEYS = "blocks of queries read the keys and values again, where the L2 does not keep them"
SUMS = "gradients of queries are summed up in memory, in float32"
TWICE = "all is read for the statistics, and again for the result"
ROWS = "the gradient by the weight reads all again, and that by the input part of its rows twice"
AGAIN = "a row is read for its sum, and again for the result"
FILLED = "what was filled is written again where something is added, in whole sectors"
SECTORS = "memory gives whole sectors of 32 bytes, of which not all is asked for"
PARTS = "rows are summed in parts, in float32, which another kernel adds up"
UNTOLD = "these counters do not tell why"

# Read and written as multiples of the model's bytes, where that is more than a tenth above them; None of 0.
READ: dict[tuple[str, str], tuple[float, str]] = {
    ("mm_bf16", "mm"): (4.664, TILES),
    ("mm_fp16", "mm"): (4.657, TILES),
    ("mm_fp32", "mm"): (2.548, TILES),
    ("mm_fp64", "mm"): (5.454, TILES),
    ("mm_tf32", "mm"): (2.188, TILES),
    ("linear_bias", "addmm"): (3.376, TILES),
    ("scaled_mm_fp8", "scaled_mm"): (4.187, TILES),
    ("int_mm", "int_mm"): (5.559, TILES),
    ("multi_head_attention", "mm"): (1.185, TILES),
    ("conv1d", "cudnn_convolution"): (2.997, LAYOUT),
    ("conv3d", "cudnn_convolution"): (3.0, LAYOUT),
    ("conv2d_training", "cudnn_convolution"): (2.99, LAYOUT),
    ("conv2d_training", "convolution_backward"): (3.501, LAYOUT),
    ("conv_transpose2d", "cudnn_convolution_transpose"): (
        3.956,
        "each of the four phases of stride 2 reads the input",
    ),
    ("sdpa_flash_causal", "flash_attention_forward"): (1.372, KEYS),
    ("sdpa_flash_gqa", "flash_attention_forward"): (1.585, KEYS),
    ("sdpa_flash_training", "flash_attention_forward"): (1.208, KEYS),
    ("sdpa_flash_training", "flash_attention_backward"): (2.001, SUMS),
    ("sdpa_efficient", "efficient_attention_backward"): (1.46, SUMS),
    ("sdpa_cudnn", "scaled_dot_product_cudnn_attention_backward"): (2.028, SUMS),
    ("layer_norm", "native_layer_norm_backward"): (2.454, ROWS),
    ("rms_norm", "fused_rms_norm_backward"): (2.363, ROWS),
    ("group_norm", "native_group_norm"): (2.001, TWICE),
    ("group_norm", "native_group_norm_backward"): (2.001, TWICE),
    ("batch_norm", "native_batch_norm"): (2.0, TWICE),
    ("batch_norm", "native_batch_norm_backward"): (2.0, TWICE),
    ("amax", "sum"): (8.0, "truth values become int64 before they are summed"),
    ("upsample_bilinear", "upsample_bilinear2d_backward"): (1.25, "what atomic additions add to is read"),
    ("cross_entropy", "log_softmax_backward_data"): (1.427, AGAIN),
    ("embedding", "embedding_dense_backward"): (2.9, PARTS),
    ("add_strided", "add"): (1.5, SECTORS),
    ("gather", "gather"): (1.342, SECTORS),
    ("masked_fill", "masked_fill"): (3.0, "what is not masked is read and written back"),
    ("repeat", "copy"): (4.001, "each of the four copies reads the input, which the L2 does not hold"),
    ("topk", "topk"): (
        3.467,
        "the input is read for each of two digits of a radix selection, and for the results",
    ),
    ("sort", "sort"): (5.002, "the indices that a kernel before wrote are read and sorted beside the keys"),
    ("nonzero", "nonzero"): (
        3.266,
        "elements are counted first; indices are written flat, then by dimension",
    ),
}
WRITTEN: dict[tuple[str, str], tuple[float | None, str]] = {
    ("conv1d", "cudnn_convolution"): (2.892, LAYOUT),
    ("conv3d", "cudnn_convolution"): (2.887, LAYOUT),
    ("conv2d_training", "cudnn_convolution"): (2.437, LAYOUT),
    ("conv2d_training", "convolution_backward"): (4.007, LAYOUT),
    ("sdpa_flash", "flash_attention_forward"): (1.17, UNTOLD),
    ("sdpa_flash_causal", "flash_attention_forward"): (1.19, UNTOLD),
    ("sdpa_flash_gqa", "flash_attention_forward"): (1.132, UNTOLD),
    ("sdpa_flash_training", "flash_attention_backward"): (2.017, SUMS),
    ("sdpa_efficient", "efficient_attention_backward"): (1.518, SUMS),
    ("sdpa_cudnn", "scaled_dot_product_cudnn_attention_backward"): (2.049, SUMS),
    # Nothing is left to write of a result that was filled.
    ("max_pool2d", "max_pool2d_with_indices_backward"): (None, FILLED),
    ("upsample_bilinear", "upsample_bilinear2d_backward"): (None, FILLED),
    ("embedding", "embedding_dense_backward"): (None, PARTS),
    ("max_dim", "max"): (25.08, UNTOLD),
    ("topk", "topk"): (28.19, "digits are counted in memory"),
}


@pytest.mark.parametrize("way", ["read", "written"])
def test_no_operator_moves_less_than_its_model_says(way: str, operators: list[Counted]) -> None:
    for operator in operators:
        modelled, counted = operator.cost[f"bytes_{way}"], operator.sum(f"bytes_{way}")
        kept = L2_BYTES * len(operator.kernels) if way == "written" else 0
        if operator.key == ("embedding", "gather") and way == "read":
            # 16,384 rows of 128,000 drawn at random: 6 % are drawn again, and stay in the cache.
            assert counted / modelled == pytest.approx(0.97, abs=0.005)
            assert operator.cost["status"] == "estimate"
            continue
        assert counted >= modelled - kept, (operator.key, modelled, counted)


@pytest.mark.parametrize("way", ["read", "written"])
def test_where_an_operator_moves_more_it_is_known_why(way: str, operators: list[Counted]) -> None:
    known = {"read": READ, "written": WRITTEN}[way]
    found: set[tuple[str, str]] = set()
    for operator in operators:
        modelled, counted = operator.cost[f"bytes_{way}"], operator.sum(f"bytes_{way}")
        if counted <= MORE * modelled + BESIDE_BYTES:
            continue
        assert operator.key in known, (operator.key, modelled, counted)
        found.add(operator.key)
        factor, reason = known[operator.key]
        assert reason
        assert modelled == 0 if factor is None else counted / modelled == pytest.approx(factor, rel=5e-3), (
            operator.key
        )
    assert found == set(known)


# Operations on tensor cores as multiples of the model's FLOPs; 1 where nothing stands here.
PRODUCTS = {
    ("mm_bf16", "mm"): (26 * 320 / 8192, "26 tiles of 320 are more than 8192 columns"),
    ("mm_fp16", "mm"): (26 * 320 / 8192, "26 tiles of 320 are more than 8192 columns"),
    ("scaled_mm_fp8", "scaled_mm"): (57 * 144 / 8192, "57 tiles of 144 are more than 8192 columns"),
    ("conv2d_grouped", "cudnn_convolution"): (2.0, "groups of 8 channels are padded to 16"),
    ("sdpa_flash_causal", "flash_attention_forward"): (1.031, "blocks on the diagonal are multiplied whole"),
    ("sdpa_flash_training", "flash_attention_forward"): (
        1.031,
        "blocks on the diagonal are multiplied whole",
    ),
    ("sdpa_flash_training", "flash_attention_backward"): (
        1.031,
        "blocks on the diagonal are multiplied whole",
    ),
}


def test_products_multiply_what_their_models_say(operators: list[Counted]) -> None:
    products = [o for o in operators if any(kernel["tensor_flops"] for kernel in o.kernels)]
    assert len(products) == 27
    for operator in products:
        factor, _ = PRODUCTS.get(operator.key, (1.0, ""))
        flops = operator.sum("tensor_flops")
        assert flops / operator.cost["flops"] == pytest.approx(factor, rel=1e-3), operator.key
    assert {o.key for o in products} >= set(PRODUCTS)


def test_products_without_tensor_cores(operators: list[Counted]) -> None:
    scalar = {("mm_fp32", "mm"), ("sdpa_math", "bmm")}
    found = [operator for operator in operators if operator.key in scalar]
    assert len(found) == 3
    for operator in found:
        # A multiply-add is 2; one of the kernels scales its results as well.
        flops = 2 * operator.sum("ffma_instructions")
        assert flops / operator.cost["flops"] == pytest.approx(1, rel=0.02)
        assert operator.sum("tensor_flops") == 0


def test_names_say_what_kernels_multiply_in(operators: list[Counted], trace: ks.Trace) -> None:
    limits = dict(analysis.roofline(trace, by=["op_row"]).select("op_row", "limit_type").iter_rows())
    for operator in operators:
        for kernel in operator.kernels:
            if kernel["tensor_flops"] is None:
                continue
            told = kernel_math(kernel["name"])
            assert told.tensor_cores == (kernel["tensor_flops"] > 0), kernel["name"]
            # Of cuDNN's attention the name says 16 bits, not which.
            assert told.math in ({kernel["tensor_type"] or None} | {None}), kernel["name"]
            if kernel["tensor_flops"]:
                assert limits[operator.cost["op_row"]] == kernel["tensor_type"], operator.key


def test_nothing_is_faster_than_the_gpu(trace: ks.Trace) -> None:
    found = analysis.roofline(trace, by=["name", "op_row"])
    assert set(found["bound"]) <= {"compute", "memory", "bus"}
    above = found.filter(pl.col("attained_pct") > 100)
    # Half of attention by its parts: 16 MB that the kernel before has just written.
    assert above["name"].to_list() == ["aten::copy_"]
    assert above["bytes_read"].item() < L2_BYTES
    assert above["flag"].to_list() == ["part of its reads and writes stays in L2"]
