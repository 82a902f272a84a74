"""Jobs of a few ranks, and how lakes are compared."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import draws
import kernelscope as ks
from kernelscope.batch.pool import ProcessPool
from kernelscope.batch.reports import BatchReport, RankReport
from waiting import wait_for


def files_of(lake: Path) -> dict[str, bytes]:
    """Every file of a lake, hidden ones included."""
    return {str(path.relative_to(lake)): path.read_bytes() for path in lake.rglob("*") if path.is_file()}


def assert_same(lake: Path, expected: Mapping[str, bytes]) -> None:
    """Compares a lake with the files of another."""
    files = files_of(lake)
    others = sorted(files.keys() ^ expected.keys())
    assert not others, f"missing or added: {others}"
    others = [name for name, content in files.items() if content != expected[name]]
    assert not others, f"other content: {others}"


class _Processes:
    """Processes of batches that follow one another; others where the environment is another."""

    def __init__(self) -> None:
        self._environment: dict[str, str] = {}
        self._pool: ProcessPool | None = None
        atexit.register(self._end)

    def pool(self) -> ProcessPool:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        if self._pool is None or environment != self._environment:
            self._end()
            self._environment, self._pool = environment, ProcessPool(2, threads=1)
        return self._pool

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


_PROCESSES = _Processes()


def batch(inputs: object, lake: Path | str, **options: object) -> tuple[dict[str, str], BatchReport]:
    """Runs a batch; gives what became of each source, by the name of its file, and the report.

    Its processes are those of all such batches, unless options say otherwise: they start in more time than
    these small batches take.
    """
    found: dict[str, str] = {}
    if options.keys().isdisjoint(("executor", "memory", "scheduler", "workers")):
        options["executor"] = _PROCESSES.pool()

    def note(rank: RankReport, report: BatchReport) -> None:
        found[Path(rank.entry.source).name.split(".")[0]] = rank.status

    report = ks.batch.run(inputs, lake, on_rank=note, **options)  # type: ignore[arg-type]
    return found, report


def start(traces: Path, lake: Path | str, *more: str) -> subprocess.Popen[bytes]:
    """Starts a batch of two workers that can be stopped."""
    options = ["--out", str(lake), "--workers", "2", "--no-summary", *more]
    command = [sys.executable, "-m", "kernelscope", "batch", str(traces), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    """Waits for a batch that ends well."""
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def wait_for_lake(process: subprocess.Popen[bytes], lake: Path) -> float:
    """Waits until a batch has its lake; gives when that was. While Python starts, nobody catches a signal."""
    wait_for(process, (lake / ".batch/lock").exists)
    return time.monotonic()


def wait_for_moment(
    process: subprocess.Popen[bytes], lake: Path, seconds: float, moment: int, *of: object
) -> None:
    """Waits until a batch has done some of its ranks; in a long run, any time within so many ``seconds``."""
    if draws.is_long:
        time.sleep(draws.random("moment", moment, *of).uniform(0, seconds))
    else:
        # A walk leaves out the folders that the batch removes meanwhile.
        wait_for(process, lambda: sum("_entry.json" in files for *_, files in os.walk(lake)) > 2 * moment)


def assert_stopped(process: subprocess.Popen[bytes]) -> bytes:
    """Waits for a batch that was sent a signal: it says that it was stopped, or had done all before.

    Gives what it said.
    """
    _, errors = process.communicate()
    if b"the lake is" in b" ".join(errors.split()):
        # After its last word, while Python takes itself down, a signal has its plain effect.
        return errors
    assert process.returncode in (-signal.SIGKILL, 3, 130), errors
    assert b"Traceback" not in errors, errors.decode()
    return errors
