"""Records each capture of a CUDA or HIP graph with the PyTorch profiler.

With the record, the replays of the graph can be identified.
"""

import contextlib
import importlib
import os
import threading
import warnings
from collections.abc import Callable, Generator
from typing import Any

from kernelscope.capture.profiling import complete_profiler, trace_handler

_METHODS = ("capture_begin", "capture_end")


@contextlib.contextmanager
def profile_captures(
    folder: str | os.PathLike[str],
    *,
    batch_size: Callable[[], int | None] | None = None,
    eager: bool | None = None,
    stack: bool = True,
) -> Generator[None]:
    """Records each graph capture during the context into a file in ``folder``.

    ``kernelscope.read(trace, capture=folder)`` then knows the operators, shapes, modules and lines of the
    graph replays. Every capture of this process is recorded. Captures of ``torch.cuda.graph``, of
    ``torch.cuda.make_graphed_callables`` and of engines all use two methods of ``torch.cuda.CUDAGraph``,
    which are wrapped during the context. ``batch_size`` is called at the start of a capture. Its result is
    recorded as ``capture_N``, which distinguishes graphs of several sizes. With ``eager``, the code before a
    capture (since the previous capture or the start of the context) is recorded with it. CUDA captures do not
    name their kernels, but the eager warm-up steps do. The default is on except for ROCm, whose captures
    contain the names. ``stack`` adds Python call stacks, which provide modules and lines.

    Enter the context in the thread that captures, and outside other PyTorch profilers. Inside one, a warning
    says that nothing is recorded, and the captures continue. A capture that fails is not kept.

    Raises: ImportError: PyTorch is not installed.

    Example: ``with profile_captures("traces/capture_traces"): runner.capture_model()``
    """
    torch: Any = importlib.import_module("torch")
    recorder = _Recorder(folder, batch_size, stack=stack)
    if eager if eager is not None else torch.version.hip is None:
        recorder.keep_eager()
    try:
        with _watched(torch.cuda.CUDAGraph, recorder):
            yield
    finally:
        recorder.close()


@contextlib.contextmanager
def _watched(graphs: type[Any], recorder: "_Recorder") -> Generator[None]:
    """Wraps the methods of the class that begin and end captures, and puts back what stood there."""
    own = {name: vars(graphs)[name] for name in _METHODS if name in vars(graphs)}
    begin, end = (getattr(graphs, name) for name in _METHODS)

    def capture_begin(graph: Any, *args: Any, **options: Any) -> Any:
        recorder.before()
        try:
            return begin(graph, *args, **options)
        except BaseException:
            recorder.after(is_kept=False)
            raise

    def capture_end(graph: Any, *args: Any, **options: Any) -> Any:
        is_kept = False
        try:
            result = end(graph, *args, **options)
            is_kept = True
            return result
        finally:
            recorder.after(is_kept=is_kept)

    try:
        for name, wrapped in zip(_METHODS, (capture_begin, capture_end), strict=True):
            setattr(graphs, name, wrapped)
        yield
    finally:
        for name in _METHODS:
            if name in own:
                setattr(graphs, name, own[name])
            else:
                delattr(graphs, name)


class _Recorder:
    """One recording at a time: of a capture, those that run beside it, and what ran before if wanted."""

    def __init__(
        self, folder: str | os.PathLike[str], batch_size: Callable[[], int | None] | None, *, stack: bool
    ) -> None:
        self._write = trace_handler(folder)
        self._has_stack = stack
        self._batch_size = batch_size
        self._profiler: Any = None
        self._marks: list[Any] = []
        self._open = 0
        self._has_failed = False
        self._is_eager = False
        # Captures of several threads may overlap.
        self._lock = threading.Lock()

    def keep_eager(self) -> None:
        """Records from now on what runs between captures, too."""
        self._is_eager = True
        self._start()

    def before(self) -> None:
        """Sees to it that a recording runs, and marks the capture that begins."""
        with self._lock:
            self._open += 1
            if self._profiler is None:
                self._start()
            size = None if self._batch_size is None else self._batch_size()
            mark: Any = contextlib.nullcontext()
            if size is not None:
                mark = importlib.import_module("torch.profiler").record_function(f"capture_{size:d}")
            mark.__enter__()
            self._marks.append(mark)

    def after(self, *, is_kept: bool) -> None:
        """Ends the mark, and the recording if no other capture is in it."""
        with self._lock:
            if not self._open:
                return  # It began before the context.
            self._open -= 1
            self._marks.pop().__exit__(None, None, None)
            self._has_failed |= not is_kept
            if self._open:
                return
            self._stop(is_kept=not self._has_failed)
            self._has_failed = False
            if self._is_eager:
                self._start()

    def close(self) -> None:
        """Throws away what was recorded since the last capture."""
        with self._lock:
            self._stop(is_kept=False)

    def _start(self) -> None:
        # A second profiler would end the first one's recording.
        if importlib.import_module("torch.autograd")._profiler_enabled():  # noqa: SLF001 - no public name
            said = "captures of graphs are not recorded while another PyTorch profiler runs"
            warnings.warn(said, stacklevel=2)
            return
        self._profiler = complete_profiler(self._write, stack=self._has_stack, memory=False)
        self._profiler.start()

    def _stop(self, *, is_kept: bool) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        if not is_kept:
            profiler.on_trace_ready = None
        profiler.stop()
