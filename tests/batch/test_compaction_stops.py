"""Ranks are gathered, by ``kernelscope compact`` or by a batch, and the process is stopped at any moment.

Every row stays, the next run goes on, and nothing foreign is lost.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from jobs import assert_stopped, batch, finish
from test_compaction import assert_same_content, content, gathered, write_traces
from test_foreign_files import InThisThread

import draws
import kernelscope as ks
from kernelscope.batch import gathering
from waiting import wait_for

RANKS = 12
MOMENTS = draws.count(2, 40)
STOPS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)

# Three ranks fill a folder.
_COMMAND = """
import sys
from kernelscope.batch import gathering
from kernelscope.cli.main import main
gathering.MOST_RANKS = 3
sys.exit(main(sys.argv[1:]))
"""


def start(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _COMMAND, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def assert_ended(process: subprocess.Popen[bytes], stop: signal.Signals) -> None:
    """Waits for a compaction that was sent a signal: it was stopped, or had done all before."""
    said, errors = process.communicate()
    if b"are gathered" not in said:
        assert process.returncode == (130 if stop == signal.SIGINT else -stop), errors
        assert b"Traceback" not in errors


def is_held(lake: Path) -> bool:
    """Whether a process is at work in the lake."""
    return bool((lake / ".batch/lock").read_bytes())


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MOST_RANKS", 3)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_traces(tmp_path_factory.mktemp("gathered") / "traces", RANKS)


@pytest.fixture(scope="module")
def loose(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake in which nothing is gathered."""
    lake = tmp_path_factory.mktemp("loose") / "lake"
    batch(traces, lake, executor=InThisThread())
    assert gathered(lake) == []
    return lake


@pytest.fixture(scope="module")
def expected(loose: Path) -> dict[str, pl.DataFrame]:
    return content(loose)


def scatter(lake: Path) -> dict[Path, bytes]:
    """Files of others everywhere in a lake, the folders of ranks included."""
    folders = [
        lake,
        lake / ".batch",
        *lake.glob("run=*"),
        *lake.glob("run=*/*"),
        *lake.glob("run=*/rank=*/*"),
    ]
    foreign = {folder / "notes.txt": str(folder).encode() for folder in folders}
    for path, said in foreign.items():
        path.write_bytes(said)
    return foreign


def assert_there(foreign: dict[Path, bytes]) -> None:
    assert {path: path.read_bytes() for path in foreign if path.is_file()} == foreign


def has_gathered(lake: Path, folders: int) -> bool:
    """Whether ranks are, or are just being, gathered into so many folders."""
    return len(list(lake.glob("run=*/gathered-*"))) >= folders


def seconds_of(begin: Callable[[], subprocess.Popen[bytes]], lake: Path) -> float:
    """How long a process is at work in a lake."""
    process = begin()
    wait_for(process, lambda: is_held(lake))
    began = time.monotonic()
    finish(process)
    return time.monotonic() - began


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.name)
def test_compact_is_stopped(
    loose: Path, expected: dict[str, pl.DataFrame], tmp_path: Path, stop: signal.Signals
) -> None:
    generator = draws.random(stop)
    lake = shutil.copytree(loose, tmp_path / "lake")
    seconds = seconds_of(lambda: start("compact", lake), lake)
    for moment in range(MOMENTS):
        lake = shutil.copytree(loose, tmp_path / f"lake{moment}")
        foreign = scatter(lake)
        process = start("compact", lake)
        wait_for(process, lambda lake=lake: is_held(lake))
        if draws.is_long:
            time.sleep(generator.uniform(0, seconds))
        else:
            wait_for(process, lambda lake=lake, moment=moment: has_gathered(lake, moment + 1))
        process.send_signal(stop)
        assert_ended(process, stop)
        assert_same_content(lake, expected)
        assert_there(foreign)
        ks.batch.compact(lake)
        assert_same_content(lake, expected)
        assert_there(foreign)
        # Whoever does not go by the manifest finds each rank once, now that nobody writes.
        plain = pl.scan_parquet(list(lake.glob("run=*/**/ops.parquet")), hive_partitioning=False)
        assert plain.collect().height == expected["ops"].height
        assert [name.split("-")[1] for name in gathered(lake)] == ["3"] * (RANKS // 3)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.name)
def test_a_batch_is_stopped_while_it_gathers(
    traces: Path, expected: dict[str, pl.DataFrame], tmp_path: Path, stop: signal.Signals
) -> None:
    generator = draws.random(stop, "batch")

    def begin(lake: Path) -> subprocess.Popen[bytes]:
        return start("batch", traces, "--out", lake, "--workers", 2, "--no-summary")

    for moment in range(MOMENTS):
        lake = tmp_path / f"lake{moment}"
        process = begin(lake)
        folders = generator.randint(1, RANKS // 3)
        wait_for(process, lambda lake=lake, folders=folders: has_gathered(lake, folders))
        if draws.is_long:
            time.sleep(generator.uniform(0, 0.05))
        process.send_signal(stop)
        assert_stopped(process)
        foreign = scatter(lake)
        batch(traces, lake, executor=InThisThread())
        ks.batch.compact(lake)
        assert_same_content(lake, expected)
        assert_there(foreign)
