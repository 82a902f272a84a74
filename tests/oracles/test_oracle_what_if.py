"""Laws of predictions on real traces: less work never makes a step longer, and no change changes nothing."""

from pathlib import Path

import polars as pl
import pytest

from kernelscope import analysis
from kernelscope.analysis.costs.peaks import device_peaks
from kernelscope.errors import InvalidArgumentError
from oracles.traces import SHARED, files, read

CHANGES = (
    "kernel:*", "op:*", "range:*", "python:*", "launch", "sync", "dataloader", "communication", "copy",
    "fuse:*", "graph", "graph:*",
)  # fmt: skip


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
            of_all = analysis.what_if(trace, {change: factor})
            for among in (after, of_all):
                assert not among.filter(pl.col("after_ns") > pl.col("after_max_ns")).height, (change, factor)
    assert found


@pytest.mark.parametrize("path", files(SHARED, "traces/kineto/*.json.gz"))
def test_a_gpu_of_the_same_kind_changes_nothing(path: Path) -> None:
    trace = read(path)
    kinds = {one.gpu.key for one in device_peaks(trace) if one.gpu}
    if not kinds:
        with pytest.raises(InvalidArgumentError, match="needs the peaks of the recorded GPU"):
            analysis.what_if(trace, {"gpu": "H200 SXM"})
        return
    [key] = kinds
    unchanged = analysis.what_if(trace, {})
    assert analysis.what_if(trace, {"gpu": key}).equals(unchanged)
    # A faster GPU makes no step longer, and it is known how much longer it may be than expected.
    faster = analysis.what_if(trace, {"gpu": "b300"}, trace.steps["step"].min())
    assert (faster["after_ns"] <= faster["after_max_ns"]).all()
