"""Processes, their workers and their files, as Linux knows them."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from waiting import wait_for


def workers_of(pid: int | str) -> list[int]:
    """Children of all threads of a process."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for task in tasks for child in _children(task)]


def _children(task: Path) -> list[int]:
    try:
        return [int(child) for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def has_open(pid: int, name: str) -> bool:
    """Whether a process has a file open whose name ends in ``name``."""
    try:
        return any(os.readlink(link).endswith(name) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def send_signal(pid: int, signal: int) -> None:
    """Sends a signal to a process that may have ended since it was found."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal)


@contextmanager
def signalled(pid: int | str, name: str, signal: int) -> Iterator[set[int]]:
    """Sends a signal to each worker that has a file open, while the context lasts; gives those workers."""
    stop, seen = threading.Event(), set[int]()

    def watch() -> None:
        while not stop.wait(0.001):
            for worker in workers_of(pid):
                # A worker that was killed keeps its files open for a moment.
                if worker not in seen and has_open(worker, name):
                    seen.add(worker)
                    send_signal(worker, signal)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()


def wait_until_open(process: subprocess.Popen[Any], name: str) -> None:
    """Waits until a process reads a file, so that it has more to do than to start."""
    wait_for(process, lambda: has_open(process.pid, name))


def bytes_read(pid: int | str) -> int:
    """Bytes that a process has read, from whatever it read."""
    counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counts["rchar"])


def bytes_read_in_all(process: subprocess.Popen[Any]) -> int:
    """The same of a process until it ends, which this waits for; its exit code is still to be asked for."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return bytes_read(process.pid)


def is_alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
