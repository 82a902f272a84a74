"""Batches of several windows and jobs that are stopped at any moment: the next one ends as if nothing had
been."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
from jobs import assert_same, assert_stopped, files_of, finish, start, wait_for_lake, wait_for_moment
from test_jobs import trace

import draws
from process_tree import send_signal, workers_of

MOMENTS = draws.count(2, 40)
STOPS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def write_jobs(folder: Path) -> Path:
    """Two jobs of two ranks; of the second one three windows whose steps begin again, the last by name
    first."""
    for rank in range(2):
        trace(folder / f"old-{rank}.json", rank=rank, world_size=2, pid=10 + rank, steps=range(200))
        for cycle in range(3):
            path = folder / f"new-{9 - cycle}-{rank}.json"
            trace(path, at_s=7200 + cycle, rank=rank, world_size=2, pid=20 + rank, steps=range(200))
    return folder


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jobs(tmp_path_factory.mktemp("stopped") / "traces")


@pytest.fixture(scope="module")
def whole(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], float]:
    """The files of a lake that nobody disturbed, and how long it took."""
    lake = tmp_path_factory.mktemp("whole") / "lake"
    began = time.monotonic()
    finish(start(traces, lake))
    return files_of(lake), time.monotonic() - began


def test_what_is_stopped_has_to_move(whole: tuple[dict[str, bytes], float]) -> None:
    places = {name for name in whole[0] if name.endswith("_entry.json")}
    assert places == {
        *(f"run=default/rank={rank}/window=0/_entry.json" for rank in (0, 1)),
        *(f"run=default-2/rank={rank}/window={window}/_entry.json" for rank in (0, 1) for window in range(3)),
    }


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.name)
def test_the_coordinator_is_stopped(
    traces: Path, whole: tuple[dict[str, bytes], float], tmp_path: Path, stop: signal.Signals, moment: int
) -> None:
    expected, seconds = whole
    lake = tmp_path / "lake"
    process = start(traces, lake)
    wait_for_lake(process, lake)
    wait_for_moment(process, lake, seconds * 0.8, moment, stop)
    process.send_signal(stop)
    assert_stopped(process)
    finish(start(traces, lake))
    assert_same(lake, expected)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_worker_is_killed(
    traces: Path, whole: tuple[dict[str, bytes], float], tmp_path: Path, moment: int
) -> None:
    expected, seconds = whole
    process = start(traces, tmp_path / "lake")
    wait_for_moment(process, tmp_path / "lake", seconds, moment)
    workers = workers_of(process.pid)
    if workers:
        send_signal(draws.random(moment).choice(workers), signal.SIGKILL)
    finish(process)
    assert_same(tmp_path / "lake", expected)
