"""Hands sources to workers, never more at once than fit into memory."""

import contextlib
import importlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any

from kernelscope.batch import sizing
from kernelscope.batch.pool import ProcessPool
from kernelscope.batch.sizing import WORKER_BYTES
from kernelscope.batch.sources import Source
from kernelscope.errors import InvalidArgumentError, SchedulerLostError, WorkerDiedError

_TRIES = 2
"""The system kills the largest process at the time, which need not have been at fault."""
_AHEAD = 2
"""Tasks per worker that are handed out, so that none waits for the next."""
_CONNECT_S = 10
_LOOK_S = 1.0
_PATIENCE_S = 15.0
"""How long a scheduler may not answer before it counts as gone."""

Work = Callable[[Source, int], tuple[Callable[..., Any], Any]]
"""What to call for a source with so many threads, and with what."""


@dataclass(slots=True)
class WorkerPool:
    """Workers, and the sources that wait for them: the largest first, so that none is left to the end."""

    executor: Executor
    workers: int
    threads: int
    memory: int
    waiting: deque[tuple[Source, int]]
    too_large: dict[Source, int]
    is_reachable: Callable[[], bool] = lambda: True
    address: str = ""
    _free: int = 0
    _tries: dict[Source, int] = field(default_factory=dict[Source, int])

    def results(self, work: Work) -> Iterator[tuple[Source, Any]]:
        """Each source with what came of it: a value, or the exception that it ended with.

        Raises: SchedulerLostError: the scheduler does not answer any more.
            WorkerDiedError: the executor takes no more work.
        """
        self._free = self.memory - self.workers * WORKER_BYTES
        running: dict[Future[Any], tuple[Source, int]] = {}
        answered = time.monotonic()
        while self.waiting or running:
            self._hand_out(work, running)
            done, _ = wait(running, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            if self.is_reachable():
                answered = time.monotonic()
            elif time.monotonic() - answered > _PATIENCE_S:
                raise self._lost()
            for future in done:
                source, peak = running.pop(future)
                self._free += peak - WORKER_BYTES
                outcome = self._outcome(future)
                if isinstance(outcome, WorkerDiedError) and self._tries[source] < _TRIES:
                    self.waiting.append((source, peak))
                else:
                    yield source, outcome

    def _hand_out(self, work: Work, running: dict["Future[Any]", tuple[Source, int]]) -> None:
        while self.waiting and len(running) < self.workers * _AHEAD:
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
            try:
                future = self.executor.submit(function, argument)
            except BrokenExecutor as error:
                raise _broken(error) from None
            running[future] = source, peak

    def _outcome(self, future: "Future[Any]") -> Any:
        try:
            error = future.exception()
        except CancelledError:
            raise self._lost() from None
        if isinstance(error, BrokenExecutor):
            raise _broken(error)
        return future.result() if error is None else error

    def _lost(self) -> SchedulerLostError:
        return SchedulerLostError(
            f"the scheduler {self.address} went away; what was done is in the lake, and a second run goes on"
        )


def _broken(error: BrokenExecutor) -> WorkerDiedError:
    return WorkerDiedError(
        f"the executor takes no more work ({error}); what was done is in the lake, and a second run goes on"
    )


@contextlib.contextmanager
def open_workers(
    peaks: Mapping[Source, int],
    workers: int | None,
    memory: int | None,
    executor: Executor | None,
    scheduler: str | None,
) -> Generator[WorkerPool]:
    """The workers of a batch, for the sources of ``peaks``, which says how much memory each takes.

    Raises: InvalidArgumentError: the arguments make no sense together.
    """
    if executor is not None and scheduler is not None:
        raise InvalidArgumentError("name an executor or a scheduler, not both")
    if workers is not None and workers < 1:
        raise InvalidArgumentError(f"workers must be at least 1, not {workers}")
    order = sorted(peaks.items(), key=lambda item: (-item[1], item[0].name))
    if scheduler is not None:
        with _connect(scheduler) as client:
            tasks, total = _capacity(client, scheduler)
            # A trace is not a pure function of its path: it may have been read before, and changed.
            pool = _planned(order, workers or tasks, memory or total, client.get_executor(pure=False))
            pool.is_reachable, pool.address = lambda: client.status == "running", scheduler
            yield pool
        return
    limit = memory or sizing.default_memory()
    if executor is not None:
        yield _planned(order, workers or sizing.cores(), limit, executor)
        return
    count, threads = _processes(order, workers, limit)
    pool = ProcessPool(count, threads=threads)
    try:
        yield _planned(order, count, limit, pool, threads)
    except BaseException:
        # Nobody waits for what is running; its folder goes with the staging folder.
        pool.shutdown(wait=False)
        raise
    pool.shutdown()


def _planned(
    order: list[tuple[Source, int]], workers: int, memory: int, executor: Executor, threads: int = 1
) -> WorkerPool:
    most = memory - (workers - 1) * WORKER_BYTES
    fits = deque((source, peak) for source, peak in order if peak <= most)
    too_large = {source: peak for source, peak in order if peak > most}
    return WorkerPool(executor, workers, threads, memory, fits, too_large)


def _processes(order: list[tuple[Source, int]], workers: int | None, memory: int) -> tuple[int, int]:
    """How many processes, so that the largest source fits beside them; and threads of each."""
    wanted = min(workers or sizing.cores(), len(order))
    # Those that fit nowhere do not count: they are reported, and left out.
    largest = max((peak for _, peak in order if peak <= memory), default=WORKER_BYTES)
    count = max(1, min(wanted, 1 + (memory - largest) // WORKER_BYTES))
    # With fewer traces than cores, a trace may have several.
    return count, max(1, (workers or sizing.cores()) // count) if count == len(order) else 1


@contextlib.contextmanager
def _connect(address: str) -> Generator[Any]:
    """A client of the scheduler at ``address``, such as ``tcp://10.0.0.1:8786``.

    Raises: InvalidArgumentError: Dask is not installed.
        SchedulerLostError: nothing answers there.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise InvalidArgumentError("--scheduler needs Dask; pip install 'kernelscope[dask]'") from None
    try:
        client: Any = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise SchedulerLostError(f"the scheduler {address} does not answer: {error}") from None
    try:
        yield client
    finally:
        with contextlib.suppress(OSError, TimeoutError):
            client.close(timeout=1)


def _capacity(client: Any, address: str) -> tuple[int, int]:
    """How many tasks the workers of a scheduler do at once, and what memory they have."""
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise InvalidArgumentError(f"the scheduler {address} has no workers; start dask worker {address}")
    threads = sum(int(worker["nthreads"]) for worker in workers.values())
    return threads, sum(int(worker["memory_limit"] or 0) for worker in workers.values()) or 2**62
