"""Whoever does the work, the lake is the same."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import assert_same, batch

import kernelscope as ks
from kernelscope.batch.pool import ProcessPool


def process_pool() -> Executor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), process_pool], ids=["threads", "processes"])
def test_executor(job: Path, undisturbed: dict[str, bytes], tmp_path: Path, make: type[Executor]) -> None:
    with make() as executor:
        assert batch(job, tmp_path / "lake", executor=executor)[1].done == 3
    assert_same(tmp_path / "lake", undisturbed)


@pytest.mark.parametrize("workers", [1, 3])
def test_number_of_processes(job: Path, undisturbed: dict[str, bytes], tmp_path: Path, workers: int) -> None:
    batch(job, tmp_path / "lake", workers=workers)
    assert_same(tmp_path / "lake", undisturbed)


def test_a_broken_executor(job: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """An executor that gives up all its tasks: what is in the lake stays, and a second call goes on."""
    with process_pool() as executor:
        executor.submit(os.kill, executor.submit(os.getpid).result(), signal.SIGKILL).exception()
        with pytest.raises(ks.errors.WorkerDiedError, match="takes no more work"):
            batch(job, tmp_path / "lake", executor=executor)
    batch(job, tmp_path / "lake")
    assert_same(tmp_path / "lake", undisturbed)


def test_the_death_of_a_process_costs_one_task() -> None:
    with ProcessPool(2, threads=1) as pool:
        death = pool.submit(signal.raise_signal, signal.SIGKILL)
        values = [pool.submit(abs, -number) for number in range(20)]
        assert [value.result() for value in values] == list(range(20))
        assert isinstance(death.exception(), ks.errors.WorkerDiedError)
        assert isinstance(pool.submit(int, "x").exception(), ValueError)


def test_executor_and_scheduler(job: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(ks.errors.InvalidArgumentError, match="not both"):
        batch(job, tmp_path / "lake", executor=executor, scheduler="tcp://127.0.0.1:1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def dask(folder: Path, *, workers: int) -> Generator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and workers as processes of their own; gives its address and the processes."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    address = f"tcp://127.0.0.1:{free_port()}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", address, "--no-dashboard"]
    processes = [subprocess.Popen(command, **quiet)]  # type: ignore[call-overload]
    try:
        for _ in range(workers):
            command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-dashboard"]
            command += ["--nthreads", "1", "--no-nanny", "--local-directory", str(folder)]
            processes.append(subprocess.Popen(command, **quiet))  # type: ignore[call-overload]
        wait_for_workers(address, workers)
        yield address, processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def wait_for_workers(address: str, workers: int) -> None:
    from distributed import Client

    deadline = time.monotonic() + 60
    with Client(address, timeout=60, set_as_default=False) as client:
        while len(client.scheduler_info(n_workers=-1)["workers"]) < workers:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.filterwarnings("default")
def test_dask(job: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    with dask(tmp_path, workers=2) as (address, _):
        assert batch(job, tmp_path / "lake", scheduler=address)[1].done == 3
    assert_same(tmp_path / "lake", undisturbed)


@pytest.mark.filterwarnings("default")
def test_a_scheduler_that_goes_away(
    job: Path, undisturbed: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelscope.batch.workers._PATIENCE_S", 1.0)
    with dask(tmp_path, workers=1) as (address, processes):
        # The worker goes first, so that nothing gets done any more.
        processes[1].send_signal(signal.SIGSTOP)

        def leave() -> None:
            time.sleep(2)
            processes[0].kill()

        with ThreadPoolExecutor(1) as clock:
            clock.submit(leave)
            with pytest.raises(ks.errors.SchedulerLostError, match="a second run goes on"):
                batch(job, tmp_path / "lake", scheduler=address)
    batch(job, tmp_path / "lake")
    assert_same(tmp_path / "lake", undisturbed)


@pytest.mark.filterwarnings("default")
def test_no_scheduler(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr("kernelscope.batch.workers._CONNECT_S", 1)
    with pytest.raises(ks.errors.SchedulerLostError, match="does not answer"):
        batch(job, tmp_path / "lake", scheduler=f"tcp://127.0.0.1:{free_port()}")


@pytest.mark.filterwarnings("default")
def test_a_scheduler_without_workers(job: Path, tmp_path: Path) -> None:
    with (
        dask(tmp_path, workers=0) as (address, _),
        pytest.raises(ks.errors.InvalidArgumentError, match="no workers"),
    ):
        batch(job, tmp_path / "lake", scheduler=address)
