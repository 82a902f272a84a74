"""Traces and workers that hang, die, or take memory without end: each costs itself, and no batch waits for
ever."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from jobs import batch

import kernelscope as ks
from kernelscope.batch import coordinator, sizing, workers
from kernelscope.batch.pool import Limits, ProcessPool
from kernelscope.batch.sources import Source
from kernelscope.batch.work import Result, Task, read_rank
from kernelscope.errors import MemoryLimitError, TaskTimeoutError, WorkerDiedError
from process_tree import is_alive, signalled
from waiting import LIMIT_S

Run = Callable[..., CompletedProcess[str]]
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="finds the workers and their memory in /proc")


@pytest.fixture
def traces(job: Path, tmp_path: Path) -> Path:
    return shutil.copytree(job, tmp_path / "traces")


def test_a_task_that_hangs_is_ended_and_its_process_replaced() -> None:
    with ProcessPool(1, threads=1) as pool:
        before = pool.submit(os.getpid).result()
        late = pool.submit_within(Limits(seconds=0.5), time.sleep, 600)
        after = pool.submit(os.getpid)
        with pytest.raises(TaskTimeoutError, match="--task-timeout"):
            late.result()
        assert after.result() != before
        # A limit is that of its task, and not of those after it.
        time.sleep(1)
        assert pool.submit(os.getpid).result() == after.result()


@ON_LINUX
def test_a_task_that_takes_memory_without_end_is_ended() -> None:
    with ProcessPool(2, threads=1) as pool:
        endless = pool.submit_within(Limits(resident_bytes=300_000_000), deque, count())
        modest = pool.submit_within(Limits(resident_bytes=300_000_000), abs, -7)
        with pytest.raises(MemoryLimitError, match="several times the estimate for its size"):
            endless.result()
        assert modest.result() == 7


@ON_LINUX
def test_a_worker_that_hangs_costs_its_trace(traces: Path, tmp_path: Path) -> None:
    # Large enough that it is open for a while.
    with (traces / "rank1.pt.trace.json").open("ab") as file:
        file.write(b" " * 300_000_000)
    with signalled("self", "rank1.pt.trace.json", signal.SIGSTOP) as stopped:
        found, report = batch(traces, tmp_path / "lake", workers=2, task_timeout=4)
    assert len(stopped) == 1
    assert not any(map(is_alive, stopped))
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "done"}
    (failure,) = report.failures
    assert failure.error_kind == "TaskTimeoutError"
    assert "rank1.pt.trace.json: was not done after 4 s" in (failure.error or "")
    assert [path.name for path in (tmp_path / "lake/.batch").iterdir()] == ["lock"]
    # The next batch tries again.
    assert batch(traces, tmp_path / "lake")[0]["rank1"] == "done"


@ON_LINUX
def test_a_trace_that_takes_far_more_memory_than_expected(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = sizing.expected_peak

    def mistaken(source: Source) -> int:
        return 2_500_000 if "rank1" in source.name else expected(source)

    monkeypatch.setattr(sizing, "expected_peak", mistaken)
    with (traces / "rank1.pt.trace.json").open("ab") as file:
        file.write(b" " * 300_000_000)
    # Held until the watch has seen it: reading may be quicker than that looks.
    with signalled("self", "rank1.pt.trace.json", signal.SIGSTOP):
        found, report = batch(traces, tmp_path / "lake", workers=2)
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "done"}
    assert report.failures[0].error_kind == "MemoryLimitError"


def test_an_executor_of_others_with_a_task_that_hangs(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_GRACE_S", 0.5)
    woken = threading.Event()

    def read(task: Task) -> Result:
        if "rank1" in task.source.name:
            woken.wait(LIMIT_S)
        return read_rank(task)

    monkeypatch.setattr(coordinator, "read_rank", read)
    with ThreadPoolExecutor(2) as executor:
        try:
            found, report = batch(traces, tmp_path / "lake", executor=executor, workers=2, task_timeout=3)
        finally:
            woken.set()
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "done"}
    assert report.failures[0].error_kind == "TaskTimeoutError"


def test_an_executor_that_does_nothing(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_GRACE_S", 0.5)
    woken = threading.Event()
    monkeypatch.setattr(coordinator, "read_rank", lambda _: woken.wait(LIMIT_S))
    with ThreadPoolExecutor(1) as executor:
        try:
            with pytest.raises(WorkerDiedError, match="is active any more"):
                batch(traces, tmp_path / "lake", executor=executor, workers=1, task_timeout=1)
        finally:
            woken.set()
    monkeypatch.undo()
    assert batch(traces, tmp_path / "lake")[1].done == 3


def test_how_long_a_trace_may_take_follows_from_its_size() -> None:
    assert sizing.time_limit(0) == 300
    assert sizing.time_limit(5_000_000_000) == 5_300


@pytest.mark.parametrize("timeout", ["0", "-1", "nan"])
def test_no_time_at_all(cli: Run, traces: Path, tmp_path: Path, timeout: str) -> None:
    done = cli("batch", traces, "--out", tmp_path / "lake", f"--task-timeout={timeout}")
    assert done.returncode == 2
    assert "more than 0 seconds" in done.stderr
    with pytest.raises(ks.errors.InvalidArgumentError):
        ks.batch.run(traces, tmp_path / "lake", task_timeout=float(timeout))
