"""The open ranges of each thread."""

import threading
from typing import NamedTuple

from kernelscope.capture.writers import Writer


class _Open(NamedTuple):
    owner: object
    handle: object


class Ranges(threading.local):
    """The ranges that a thread has open, innermost last, and the modules among them.

    Every range is closed by whoever opened it, also when an exception passes; what an exception left
    open inside of it is closed first, so that the ranges of a thread always nest.
    """

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer
        self._open: list[_Open] = []
        self.path: list[str] = []
        """Names of the modules that the thread is in."""

    def push(self, owner: object, text: str, sequence: int | None = None) -> None:
        """Opens a range."""
        self._open.append(_Open(owner, self._writer.push(text, sequence)))

    def pop(self, owner: object) -> None:
        """Closes the innermost range of ``owner`` and what lies in it; nothing if it has none."""
        at = len(self._open) - 1
        while at >= 0 and self._open[at].owner is not owner:
            at -= 1
        if at >= 0:
            self.close(at)

    @property
    def depth(self) -> int:
        """Number of open ranges."""
        return len(self._open)

    def close(self, depth: int) -> None:
        """Closes all ranges but the outermost ``depth``."""
        while len(self._open) > depth:
            self._writer.pop(self._open.pop().handle)
