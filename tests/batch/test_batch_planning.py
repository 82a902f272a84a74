"""Who reads what, and when: the plan stays within memory; and what is said on the way."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import batch

import kernelscope as ks
from kernelscope.batch import workers as worker_pools
from kernelscope.batch.reports import consistency_warnings
from kernelscope.batch.sizing import WORKER_BYTES
from kernelscope.batch.sources import Source
from kernelscope.batch.workers import WorkerPool, open_workers
from kernelscope.cli.batch_progress import final_text, progress_text
from kernelscope.cli.main import main
from kernelscope.errors import WorkerDiedError

Run = Callable[..., subprocess.CompletedProcess[str]]

MB = 10**6


def source(number: int) -> Source:
    return Source(f"{number:03}", f"{number:03}", "file", number)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=25), st.integers(1, 4), st.integers(300, 1200))
def test_the_plan_never_exceeds_memory(extras: list[int], workers: int, memory: int) -> None:
    peaks = {source(number): WORKER_BYTES + extra * MB for number, extra in enumerate(extras)}
    limit = memory * MB
    lock, at_work, largest = threading.Lock(), [0], [0]

    def work(given: Source) -> str:
        with lock:
            at_work[0] += peaks[given] - WORKER_BYTES
            largest[0] = max(largest[0], at_work[0])
        time.sleep(0.0005)
        with lock:
            at_work[0] -= peaks[given] - WORKER_BYTES
        return given.name

    with (
        ThreadPoolExecutor(workers) as executor,
        open_workers(peaks, workers, limit, executor, None) as hands,
    ):
        done = {taken.name: value for taken, value in hands.results(lambda taken, _: (work, taken))}
        refused = {taken.name for taken in hands.too_large}
    assert set(done) | refused == {taken.name for taken in peaks}
    assert set(done).isdisjoint(refused)
    assert largest[0] + workers * WORKER_BYTES <= max(limit, workers * WORKER_BYTES)


def test_processes_make_room_for_the_largest() -> None:
    order = [(source(1), WORKER_BYTES + 500 * MB), (source(2), WORKER_BYTES), (source(3), WORKER_BYTES)]
    assert worker_pools._processes(order, 8, WORKER_BYTES + 500 * MB) == (1, 1)
    assert worker_pools._processes(order, 8, 2 * WORKER_BYTES + 500 * MB) == (2, 1)
    assert worker_pools._processes(order, 3, 10**10) == (3, 1)
    # Fewer traces than cores: each has several.
    assert worker_pools._processes(order[:1], 8, 10**10) == (1, 8)
    assert worker_pools._processes(order[:2], 8, 10**10) == (2, 4)


def test_a_trace_whose_worker_dies_is_tried_twice() -> None:
    tries: list[str] = []

    def die(given: Source) -> None:
        tries.append(given.name)
        if given.name == "000" or len(tries) == 1:
            raise WorkerDiedError("signal 9")

    with ThreadPoolExecutor(1) as executor:
        waiting = deque((source(number), WORKER_BYTES) for number in range(3))
        hands = WorkerPool(executor, 1, 1, 10**9, waiting, {})
        outcomes = {taken.name: value for taken, value in hands.results(lambda taken, _: (die, taken))}
    assert tries.count("000") == 2
    assert isinstance(outcomes["000"], WorkerDiedError)
    assert outcomes["001"] is None
    assert outcomes["002"] is None


def test_consistency_warnings(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    entries = ks.scan(tmp_path / "lake").entries
    assert consistency_warnings(entries, run="default") == []
    assert consistency_warnings(entries, run="other") == []
    assert consistency_warnings(entries[:2], run="default") == ["of 3 ranks these are missing: 2"]
    odd = replace(entries[1], lost=3, steps=(99,), meta={**entries[1].meta, "format": "nsys"})
    assert consistency_warnings([entries[0], odd, entries[2]], run="default") == [
        "other format than most ranks: 1",
        "other steps than most ranks: 1",
        "ranks that lost events, which their diagnostics name: 1",
    ]


def test_progress_has_rate_and_time_left(tmp_path: Path) -> None:
    report = ks.batch.BatchReport(tmp_path, total=10, total_bytes=100 * MB, done=4, failed=1)
    report.seen_bytes, report.read_bytes = 50 * MB, 40 * MB
    report.started = time.monotonic() - 20
    assert re.fullmatch(r"5 of 10 traces, 1 failed, 1\.9\d\d MiB/s, 25 s left", progress_text(report))
    report.done, report.seen_bytes = 9, 100 * MB
    assert final_text(report).startswith("10 traces in 20 s, 1.9")


def test_progress_on_a_terminal(job: Path, tmp_path: Path) -> None:
    """The line is written over, and gone at the end; stdout is no terminal and has JSON only."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "kernelscope", "batch", str(job), "--out", str(tmp_path / "lake")]
    done = subprocess.Popen([*command, "--no-summary"], stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    output, _ = done.communicate(timeout=60)
    shown = os.read(leader, 100_000).decode()
    os.close(leader)
    assert done.returncode == 0
    assert len(output.splitlines()) == 3
    assert shown.rstrip().endswith(f"the lake is {tmp_path / 'lake'}")


@pytest.mark.parametrize("option", [["--html", "page.html"], []])
def test_page_from_the_command(cli: Run, job: Path, tmp_path: Path, option: list[str]) -> None:
    if option:
        pytest.importorskip("itables", reason="itables, which ships the tables of the page, is not installed")
    done = cli("batch", job, "--out", "lake", "--no-json-lines", *option)
    assert done.returncode == 0
    assert done.stdout.startswith("3 ranks, ")
    assert (tmp_path / "page.html").exists() == bool(option)


def test_processes_of_a_database(tmp_path: Path) -> None:
    """One rank of the lake, whose processes collectives tell apart, and steps do not."""
    database = tmp_path / "node.3.sqlite"
    assert main(["demo", "--kind", "nsys", "--ranks", "2", "--size", "2MB", "--out", str(database)]) == 0
    batch(database, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    assert [entry.meta["processes"] for entry in lake.entries] == [2]
    (doubt,) = [
        text for text in consistency_warnings(lake.entries, run="default") if "several processes" in text
    ]
    assert "not in steps: 3;" in doubt
    assert ks.analysis.cluster_of(lake).ranks["rank"].to_list() == [0, 1]
    assert ks.analysis.stragglers(lake).is_empty()
    assert ks.analysis.rank_gpu_time(lake)["rank"].unique().to_list() == [3]
