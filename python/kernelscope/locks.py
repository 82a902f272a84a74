"""Lock files: a process has one as long as it lives, and the system lets go of it when it dies."""

import fcntl
import os
import re
import socket
from pathlib import Path
from typing import TextIO

_HOLDER = re.compile(r"process (\d{1,9}) on (\S+)")


def this_process() -> str:
    """How this process is called in the locks that it has."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def take(path: Path) -> TextIO | None:
    """The lock file, made if it is not there, and held while it is open; null if another process has it.

    What its last holder wrote is in it.
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
    """Writes into a lock who has it."""
    lock.truncate(0)
    lock.write(this_process())
    lock.flush()


def is_of_this_machine(holder: str) -> bool:
    """Whether ``holder`` is the name of a process here, one that has ended or not."""
    found = _HOLDER.fullmatch(holder)
    return found is not None and found[2] == socket.gethostname()


def has_ended(holder: str) -> bool:
    """Whether it is certain that a process has ended: it was one of this machine, and is no more."""
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
