"""One batch at a time in a lake: a lock that a dead process does not hold."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Generator
from pathlib import Path

from kernelscope.batch.manifest import workshop
from kernelscope.errors import LakeBusyError

LOCK = "lock"


@contextlib.contextmanager
def locked(lake: Path) -> Generator[None]:
    """Holds the lake while the context lasts. The system lets go of the lock when its holder dies.

    Raises: LakeBusyError: another batch holds it.
    """
    path = workshop(lake) / LOCK
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise LakeBusyError(
                f"{lake}: {holder} is writing into this lake; wait for it, or choose another --out"
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
