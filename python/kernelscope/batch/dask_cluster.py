"""The workers of a Dask scheduler: whether they can do the work of a batch, and how much each at once.

A worker that was looked at offers the memory it has for traces as a resource of Dask, of which every task
takes its share. So the scheduler never gives a worker more than fits, and nothing to workers that came later
until they were looked at, too.
"""

import contextlib
import importlib
import logging
import os
import pkgutil
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from kernelscope import __version__
from kernelscope.batch.pool import Limits
from kernelscope.batch.sizing import WORKER_BYTES
from kernelscope.errors import InvalidArgumentError, SchedulerLostError, UnusableWorkersError

_RESOURCE = "kernelscope_bytes"
_WORKER_BYTES = 150_000_000
"""A worker of Dask between traces: 134 MB were measured."""
_CONNECT_S = 10.0
_ANSWER_S = 5.0
_WORKERS_ANSWER_S = 20.0
_LOOK_S = 1.0
_PATIENCE_S = 15.0
"""How long a scheduler may not answer before it counts as gone."""
_WORKERS_PATIENCE_S = 30.0
"""How long a scheduler may be without workers: batch systems start them one by one, and anew."""
_NAMED = 3
"""Workers or files that a message names."""
_TLS = "DASK_DISTRIBUTED__COMM__TLS__"
_QUIET = (
    *("distributed", "distributed.client", "distributed.comm", "distributed.core", "asyncio", "tornado"),
    "tornado.application",  # has a level of its own
)


class Needs(NamedTuple):
    """What all workers of a batch must see under the same paths as the process that leads it."""

    folder: str
    """A folder of the lake, to write into."""
    files: Sequence[str] = ()
    """Some of the traces."""


class Offer(NamedTuple):
    """What a worker says of itself."""

    room: int
    """Bytes that it has for traces."""
    refused: str | None
    """Why it cannot write into the lake."""
    missing: Sequence[str]
    """Files that it does not see."""


