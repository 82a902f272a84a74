"""Differences of real traces: every moment has its place, and none differs from itself."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from traces import TRACES, VALID, need, read

from kernelscope import analysis
from kernelscope.analysis.diff.comparison import compare
from kernelscope.analysis.diff.tables import KEYS, differences
from kernelscope.errors import NotRecordedError


@pytest.mark.parametrize("path", VALID)
def test_a_trace_with_itself(path: Path) -> None:
    trace = read(path)
    try:
        both = compare(trace, trace)
        steps = both.steps
    except NotRecordedError:
        assert trace.steps.is_empty()
        return
    assert differences(both).is_empty()
    # What the moments belong to is what the breakdown says, step by step.
    breakdown = analysis.step_breakdown(trace, include_partial=True)
    expected = breakdown.join(steps.select("pair", start_ns="start_before"), on="start_ns", how="inner")
    parts = (
        both.parts.group_by("pair", "category")
        .agg(pl.col("before_ns").sum())
        .filter(pl.col("before_ns") != 0)
    )
    figures = expected.unpivot(
        list(analysis.CATEGORIES), index="pair", variable_name="category", value_name="before_ns"
    )
    figures = figures.with_columns(pl.col("category").str.strip_suffix("_ns")).filter(
        pl.col("before_ns") != 0
    )
    assert set(parts.rows()) == set(figures.select("pair", "category", "before_ns").rows())


def test_different_traces_sum_to_the_difference() -> None:
    a = read(need(TRACES / "resnet50-v100-2021.json.gz"))
    b = read(need(TRACES / "resnet-act-checkpoint-mi300.json.gz"))
    both = compare(a, b)
    delta = both.steps["delta_ns"].mean()
    for by in (KEYS, "category", "module", "op", "name"):
        assert differences(both, by=by)["delta_ns"].sum() == pytest.approx(delta, rel=1e-9)
    # The networks are of one kind: most operators of the smaller one have a counterpart.
    found = both.pairs.ops
    assert found["before"].is_unique().all()
    assert found["after"].is_unique().all()
    assert found.height > 1000
