"""The trace of a viewer, read in the background, so that the page is available immediately."""

import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kernelscope.errors import KernelscopeError, NotRecordedError
from kernelscope.trace import Trace

Progress: TypeAlias = Callable[[int, int], object]

_PATIENCE_S = 2.0
# A machine with much else to do needs longer; a reader that outlives Python ends in a panic.
_ENDING_S = 30.0


class _Stamp(NamedTuple):
    """What tells whether a file is another one than before."""

    size: int
    modified_ns: int


class StoppedError(Exception):
    """Nobody waits any more for the trace that is being read."""


class Session:
    """One trace that is being read, is read, or could not be read.

    ``read`` is called with a function for progress: bytes done and bytes in total. ``path`` is the file that
    is watched for changes; None for a file that no longer exists after reading.
    """

    def __init__(self, name: str, read: Callable[[Progress], Trace], *, path: str | None = None) -> None:
        self.name = name
        self._read = read
        self._path = path
        self._stamp = _stamp(path)
        self._progress = 0, 0
        self._trace: Trace | None = None
        self._error: BaseException | None = None
        self._stopping = False
        self._failure_told = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, *, on_failure: Callable[[], object]) -> None:
        """Starts reading; calls ``on_failure`` if it failed and a page has shown the failure, or no page
        asks."""
        self._thread = threading.Thread(target=self._run, args=(on_failure,), daemon=True)
        self._thread.start()

    def _run(self, on_failure: Callable[[], object]) -> None:
        try:
            self._trace = self._read(self._advance)
        except StoppedError:
            return
        except BaseException as error:  # noqa: BLE001 - the command raises it again, on its own thread
            self._error = error
            self._failure_told.wait(_PATIENCE_S)
            on_failure()

    def _advance(self, done: int, total: int) -> None:
        if self._stopping:
            raise StoppedError
        self._progress = done, total

    def stop(self) -> None:
        """Stops an unfinished read within about half a second."""
        self._stopping = True
        self._failure_told.set()
        if self._thread is not None:
            self._thread.join(_ENDING_S)

    def raise_failure(self) -> None:
        """Raises the failure of the read, if any."""
        if self._error is not None:
            raise self._error

    @property
    def trace(self) -> Trace:
        """The trace.

        Raises: NotRecordedError: it is not read yet. KernelscopeError: it could not be read.
        """
        if self._error is not None:
            raise KernelscopeError(str(self._error))
        if self._trace is None:
            raise NotRecordedError("the trace is still being read. Try again when that is done")
        return self._trace

    def status(self) -> dict[str, Any]:
        """Returns the progress: ``state`` (reading, ready, failed), ``done`` of ``total`` bytes, and
        ``error``.

        ``changed`` says whether the file was replaced since reading began.
        """
        done, total = self._progress
        state = "failed" if self._error is not None else "reading" if self._trace is None else "ready"
        if self._error is not None:
            self._failure_told.set()
        return {
            "state": state,
            "name": self.name,
            "done": done,
            "total": total,
            "error": None if self._error is None else str(self._error),
            "changed": state == "ready" and _stamp(self._path) != self._stamp,
        }


class Pair:
    """Two traces to compare, the earlier first."""

    def __init__(self, before: Session, after: Session) -> None:
        self._sessions = before, after

    def start(self, *, on_failure: Callable[[], object]) -> None:
        """Starts reading both; calls ``on_failure`` if one failed and a page has shown the failure, or no
        page asks."""
        for session in self._sessions:
            session.start(on_failure=on_failure)

    def stop(self) -> None:
        """Stops an unfinished read."""
        for session in self._sessions:
            session.stop()

    def raise_failure(self) -> None:
        """Raises the failure of a read, if any."""
        for session in self._sessions:
            session.raise_failure()

    def session(self, number: int) -> Session:
        """Returns the earlier trace for 0, the later for 1.

        Raises: NotRecordedError: for another number.
        """
        if number not in (0, 1):
            raise NotRecordedError(f"two traces are compared, 0 and 1; there is no number {number}")
        return self._sessions[number]

    @property
    def traces(self) -> tuple[Trace, Trace]:
        """Both traces.

        Raises: NotRecordedError: one is not read yet. KernelscopeError: one could not be read.
        """
        before, after = self._sessions
        return before.trace, after.trace

    def status(self) -> dict[str, Any]:
        """Returns the progress of both together, like a session does, and the ``names`` of both."""
        told = [session.status() for session in self._sessions]
        states = [one["state"] for one in told]
        return {
            "state": next((state for state in ("failed", "reading") if state in states), "ready"),
            "name": " and ".join(one["name"] for one in told),
            "names": [one["name"] for one in told],
            "done": sum(one["done"] for one in told),
            "total": sum(one["total"] for one in told),
            "error": next((one["error"] for one in told if one["error"] is not None), None),
            "changed": any(one["changed"] for one in told),
        }


def _stamp(path: str | None) -> _Stamp | None:
    """What tells a file from a later one at its path; None if there is none."""
    try:
        found = None if path is None else os.stat(path)
    except OSError:
        return None
    return None if found is None else _Stamp(found.st_size, found.st_mtime_ns)
