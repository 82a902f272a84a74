"""What goes wrong with a thousand files, killed batches, and every executor."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import assert_same, batch, files_of, write_job
from process_tree import has_open, is_alive, workers_of

import kernelscope as ks
from kernelscope.batch import manifest, sizing, work
from kernelscope.batch.pool import ProcessPool

Run = Callable[..., subprocess.CompletedProcess[str]]
Files = dict[str, bytes]


@pytest.fixture
def traces(job: Path, tmp_path: Path) -> Path:
    return shutil.copytree(job, tmp_path / "traces")


def errors_of(lake: Path) -> dict[str, str | None]:
    return {Path(e.source).name: e.error_kind for e in ks.scan(lake).entries if e.outcome == "failed"}


def test_a_corrupt_file_costs_only_itself(traces: Path, undisturbed: Files, tmp_path: Path) -> None:
    bad = {
        traces / "rank8.pt.trace.json.gz": b"\x1f\x8b" + b"\x07" * 50,
        traces / "rank9.pt.trace.json": b"\x00\x01 this is no trace",
    }
    for path, content in bad.items():
        path.write_bytes(content)
    found, report = batch(traces, tmp_path / "lake")
    assert found == {"rank0": "done", "rank1": "done", "rank2": "done", "rank8": "failed", "rank9": "failed"}
    assert set(errors_of(tmp_path / "lake")) == {path.name for path in bad}
    assert (report.done, report.failed, len(report.failures)) == (3, 2, 2)
    assert all("rank" in (entry.error or "") for entry in report.failures)
    whole = {name for name in undisturbed if name.startswith("run=")}
    assert {name for name in files_of(tmp_path / "lake") if name.startswith("run=")} == whole

    # A failure is tried again, for what failed may be repaired by now.
    for path in bad:
        path.unlink()
    assert batch(traces, tmp_path / "lake")[1].failed == 0


def test_command_says_what_failed(process: Run, traces: Path) -> None:
    (traces / "rank9.json").write_text("no trace")
    done = process("batch", traces, "--out", "lake", "--no-summary")
    assert done.returncode == 1
    assert "rank9.json" in done.stderr
    assert "1 failed" in done.stderr
    (line,) = [json.loads(line) for line in done.stdout.splitlines() if "rank9" in line]
    assert (line["status"], line["error_kind"]) == ("failed", "NotATraceError")


def test_doubled_ranks_are_refused_both(traces: Path, tmp_path: Path) -> None:
    shutil.copy(traces / "rank1.pt.trace.json", traces / "rank1-again.json")
    found, report = batch(traces, tmp_path / "lake")
    assert found == {"rank0": "done", "rank1": "failed", "rank1-again": "failed", "rank2": "done"}
    assert (report.done, report.failed, report.finished) == (2, 2, 4)
    assert ks.scan(tmp_path / "lake").ranks.collect()["rank"].to_list() == [0, 2]
    for entry in report.failures:
        assert entry.error_kind == "RankTakenError"
        for text in ("rank1.pt.trace.json", "rank1-again.json", "--run"):
            assert text in (entry.error or "")


def test_a_double_of_what_the_lake_has_is_refused(traces: Path, tmp_path: Path) -> None:
    batch(traces, tmp_path / "lake")
    other = Path(shutil.copy(traces / "rank1.pt.trace.json", tmp_path / "other.json"))
    other.write_bytes(other.read_bytes() + b"\n")
    found, _ = batch(other, tmp_path / "lake")
    assert found == {"other": "failed"}
    assert ks.scan(tmp_path / "lake").ranks.collect()["rank"].to_list() == [0, 1, 2]
    assert batch(other, tmp_path / "lake", run="second")[0] == {"other": "done"}


def test_three_of_one_rank(traces: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copy(traces / "rank1.pt.trace.json", traces / f"{name}.json")
    found, report = batch(traces, tmp_path / "lake", workers=1)
    assert {name for name, status in found.items() if status == "failed"} == {"rank1", "a", "b"}
    assert (report.done, report.failed) == (2, 3)


def test_rank_from_the_name_and_from_nowhere(tiny: Path, tmp_path: Path) -> None:
    document = json.loads(tiny.read_text())
    del document["distributedInfo"]
    for name in ("trace_rank-12.json", "worker3.pt.trace.json", "job.5.json", "nameless.json"):
        (tmp_path / name).write_text(json.dumps(document))
    tiny.unlink()
    batch(tmp_path, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    done = lake.manifest.filter(outcome="done").sort("rank")
    assert done["rank"].to_list() == [3, 5, 12]
    assert done["rank_from"].unique().to_list() == ["name"]
    assert errors_of(tmp_path / "lake") == {"nameless.json": "RankUnknownError"}


def test_a_file_that_is_still_written(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = traces / "rank1.pt.trace.json"
    read = ks.read

    def read_and_grow(path: Path, **options: object) -> ks.Trace:
        trace = read(path, **options)  # type: ignore[arg-type]
        if path == growing:
            with growing.open("a") as file:
                file.write("\n")
        return trace

    monkeypatch.setattr("kernelscope.trace.read", read_and_grow)
    with ThreadPoolExecutor(1) as executor:
        found, report = batch(traces, tmp_path / "lake", executor=executor)
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "done"}
    assert report.failures[0].error_kind == "ChangedWhileReadError"
    monkeypatch.undo()
    assert batch(traces, tmp_path / "lake")[0]["rank1"] == "done"


def test_a_cut_file_says_what_it_lost(traces: Path, tmp_path: Path) -> None:
    cut = traces / "rank1.pt.trace.json"
    cut.write_bytes(cut.read_bytes()[:500_000])
    batch(traces, tmp_path / "lake")
    lost = ks.scan(tmp_path / "lake").manifest.sort("rank")["lost"].to_list()
    assert lost[0] == lost[2] == 0
    assert lost[1] > 0


def test_a_trace_that_needs_too_much_memory(traces: Path, tmp_path: Path) -> None:
    with (traces / "rank1.pt.trace.json").open("ab") as file:
        file.write(b" " * 40_000_000)
    found, report = batch(traces, tmp_path / "lake", memory=sizing.WORKER_BYTES + 5_000_000)
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "done"}
    assert report.failures[0].error_kind == "MemoryLimitError"
    assert "--memory" in (report.failures[0].error or "")


def test_two_batches_into_one_lake(traces: Path, tmp_path: Path) -> None:
    with (
        manifest.locked(tmp_path / "lake"),
        pytest.raises(ks.errors.LakeBusyError, match=f"process {os.getpid()}"),
    ):
        batch(traces, tmp_path / "lake")
    assert batch(traces, tmp_path / "lake")[1].done == 3


def test_a_dead_process_holds_no_lock(process: Run, traces: Path, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from kernelscope.batch.manifest import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); signal.pause()"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "lake")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    refused = process("batch", traces, "--out", tmp_path / "lake", "--no-summary")
    assert refused.returncode == 1
    assert f"process {holder.pid}" in refused.stderr
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert process("batch", traces, "--out", tmp_path / "lake", "--no-summary").returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_worker_that_always_dies_is_recorded(traces: Path, tmp_path: Path) -> None:
    """The system kills the worker that reads rank 1, twice."""
    stop = threading.Event()
    killed: list[int] = []

    def watch() -> None:
        while not stop.is_set():
            for pid in workers_of("self"):
                if has_open(pid, "rank1.pt.trace.json"):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.001)

    # Large enough that it is open for a while.
    with (traces / "rank1.pt.trace.json").open("ab") as file:
        file.write(b" " * 300_000_000)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found, report = batch(traces, tmp_path / "lake", workers=2)
    finally:
        stop.set()
        watcher.join()
    assert len(set(killed)) == 2
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "done"}
    assert report.failures[0].error_kind == "WorkerDiedError"
    assert "signal 9" in (report.failures[0].error or "")


def test_full_disk(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = work._write

    def full(tables: dict[str, object], folder: Path) -> dict[str, tuple[int, int]]:
        if len(list((tmp_path / "lake/run=default").glob("rank=*"))) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(tables, folder)

    (tmp_path / "lake/run=default").mkdir(parents=True)
    monkeypatch.setattr(work, "_write", full)
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(ks.errors.LakeFullError, match="2 ranks are in the lake"),
    ):
        batch(traces, tmp_path / "lake", executor=executor)
    assert ks.scan(tmp_path / "lake").gpu_ops.collect()["rank"].n_unique() == 2
    monkeypatch.undo()
    assert batch(traces, tmp_path / "lake")[1].unchanged == 2


def test_a_disk_that_is_really_full(process: Run, traces: Path, tmp_path: Path, undisturbed: Files) -> None:
    small = tmp_path / "small"
    small.mkdir()
    need = sum(len(content) for content in undisturbed.values())
    command = ["mount", "-t", "tmpfs", "-o", f"size={need // 2}", "tmpfs", str(small)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs privileges")
    try:
        done = process("batch", traces, "--out", small / "lake", "--workers", "1", "--no-summary")
        assert done.returncode == 1
        assert "no space left" in done.stderr
        assert "Traceback" not in done.stderr
        lake = ks.scan(small / "lake")
        assert 0 < lake.gpu_ops.collect()["rank"].n_unique() < 3
        subprocess.run(["mount", "-o", f"remount,size={need * 4}", str(small)], check=True)
        assert process("batch", traces, "--out", small / "lake", "--no-summary").returncode == 0
        assert_same(small / "lake", relocated(undisturbed, traces))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def relocated(files: Files, folder: Path) -> Files:
    """The files of a lake whose traces lie in another folder, with their times."""
    lines = {e.rank: e.to_line() for e in manifest.read_manifest(folder.parent / "small/lake")}
    described = {f"run=default/rank={rank}/{manifest.ENTRY}": line.encode() for rank, line in lines.items()}
    return files | described | {manifest.MANIFEST: "".join(lines.values()).encode()}


def test_files_of_a_machine_that_lost_power(traces: Path, tmp_path: Path) -> None:
    batch(traces, tmp_path / "lake")
    broken = tmp_path / "lake/run=default/rank=1/gpu_ops.parquet"
    broken.write_bytes(b"")
    (tmp_path / "lake/run=default/rank=2/_entry.json").write_bytes(b"")
    found, _ = batch(traces, tmp_path / "lake")
    assert found == {"rank0": "unchanged", "rank1": "done", "rank2": "done"}


def test_half_a_line_in_the_manifest(traces: Path, tmp_path: Path) -> None:
    batch(traces, tmp_path / "lake")
    before = files_of(tmp_path / "lake")
    with (tmp_path / "lake/manifest.jsonl").open("a") as file:
        file.write('{"source": "/x')
    assert ks.scan(tmp_path / "lake").gpu_ops.collect()["rank"].n_unique() == 3
    batch(traces, tmp_path / "lake")
    assert_same(tmp_path / "lake", before)


def test_a_source_that_becomes_another_rank(tiny: Path, tmp_path: Path) -> None:
    batch(tiny, tmp_path / "lake")
    document = json.loads(tiny.read_text())
    document["distributedInfo"]["rank"] = 5
    tiny.write_text(json.dumps(document))
    batch(tiny, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    assert lake.manifest["rank"].to_list() == [5]
    assert [path.name for path in (tmp_path / "lake/run=default").iterdir()] == ["rank=5"]


def test_what_cannot_be_a_lake(job: Path, tiny: Path) -> None:
    with pytest.raises(ks.errors.InvalidArgumentError, match="a lake is a folder"):
        batch(job, "s3://bucket/lake")  # type: ignore[arg-type]
    with pytest.raises(ks.errors.InvalidArgumentError, match="is a file"):
        batch(job, tiny)


MOMENTS = 10


def start(large_job: Path, lake: Path) -> subprocess.Popen[bytes]:
    options = ["--out", str(lake), "--workers", "2", "--no-summary"]
    command = [sys.executable, "-m", "kernelscope", "batch", str(large_job), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


@pytest.fixture(scope="module")
def large_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("killed"), ranks=6)


@pytest.fixture(scope="module")
def whole(large_job: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, float]:
    """The files of a lake that nobody disturbed, and how long it took."""
    lake = tmp_path_factory.mktemp("whole") / "lake"
    began = time.monotonic()
    finish(start(large_job, lake))
    return files_of(lake), time.monotonic() - began


def assert_is_whole(lake: Path) -> None:
    """What is in a lake while no batch runs is readable, all of it."""
    if not (lake / "manifest.jsonl").exists():
        return
    opened = ks.scan(lake)
    for entry in opened.entries:
        for name, (rows, _) in entry.files.items():
            path = entry.place(lake) / f"{name}.parquet"
            assert ks.scan(lake, ranks=[entry.rank or 0]).tables[name].collect().height == rows, path


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_coordinator_is_killed(
    large_job: Path, whole: tuple[Files, float], tmp_path: Path, moment: int
) -> None:
    expected, seconds = whole
    lake = tmp_path / "lake"
    process = start(large_job, lake)
    time.sleep(random.Random(moment).uniform(0, seconds))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert_is_whole(lake)
    finish(start(large_job, lake))
    assert_same(lake, expected)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_worker_is_killed(large_job: Path, whole: tuple[Files, float], tmp_path: Path, moment: int) -> None:
    expected, seconds = whole
    lake = tmp_path / "lake"
    process = start(large_job, lake)
    generator = random.Random(100 + moment)
    time.sleep(generator.uniform(0, seconds))
    workers = workers_of(process.pid)
    if workers:
        os.kill(generator.choice(workers), signal.SIGKILL)
    finish(process)
    assert_same(lake, expected)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_workers_do_not_outlive_their_coordinator(large_job: Path, tmp_path: Path) -> None:
    process = start(large_job, tmp_path / "lake")
    workers: list[int] = []
    deadline = time.monotonic() + 30
    while len(workers) < 2 and time.monotonic() < deadline:
        workers = workers_of(process.pid)
        time.sleep(0.01)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    while any(is_alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(is_alive(worker) for worker in workers)


@pytest.mark.usefixtures("interruptible")
def test_interrupted(large_job: Path, whole: tuple[Files, float], tmp_path: Path) -> None:
    process = start(large_job, tmp_path / "lake")
    # While Python itself starts, nobody can catch the signal.
    while not (tmp_path / "lake").exists() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(whole[1] * 0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (0, 130)
    assert b"Traceback" not in errors
    finish(start(large_job, tmp_path / "lake"))
    assert_same(tmp_path / "lake", whole[0])


def process_pool() -> Executor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), process_pool], ids=["threads", "processes"])
def test_executor(job: Path, undisturbed: Files, tmp_path: Path, make: type[Executor]) -> None:
    with make() as executor:
        assert batch(job, tmp_path / "lake", executor=executor)[1].done == 3
    assert_same(tmp_path / "lake", undisturbed)


@pytest.mark.parametrize("workers", [1, 3])
def test_number_of_processes(job: Path, undisturbed: Files, tmp_path: Path, workers: int) -> None:
    batch(job, tmp_path / "lake", workers=workers)
    assert_same(tmp_path / "lake", undisturbed)


def test_a_broken_executor(job: Path, undisturbed: Files, tmp_path: Path) -> None:
    """An executor that gives up all its tasks: what is in the lake stays, and a second call goes on."""
    with process_pool() as executor:
        executor.submit(os.kill, executor.submit(os.getpid).result(), signal.SIGKILL).exception()
        with pytest.raises(ks.errors.WorkerDiedError, match="takes no more work"):
            batch(job, tmp_path / "lake", executor=executor)
    batch(job, tmp_path / "lake")
    assert_same(tmp_path / "lake", undisturbed)


def test_the_death_of_a_process_costs_one_task() -> None:
    with ProcessPool(2, threads=1) as pool:
        death = pool.submit(signal.raise_signal, signal.SIGKILL)
        values = [pool.submit(abs, -number) for number in range(20)]
        assert [value.result() for value in values] == list(range(20))
        assert isinstance(death.exception(), ks.errors.WorkerDiedError)
        assert isinstance(pool.submit(int, "x").exception(), ValueError)


def test_executor_and_scheduler(job: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(ks.errors.InvalidArgumentError, match="not both"):
        batch(job, tmp_path / "lake", executor=executor, scheduler="tcp://127.0.0.1:1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def dask(folder: Path, *, workers: int) -> Generator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and workers as processes of their own; gives its address and the processes."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    address = f"tcp://127.0.0.1:{free_port()}"

    def begin(kind: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options, "--no-dashboard"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)

    processes = [begin("scheduler", "--host", address)]
    try:
        own = ["--nthreads", "1", "--no-nanny", "--local-directory", str(folder)]
        processes += [begin("worker", address, *own) for _ in range(workers)]
        wait_for_workers(address, workers)
        yield address, processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def wait_for_workers(address: str, workers: int) -> None:
    from distributed import Client

    deadline = time.monotonic() + 60
    with Client(address, timeout=60, set_as_default=False) as client:
        while len(client.scheduler_info(n_workers=-1)["workers"]) < workers:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.filterwarnings("default")
def test_dask(job: Path, undisturbed: Files, tmp_path: Path) -> None:
    with dask(tmp_path, workers=2) as (address, _):
        assert batch(job, tmp_path / "lake", scheduler=address)[1].done == 3
    assert_same(tmp_path / "lake", undisturbed)


@pytest.mark.filterwarnings("default")
def test_a_scheduler_that_goes_away(
    job: Path, undisturbed: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelscope.batch.workers._PATIENCE_S", 1.0)
    with dask(tmp_path, workers=1) as (address, processes):
        # The worker goes first, so that nothing gets done any more.
        processes[1].send_signal(signal.SIGSTOP)

        def leave() -> None:
            time.sleep(2)
            processes[0].kill()

        with ThreadPoolExecutor(1) as clock:
            clock.submit(leave)
            with pytest.raises(ks.errors.SchedulerLostError, match="a second run goes on"):
                batch(job, tmp_path / "lake", scheduler=address)
    batch(job, tmp_path / "lake")
    assert_same(tmp_path / "lake", undisturbed)


@pytest.mark.filterwarnings("default")
def test_no_scheduler(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr("kernelscope.batch.workers._CONNECT_S", 1)
    with pytest.raises(ks.errors.SchedulerLostError, match="does not answer"):
        batch(job, tmp_path / "lake", scheduler=f"tcp://127.0.0.1:{free_port()}")


@pytest.mark.filterwarnings("default")
def test_a_scheduler_without_workers(job: Path, tmp_path: Path) -> None:
    with (
        dask(tmp_path, workers=0) as (address, _),
        pytest.raises(ks.errors.InvalidArgumentError, match="no workers"),
    ):
        batch(job, tmp_path / "lake", scheduler=address)
