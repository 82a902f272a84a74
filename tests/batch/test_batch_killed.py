"""Batches that are killed at any moment, and go on where they were."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import assert_same, files_of, write_job
from process_tree import is_alive, workers_of

import kernelscope as ks

MOMENTS = 10


def start(job: Path, lake: Path) -> subprocess.Popen[bytes]:
    arguments = ["batch", job, "--out", lake, "--workers", "2", "--no-summary"]
    return subprocess.Popen(
        [sys.executable, "-m", "kernelscope", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("killed"), ranks=6)


@pytest.fixture(scope="module")
def whole(job: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], float]:
    """The files of a lake that nobody disturbed, and how long it took."""
    lake = tmp_path_factory.mktemp("whole") / "lake"
    began = time.monotonic()
    finish(start(job, lake))
    return files_of(lake), time.monotonic() - began


def assert_is_whole(lake: Path) -> None:
    """What is in a lake while no batch runs is readable, all of it."""
    if not (lake / "manifest.jsonl").exists():
        return
    opened = ks.scan(lake)
    for entry in opened.entries:
        for name, (rows, _) in entry.files.items():
            path = entry.place(lake) / f"{name}.parquet"
            assert ks.scan(lake, ranks=[entry.rank or 0]).tables[name].collect().height == rows, path


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_coordinator_is_killed(
    job: Path, whole: tuple[dict[str, bytes], float], tmp_path: Path, moment: int
) -> None:
    expected, seconds = whole
    lake = tmp_path / "lake"
    process = start(job, lake)
    time.sleep(random.Random(moment).uniform(0, seconds))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert_is_whole(lake)
    finish(start(job, lake))
    assert_same(lake, expected)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_worker_is_killed(
    job: Path, whole: tuple[dict[str, bytes], float], tmp_path: Path, moment: int
) -> None:
    expected, seconds = whole
    lake = tmp_path / "lake"
    process = start(job, lake)
    generator = random.Random(100 + moment)
    time.sleep(generator.uniform(0, seconds))
    workers = workers_of(process.pid)
    if workers:
        os.kill(generator.choice(workers), signal.SIGKILL)
    finish(process)
    assert_same(lake, expected)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_workers_do_not_outlive_their_coordinator(job: Path, tmp_path: Path) -> None:
    process = start(job, tmp_path / "lake")
    workers: list[int] = []
    deadline = time.monotonic() + 30
    while len(workers) < 2 and time.monotonic() < deadline:
        workers = workers_of(process.pid)
        time.sleep(0.01)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    while any(is_alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(is_alive(worker) for worker in workers)


@pytest.mark.usefixtures("interruptible")
def test_interrupted(job: Path, whole: tuple[dict[str, bytes], float], tmp_path: Path) -> None:
    process = start(job, tmp_path / "lake")
    # While Python itself starts, nobody can catch the signal.
    while not (tmp_path / "lake").exists() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(whole[1] * 0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (0, 130)
    assert b"Traceback" not in errors
    finish(start(job, tmp_path / "lake"))
    assert_same(tmp_path / "lake", whole[0])
