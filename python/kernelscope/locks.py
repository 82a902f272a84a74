"""Lock files. A process holds one until it exits, and the system releases it if the process dies."""

import fcntl
import os
import re
import socket
from pathlib import Path
from typing import TextIO

_HOLDER = re.compile(r"process (\d{1,9}) on (\S+)")


def this_process() -> str:
    """Returns the name of this process in its locks."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def take(path: Path) -> TextIO | None:
    """Opens the lock file, creating it if needed, and locks it. Returns None if another process holds it.

    The content written by its last holder is kept.
    """
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except BaseException:
        file.close()
        raise
    return file


def sign(lock: TextIO) -> None:
    """Writes the holder into a lock."""
    lock.truncate(0)
    lock.write(this_process())
    lock.flush()


def is_of_this_machine(holder: str) -> bool:
    """Returns whether ``holder`` names a process of this machine, running or not."""
    found = _HOLDER.fullmatch(holder)
    return found is not None and found[2] == socket.gethostname()


def has_ended(holder: str) -> bool:
    """Returns whether a process has certainly ended: it was on this machine, and no longer exists."""
    found = _HOLDER.fullmatch(holder)
    if found is None or not is_of_this_machine(holder):
        return False
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_zombie(int(found[1]))


def _is_zombie(process: int) -> bool:
    """Whether a process is dead, though nobody took its exit code, as often in containers."""
    try:
        status = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return False
    # The name before it, in brackets, may hold anything.
    return status.rpartition(b") ")[2][:1] in (b"Z", b"X")
