"""Open ranges of each thread, and their destination: NVTX, or the trace of the PyTorch profiler."""

import importlib
import threading
from typing import Any, NamedTuple, Protocol

from kernelscope.errors import InvalidArgumentError

DOMAIN = "kernelscope"
"""NVTX domain of the ranges. Their payload is autograd's sequence number."""


class Writer(Protocol):
    """Opens and closes nested ranges of the calling thread."""

    def push(self, text: str, sequence: int | None) -> object:
        """Opens a range and returns the argument for ``pop``."""
        ...

    def pop(self, opened: object) -> None:
        """Closes the innermost range."""
        ...


class NvtxWriter:
    """Writes NVTX ranges through the package ``nvtx``, which needs no GPU and no CUDA.

    Raises: InvalidArgumentError: the package is not installed.
    """

    def __init__(self) -> None:
        try:
            nvtx: Any = importlib.import_module("nvtx")
        except ImportError:
            raise InvalidArgumentError("the backend nvtx needs the package nvtx: pip install nvtx") from None
        self._domain: Any = nvtx.get_domain(DOMAIN)

    def push(self, text: str, sequence: int | None) -> object:
        """Opens a range whose payload is the sequence number."""
        domain = self._domain
        domain.push_range(domain.get_event_attributes(message=text, payload=sequence))
        return None

    def pop(self, opened: object) -> None:
        """Closes the innermost range."""
        del opened
        self._domain.pop_range()


class ProfilerWriter:
    """Writes annotations into the trace of a running ``torch.profiler``.

    The profiler links forward and backward itself.
    """

    def __init__(self) -> None:
        self._record: Any = importlib.import_module("torch.autograd.profiler").record_function

    def push(self, text: str, sequence: int | None) -> object:
        """Opens an annotation."""
        del sequence
        annotation = self._record(text)
        annotation.__enter__()
        return annotation

    def pop(self, opened: Any) -> None:
        """Closes the annotation."""
        opened.__exit__(None, None, None)


def writer(backend: str) -> Writer:
    """Returns the writer of a backend.

    Raises: InvalidArgumentError: there is no such backend, or its package is not installed.
    """
    if backend == "nvtx":
        return NvtxWriter()
    if backend == "profiler":
        return ProfilerWriter()
    raise InvalidArgumentError(f"there is no backend {backend!r}; the backends are nvtx and profiler")


class _Open(NamedTuple):
    owner: object
    handle: object


class Ranges(threading.local):
    """Open ranges of a thread, innermost last, and the modules among them.

    Every range is closed by its owner, even after an exception. Ranges left open inside it are closed first,
    so the ranges of a thread always nest.
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
        """Closes the innermost range of ``owner`` and the ranges inside it. Does nothing if there is none."""
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
        """Closes all ranges except the outermost ``depth``."""
        while len(self._open) > depth:
            self._writer.pop(self._open.pop().handle)
