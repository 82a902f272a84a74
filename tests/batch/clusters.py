"""A scheduler of Dask and its workers, as processes of their own on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from waiting import LIMIT_S, wait_for, wait_until


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """The processes; a test stops, kills and adds what it likes."""

    def __init__(self, folder: Path, protocol: str, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._client: Any = None
        self.workers: list[subprocess.Popen[bytes]] = []
        told = Path(mkdtemp(dir=folder)) / "scheduler.json"
        options = ("--host", f"{protocol}://127.0.0.1:0", "--scheduler-file", str(told))
        self.scheduler = self._begin("scheduler", *options)
        wait_for(self.scheduler, lambda: told.exists() and told.read_text().endswith("}"))
        self.address: str = json.loads(told.read_text())["address"]

    def add_worker(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a worker of one thread, if ``options`` do not say otherwise."""
        own = ["--nthreads", "1", "--no-nanny", "--local-directory", str(self._folder)]
        worker = self._begin("worker", self.address, *own, *options, **environment)
        self.workers.append(worker)
        return worker

    def _begin(self, kind: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        # Without a dashboard a scheduler serves its state all the same, at a port that another test may have.
        page = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options, *page]
        own = {**os.environ, **self._environment, **environment}
        # What they say is shown of a test that fails.
        return subprocess.Popen(command, cwd=self._folder, env=own)

    @property
    def client(self) -> Any:
        """A client, to look from outside."""
        if self._client is None:
            from distributed import Client

            self._client = Client(self.address, timeout=LIMIT_S, set_as_default=False)
        return self._client

    def wait_for(self, workers: int) -> None:
        """Waits until the scheduler has so many workers."""
        wait_until(lambda: len(self.client.nthreads()) == workers)

    def close(self) -> None:
        """Ends all that is left."""
        if self._client is not None:
            self._client.close(timeout=1)
        for process in (self.scheduler, *self.workers):
            process.kill()
        for process in (self.scheduler, *self.workers):
            process.wait()


@contextmanager
def dask(folder: Path, *, workers: int = 0, protocol: str = "tcp", **environment: str) -> Iterator[Cluster]:
    """A scheduler with workers that it knows."""
    cluster = Cluster(folder, protocol, environment)
    try:
        for _ in range(workers):
            cluster.add_worker()
        if workers:
            cluster.wait_for(workers)
        yield cluster
    finally:
        cluster.close()
