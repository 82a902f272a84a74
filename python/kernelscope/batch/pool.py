"""Worker processes. If one dies, only its task fails.

``concurrent.futures.ProcessPoolExecutor`` aborts all tasks when the system kills one process. Its processes
also outlive a killed parent, and need a ``__main__`` that can be imported twice.
"""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, ParamSpec, TypeVar, cast

from kernelscope.errors import (
    InternalError,
    KernelscopeError,
    MemoryLimitError,
    TaskTimeoutError,
    WorkerDiedError,
)
from kernelscope.processes import command_of
from kernelscope.units import format_bytes

P = ParamSpec("P")
T = TypeVar("T")

SETTINGS = {
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:100,muzzy_decay_ms:0,narenas:1,tcache:false",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
"""How Polars and the C library return memory that other workers wait for.

They lower the peak of consecutive traces by a fifth. Returning every page immediately would make writing a
table a third slower.
"""


_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOOK_S = 0.1
"""Interval between checks of the resources of tasks, in seconds."""


class Limits(NamedTuple):
    """Limits of a task; null for no limit."""

    seconds: float | None = None
    resident_bytes: int | None = None
    """Memory of the process; measured on Linux only."""
    expected_bytes: int = 0
    """Expected memory of the process, from the size of its input."""


NO_LIMITS = Limits()


class ProcessPool(Executor):
    """An executor of worker processes. ``submit`` accepts functions that can be imported.

    A process is started by the first task that finds none idle. A task whose process dies fails with
    ``WorkerDiedError``, and the next one gets a new process. A task that exceeds its limits is stopped with
    ``TaskTimeoutError`` or ``MemoryLimitError``.
    """

    def __init__(self, workers: int, *, threads: int) -> None:
        """Creates ``workers`` processes, each with ``threads`` Polars threads."""
        self._environment = {**os.environ, **SETTINGS, "POLARS_MAX_THREADS": str(threads)}
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="kernelscope-batch")
        self._own = threading.local()
        self._all: list[_Worker] = []
        self._closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True, name="kernelscope-limits").start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Runs ``fn(*args, **kwargs)`` in one of the processes."""
        return self._threads.submit(self._run, fn, args, kwargs, NO_LIMITS)

    def submit_within(self, limits: Limits, fn: Callable[..., T], *args: object) -> "Future[T]":
        """Runs ``fn(*args)`` in one of the processes, and stops it if it exceeds ``limits``."""
        return self._threads.submit(self._run, fn, args, {}, limits)

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_S):
            for worker in self._all:
                worker.check()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Stops the processes: after their tasks, or immediately without ``wait``."""
        if not wait:
            for worker in self._all:
                worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=cancel_futures or not wait)
        self._closed.set()
        for worker in self._all:
            worker.close()

    def pids(self) -> list[int]:
        """Ids of the running processes."""
        return [worker.process.pid for worker in self._all if worker.process.poll() is None]

    def _run(
        self, fn: Callable[..., T], args: tuple[object, ...], kwargs: Mapping[str, object], limits: Limits
    ) -> T:
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker is None or worker.process.poll() is not None:
            if worker is not None:
                worker.close()
            worker = _Worker(self._environment)
            self._own.worker = worker
            self._all = [*(other for other in self._all if other.process.poll() is None), worker]
        return worker.call(fn, args, kwargs, limits)


class _Worker:
    """A process that runs this module."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command_of("kernelscope.batch.pool"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._lock = threading.Lock()
        self._limits = NO_LIMITS
        self._began = 0.0
        self._ended: KernelscopeError | None = None
        """Why its task was ended."""

    def call(
        self, fn: Callable[..., T], args: tuple[object, ...], kwargs: Mapping[str, object], limits: Limits
    ) -> T:
        """The function's value, or what it raised."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = pickle.dumps((fn, args, kwargs))
        with self._lock:
            self._limits, self._began = limits, time.monotonic()
        try:
            self.process.stdin.write(request)
            self.process.stdin.flush()
            done, value = cast("tuple[bool, Any]", pickle.load(self.process.stdout))
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self.close()
            raise (self._ended or WorkerDiedError(_cause(self.process.returncode))) from None
        finally:
            with self._lock:
                self._limits = NO_LIMITS
        if not done:
            raise value
        return value

    def check(self) -> None:
        """Ends the process if its task takes more than it may."""
        with self._lock:
            seconds, most, _ = self._limits
            if seconds is not None and time.monotonic() - self._began > seconds:
                self._ended = TaskTimeoutError(
                    f"was not done after {seconds:,.0f} s, so the worker was stopped; see --task-timeout"
                )
            elif most is not None and _resident_bytes(self.process.pid) > most:
                self._ended = MemoryLimitError(
                    f"needed more than {format_bytes(most)}, several times the estimate for its size, "
                    "so the worker was stopped"
                )
            if self._ended is not None:
                self.process.kill()

    def kill(self) -> None:
        """Ends the process at once."""
        self.process.kill()

    def close(self) -> None:
        """Waits for the process, which ends when nobody can send it anything."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                cast("Any", pipe).close()
        self.process.wait()


def _resident_bytes(pid: int) -> int:
    """What a process has in memory; 0 where that is not known."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _cause(status: int) -> str:
    if status == -9:
        return "the system killed the worker (signal 9), probably because memory ran out; see --memory"
    if status < 0:
        return f"the worker was killed by signal {-status}"
    return f"the worker ended with exit code {status}"


def main() -> None:
    """Reads functions with their arguments from stdin, and writes their results to stdout.

    When stdin is closed, nobody waits for an answer, and the process exits immediately.
    """
    # Ctrl-C goes to all processes of a terminal; the one that leads decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # What a library prints must not come between the answers.
    os.dup2(2, 1)
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        fn, args, kwargs = requests.get()
        try:
            answers.write(_answer(fn, args, kwargs))
            answers.flush()
        except BrokenPipeError:
            # Nobody waits for it, as where stdin ends.
            os._exit(0)


def _receive(pipe: BinaryIO, requests: "queue.SimpleQueue[Any]") -> None:
    try:
        while True:
            requests.put(pickle.load(pipe))
    except EOFError:
        # Also in the middle of a trace: the lake may belong to another batch by now.
        os._exit(0)


def _answer(fn: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
    try:
        return pickle.dumps((True, fn(*args, **kwargs)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
        return _failure(error)


def _failure(error: Exception) -> bytes:
    try:
        packed = pickle.dumps((False, error))
        pickle.loads(packed)
    except Exception:  # noqa: BLE001 - exceptions of other packages may not survive the journey
        return pickle.dumps((False, InternalError(f"{type(error).__name__}: {error}")))
    return packed
