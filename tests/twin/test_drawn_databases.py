"""Answers about databases of several processes and GPUs beside SQL: on recorded ones and on drawn ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import draws
import kernelscope as ks
from kernelscope import analysis
from oracles.traces import SHARED, files
from twin import databases, drawn_databases
from twin.figures import compare

DRAWN = draws.count(100, 2_000)
BATCH = 25


def check_gpus(path: Path) -> ks.Trace:
    """The breakdown of each step on each GPU, and what communication is exposed."""
    trace = ks.read(path)
    gpus = drawn_databases.Gpus(path)
    steps = analysis.step_times(trace, include_partial=True).select("start_ns", "total_ns").rows()
    found = analysis.step_breakdown(trace, include_partial=True)
    assert [name for name in found.columns if name.endswith("_ns")][1:-1] == list(analysis.CATEGORIES)
    if gpus.works:
        compare(found, gpus.breakdown(steps), "start_ns", "device", "pid")
    overlap = analysis.comm_comp_overlap(trace)
    compare(overlap, gpus.overlap(), "device")
    return trace


def check_ranges(trace: ks.Trace, path: Path) -> None:
    """The projection of every range on the GPUs, and the sums of kernels."""
    rows = databases.Database(path, trace.meta.properties["tables"]).read()
    compare(analysis.nvtx_projection(trace), databases.nvtx_projection(rows), "row")


@pytest.mark.parametrize("path", files(SHARED / "traces" / "nsys", "*gpu*.sqlite"))
def test_recorded(path: Path) -> None:
    trace = check_gpus(path)
    assert analysis.mean_steps(trace)["device"].to_list() == [0, 1]


@pytest.mark.parametrize("first", range(0, DRAWN, BATCH))
def test_drawn(first: int, tmp_path: Path) -> None:
    for seed in range(draws.seed + first, draws.seed + first + BATCH):
        path = drawn_databases.write(tmp_path / f"{seed}.sqlite", seed)
        check_ranges(check_gpus(path), path)
