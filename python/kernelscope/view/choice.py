"""A list of traces that are read when opened. The most recent ones are kept."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from kernelscope.batch.sizing import default_memory
from kernelscope.errors import NotRecordedError
from kernelscope.memo import Memo
from kernelscope.trace import Trace
from kernelscope.view.catalogue import Catalogue, Opening
from kernelscope.view.session import Pair, Progress, Session, StoppedError

_SHARE = 4
"""Share of the free memory for the traces that are kept."""
_MOST_KEPT = 8
_IDLE_S = 15.0
"""Time without requests after which a trace that is being read makes room for waiting ones, in seconds."""
_TURN_S = 0.2


@dataclass(slots=True)
class _Kept:
    """A trace that was opened: when it was asked for last, and the bytes that its tables take."""

    session: Session
    asked_s: float
    size: int = 0


class Choice:
    """The traces of a catalogue, and those that are open.

    ``most_bytes`` limits the tables of the kept traces. The most recent trace always stays.
    """

    def __init__(self, catalogue: Catalogue, *, most_bytes: int | None = None) -> None:
        self.catalogue = catalogue
        self.memo = Memo()
        self.most_bytes = default_memory() // _SHARE if most_bytes is None else most_bytes
        self._kept: dict[int, _Kept] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._waiting = 0
        self._stopping = False
        self._finding = Session(catalogue.name, self._look)
        self._inside = 0, 0
        self.is_complete = False
        self._threads: list[threading.Thread] = []

    def _look(self, advance: Progress) -> Any:
        self.catalogue.look(advance)
        thread = threading.Thread(target=self._look_inside, daemon=True)
        self._threads.append(thread)
        thread.start()
        # What is found is no trace; that it is there is all that counts.
        return self

    def _look_inside(self) -> None:
        def advance(done: int, total: int) -> None:
            if self._stopping:
                raise StoppedError
            self._inside = done, total

        try:
            self.catalogue.look_inside(advance)
        except StoppedError:
            return
        self.is_complete = True

    def start(self, *, on_failure: Callable[[], object]) -> None:
        """Starts the search for traces; calls ``on_failure`` if there is none and a page has shown the
        failure, or no page asks."""
        self._finding.start(on_failure=on_failure)

    def stop(self) -> None:
        """Stops searching and reading."""
        self._stopping = True
        self._finding.stop()
        for thread in self._threads:
            thread.join()
        with self._lock:
            kept = list(self._kept.values())
        for one in kept:
            one.session.stop()
        self.catalogue.close()

    def raise_failure(self) -> None:
        """Raises the failure of the search for traces, if any. A trace that cannot be read has its own
        failure."""
        self._finding.raise_failure()

    def status(self) -> dict[str, Any]:
        """Returns the progress of the search for traces, like a session does."""
        return {**self._finding.status(), "changed": False}

    def progress(self) -> dict[str, Any]:
        """Returns the number of inspected traces: ``done`` of ``total``, and whether that is ``complete``."""
        done, total = self._inside
        return {"done": done, "total": total, "complete": self.is_complete}

    def check(self) -> None:
        """Raises NotRecordedError while traces are being searched for, KernelscopeError if there is none."""
        _ = self._finding.trace

    def session(self, number: int) -> Session:
        """Returns the trace ``number``, and starts reading it if it is not kept.

        Raises: NotRecordedError: there is none, or it cannot be read.
        """
        self.check()
        with self._lock:
            kept = self._kept.pop(number, None)
            if kept is None:
                kept = self._begin(number, self.catalogue.opening(number))
            kept.asked_s = time.monotonic()
            # The last is the one that was asked for last.
            self._kept[number] = kept
            return kept.session

    def _begin(self, number: int, opening: Opening) -> _Kept:
        if self._stopping:
            raise NotRecordedError("the viewer is closing")
        session = Session(opening.name, lambda watch: self._read(number, opening, watch), path=opening.path)
        # Whoever opens it again has it read again: the file may be whole by then.
        session.start(on_failure=lambda: self._forget(number))
        return _Kept(session, time.monotonic())

    def _forget(self, number: int) -> None:
        with self._lock:
            self._kept.pop(number, None)

    def _read(self, number: int, opening: Opening, watch: Progress) -> Trace:
        def advance(done: int, total: int) -> None:
            watch(done, total)
            if self._waiting and self._is_idle(number):
                raise StoppedError

        try:
            with self._in_turn(lambda: advance(0, 0)):
                trace = opening.read(advance)
        except StoppedError:
            self._forget(number)
            raise
        self._make_room(number, sum(int(frame.estimated_size()) for frame in trace.tables.values()))
        return trace

    @contextmanager
    def _in_turn(self, wait: Callable[[], object]) -> Generator[None]:
        """One trace is read at a time: each takes all cores."""
        self._waiting += 1
        try:
            while not self._turn.acquire(timeout=_TURN_S):
                wait()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turn.release()

    def _is_idle(self, number: int) -> bool:
        kept = self._kept.get(number)
        return kept is not None and time.monotonic() - kept.asked_s > _IDLE_S

    def _make_room(self, number: int, size: int) -> None:
        """Lets go of those that were not asked for the longest until ``number`` fits."""
        with self._lock:
            if number in self._kept:
                self._kept[number].size = size
            # One that is being read has no size yet.
            others = [one for one, kept in self._kept.items() if one != number and kept.size]
            for one in others:
                total = sum(kept.size for kept in self._kept.values())
                if total <= self.most_bytes and len(self._kept) <= _MOST_KEPT:
                    break
                del self._kept[one]

    @property
    def kept(self) -> list[int]:
        """Returns the numbers of the open traces, the most recent last."""
        with self._lock:
            return list(self._kept)


Shown: TypeAlias = Session | Pair | Choice
"""The traces that a viewer shows."""