async def offer(needs: Needs, memory: int | None, dask_worker: Any) -> Offer:
    """Says what the worker it runs in can do, and offers its memory if that is all that is needed."""
    probe = Path(needs.folder) / f"probe-{uuid.uuid4().hex}"
    refused = None
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        refused = error.strerror or str(error)
    missing = [name for name in needs.files if not os.path.exists(name)]
    limit: int | None = dask_worker.memory_manager.memory_limit
    # Dask takes no more work from four fifths of the limit on.
    most = min(memory or 2**53, limit * 4 // 5 if limit else 2**53)
    found = Offer(max(most - _WORKER_BYTES, 0), refused, missing)
    if refused is None and not missing:
        await dask_worker.set_resources(**{_RESOURCE: found.room})
    return found


class DaskCluster:
    """The workers behind a client, as many as there are at the time."""

    def __init__(
        self, client: Any, address: str, needs: Needs, workers: int | None, memory: int | None
    ) -> None:
        """Starts with no workers.

        ``workers`` is how many tasks are done at once, at most; ``memory`` is what each worker may use, as
        much as its own limit says if null.
        """
        self.address = address
        self.tasks = 0
        """How many tasks are done at once, at this time."""
        self.rooms: dict[str, int] = {}
        """Bytes that each worker has for traces."""
        self._client = client
        # A trace is not a pure function of its path: it may have been read before, and changed.
        self._executor = client.get_executor(pure=False)
        self._keys: dict[Future[Any], str] = {}
        """What Dask calls the tasks that are not done."""
        self._needs = needs
        self._workers = workers
        self._memory = memory
        self._answered = self._manned = time.monotonic()
        self._next_look = 0.0

    def wait(self) -> None:
        """Waits for the first workers.

        Raises: SchedulerLostError, UnusableWorkersError: as for ``look``.
        """
        while not self.rooms:
            self.look()
            time.sleep(0.05)

    def submit(self, limits: Limits, function: Callable[..., Any], argument: object) -> "Future[Any]":
        """Has a worker call ``function(argument)`` that has room for it; Dask knows no other limits."""
        key = f"kernelscope-{uuid.uuid4().hex}"
        share = {_RESOURCE: max(limits.expected_bytes - WORKER_BYTES, 0)}
        future: Future[Any] = self._executor.submit(function, argument, key=key, resources=share)
        self._keys[future] = key
        future.add_done_callback(self._keys.pop)
        return future

    def look(self) -> "list[Future[Any]]":
        """Looks at who is there, once a second, and gives the tasks that no worker will take any more.

        Dask does not look again at those that no worker had the resources for.

        Raises: SchedulerLostError: the scheduler does not answer any more.
            UnusableWorkersError: there are no workers, or one cannot do the work.
        """
        now = time.monotonic()
        if now < self._next_look:
            return []
        self._next_look = now + _LOOK_S
        try:
            return self._look(now)
        except (OSError, TimeoutError, RuntimeError) as error:
            if isinstance(error, (SchedulerLostError, UnusableWorkersError)):
                raise
            if time.monotonic() - self._answered > _PATIENCE_S:
                raise self.lost() from None
            return []

    def _look(self, now: float) -> "list[Future[Any]]":
        if self._client.status != "running":
            raise TimeoutError
        there: dict[str, int] = self._client.nthreads(callback_timeout=_ANSWER_S)
        self._answered = time.monotonic()
        threads = sum(there.values())
        self.tasks = threads if self._workers is None else min(threads, self._workers)
        if there:
            self._manned = self._answered
        elif now - self._manned > _WORKERS_PATIENCE_S:
            raise UnusableWorkersError(
                f"the scheduler {self.address} has no workers; start some (dask worker {self.address}) and"
                " run again: what was done is in the lake"
            )
        self.rooms = {worker: room for worker, room in self.rooms.items() if worker in there}
        new = there.keys() - self.rooms.keys()
        if not new:
            return []
        before = dict(self._keys)
        self.rooms |= self._inspect(sorted(new))
        in_hand: Mapping[str, Iterable[str]] = self._client.sync(
            self._client.scheduler.processing, workers=None, callback_timeout=_ANSWER_S
        )
        taken = {key for keys in in_hand.values() for key in keys}
        return [future for future, key in before.items() if key not in taken]

    def _inspect(self, workers: list[str]) -> dict[str, int]:
        """The room of workers that have been looked at and can do the work."""
        versions = self._ask(workers, pkgutil.resolve_name, "kernelscope:__version__")
        without = [worker for worker, version in versions.items() if isinstance(version, ImportError)]
        if without:
            raise self._unusable(
                without, "cannot import kernelscope", f"install kernelscope {__version__} there"
            )
        others = {worker: version for worker, version in versions.items() if version != __version__}
        wrong = [worker for worker, version in others.items() if isinstance(version, str)]
        if wrong:
            raise self._unusable(
                wrong, f"have kernelscope {others[wrong[0]]}", f"install {__version__}, which runs here"
            )
        # What is left has gone in the meantime.
        asked = [worker for worker in workers if worker in versions and worker not in others]
        offers = self._ask(asked, offer, self._needs, self._memory)
        found = {worker: told for worker, told in offers.items() if isinstance(told, Offer)}
        for told in found.values():
            self._check(told, found)
        return {worker: told.room for worker, told in found.items()}

    def _check(self, told: Offer, found: Mapping[str, Offer]) -> None:
        shared = "the lake and the traces must lie where all machines see them under the same paths"
        if told.refused is not None:
            blind = [worker for worker, other in found.items() if other.refused is not None]
            folder = Path(self._needs.folder).parents[1]
            raise self._unusable(blind, f"cannot write into the lake {folder} ({told.refused})", shared)
        # A trace that has gone in the meantime costs only itself.
        missing = [name for name in told.missing if os.path.exists(name)]
        if missing:
            blind = [worker for worker, other in found.items() if other.missing]
            raise self._unusable(blind, f"do not see {missing[0]}", shared)

    def _unusable(self, workers: Sequence[str], what: str, remedy: str) -> UnusableWorkersError:
        some = ", ".join(workers[:_NAMED]) + (" and others" if len(workers) > _NAMED else "")
        return UnusableWorkersError(
            f"{len(workers)} workers of the scheduler {self.address} {what}: {some}; {remedy}, and run again"
        )

    def _ask(self, workers: list[str], function: Callable[..., Any], *arguments: object) -> dict[str, Any]:
        """What a function gives in each worker, or the exception that it ended with."""
        try:
            return self._client.run(
                function, *arguments, workers=workers, on_error="return", callback_timeout=_WORKERS_ANSWER_S
            )
        except TimeoutError:
            raise self._unusable(
                workers, f"were asked, and some do not answer for {_WORKERS_ANSWER_S:.0f} s", "restart those"
            ) from None

    def lost(self) -> SchedulerLostError:
        """The error of a scheduler that is not there any more."""
        return SchedulerLostError(
            f"the scheduler {self.address} went away; what was done is in the lake, and a second run goes on"
        )


@contextlib.contextmanager
def connect(address: str) -> Generator[Any]:
    """A client of the scheduler at ``address``, such as ``tcp://10.0.0.1:8786``.

    Raises: InvalidArgumentError: Dask is not installed, or that is no address.
        SchedulerLostError: nothing answers there.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise InvalidArgumentError("--scheduler needs Dask; pip install 'kernelscope[dask]'") from None
    _check_address(distributed, address)
    with _quiet():
        try:
            client: Any = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, RuntimeError) as error:
            raise SchedulerLostError(
                f"the scheduler {address} does not answer: {error}; see that it runs, that this machine"
                " reaches it, and that both use TLS, with certificates of one authority, or neither"
            ) from None
        try:
            yield client
        finally:
            with contextlib.suppress(OSError, TimeoutError):
                client.close(timeout=1)


def _check_address(distributed: Any, address: str) -> None:
    """Refuses what a client would fall over, and leave half made."""
    addressing = importlib.import_module("distributed.comm.addressing")
    try:
        addressing.get_address_host_port(address, strict=True)
    except ValueError as error:
        raise InvalidArgumentError(
            f"--scheduler {address}: {error}; an address is such as tcp://10.0.0.1:8786"
        ) from None
    if not address.startswith("tls://"):
        return
    try:
        has_certificates = distributed.Security().get_connection_args("client")["ssl_context"] is not None
    except OSError as error:
        raise SchedulerLostError(
            f"--scheduler {address}: the certificates cannot be read ({error}); see {_TLS}CA_FILE,"
            f" {_TLS}CLIENT__CERT and {_TLS}CLIENT__KEY"
        ) from None
    if not has_certificates:
        raise SchedulerLostError(
            f"--scheduler {address} needs certificates: name them in {_TLS}CA_FILE, {_TLS}CLIENT__CERT and"
            f" {_TLS}CLIENT__KEY, or in Dask's configuration"
        )


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Keeps what Dask logs of lost connections to itself: the batch says in a sentence what it means."""
    loggers = [logging.getLogger(name) for name in _QUIET]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
