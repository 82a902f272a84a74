"""Costs on real traces: coverage, physics, tensor cores, and TraceLens's figures through the whole trace."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from traces import NO_SHARED, ORACLES, TRACES, files, need, read, rows_of, text_of

from kernelscope import analysis
from kernelscope.analysis.costs.peaks import device_peaks
from kernelscope.analysis.kernels.kernel_math import with_kernel_math
from kernelscope.costs import cost_of

TRACELENS = ORACLES / "tracelens"
# Its operators are counted by a table of TraceLens's own, and its bytes are 0 for float and int.
LEFT_OUT = "triton_"

KINETO = files(TRACES, "*.json.gz")
# Replays of a graph, whose sheets name the operators of the capture: no model counts these yet.
REPLAYS = {
    "sglang-decode-graph-mi300": {
        "aiter::add_rmsnorm",
        "aiter::gemm_a16w16",
        "aiter::rmsnorm",
        "sgl_kernel::rotary_embedding",
        "sgl_kernel::silu_and_mul",
        "sglang::store_cache",
        "sglang_profiler::attention_paged_attention_ragged",
    },
    "vllm-decode-graph-mi300": {
        "aiter::rms_norm",
        "aiter::rmsnorm2d_fwd_with_add_ck",
        "pseudo_op::moe_triton_unfused_down",
        "pseudo_op::moe_triton_unfused_up",
        "vllm::rocm_unquantized_gemm",
        "vllm::unified_attention_with_output",
    },
}
LEAST_KNOWN = {
    "owlv2-h100": 95.0,
    "qwen1.5-0.5b-h100": 95.0,
    "resnet-act-checkpoint-mi300": 95.0,
    "sglang-qwen3-8b-mi300": 95.0,
    "resnet50-v100-2021": 95.0,
    "eager-b200-rank0of8": 90.0,
}


@pytest.mark.parametrize("name", LEAST_KNOWN)
def test_coverage(shared: Path, name: str) -> None:
    table = analysis.cost_coverage(read(TRACES / f"{name}.json.gz"))
    known = table.filter(pl.col("status").is_in(["exact", "estimate"]))["linked_pct"].sum()
    assert known >= LEAST_KNOWN[name]


@pytest.mark.parametrize("path", KINETO)
def test_nothing_exceeds_physics(path: Path) -> None:
    trace = read(path)
    known = any(entry.gpu for entry in device_peaks(trace))
    table = analysis.roofline(trace, by=("kernel",))
    long = table.filter(pl.col("device_ns") > 10_000)
    if not known:
        assert table["attained_pct"].null_count() == table.height
    over = long.filter((pl.col("attained_pct") > 105.0) & pl.col("flag").is_null())
    assert over.is_empty()
    unexplained = long.filter(pl.col("flag").str.starts_with("above the limit of the GPU"))
    assert unexplained.is_empty()
    work = trace.gpu_ops.filter(pl.col("dur_ns") > 0)
    ends = work.select(pl.col("start_ns").min(), end=(pl.col("start_ns") + pl.col("dur_ns")).max())
    devices = max(work["device"].n_unique(), 1)
    saveable = table["saveable_ns"].sum() or 0
    assert saveable <= min(
        work["dur_ns"].sum(), devices * ((ends["end"][0] or 0) - (ends["start_ns"][0] or 0))
    )
    times = analysis.temporal_breakdown(trace)
    assert saveable <= (times["span_ns"] - times["idle_ns"]).sum()


@pytest.mark.parametrize("path", KINETO)
def test_figures_add_up(path: Path) -> None:
    trace = read(path)
    costs = analysis.costs(trace)
    assert costs["op_row"].is_unique().all()
    linked = trace.gpu_ops.filter(pl.col("op_row").is_not_null())
    assert (costs["device_ns"].sum() or 0) == linked["dur_ns"].sum()
    whole = analysis.roofline(trace, by=())
    if linked.height:
        assert whole["device_ns"][0] == linked["dur_ns"].sum()
        assert (whole["flops"][0] or 0) == costs["flops"].sum()
        assert whole["kernels"][0] == linked.height


@pytest.mark.parametrize("path", KINETO)
def test_kernels_that_say_so_use_tensor_cores(path: Path) -> None:
    """The operators of a kernel on tensor cores multiply; those that only add or copy never use them."""
    trace = read(path)
    kernels = with_kernel_math(trace.gpu_ops.filter(kind="kernel").select("row", "name", "op_row", "dur_ns"))
    text = kernels["name"].cast(pl.String)
    plain = text.str.contains(
        "ffma|simt|sgemm|elementwise_kernel|reduce_kernel|nccl|softmax"
    ) & ~text.str.contains("tensorop|Cijk")
    assert kernels.filter(plain & kernels["tensor_cores"]).is_empty()
    assert kernels.filter(plain)["tensor_cores"].null_count() == 0
    marked = text.str.contains(
        "tensorop|884|16816|xmma.*(tf32|bf16|f16f16)|nvjet|flash_fwd|_MI16x16|gtcx|xdlops"
    )
    assert kernels.filter(marked & ~kernels["tensor_cores"].fill_null(value=False)).is_empty()
    flops = analysis.costs(trace).filter(pl.col("tensor_cores") & pl.col("flops").is_not_null())
    assert flops.filter(pl.col("flops") == 0).is_empty()


def _sheets() -> list[object]:
    found = sorted(TRACELENS.glob("*/*.csv*")) if TRACELENS.is_dir() else []
    sheets = [path for path in found if "GFLOPS" in text_of(path).split("\n", 1)[0]]
    return [pytest.param(path, id=f"{path.parent.name}-{path.name.split('.')[0]}") for path in sheets] or [
        pytest.param(None, marks=pytest.mark.skip(reason=NO_SHARED), id="no-shared-traces")
    ]


def _json(cell: str | None) -> str | None:
    return json.dumps(ast.literal_eval(cell)) if cell else None


def _figures(path: Path) -> list[tuple[str, tuple[str | None, ...], float, float, int]]:
    """Name, recorded inputs, GFLOP, MB and calls of each row that has figures."""
    found: list[tuple[str, tuple[str | None, ...], float, float, int]] = []
    for row in rows_of(text_of(path)):
        end = "" if "GFLOPS" in row else "_first"
        if not row[f"GFLOPS{end}"] or row["name"].startswith(LEFT_OUT):
            continue
        keys = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
        texts = tuple(_json(row[f"{key}{end}"]) for key in keys)
        calls = int(row["operation_count" if not end else "name_count"])
        moved = float(row[f"Data Moved (MB){end}"] or "nan")
        found.append((row["name"], texts, float(row[f"GFLOPS{end}"]), moved, calls))
    return found


def _agrees(flops: int | None, moved: int | None, gflops: float, megabytes: float) -> bool:
    if flops is None or not math.isclose(flops / 1e9, gflops, rel_tol=1e-12):
        return False
    if math.isnan(megabytes):
        return moved is None
    return moved is not None and math.isclose(moved / 2**20, megabytes, rel_tol=1e-12)


@pytest.mark.parametrize("path", _sheets())
def test_every_sheet_of_tracelens(path: Path) -> None:
    without_model: set[str] = set()
    for name, texts, gflops, megabytes, _ in _figures(path):
        cost = cost_of(name, *texts, convention="tracelens")
        if cost.status == "unknown_op":
            without_model.add(name)
        else:
            assert _agrees(cost.flops, cost.bytes_read, gflops, megabytes), (name, texts, cost)
    assert without_model == REPLAYS.get(path.parent.name, set())


@pytest.mark.parametrize("name", REPLAYS)
def test_kernels_of_a_replay_have_no_operator(shared: Path, cli: Callable[..., Any], name: str) -> None:
    """The operators are in the capture, a trace of its own; the costs of the replay count as unlinked."""
    path = TRACES / f"{name}.json.gz"
    trace = read(path)
    graph = trace.launches.filter(pl.col("name").cast(pl.String) == "hipGraphLaunch")["row"]
    replayed = trace.gpu_ops.filter(pl.col("launch_row").is_in(graph.implode()))
    assert replayed.height > 400
    assert replayed["op_row"].null_count() == replayed.height
    coverage = analysis.cost_coverage(trace)
    unlinked = coverage.filter(status="unlinked")["device_ns"].item()
    assert unlinked == trace.gpu_ops.filter(pl.col("op_row").is_null())["dur_ns"].sum()
    assert coverage.filter(status="unlinked")["device_pct"].item() > 95.0
    # Nearly all is unknown, wherever it is said.
    known = coverage.filter(pl.col("status").is_in(["exact", "estimate"]))["device_pct"].sum()
    assert known < 5.0
    steps = analysis.efficiency(trace, gpu="mi300x")
    assert steps["device_ns"].sum() == trace.gpu_ops["dur_ns"].sum()
    assert steps["known_pct"].to_list() == [pytest.approx(known)]
    assert analysis.overview(trace, costs=True)["known_pct"].item() == pytest.approx(known)
    roofs = analysis.roofline(trace)["known_ns"].sum()
    assert 100 * roofs / trace.gpu_ops["dur_ns"].sum() == pytest.approx(known)
    text = cli("roofline", "--gpu", "mi300x", path).stdout
    assert f"FLOPs are known for {known:.2f} % of the GPU time" in text
    assert f" {known:.1f} %" in text.split(" of each step")[1]
    assert "lower bounds" in text
    # Shares of the operators are of all GPU time, too.
    share = 100 * analysis.roofline(trace)["device_ns"].max() / trace.gpu_ops["dur_ns"].sum()
    assert f" {share:.1f} %" in text.split("Achieved and attainable")[1]
    document = json.loads(cli("roofline", "--format", "json", path).stdout)
    assert [step["known_pct"] for step in document["efficiency"]] == [pytest.approx(known)]


@pytest.mark.parametrize(
    "name", ["owlv2-h100", "qwen1.5-0.5b-h100", "resnet-act-checkpoint-mi300", "eager-b200-rank0of8"]
)
def test_figures_of_tracelens_through_the_trace(shared: Path, name: str) -> None:
    trace = read(TRACES / f"{name}.json.gz")
    inputs = ("input_dims", "input_types", "input_strides", "concrete_inputs")
    ops = trace.ops.select(op_row="row", **{c: pl.col(c).cast(pl.String) for c in inputs})
    costs = analysis.costs(trace, convention="tracelens").join(ops, on="op_row", how="left")
    counted: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
    for row in costs.iter_rows(named=True):
        texts = tuple(json.dumps(json.loads(row[c])) if row[c] else None for c in inputs)
        counted.setdefault((row["name"], *texts), []).append((row["flops"], row["bytes_read"]))
    folder = TRACELENS / name
    path = next(folder.glob("unified_perf_summary.csv*"))
    calls: dict[tuple[Any, ...], int] = {}
    for op, texts, gflops, megabytes, number in _figures(path):
        found = counted.get((op, *texts), [])
        assert all(_agrees(flops, moved, gflops, megabytes) for flops, moved in found), (op, texts)
        # It has a row for each thread.
        calls[(op, *texts)] = calls.get((op, *texts), 0) + number
    assert len(calls) > 5
    assert {key: len(counted.get(key, [])) for key in calls} == calls


def test_every_convolution_but_three_runs_again() -> None:
    """The first convolution of each of three steps comes before the blocks, which are checkpointed."""
    trace = read(need(TRACES / "resnet-act-checkpoint-mi300.json.gz"))
    ops = trace.ops.filter(pl.col("name") == "aten::convolution")
    counts = ops.group_by(pl.col("phase").cast(pl.String)).len().sort("phase").rows()
    assert counts == [("forward", 60), ("recompute", 57)]
    gradients = trace.ops.filter(pl.col("name") == "aten::convolution_backward")
    assert gradients["phase"].unique().to_list() == ["backward"]
