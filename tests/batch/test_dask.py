"""Batches through a Dask scheduler: what may be wrong with it and its workers ends in one sentence."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters import Cluster, dask, free_port
from jobs import assert_same, batch, files_of

import kernelscope as ks
from kernelscope.batch import dask_cluster, sizing
from kernelscope.batch.dask_cluster import DaskCluster, Needs
from kernelscope.batch.pool import Limits
from kernelscope.batch.reports import BatchReport, RankReport
from kernelscope.batch.sources import find
from kernelscope.errors import SchedulerLostError, UnusableWorkersError
from process_tree import has_open
from waiting import LIMIT_S

pytest.importorskip("distributed", reason="Dask is not installed")
pytestmark = pytest.mark.filterwarnings("default")

Files = dict[str, bytes]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers with which nothing is wrong."""
    with dask(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


@pytest.fixture
def begun(job: Path, tmp_path: Path) -> Path:
    """A lake that has one rank of three."""
    batch(job / "rank0.pt.trace.json", tmp_path / "lake")
    return tmp_path / "lake"


def assert_goes_on(job: Path, lake: Path, before: Files, undisturbed: Files) -> None:
    """What was in a lake is there yet, and the next batch ends as if nothing had been."""
    now = files_of(lake)
    assert {name: now[name] for name in before if name.startswith("run=")} == {
        name: content for name, content in before.items() if name.startswith("run=")
    }
    assert [path.name for path in (lake / ".batch").iterdir()] == ["lock"]
    assert batch(job, lake)[1].unchanged >= 1
    assert_same(lake, undisturbed)


def test_dask(cluster: Cluster, job: Path, undisturbed: Files, tmp_path: Path) -> None:
    assert batch(job, tmp_path / "lake", scheduler=cluster.address)[1].done == 3
    assert_same(tmp_path / "lake", undisturbed)


def stopped(command: Run, job: Path, lake: Path, address: str) -> str:
    """What a batch says that ends without having come to all ranks."""
    done = command("batch", job, "--out", lake, "--scheduler", address, "--no-summary")
    assert done.returncode == 3, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("kernelscope: ")]
    assert "Traceback" not in done.stderr
    assert len(said) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == said[0]
    return said[0]


def test_no_scheduler(
    cli: Run, job: Path, undisturbed: Files, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "_CONNECT_S", 1.0)
    before = files_of(begun)
    said = stopped(cli, job, begun, f"tcp://127.0.0.1:{free_port()}")
    assert "does not answer" in said
    assert "Check that it is running" in said
    assert_goes_on(job, begun, before, undisturbed)


@pytest.mark.parametrize("address", ["10.0.0.1", "nosuch://10.0.0.1:8786", "tcp://10.0.0.1"])
def test_no_address(cli: Run, job: Path, tmp_path: Path, address: str) -> None:
    done = cli("batch", job, "--out", tmp_path / "lake", "--scheduler", address)
    assert done.returncode == 2
    assert "an address looks like tcp://10.0.0.1:8786" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGSTOP], ids=lambda stop: stop.name)
def test_a_scheduler_that_goes_away(
    job: Path,
    undisturbed: Files,
    begun: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: signal.Signals,
) -> None:
    monkeypatch.setattr(dask_cluster, "_PATIENCE_S", 3.0)
    monkeypatch.setattr(dask_cluster, "_ANSWER_S", 1.0)
    before = files_of(begun)
    with dask(tmp_path, workers=1) as cluster:
        leave = once(lambda: cluster.scheduler.send_signal(stop))
        with pytest.raises(SchedulerLostError, match="the next run resumes"):
            ks.batch.run(job, begun, workers=1, scheduler=cluster.address, on_rank=leave)
    assert_goes_on(job, begun, before, undisturbed)


def once(act: Callable[[], object]) -> Callable[[RankReport, BatchReport], None]:
    """Acts when the first rank has been read; the third has not been handed out then."""
    acted: list[bool] = []

    def note(rank: RankReport, _: BatchReport) -> None:
        if rank.status == "done" and not acted:
            acted.append(True)
            act()

    return note


def test_a_scheduler_without_workers(
    cli: Run, job: Path, undisturbed: Files, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "_WORKERS_PATIENCE_S", 1.0)
    before = files_of(begun)
    with dask(tmp_path) as cluster:
        assert "has no workers. Start some (dask worker tcp://" in stopped(cli, job, begun, cluster.address)
    assert_goes_on(job, begun, before, undisturbed)


def test_all_workers_gone(
    job: Path, undisturbed: Files, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "_WORKERS_PATIENCE_S", 1.0)
    before = files_of(begun)
    with dask(tmp_path, workers=1) as cluster:
        leave = once(cluster.workers[0].kill)
        with pytest.raises(UnusableWorkersError, match=r"has no workers\. Start some"):
            ks.batch.run(job, begun, workers=1, scheduler=cluster.address, on_rank=leave)
    assert_goes_on(job, begun, before, undisturbed)


