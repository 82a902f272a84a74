"""Every shared trace: nothing is lost, everything is linked or says why (acceptance A2 and A6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from traces import ORACLES, TRACES, files

import kernelscope as ks
from kernelscope import analysis

Read = Callable[[Path], Any]

VALID = [
    *files(TRACES, "*.json.gz"),
    *files(ORACLES / "torch-cpu", "cnn-*.json*"),
    *files(ORACLES / "torch-cpu", "lm-*.json*"),
]
VALID = [case for case in VALID if ".oracle" not in str(getattr(case, "values", ""))]
FOUND = {"external_id", "containment", "gpu_external_id"}
REASONS = {"no_op", "no_launch", "no_correlation"}


@pytest.mark.parametrize("path", VALID)
def test_nothing_is_lost(path: Path) -> None:
    trace = ks.read(path)
    assert trace.meta.seen == trace.meta.kept > 0
    assert trace.meta.dropped == 0
    assert trace.diagnostics.filter(pl.col("severity").cast(pl.String) != "info").rows() == []


@pytest.mark.parametrize("path", VALID)
def test_every_kernel_has_an_op_or_a_reason(read: Read, path: Path) -> None:
    trace = read(path)
    work = trace.gpu_ops.with_columns(pl.col("link").cast(pl.String))
    linked = pl.col("op_row").is_not_null()
    assert set(work.filter(linked)["link"]) <= FOUND
    assert set(work.filter(~linked)["link"]) <= REASONS
    known = work.filter(linked).join(trace.ops, left_on="op_row", right_on="row", how="semi")
    assert known.height == work.filter(linked).height


@pytest.mark.parametrize("path", VALID)
def test_kernel_time_is_the_same_over_ops_and_over_kernels(read: Read, path: Path) -> None:
    trace = read(path)
    total = int(trace.gpu_ops["dur_ns"].sum())
    unlinked = int(trace.gpu_ops.filter(pl.col("op_row").is_null())["dur_ns"].sum())
    for collapse in (True, False):
        table = analysis.op_table(trace, annotations=True, collapse=collapse)
        assert int(table["device_self_ns"].sum()) + unlinked == total
    kernels = analysis.kernel_table(trace)
    of_kernels = int(trace.gpu_ops.filter(pl.col("kind") == "kernel")["dur_ns"].sum())
    assert int(kernels["total_ns"].sum()) == of_kernels
    by_op = analysis.kernel_table(trace, by=("op", "name"))
    assert int(by_op["total_ns"].sum()) == of_kernels


@pytest.mark.parametrize("path", VALID)
def test_step_parts_sum_to_the_step(read: Read, path: Path) -> None:
    table = analysis.step_breakdown(read(path), include_partial=True)
    assert table.select(pl.sum_horizontal(analysis.CATEGORIES) == pl.col("total_ns")).to_series().all()
    assert table.select(pl.min_horizontal(analysis.CATEGORIES) >= 0).to_series().all()


@pytest.mark.parametrize("path", VALID)
def test_device_totals_of_roots_sum_to_the_linked_time(read: Read, path: Path) -> None:
    trace = read(path)
    calls = analysis.op_calls(trace)
    linked = int(trace.gpu_ops.filter(pl.col("op_row").is_not_null())["dur_ns"].sum())
    assert int(calls.filter(pl.col("parent_row").is_null())["device_total_ns"].sum()) == linked
