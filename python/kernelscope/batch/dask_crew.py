"""Workers of a Dask scheduler, on this machine or many."""

import contextlib
import importlib
from collections.abc import Generator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from kernelscope.errors import InvalidArgumentError, SchedulerLostError

_CONNECT_S = 10


@dataclass(frozen=True, slots=True)
class Cluster:
    """A scheduler that answers: how many tasks its workers do at once, and what memory they have."""

    executor: Executor
    workers: int
    memory: int
    address: str
    client: Any

    def is_reachable(self) -> bool:
        """Whether the scheduler answers."""
        return self.client.status == "running"


@contextlib.contextmanager
def connected(address: str) -> Generator[Cluster]:
    """Connects to the scheduler at ``address``, such as ``tcp://10.0.0.1:8786``.

    Raises: InvalidArgumentError: Dask is not installed, or the scheduler has no workers.
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
        workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise InvalidArgumentError(f"the scheduler {address} has no workers; start dask worker {address}")
        threads = sum(int(worker["nthreads"]) for worker in workers.values())
        memory = sum(int(worker["memory_limit"] or 0) for worker in workers.values())
        # A trace is not a pure function of its path: it may have been read before, and changed.
        yield Cluster(client.get_executor(pure=False), threads, memory or 2**62, address, client)
    finally:
        with contextlib.suppress(OSError, TimeoutError):
            client.close(timeout=1)
