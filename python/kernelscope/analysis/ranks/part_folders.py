"""Temporary folders for partitioned rows. Folders of a process that died are removed by the next one."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernelscope import locks

_PREFIX = "kernelscope-parts-"
_LOCK = "lock"


class PartFolder:
    """A new folder that this process owns until it is removed.

    It is in ``parent`` or the folder for temporary files.
    """

    def __init__(self, parent: str | os.PathLike[str] | None) -> None:
        within = Path(tempfile.gettempdir() if parent is None else parent)
        _sweep(within)
        self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=within)
        self._held = contextlib.ExitStack()
        # Where the system has no locks, nobody takes the folder for one that was left.
        with contextlib.suppress(OSError):
            lock = locks.take(Path(self.path, _LOCK))
            if lock is not None:
                locks.sign(self._held.enter_context(lock))

    def remove(self) -> None:
        """Removes the folder with its contents."""
        with self._held:
            shutil.rmtree(self.path, ignore_errors=True)


def _sweep(within: Path) -> None:
    """Removes the folders of processes of this machine that have died."""
    for folder in _own(within):
        path = folder / _LOCK
        try:
            # Whoever makes a folder signs its lock when he has it. On other machines the system may know
            # nothing of locks that are held here.
            is_of_here = locks.is_of_this_machine(path.read_text(encoding="utf-8"))
            lock = locks.take(path) if is_of_here else None
        except (OSError, ValueError):
            continue
        if lock is not None:
            with lock:
                shutil.rmtree(folder, ignore_errors=True)


def _own(within: Path) -> Iterator[Path]:
    """Folders that are named like those of parts, and are the user's own."""
    with os.scandir(within) as found:
        for entry in found:
            if entry.name.startswith(_PREFIX) and _is_own(entry):
                yield Path(entry.path)


def _is_own(entry: "os.DirEntry[str]") -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        # Its process has removed it in the meantime.
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
