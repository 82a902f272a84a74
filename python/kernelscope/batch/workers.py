"""Assigns sources to workers, as many at a time as fit into memory."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kernelscope.batch import sizing
from kernelscope.batch.dask_cluster import DaskCluster, Needs, connect
from kernelscope.batch.pool import Limits, ProcessPool
from kernelscope.batch.sizing import WORKER_BYTES
from kernelscope.errors import (
    InvalidArgumentError,
    KernelscopeError,
    MemoryLimitError,
    TaskTimeoutError,
    WorkerDiedError,
)
from kernelscope.units import format_bytes

_TRIES = 2
"""Error text after the system killed a worker. The system kills the largest process, which need not be the
cause."""
_AHEAD = 2
"""Tasks per worker that are submitted in advance, so that no worker waits for the next."""
_LOOK_S = 0.2
_GRACE_S = 5.0


class Item(Protocol):
    """The current task of a worker."""

    @property
    def name(self) -> str: ...
    @property
    def bytes(self) -> int: ...


T = TypeVar("T", bound=Item)


class Hands(Protocol):
    """Executors of tasks."""

    @property
    def tasks(self) -> int:
        """Number of tasks that can run at present."""
        ...

    def submit(self, limits: Limits, function: Callable[..., Any], argument: object) -> "Future[Any]":
        """Runs ``function(argument)`` on a worker."""
        ...

    def look(self) -> "Iterable[Future[Any]]":
        """Checks the workers, and returns the tasks that none of them will accept any more."""
        ...

    def lost(self) -> Exception:
        """Returns the error for cancelled tasks."""
        ...


@dataclass(slots=True)
class _Local:
    """An executor, whose workers are there as long as it is."""

    executor: Executor
    tasks: int

    def submit(self, limits: Limits, function: Callable[..., Any], argument: object) -> "Future[Any]":
        """Has a worker call ``function(argument)``; one of ours is ended if it takes more than ``limits``."""
        if isinstance(self.executor, ProcessPool):
            return self.executor.submit_within(limits, function, argument)
        return self.executor.submit(function, argument)

    def look(self) -> "Iterable[Future[Any]]":
        """Nothing is given up without an error."""
        return ()

    def lost(self) -> Exception:
        """The error if somebody else cancels the tasks."""
        return _broken("its tasks were cancelled")


@dataclass(slots=True)
class WorkerPool(Generic[T]):
    """Workers, and the sources that wait for them, the largest first, so that none is left to the end."""

    hands: Hands
    threads: int
    waiting: deque[tuple[T, int]]
    too_large: dict[T, int]
    limit: str
    """Describes for a message the limit that a source exceeds."""
    memory: int | None = None
    """Memory limit of all tasks together in bytes; null if the executor limits them."""
    timeout: float | None = None
    """Time limit of a source in seconds; null for the default of its size."""
    _free: int = 0
    _tries: dict[T, int] = field(default_factory=dict[T, int])

    def results(self, work: "Work[T]", check: Callable[[], None]) -> Iterator[tuple[T, Any]]:
        """Yields each source with its result: a value, or the exception that it failed with.

        ``work`` returns the function and argument for a source with a number of threads. ``check`` is called
        several times a second, and raises if the results are no longer wanted.

        Raises: SchedulerLostError: the scheduler does not answer any more. UnusableWorkersError: it has no
            workers any more, or some cannot run the batch. WorkerDiedError: the executor accepts no more
            tasks.
        """
        self._free = 2**62 if self.memory is None else self.memory - self.hands.tasks * WORKER_BYTES
        running: dict[Future[Any], tuple[T, int]] = {}
        progress = time.monotonic()
        while self.waiting or running:
            check()
            for future in self.hands.look():
                self.waiting.append(self._take_back(future, running))
            self._hand_out(work, running)
            done, _ = wait(running, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            if done or not running:
                progress = time.monotonic()
            elif time.monotonic() - progress > self._longest_s(running):
                # Workers that are not ours cannot be ended one by one; but nobody waits for ever.
                yield from self._give_up(running)
                if self.waiting:
                    raise WorkerDiedError(
                        "no worker of the executor is active any more. Finished ranks are in the "
                        "lake, and the next run resumes"
                    )
            for future in done:
                source, peak = self._take_back(future, running)
                outcome = self._outcome(future)
                if isinstance(outcome, WorkerDiedError) and self._tries[source] < _TRIES:
                    self.waiting.append((source, peak))
                else:
                    yield source, _named(source.name, outcome)

    def _limit_s(self, source: T) -> float:
        return sizing.time_limit(source.bytes) if self.timeout is None else self.timeout

    def _longest_s(self, running: Mapping["Future[Any]", tuple[T, int]]) -> float:
        """How long nothing may come of what runs; our own processes are ended before that, each by itself."""
        return max(self._limit_s(source) for source, _ in running.values()) + _GRACE_S

    def _give_up(self, running: dict["Future[Any]", tuple[T, int]]) -> Iterator[tuple[T, Any]]:
        for future in list(running):
            source, _ = self._take_back(future, running)
            late = TaskTimeoutError(f"was not done after {self._limit_s(source):,.0f} s; see --task-timeout")
            yield source, _named(source.name, late)

    def _take_back(self, future: "Future[Any]", running: dict["Future[Any]", tuple[T, int]]) -> tuple[T, int]:
        """What a task is about, which is not running any more, or need not."""
        future.cancel()
        source, peak = running.pop(future)
        self._free += peak - WORKER_BYTES
        return source, peak

    def _hand_out(self, work: "Work[T]", running: dict["Future[Any]", tuple[T, int]]) -> None:
        while self.waiting and len(running) < self.hands.tasks * _AHEAD:
            # If the largest does not fit beside what runs, the smallest may.
            for take, put in (
                (self.waiting.popleft, self.waiting.appendleft),
                (self.waiting.pop, self.waiting.append),
            ):
                source, peak = take()
                if peak - WORKER_BYTES <= self._free or not running:
                    break
                put((source, peak))
            else:
                return
            function, argument = work(source, self.threads)
            self._free -= peak - WORKER_BYTES
            self._tries[source] = self._tries.get(source, 0) + 1
            most = min(4 * peak, max(2 * peak, self.memory or 0))
            limits = Limits(self._limit_s(source), most, peak)
            try:
                future = self.hands.submit(limits, function, argument)
            except BrokenExecutor as error:
                raise _broken(error) from None
            running[future] = source, peak

    def _outcome(self, future: "Future[Any]") -> Any:
        try:
            error = future.exception()
        except CancelledError:
            raise self.hands.lost() from None
        if isinstance(error, BrokenExecutor):
            raise _broken(error)
        if type(error).__name__ == "KilledWorker":
            # Of Dask, which gives a task to another worker first, three times by default.
            return WorkerDiedError("the workers that read it died, probably because memory ran out")
        if error is None:
            return future.result()
        # Ray wraps what a task raised.
        cause = getattr(error, "cause", None)
        return cause if isinstance(cause, KernelscopeError) else error


Work: TypeAlias = Callable[[T, int], tuple[Callable[..., Any], Any]]


def _named(name: str, outcome: Any) -> Any:
    """What came of a task; where its worker was ended, with the name of what it worked on."""
    if not isinstance(outcome, (WorkerDiedError, TaskTimeoutError, MemoryLimitError)):
        return outcome
    return type(outcome)(f"{name}: {outcome}", path=name)


def _broken(error: BrokenExecutor | str) -> WorkerDiedError:
    return WorkerDiedError(
        f"the executor accepts no more tasks ({error}). Finished ranks are in the lake, and the next "
        "run resumes"
    )


@contextlib.contextmanager
def open_workers(
    peaks: Mapping[T, int],
    workers: int | None,
    memory: int | None,
    executor: Executor | None,
    scheduler: str | None,
    timeout: float | None,
    *,
    needs: Needs,
) -> Generator[WorkerPool[T]]:
    """Opens the workers of a batch for the sources of ``peaks``, which gives the memory of each.

    ``timeout`` is the time limit of each source in seconds (default: by its size). ``needs`` are paths that
    workers on other machines must access.

    Raises: InvalidArgumentError: the arguments are inconsistent. SchedulerLostError: there is no scheduler.
        UnusableWorkersError: it has no workers, or some cannot run the batch.
    """
    if executor is not None and scheduler is not None:
        raise InvalidArgumentError("pass an executor or a scheduler, not both")
    if workers is not None and workers < 1:
        raise InvalidArgumentError(f"workers must be at least 1, not {workers}")
    order = sorted(peaks.items(), key=lambda item: (-item[1], item[0].name))
    if scheduler is not None:
        with connect(scheduler) as client:
            cluster = DaskCluster(client, scheduler, needs, workers, memory)
            cluster.wait()
            most = max(cluster.rooms.values()) + WORKER_BYTES
            limit = f"the largest worker of {scheduler} has {format_bytes(most)} available; see --memory and"
            limit += " --memory-limit of dask worker"
            yield WorkerPool(cluster, 1, *_fitting(order, most), limit, None, timeout)
        return
    total = memory or sizing.default_memory()
    limit = f"--memory is {format_bytes(total)}"
    if executor is not None:
        count = workers or sizing.cores()
        fitting = _fitting(order, total - (count - 1) * WORKER_BYTES)
        yield WorkerPool(_Local(executor, count), 1, *fitting, limit, total, timeout)
        return
    count, threads = _processes(order, workers, total)
    processes = ProcessPool(count, threads=threads)
    try:
        fitting = _fitting(order, total - (count - 1) * WORKER_BYTES)
        yield WorkerPool(_Local(processes, count), threads, *fitting, limit, total, timeout)
    except BaseException:
        # Nobody waits for what is running; its folder goes with the staging folder.
        processes.shutdown(wait=False)
        raise
    processes.shutdown()


def _fitting(order: list[tuple[T, int]], most: int) -> tuple[deque[tuple[T, int]], dict[T, int]]:
    """What one task of ``most`` bytes at most can do, and what it cannot."""
    fits = deque((source, peak) for source, peak in order if peak <= most)
    return fits, {source: peak for source, peak in order if peak > most}


def _processes(order: list[tuple[T, int]], workers: int | None, memory: int) -> tuple[int, int]:
    """How many processes, so that the largest source fits beside them; and threads of each."""
    wanted = min(workers or sizing.cores(), len(order))
    # Those that fit nowhere do not count: they are reported, and left out.
    largest = max((peak for _, peak in order if peak <= memory), default=WORKER_BYTES)
    count = max(1, min(wanted, 1 + (memory - largest) // WORKER_BYTES))
    # With fewer traces than cores, a trace may have several.
    return count, max(1, (workers or sizing.cores()) // count) if count == len(order) else 1
