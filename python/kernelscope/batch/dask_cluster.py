"""The workers of a Dask scheduler: whether they can run the batch, and how many tasks fit on each.

A checked worker offers its memory for traces as a Dask resource, and every task takes its share. So the
scheduler never assigns more than fits, and assigns nothing to later workers until they are checked, too.
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
"""Memory of an idle Dask worker between traces, in bytes: 134 MB were measured."""
_CONNECT_S = 10.0
_ANSWER_S = 5.0
_WORKERS_ANSWER_S = 20.0
_LOOK_S = 1.0
_PATIENCE_S = 15.0
"""Time without an answer after which a scheduler counts as lost, in seconds."""
_WORKERS_PATIENCE_S = 30.0
"""Time that a scheduler may be without workers, in seconds: batch systems start them one by one, and restart
them."""
_NAMED = 3
"""Maximum number of workers or files that a message names."""
_TLS = "DASK_DISTRIBUTED__COMM__TLS__"
_QUIET = (
    *("distributed", "distributed.client", "distributed.comm", "distributed.core", "asyncio", "tornado"),
    "tornado.application",  # has a level of its own
)


class Needs(NamedTuple):
    """Paths that all workers of a batch must access under the same names as the coordinator."""

    folder: str
    """A folder of the lake, to write to."""
    files: Sequence[str] = ()
    """A sample of the traces."""


class Offer(NamedTuple):
    """Capabilities that a worker reports."""

    room: int
    """Bytes available for traces."""
    refused: str | None
    """Reason why it cannot write to the lake."""
    missing: Sequence[str]
    """Files that it cannot access."""


async def offer(needs: Needs, memory: int | None, dask_worker: Any) -> Offer:
    """Returns the capabilities of the worker it runs in, and offers its memory if they are sufficient."""
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
    """The current workers behind a client."""

    def __init__(
        self, client: Any, address: str, needs: Needs, workers: int | None, memory: int | None
    ) -> None:
        """Starts without workers.

        ``workers`` limits the number of concurrent tasks. ``memory`` limits each worker (default: the
        worker's own limit).
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
        """Runs ``function(argument)`` on a worker with enough room. Dask has no other limits."""
        key = f"kernelscope-{uuid.uuid4().hex}"
        share = {_RESOURCE: max(limits.expected_bytes - WORKER_BYTES, 0)}
        future: Future[Any] = self._executor.submit(function, argument, key=key, resources=share)
        self._keys[future] = key
        future.add_done_callback(self._keys.pop)
        return future

    def look(self) -> "list[Future[Any]]":
        """Checks the workers once a second, and returns the tasks that no worker will accept any more.

        Dask does not reconsider tasks for which no worker had the resources.

        Raises: SchedulerLostError: the scheduler does not answer any more. UnusableWorkersError: there are no
            workers, or one cannot run the batch.
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
                f"the scheduler {self.address} has no workers. Start some (dask worker "
                f"{self.address}) and run again; finished ranks are in the lake"
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
                wrong,
                f"have kernelscope {others[wrong[0]]}",
                f"install {__version__}, the version that runs here",
            )
        # What is left has gone in the meantime.
        asked = [worker for worker in workers if worker in versions and worker not in others]
        offers = self._ask(asked, offer, self._needs, self._memory)
        found = {worker: told for worker, told in offers.items() if isinstance(told, Offer)}
        for told in found.values():
            self._check(told, found)
        return {worker: told.room for worker, told in found.items()}

    def _check(self, told: Offer, found: Mapping[str, Offer]) -> None:
        shared = "the lake and the traces must have the same paths on all machines"
        if told.refused is not None:
            blind = [worker for worker, other in found.items() if other.refused is not None]
            folder = Path(self._needs.folder).parents[1]
            raise self._unusable(blind, f"cannot write to the lake {folder} ({told.refused})", shared)
        # A trace that has gone in the meantime costs only itself.
        missing = [name for name in told.missing if os.path.exists(name)]
        if missing:
            blind = [worker for worker, other in found.items() if other.missing]
            raise self._unusable(blind, f"cannot access {missing[0]}", shared)

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
                workers,
                f"were asked, and some have not answered for {_WORKERS_ANSWER_S:.0f} s",
                "restart those",
            ) from None

    def lost(self) -> SchedulerLostError:
        """Returns the error for a lost scheduler."""
        return SchedulerLostError(
            f"lost the connection to the scheduler {self.address}. Finished ranks are in the lake, "
            "and the next run resumes"
        )


@contextlib.contextmanager
def connect(address: str) -> Generator[Any]:
    """Returns a client of the scheduler at ``address``, such as ``tcp://10.0.0.1:8786``.

    Raises: InvalidArgumentError: Dask is not installed, or the address is invalid. SchedulerLostError:
        nothing answers there.
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
                f"the scheduler {address} does not answer: {error}. Check that it is running, that "
                "this machine can reach it, and that both use TLS with certificates of one "
                "authority, or both do not"
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
            f"--scheduler {address}: {error}; an address looks like tcp://10.0.0.1:8786"
        ) from None
    if not address.startswith("tls://"):
        return
    try:
        has_certificates = distributed.Security().get_connection_args("client")["ssl_context"] is not None
    except OSError as error:
        raise SchedulerLostError(
            f"--scheduler {address}: cannot read the certificates ({error}); see {_TLS}CA_FILE, "
            f"{_TLS}CLIENT__CERT and {_TLS}CLIENT__KEY"
        ) from None
    if not has_certificates:
        raise SchedulerLostError(
            f"--scheduler {address} needs certificates: set {_TLS}CA_FILE, {_TLS}CLIENT__CERT and "
            f"{_TLS}CLIENT__KEY, or configure them in Dask"
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