def test_patience_ends_within_a_minute() -> None:
    connecting = dask_cluster._CONNECT_S
    asking = dask_cluster._ANSWER_S + 2 * dask_cluster._WORKERS_ANSWER_S
    waiting = max(dask_cluster._PATIENCE_S, dask_cluster._WORKERS_PATIENCE_S)
    assert connecting + max(asking, waiting + dask_cluster._ANSWER_S) < 60


def test_workers_that_come_later(job: Path, undisturbed: Files, tmp_path: Path) -> None:
    """What was handed to a worker that is dead is done by one that came when there was none."""
    with dask(tmp_path, workers=1) as cluster:

        def exchange() -> None:
            cluster.workers[0].kill()
            cluster.wait_for(0)
            cluster.add_worker()

        report = ks.batch.run(
            job, tmp_path / "lake", workers=1, scheduler=cluster.address, on_rank=once(exchange)
        )
    assert report.done == 3
    assert_same(tmp_path / "lake", undisturbed)


def other_package(folder: Path, content: str) -> str:
    """A folder with another ``kernelscope`` for a worker to import."""
    (folder / "other/kernelscope").mkdir(parents=True)
    (folder / "other/kernelscope/__init__.py").write_text(content)
    return str(folder / "other")


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("raise ModuleNotFoundError('none here')", "cannot import kernelscope: tcp://127.0.0.1:"),
        ("__version__ = '0.0.7'", "have kernelscope 0.0.7: tcp://127.0.0.1:"),
    ],
    ids=["without", "another version"],
)
def test_workers_without_this_kernelscope(
    cli: Run, job: Path, undisturbed: Files, begun: Path, tmp_path: Path, package: str, said: str
) -> None:
    before = files_of(begun)
    with dask(tmp_path, workers=1) as cluster:
        cluster.add_worker(PYTHONPATH=other_package(tmp_path, package))
        cluster.wait_for(2)
        error = stopped(cli, job, begun, cluster.address)
    assert f"1 workers of the scheduler {cluster.address} {said}" in error
    assert f"install {'kernelscope ' if 'import' in said else ''}{ks.__version__}" in error
    assert_goes_on(job, begun, before, undisturbed)


def test_a_worker_without_kernelscope_that_comes_later(
    job: Path, undisturbed: Files, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(begun)
    monkeypatch.setattr(dask_cluster, "_LOOK_S", 0.0)
    with dask(tmp_path, workers=1) as cluster:

        def join() -> None:
            cluster.add_worker(PYTHONPATH=other_package(tmp_path, "raise ImportError"))
            cluster.wait_for(2)

        with pytest.raises(UnusableWorkersError, match="cannot import kernelscope"):
            ks.batch.run(job, begun, workers=1, scheduler=cluster.address, on_rank=once(join))
    assert_goes_on(job, begun, before, undisturbed)


# In the place of a machine that does not have the folder.
_HIDE = """
import errno, os

def hiding(real):
    def call(path, *more, **options):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(os.environ["HIDDEN"]):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return real(path, *more, **options)
    return call

os.mkdir, os.stat = hiding(os.mkdir), hiding(os.stat)
"""


@pytest.mark.parametrize("hidden", ["lake", "traces"])
def test_storage_that_is_not_shared(
    cli: Run, job: Path, undisturbed: Files, begun: Path, tmp_path: Path, hidden: str
) -> None:
    before = files_of(begun)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(_HIDE)
    paths = os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    with dask(tmp_path, workers=1) as cluster:
        cluster.add_worker(PYTHONPATH=paths, HIDDEN=str(begun if hidden == "lake" else job))
        cluster.wait_for(2)
        said = stopped(cli, job, begun, cluster.address)
    what = f"cannot write to the lake {begun} (No such file or directory)"
    assert (what if hidden == "lake" else f"cannot access {job}/rank") in said
    assert "must have the same paths on all machines" in said
    assert_goes_on(job, begun, before, undisturbed)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two certificates that sign themselves, with their keys."""
    x509 = pytest.importorskip("cryptography.x509", reason="makes certificates")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("certificates")
    now = dt.datetime.now(dt.timezone.utc)
    for name in ("ours", "theirs"):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        built = x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
        built = built.public_key(key.public_key()).serial_number(x509.random_serial_number())
        built = built.not_valid_before(now - dt.timedelta(1)).not_valid_after(now + dt.timedelta(1))
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        signed = built.sign(key, hashes.SHA256())
        pem = serialization.Encoding.PEM
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (folder / name).write_bytes(key.private_bytes(pem, *plain) + signed.public_bytes(pem))
    return {path.name: path for path in folder.iterdir()}


def tls(certificate: Path) -> dict[str, str]:
    """Dask's settings for a certificate, as environment."""
    whose = ("CLIENT", "SCHEDULER", "WORKER")
    parts = [f"{who}__{part}" for who in whose for part in ("CERT", "KEY")]
    return {f"DASK_DISTRIBUTED__COMM__TLS__{part}": str(certificate) for part in ("CA_FILE", *parts)}


@pytest.fixture(scope="module")
def encrypted(
    certificates: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, dict[str, str]]]:
    """A cluster that speaks TLS, and the settings of its clients."""
    settings = tls(certificates["ours"])
    with dask(tmp_path_factory.mktemp("encrypted"), protocol="tls", **settings) as cluster:
        cluster.add_worker()
        yield cluster, settings


