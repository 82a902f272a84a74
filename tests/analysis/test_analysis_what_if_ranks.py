"""Predictions for several ranks together: those of the generator, laws, lakes, and refused changes."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import draws
import kernelscope as ks
from demo_jobs import read_job, write_job
from events import Events
from kernelscope import analysis
from kernelscope.errors import InvalidArgumentError

# Causes with the ranks of a job, and what removes them: with {}, the rank or host at fault.
CHANGES: list[tuple[str, int, dict[str, float | str]]] = [
    ("loader", 4, {"python:*sleep*": 0}),
    ("loader", 8, {"rank:{}": "median"}),
    ("synchronisation", 2, {"python:*check_finite*": 0}),
    ("launch", 2, {"launch": 1 / 8}),
    ("all-reduce", 4, {"wait:*AllReduce*": 0}),
    ("slow-rank", 8, {"rank:{}": "median"}),
    ("slow-link", 24, {"link:{}": "median"}),
]
FAULTS = {
    "loader": ("late_data_loader", "rank"),
    "slow-rank": ("slow_rank", "rank"),
    "slow-link": ("slow_link", "host"),
}


def read(paths: list[Path]) -> list[ks.Trace]:
    return [ks.read(path) for path in paths]


def steps_of(traces: list[ks.Trace]) -> pl.DataFrame:
    return pl.concat(
        trace.steps.select("step", "total_ns", rank=pl.lit(trace.meta.rank, pl.Int64)) for trace in traces
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Sixteen ranks of two hosts, with a slow rank, a slow link, late data and clocks that differ."""
    return write_job(tmp_path_factory.mktemp("job"), ranks=16, size_bytes=1_500_000, seed=4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("cause", "ranks", "changes"), CHANGES)
def test_a_prediction_without_the_cause_is_the_job_without_it(
    tmp_path: Path, cause: str, ranks: int, changes: dict[str, Any], seed: int
) -> None:
    wrong, right = (
        read_job(tmp_path / name, cause=name, ranks=ranks, size_bytes=1_500_000, seed=seed)
        for name in (cause, "none")
    )
    if cause in FAULTS:
        fault, column = FAULTS[cause]
        named = json.loads((tmp_path / cause / "cluster.truth.json").read_text())[fault][column]
        changes = {change.format(named): by for change, by in changes.items()}
    found = analysis.what_if(wrong, changes)
    assert found.join(steps_of(wrong), on=["rank", "step"]).height == found.height
    expected = steps_of(right).rename({"total_ns": "right_ns"})
    both = found.join(expected, on=["rank", "step"], how="inner")
    assert both.height >= 3 * ranks
    errors = both["after_ns"] / both["right_ns"] - 1
    assert errors.is_between(-0.02, 0.02).all(), errors.describe()
    total = both.sum().row(0, named=True)
    assert abs(total["after_ns"] - total["right_ns"]) < 0.2 * (total["before_ns"] - total["right_ns"])


def test_no_change_gives_the_recorded_steps(job: list[Path]) -> None:
    traces = read(job)
    found = analysis.what_if(traces, {})
    recorded = found.join(steps_of(traces), on=["rank", "step"], how="full")
    assert recorded["before_ns"].equals(recorded["total_ns"].rename("before_ns"))
    for column in ("after_ns", "after_max_ns"):
        assert found[column].equals(found["before_ns"].rename(column))


def test_less_work_ends_no_sooner_than_less_still(job: list[Path]) -> None:
    """Of one step, which starts as recorded on each rank."""
    traces = read(job)[:4]
    random = draws.random("less work of ranks")
    for change in ("kernel:*", "op:*", "launch", "copy", "communication", "dataloader", "rank:2"):
        less, more = sorted((random.random(), random.random()))
        times = [analysis.what_if(traces, {change: by}, step=11)["after_ns"] for by in (less, more, 1)]
        assert (times[0] <= times[1]).all(), change
        assert (times[1] <= times[2]).all(), change


def test_one_rank_alone_has_the_range_of_its_trace(job: list[Path], tmp_path: Path) -> None:
    columns = ["step", "before_ns", "after_ns", "after_max_ns"]
    # It starts 3 ms after its launch, nobody knows why.
    events = Events()
    events.annotation("ProfilerStep#1", 0, 5_000)
    events.op("aten::add", 10, 890)
    events.call(1_000, 5, 1)
    events.kernel("gemm", 4_000, 10, 1)
    events.call(1_100, 3_000, 2, name="cudaDeviceSynchronize")
    waits = events.read(tmp_path)
    for trace, changes in ((waits, {"op:aten::add": 0.5}), (ks.read(job[0]), {"graph": 0, "copy": 0.5})):
        alone = analysis.what_if(trace, changes).select(columns)
        assert analysis.what_if([trace], changes).select(columns).equals(alone)
    found = analysis.what_if([waits], {"op:aten::add": 0.5})
    assert found["after_max_ns"].item() > found["after_ns"].item()


def test_a_lake_answers_as_its_traces_do(job: list[Path], tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ks.batch.run([str(path) for path in job[:4]], lake)
    changes = {"op:aten::mm": 0.5, "rank:3": "median"}
    expected = analysis.what_if(read(job[:4]), changes)
    assert analysis.what_if(ks.scan(lake), changes).equals(expected)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert analysis.what_if(ks.scan(lake), changes, executor=executor).equals(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank:9": 0.5}, "no rank matches rank:9"),
        ({"rank:1": "mean"}, "a factor of at least 0, or median, not 'mean'"),
        ({"launch": "median"}, "launch needs a number"),
        ({"kernel:no such kernel": 0}, "nothing in the trace matches kernel:no such kernel"),
        ({"stage:1": 0.5}, "no rank matches stage:1"),
        ({"host:*": "median"}, "no other rank has the same collectives and steps"),
    ],
)
def test_refused(job: list[Path], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        analysis.what_if(read(job[:2]), changes)


def test_changes_of_ranks_need_several(job: list[Path]) -> None:
    with pytest.raises(InvalidArgumentError, match="needs the traces of several ranks"):
        analysis.what_if(ks.read(job[0]), {"rank:0": 0.5})
