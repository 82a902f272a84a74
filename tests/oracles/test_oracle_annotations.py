"""Laws of the GPU time of annotations, on real traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from traces import VALID, read

from kernelscope import analysis

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", VALID)
def test_operators_say_the_same_of_annotations(path: Path) -> None:
    trace = read(path)
    by = ("row", "name")
    figures = ("device_total_ns", "device_self_ns", "host_total_ns")
    ops = analysis.op_table(trace, by, annotations=True, collapse=False).select(*by, *figures)
    table = analysis.annotation_table(trace, by).join(ops, on=by, how="left")
    assert table["device_total_ns"].to_list() == table["device_total_ns_right"].to_list()
    assert table["host_total_ns"].to_list() == table["host_total_ns_right"].to_list()
    assert table.filter(
        pl.col("device_self_ns") > pl.col("gpu_exclusive_ns") + pl.col("device_total_ns")
    ).is_empty()
    for busy, least, most in (
        ("gpu_busy_ns", "gpu_exclusive_ns", "gpu_span_ns"),
        ("device_total_ns", "gpu_busy_ns", None),
    ):
        assert (table[busy] >= table[least]).all()
        assert most is None or (table[busy] <= table[most]).all()


@pytest.mark.parametrize("path", VALID)
def test_a_name_has_what_its_annotations_have(path: Path) -> None:
    trace = read(path)
    figures = [
        pl.col(name).sum()
        for name in ("calls", "device_total_ns", "gpu_busy_ns", "gpu_exclusive_ns", "image_ns")
    ]
    by_name = analysis.annotation_table(trace).select("name", pl.exclude("name"))
    summed = analysis.annotation_table(trace, ("row", "name")).group_by("name").agg(figures)
    both = by_name.join(summed, on="name", how="full", coalesce=True)
    for name in ("calls", "device_total_ns", "gpu_busy_ns", "gpu_exclusive_ns", "image_ns"):
        assert both[name].fill_null(0).to_list() == both[f"{name}_right"].fill_null(0).to_list()


@pytest.mark.parametrize("path", VALID)
def test_work_in_operators_is_the_same_over_kernels_and_in_all(path: Path) -> None:
    trace = read(path)
    for collapse in (True, False):
        below = (
            analysis.op_kernels(trace, collapse=collapse)
            .group_by(name="op")
            .agg(pl.col("total_ns", "self_ns").sum())
        )
        table = analysis.op_table(trace, annotations=True, collapse=collapse)
        both = table.filter(pl.col("device_total_ns") > 0).join(below, on="name", how="left")
        assert both["total_ns"].to_list() == both["device_total_ns"].to_list()
        assert both["self_ns"].to_list() == both["device_self_ns"].to_list()
