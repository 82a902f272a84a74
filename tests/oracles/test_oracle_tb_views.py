"""Pies, call stacks, launch sizes and tensor cores against the TensorBoard plugin (acceptance D1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tb_compare as tb
from traces import ORACLES, TRACES, files, need

from kernelscope import analysis
from kernelscope.analysis.ops.eligibility import eligible_share

Read = Callable[[Path], Any]
Load = Callable[[Path], Any]

PLUGIN = ORACLES / "tb-plugin"
RESNET = TRACES / "resnet50-v100-2021.json.gz"
MEASURES = {
    "device_total_time": "device_total_ns",
    "device_self_time": "device_self_ns",
    "host_total_time": "host_total_ns",
    "host_self_time": "host_self_ns",
}


def test_pies_of_operators(read: Read, load_json: Load) -> None:
    expected = load_json(need(PLUGIN / "workers0.span1.operator_pie.json"))["by_name"]
    shares = analysis.op_shares(read(need(RESNET)))
    for theirs, ours in MEASURES.items():
        rows = shares.filter(measure=ours)
        assert sorted(rows.select("name", pl.col("value_ns") // 1000).rows()) == sorted(
            (name, value) for name, value in expected[theirs]["rows"]
        )
        assert rows["share"].sum() == pytest.approx(1)
        top = analysis.op_shares(read(RESNET), top=10).filter(measure=ours)
        assert top["value_ns"].sum() == rows["value_ns"].sum()
        assert top["is_rest"].to_list() == [False] * 10 + [True]


@pytest.mark.parametrize("by_input", [False, True], ids=["name", "name-and-shape"])
def test_operators_by_call_stack(read: Read, load_json: Load, by_input: bool) -> None:
    stated = load_json(need(PLUGIN / "workers0.span1.operator_stack.json.gz"))
    expected = stated["by_name_input" if by_input else "by_name"]
    by = ("name", *(("input_dims",) if by_input else ()), "call_stack")
    # The plugin leaves out rows without a stack.
    table = analysis.op_table(read(need(RESNET)), by=by).filter(pl.col("call_stack").is_not_null())
    actual = Counter(
        (
            row["name"],
            tb.shape(row["input_dims"]) if by_input else None,
            row["call_stack"],
            row["calls"],
            *(row[column] // 1000 for column in ("device_self_ns", "device_total_ns")),
            *(row[column] // 1000 for column in ("host_self_ns", "host_total_ns")),
            row["tc_eligible"],
        )
        for row in table.to_dicts()
    )
    wanted = Counter(
        (
            row["name"],
            tb.shape(row["input_shape"]) if by_input else None,
            row["call_stack"],
            row["calls"],
            *(row[f"device_{column}_duration"] for column in ("self", "total")),
            *(row[f"host_{column}_duration"] for column in ("self", "total")),
            row["tc_eligible"] == "Yes",
        )
        for group in expected.values()
        for row in group["data"]
    )
    assert len(wanted) > 300
    assert actual == wanted


def test_gpu_work_below_operators_sums_to_their_device_time(read: Read) -> None:
    trace = read(need(RESNET))
    below = analysis.op_kernels(trace).group_by(name="op").agg(pl.col("total_ns", "self_ns").sum())
    operators = analysis.op_table(trace, annotations=True).filter(pl.col("device_total_ns") > 0)
    joined = operators.join(below, on="name", how="left")
    assert joined.height == below.height > 50
    assert joined["total_ns"].to_list() == joined["device_total_ns"].to_list()
    assert joined["self_ns"].to_list() == joined["device_self_ns"].to_list()


def test_launch_sizes_of_kernels(read: Read, load_json: Load) -> None:
    rows = load_json(need(PLUGIN / "workers0.span1.kernel_table.json.gz"))["raw_by_properties_and_op"]
    expected = {
        tb.launch_key(row, "op_name", "regs_per_thread", "shared_memory"): row["op_tc_eligible"]
        for row in rows
    }
    table = analysis.kernel_launches(read(need(RESNET)))
    actual = {
        tb.launch_key(row, "op", "registers", "shared_memory_bytes"): row["op_tc_eligible"]
        for row in table.filter(pl.col("op").is_not_null()).to_dicts()
    }
    assert actual == expected


def test_occupancy_by_limits_is_what_the_recorder_says(read: Read) -> None:
    # Of a launch that fills the GPU, the achieved occupancy is the theoretical one, in whole percent.
    table = analysis.kernel_launches(read(need(RESNET))).filter(pl.col("waves") >= 1)
    assert table.height > 100
    off = (table["theoretical_occupancy_pct"] - table["occupancy_pct"]).abs()
    assert off.max() <= 0.5


def test_share_of_kernel_time_in_eligible_operators(read: Read) -> None:
    # "Kernels with 68% time are launched by Tensor Cores eligible operators", and 67.6 % before rounding.
    assert eligible_share(read(need(RESNET))) == pytest.approx(0.6761950325595234, rel=1e-12)
    overview = analysis.overview(read(RESNET)).row(0, named=True)
    assert overview["tc_eligible_share"] == eligible_share(read(RESNET))
    assert (overview["steps"], overview["partial_steps"], overview["gpus"]) == (6, 0, 1)


@pytest.mark.parametrize("path", files(PLUGIN / "unit", "*.trace.json"))
def test_tensor_cores_of_unit_traces(read: Read, load_json: Load, path: Path) -> None:
    expected = load_json(path.with_name(path.name.replace(".trace.", ".expected.")))
    trace = read(path)
    # What cannot be said is 0 to the plugin.
    assert (eligible_share(trace) or 0.0) == pytest.approx(expected["tc_eligible_ops_kernel_ratio"], rel=1e-9)
    kernels = analysis.kernel_table(trace)
    used = kernels.filter(pl.col("tensor_cores").fill_null(value=False))["total_ns"].sum()
    total = kernels["total_ns"].sum()
    if expected["tc_used_ratio"] is None:
        assert total == 0
    else:
        assert used / total == pytest.approx(expected["tc_used_ratio"], rel=1e-9)
    eligible = {
        tb.launch_key(row, "op_name", "regs_per_thread", "shared_memory"): row["op_tc_eligible"]
        for row in expected["kernels_by_properties_and_op"] or []
        if row["op_name"] != "CallTreeRoot"
    }
    launches = analysis.kernel_launches(trace).filter(pl.col("op").is_not_null()).to_dicts()
    found = {
        tb.launch_key(row, "op", "registers", "shared_memory_bytes"): row["op_tc_eligible"]
        for row in launches
    }
    assert {key: found[key] for key in eligible} == eligible
