"""What a question about many ranks leaves in the temporary folder when its process dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

import kernelscope as ks
from kernelscope import locks
from kernelscope.analysis.ranks.part_folders import PartFolder
from kernelscope.analysis.ranks.parts import LEAST_MEMORY, Workshop

_COMMAND = """
import sys, time
from kernelscope.analysis.ranks.part_folders import PartFolder
folder = PartFolder(sys.argv[1])
open(f"{folder.path}/0.arrow", "wb").close()
print(folder.path, flush=True)
time.sleep(600)
"""


@contextmanager
def asking(parent: Path) -> Generator[tuple[subprocess.Popen[str], Path]]:
    """A process that has a folder of parts."""
    command = [sys.executable, "-c", _COMMAND, str(parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_what_a_killed_process_left_goes_with_the_next_folder(tmp_path: Path) -> None:
    with asking(tmp_path) as (living, its), asking(tmp_path) as (doomed, left):
        assert sorted(tmp_path.iterdir()) == sorted([its, left])
        mine = PartFolder(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([its, left, Path(mine.path)])
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        new = PartFolder(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([its, Path(mine.path), Path(new.path)])
        assert (its / "0.arrow").exists()
        assert living.poll() is None
    mine.remove()
    new.remove()
    PartFolder(tmp_path).remove()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says in /proc that a process is a zombie")
def test_a_process_whose_exit_code_nobody_took_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert locks.has_ended(f"process {process.pid} on {socket.gethostname()}")
    assert not locks.has_ended(locks.this_process())


def test_what_is_not_known_to_be_left_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "elsewhere": f"process {os.getpid()} on elsewhere",
        "new": "",
        "foreign": "my notes",
        "binary": "\udcff",
    }
    for name, holder in said.items():
        folder = tmp_path / f"kernelscope-parts-{name}"
        folder.mkdir()
        (folder / "lock").write_bytes(holder.encode("utf-8", "surrogateescape"))
    (tmp_path / "kernelscope-parts-none").mkdir()
    (tmp_path / "kernelscope-parts-file").touch()
    with asking(tmp_path) as (process, other):
        process.kill()
        process.wait()
    # A link leads to what may be anybody's.
    other.rename(tmp_path / "other")
    (tmp_path / "kernelscope-parts-link").symlink_to(tmp_path / "other")
    before = sorted(tmp_path.rglob("*"))
    PartFolder(tmp_path).remove()
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "other").rename(other)
    monkeypatch.setattr(os, "getuid", lambda: other.stat().st_uid + 1)
    PartFolder(tmp_path).remove()
    assert other.exists()
    monkeypatch.undo()
    PartFolder(tmp_path).remove()
    assert not other.exists()


def test_a_folder_that_goes_while_others_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = PartFolder(tmp_path)

    def listed(path: Path) -> AbstractContextManager[list[os.DirEntry[str]]]:
        monkeypatch.undo()
        with os.scandir(path) as found:
            entries = list(found)
        going.remove()
        return nullcontext(entries)

    monkeypatch.setattr(os, "scandir", listed)
    folder = PartFolder(tmp_path)
    assert list(tmp_path.iterdir()) == [Path(folder.path)]
    folder.remove()


def test_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> None:
        raise OSError("no locks")

    monkeypatch.setattr(locks, "take", fail)
    folder = PartFolder(tmp_path)
    other = PartFolder(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    folder.remove()
    other.remove()
    assert not list(tmp_path.iterdir())


def test_too_little_memory() -> None:
    with pytest.raises(ks.errors.InvalidArgumentError, match="memory of 249999999 bytes is too little"):
        Workshop(LEAST_MEMORY - 1)
    with pytest.raises(ks.errors.InvalidArgumentError, match="memory of 0 bytes is too little"):
        Workshop(0)
    assert Workshop(LEAST_MEMORY).rows > 1