def test_tls(
    encrypted: tuple[Cluster, dict[str, str]], process: Run, job: Path, undisturbed: Files, tmp_path: Path
) -> None:
    cluster, settings = encrypted
    options = ["--out", tmp_path / "lake", "--scheduler", cluster.address, "--no-summary"]
    done = process("batch", job, *options, env=settings)
    assert done.returncode == 0, done.stderr
    assert_same(tmp_path / "lake", undisturbed)


@pytest.mark.parametrize("given", ["nothing", "theirs", "no file", "no tls"])
def test_tls_without_the_right_certificates(
    encrypted: tuple[Cluster, dict[str, str]],
    certificates: dict[str, Path],
    process: Run,
    job: Path,
    undisturbed: Files,
    begun: Path,
    given: str,
) -> None:
    cluster, _ = encrypted
    before = files_of(begun)
    settings = {"theirs": tls(certificates["theirs"]), "no file": tls(Path("/nowhere"))}.get(given, {})
    address = cluster.address.replace("tls://", "tcp://") if given == "no tls" else cluster.address

    def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return process(*arguments, env=settings)

    said = stopped(command, job, begun, address)
    expected = {"nothing": "needs certificates: set DASK_DISTRIBUTED__COMM__TLS__CA_FILE"}
    expected["no file"] = "cannot read the certificates"
    assert expected.get(given, "both use TLS with certificates of one authority, or both do not") in said
    assert_goes_on(job, begun, before, undisturbed)


def test_memory_is_that_of_a_worker_and_not_of_all(job: Path, tmp_path: Path) -> None:
    traces = shutil.copytree(job, tmp_path / "traces")
    with (traces / "rank1.pt.trace.json").open("ab") as file:
        file.write(b" " * 300_000_000)
    (large,) = find([str(traces / "rank1.pt.trace.json")], tmp_path / "lake")
    room = 4 * 350_000_000 // 5 - dask_cluster._WORKER_BYTES
    assert room < sizing.expected_peak(large) - sizing.WORKER_BYTES < 2 * room
    with dask(tmp_path) as cluster:
        for _ in range(3):
            cluster.add_worker("--memory-limit", "350MB")
        cluster.wait_for(3)
        found, report = batch(traces, tmp_path / "lake", scheduler=cluster.address)
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "done"}
    (failure,) = report.failures
    assert failure.error_kind == "MemoryLimitError"
    assert "but the largest worker of tcp://" in (failure.error or "")


@pytest.mark.parametrize(("size", "patience_s"), [(200_000_000, LIMIT_S), (400_000_000, 1)])
def test_a_worker_does_at_once_what_it_has_memory_for(tmp_path: Path, size: int, patience_s: int) -> None:
    """Two threads, and room for one large task or for two small ones."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()

    def meet(number: int) -> bool:
        # Whether the other one comes.
        (meeting / f"{number}").touch()
        end = time.monotonic() + patience_s
        while len(list(meeting.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        met = len(list(meeting.iterdir())) == 2
        if patience_s == 1:
            (meeting / f"{number}").unlink()
        return met

    limits = Limits(expected_bytes=size + sizing.WORKER_BYTES)
    with dask(tmp_path) as cluster:
        cluster.add_worker("--nthreads", "2", "--memory-limit", "1GB")
        cluster.wait_for(1)
        hands = DaskCluster(cluster.client, cluster.address, Needs(str(tmp_path)), None, None)
        hands.wait()
        assert list(hands.rooms.values()) == [800_000_000 - dask_cluster._WORKER_BYTES]
        both = [hands.submit(limits, meet, number) for number in range(2)]
        assert [task.result() for task in both] == [patience_s == LIMIT_S] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_trace_that_kills_its_workers(job: Path, tmp_path: Path) -> None:
    """Dask gives a task up that killed as many workers as its settings allow; it is tried once more."""
    traces = shutil.copytree(job, tmp_path / "traces")
    with (traces / "rank1.pt.trace.json").open("ab") as file:
        file.write(b" " * 300_000_000)
    killed: list[int] = []
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.001):
            for worker in cluster.workers:
                if worker.pid not in killed and has_open(worker.pid, "rank1.pt.trace.json"):
                    worker.kill()
                    killed.append(worker.pid)

    with dask(tmp_path, workers=3, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0") as cluster:
        watcher = threading.Thread(target=kill)
        watcher.start()
        try:
            found, report = batch(traces, tmp_path / "lake", scheduler=cluster.address)
        finally:
            stop.set()
            watcher.join()
    assert len(killed) == 2
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "done"}
    assert report.failures[0].error_kind == "WorkerDiedError"
    assert "probably because memory ran out" in (report.failures[0].error or "")
