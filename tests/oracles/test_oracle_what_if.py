"""Laws of predictions on real traces: less work never makes a step longer, and no change changes nothing."""

from pathlib import Path

import polars as pl
import pytest

from kernelscope import analysis
from kernelscope.errors import InvalidArgumentError
from oracles.traces import SHARED, files, read

CHANGES = ("kernel:*", "op:*", "range:*", "python:*", "launch", "sync", "dataloader", "communication", "copy")


@pytest.mark.parametrize("path", [*files(SHARED, "traces/kineto/*.json.gz"), *files(SHARED, "traces/nsys/*")])
def test_less_work_makes_no_step_longer(path: Path) -> None:
    trace = read(path)
    unchanged = analysis.what_if(trace, {})
    assert unchanged["before_ns"].to_list() == trace.steps["total_ns"].to_list()
    assert unchanged["after_ns"].to_list() == unchanged["before_ns"].to_list()
    assert unchanged["after_max_ns"].to_list() == unchanged["before_ns"].to_list()
    step = trace.steps["step"].min()
    found = 0
    for change in CHANGES:
        for factor in (0.5, 0):
            try:
                after = analysis.what_if(trace, {change: factor}, None if step is None else int(step))
            except InvalidArgumentError as error:
                if "nothing in the trace matches" not in str(error):
                    raise
                continue
            found += 1
            assert not after.filter(pl.col("after_ns") > pl.col("before_ns")).height, (change, factor)
    assert found
