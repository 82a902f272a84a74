"""Batches through Dask that are stopped at any moment, as are workers: the next one ends as if nothing had
been."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Cluster, dask
from jobs import assert_same, assert_stopped, files_of, finish, start, wait_for_lake, wait_for_moment
from test_batch_stops import write_jobs

import draws
import kernelscope as ks

pytest.importorskip("distributed", reason="Dask is not installed")
pytestmark = pytest.mark.filterwarnings("default")

MOMENTS = draws.count(1, 40)
STOPS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with dask(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jobs(tmp_path_factory.mktemp("stopped") / "traces")


@pytest.fixture(scope="module")
def whole(
    cluster: Cluster, traces: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, bytes], float]:
    """The files of a lake that nobody disturbed, and how long it took once there was one."""
    lake = tmp_path_factory.mktemp("whole") / "lake"
    process = start(traces, lake, "--scheduler", cluster.address)
    began = wait_for_lake(process, lake)
    finish(process)
    return files_of(lake), time.monotonic() - began


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.name)
def test_the_coordinator_is_stopped(
    cluster: Cluster,
    traces: Path,
    whole: tuple[dict[str, bytes], float],
    tmp_path: Path,
    stop: signal.Signals,
    moment: int,
) -> None:
    expected, seconds = whole
    lake = tmp_path / "lake"
    process = start(traces, lake, "--scheduler", cluster.address)
    wait_for_lake(process, lake)
    wait_for_moment(process, lake, seconds, moment, stop)
    process.send_signal(stop)
    assert_stopped(process)
    # The workers may be at work on the first one's traces yet.
    ks.batch.run(traces, lake, scheduler=cluster.address)
    assert_same(lake, expected)


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_worker_is_killed(
    cluster: Cluster, traces: Path, whole: tuple[dict[str, bytes], float], tmp_path: Path, moment: int
) -> None:
    expected, seconds = whole
    lake = tmp_path / "lake"
    cluster.wait_for(2)
    process = start(traces, lake, "--scheduler", cluster.address)
    wait_for_lake(process, lake)
    wait_for_moment(process, lake, seconds, moment)
    worker = cluster.workers.pop(draws.random(moment).randrange(2))
    worker.kill()
    worker.wait()
    # Another one comes, as a batch system would see to.
    cluster.add_worker()
    finish(process)
    assert_same(lake, expected)
