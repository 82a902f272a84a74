"""What goes wrong with a thousand files, killed batches, and every executor."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from jobs import assert_same, assert_stopped, batch, files_of, finish, start, wait_for_lake, wait_for_moment

import draws
import kernelscope as ks
from demo_jobs import write_job
from kernelscope.batch import manifest, manifest_file, sizing, work
from kernelscope.batch.pool import ProcessPool
from kernelscope.batch.reports import BatchReport, RankReport
from kernelscope.cli.main import main
from kernelscope.reading import read_ranks
from process_tree import is_alive, send_signal, signalled, workers_of
from waiting import wait_for, wait_until

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
    assert done.stderr.splitlines()[-1] == f"kernelscope: failed: {traces / 'rank9.json'}"
    (line,) = [json.loads(line) for line in done.stdout.splitlines() if "rank9" in line]
    assert (line["status"], line["error_kind"]) == ("failed", "NotATraceError")


def test_of_two_files_of_one_recording_one_is_taken(traces: Path, undisturbed: Files, tmp_path: Path) -> None:
    content = (traces / "rank1.pt.trace.json").read_bytes()
    (traces / "rank1.pt.trace.json.gz").write_bytes(gzip.compress(content))
    shutil.copy(traces / "rank1.pt.trace.json", traces / "zz-again.json")
    found: dict[str, str] = {}

    def note(rank: RankReport, _: BatchReport) -> None:
        found[Path(rank.entry.source).name] = rank.status

    report = ks.batch.run(traces, tmp_path / "lake", on_rank=note)
    assert [name for name, status in found.items() if status == "failed"] in (
        ["rank1.pt.trace.json.gz", "zz-again.json"],
        ["zz-again.json", "rank1.pt.trace.json.gz"],
    )
    assert (report.done, report.failed, report.finished) == (3, 2, 5)
    assert_same_tables(tmp_path / "lake", undisturbed)
    for entry in report.failures:
        assert entry.error_kind == "RankTakenError"
        assert "the same recording as " in (entry.error or "")
        assert "rank1.pt.trace.json, " in (entry.error or "")


def is_table(name: str) -> bool:
    return name.startswith("run=") and name.endswith(".parquet")


def assert_same_tables(lake: Path, expected: Files) -> None:
    whole = {name: content for name, content in expected.items() if is_table(name)}
    assert {n: c for n, c in files_of(lake).items() if is_table(n)} == whole


def test_a_copy_of_what_the_lake_has_is_refused(traces: Path, tmp_path: Path) -> None:
    batch(traces, tmp_path / "lake")
    other = Path(shutil.copy(traces / "rank1.pt.trace.json", tmp_path / "other.json"))
    other.write_bytes(other.read_bytes() + b"\n")
    found, _ = batch(other, tmp_path / "lake")
    assert found == {"other": "failed"}
    assert ks.scan(tmp_path / "lake").ranks.collect()["rank"].to_list() == [0, 1, 2]
    assert batch(other, tmp_path / "lake", run="second")[0] == {"other": "done"}


def test_rank_from_the_name_and_from_nowhere(tiny: Path, tmp_path: Path) -> None:
    document = json.loads(tiny.read_text())
    del document["distributedInfo"]
    for name in ("trace_rank-12.json", "worker3.pt.trace.json", "job.5.json", "nameless.json"):
        (tmp_path / "traces").mkdir(exist_ok=True)
        (tmp_path / "traces" / name).write_text(json.dumps(document))
    batch(tmp_path / "traces", tmp_path / "lake")
    done = ks.scan(tmp_path / "lake").manifest.filter(outcome="done").sort("rank")
    assert done["rank"].to_list() == [0, 3, 5, 12]
    assert done["rank_from"].to_list() == ["order", "name", "name", "name"]


def test_a_trace_alone_is_rank_0(tiny: Path, tmp_path: Path) -> None:
    document = json.loads(tiny.read_text())
    del document["distributedInfo"]
    (tmp_path / "first.json").write_text(json.dumps(document))
    lake = tmp_path / "lake"
    batch(tmp_path / "first.json", lake)
    assert ks.scan(lake).manifest.select("rank", "rank_from", "outcome").rows() == [(0, "order", "done")]
    assert batch(tmp_path / "first.json", lake)[1].unchanged == 1


def test_a_lake_and_standard_input_are_no_inputs(cli: Run, traces: Path, tmp_path: Path) -> None:
    batch(traces, tmp_path / "lake")
    for given, message in ((tmp_path / "lake", "is a lake already"), ("-", "standard input")):
        done = cli("batch", given, "--out", tmp_path / "other")
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr


def test_a_file_that_is_still_written(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = traces / "rank1.pt.trace.json"
    read = read_ranks

    def read_and_grow(path: Path, **options: object) -> list[ks.Trace]:
        traces = read(path, **options)  # type: ignore[arg-type]
        if path == growing:
            with growing.open("a") as file:
                file.write("\n")
        return traces

    monkeypatch.setattr("kernelscope.reading.read_ranks", read_and_grow)
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


def test_the_lock_of_a_machine_that_was_lost(traces: Path, tmp_path: Path) -> None:
    """Of a file system that machines share, which goes on holding it."""
    lake = tmp_path / "lake"
    assert batch(traces / "rank0.pt.trace.json", lake)[1].done == 1
    lock = lake / ".batch/lock"
    lock.write_text("process 7 on elsewhere")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        sentence = f"process 7 on elsewhere is writing .* or remove {re.escape(str(lock))} if that machine"
        with pytest.raises(ks.errors.LakeBusyError, match=sentence):
            batch(traces, lake)
        lock.unlink()
        assert batch(traces, lake)[1].done == 2


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_worker_that_always_dies_is_recorded(traces: Path, tmp_path: Path) -> None:
    """The system kills the worker that reads rank 1, twice."""
    # Large enough that it is open for a while.
    with (traces / "rank1.pt.trace.json").open("ab") as file:
        file.write(b" " * 300_000_000)
    with signalled("self", "rank1.pt.trace.json", signal.SIGKILL) as killed:
        found, report = batch(traces, tmp_path / "lake", workers=2)
    assert len(killed) == 2
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "done"}
    assert report.failures[0].error_kind == "WorkerDiedError"
    assert "signal 9" in (report.failures[0].error or "")


def test_full_disk(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = work._write

    def full(tables: dict[str, pl.DataFrame], folder: Path, *more: Any) -> dict[str, tuple[int, int]]:
        if len(list((tmp_path / "lake/run=default").glob("rank=*"))) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(tables, folder, *more)

    monkeypatch.setattr(work, "_write", full)
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(ks.errors.LakeFullError, match="2 ranks are complete in the lake"),
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
        # 1 is for ranks that cannot be read; this batch did not come to all of them.
        assert done.returncode == 3
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
    listed = manifest_file.read_manifest(folder.parent / "small/lake")
    described = {f"{e.place.folder}/{manifest.ENTRY}": e.own_line().encode() for e in listed.entries}
    manifest_file.rewrite(folder.parent / "manifest", listed.entries, listed.arranged)
    written = files_of(folder.parent / "manifest")
    return files | described | {name: written[name] for name in (manifest.MANIFEST, manifest.LOG)}


def test_files_of_a_machine_that_lost_power(traces: Path, tmp_path: Path) -> None:
    batch(traces, tmp_path / "lake")
    broken = tmp_path / "lake/run=default/rank=1/window=0/gpu_ops.parquet"
    broken.write_bytes(b"")
    (tmp_path / "lake/run=default/rank=2/window=0/_entry.json").write_bytes(b"")
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
    with pytest.raises(ks.errors.InvalidArgumentError, match="pass a URL as text with two slashes"):
        batch(job, Path("s3://bucket/lake"))
    with pytest.raises(ks.errors.InvalidArgumentError, match="is a file"):
        batch(job, tiny)


MOMENTS = draws.count(2, 40)


@pytest.fixture(scope="module")
def large_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("killed"), ranks=6)[0].parent


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
            path = entry.folder(lake) / f"{name}.parquet"
            assert ks.scan(lake, ranks=[entry.rank or 0]).tables[name].collect().height == rows, path


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_coordinator_is_killed(
    large_job: Path, whole: tuple[Files, float], tmp_path: Path, moment: int
) -> None:
    expected, seconds = whole
    lake = tmp_path / "lake"
    process = start(large_job, lake)
    wait_for_moment(process, lake, seconds, moment)
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
    wait_for_moment(process, lake, seconds, moment)
    workers = workers_of(process.pid)
    if workers:
        send_signal(draws.random(moment).choice(workers), signal.SIGKILL)
    finish(process)
    assert_same(lake, expected)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_workers_do_not_outlive_their_coordinator(large_job: Path, tmp_path: Path) -> None:
    process = start(large_job, tmp_path / "lake")
    wait_for(process, lambda: len(workers_of(process.pid)) == 2)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(is_alive, workers)))


@pytest.mark.usefixtures("interruptible")
def test_interrupted(large_job: Path, whole: tuple[Files, float], tmp_path: Path) -> None:
    process = start(large_job, tmp_path / "lake")
    wait_for_lake(process, tmp_path / "lake")
    wait_for_moment(process, tmp_path / "lake", whole[1], 0)
    process.send_signal(signal.SIGINT)
    assert_stopped(process)
    finish(start(large_job, tmp_path / "lake"))
    assert_same(tmp_path / "lake", whole[0])


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("ending", [0, 1])
def test_a_reader_that_leaves_early(
    job: Path, undisturbed: Files, tmp_path: Path, stream: str, ending: int
) -> None:
    """``batch | head`` fills the lake to the end, and says by its exit code how that went; twice over."""
    traces = [str(job)]
    if ending:
        (tmp_path / "rank9.json").write_text("no trace")
        traces.append(str(tmp_path / "rank9.json"))
    command = [sys.executable, "-m", "kernelscope", "batch", *traces, "--out", str(tmp_path / "lake")]
    read, write = os.pipe()
    os.close(read)
    other = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: write}
    codes = [subprocess.run(command, check=False, **other).returncode for _ in range(2)]
    os.close(write)
    assert codes == [ending, ending]
    whole = {name for name in undisturbed if name.startswith("run=")}
    assert {name for name in files_of(tmp_path / "lake") if name.startswith("run=")} == whole


def test_terminated(large_job: Path, whole: tuple[Files, float], tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    process = start(large_job, lake)
    wait_for(process, lambda: bool(list(lake.glob("run=*/rank=*/window=*"))))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 3
    assert b"stopped by SIGTERM" in errors
    assert b"Traceback" not in errors
    assert [path.name for path in (lake / ".batch").iterdir()] == ["lock"]
    assert_is_whole(lake)
    finish(start(large_job, lake))
    assert_same(lake, whole[0])


def process_pool() -> Executor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), process_pool], ids=["threads", "processes"])
def test_executor(job: Path, undisturbed: Files, tmp_path: Path, make: type[Executor]) -> None:
    with make() as executor:
        assert batch(job, tmp_path / "lake", executor=executor)[1].done == 3
    assert_same(tmp_path / "lake", undisturbed)


class Wrapping(ThreadPoolExecutor):
    """An executor that wraps what a task raises, as Ray does."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def call() -> Any:
            try:
                return fn(*args, **kwargs)
            except Exception as error:
                wrapped = RuntimeError("worker 7: a traceback")
                wrapped.cause = error  # type: ignore[attr-defined]
                raise wrapped from error

        return super().submit(call)


def test_an_executor_that_wraps_errors(traces: Path, tmp_path: Path) -> None:
    (traces / "rank9.json").write_text("no trace")
    with Wrapping(1) as executor:
        _, report = batch(traces, tmp_path / "lake", executor=executor)
    (failure,) = report.failures
    assert failure.error_kind == "NotATraceError"
    assert (failure.error or "").startswith(str(traces / "rank9.json"))


def test_what_is_under_way_is_no_foreign_file(traces: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "traces.tar.gz", "w:gz") as archive:
        archive.add(traces, arcname="")
    for _ in range(2):
        assert batch(tmp_path / "traces.tar.gz", tmp_path / "lake")[1].notes == []


@pytest.mark.parametrize("workers", [1, 3])
def test_number_of_processes(job: Path, undisturbed: Files, tmp_path: Path, workers: int) -> None:
    batch(job, tmp_path / "lake", workers=workers)
    assert_same(tmp_path / "lake", undisturbed)


def test_a_broken_executor(job: Path, undisturbed: Files, tmp_path: Path) -> None:
    """An executor that gives up all its tasks: what is in the lake stays, and a second call goes on."""
    with process_pool() as executor:
        executor.submit(os.kill, executor.submit(os.getpid).result(), signal.SIGKILL).exception()
        with pytest.raises(ks.errors.WorkerDiedError, match="accepts no more tasks"):
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


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 3), (signal.SIGINT, 130)])
def test_stopped_while_a_finalizer_runs(
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Python loses what a signal raises there; the batch is stopped all the same."""

    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def run(*_: object, stop: Callable[[], bool], **__: object) -> None:
        assert not stop()
        Finalized()
        assert stop()
        raise ks.errors.BatchStoppedError("stopped")

    monkeypatch.setattr("kernelscope.batch.coordinator.run", run)
    handler = signal.getsignal(signal.SIGTERM)
    assert main(["batch", str(tmp_path), "--out", str(tmp_path / "lake")]) == code
    assert "Traceback" not in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 3), (signal.SIGINT, 130)])
def test_asked_twice(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """A batch that is at something that does not end, such as a storage, ends when it is asked again."""
    program = f"""
import time
from kernelscope.batch import coordinator
from kernelscope.cli.main import main
def run(*_, stop, **__):
    for said, is_so in (("at work", lambda: True), ("asked", stop), ("more", lambda: False)):
        while not is_so():
            time.sleep(0.01)
        print(said, flush=True)
coordinator.run = run
main(["batch", ".", "--out", {str(tmp_path / "lake")!r}])
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"at work\n"
    process.send_signal(number)
    assert process.stdout.readline() == b"asked\n"
    process.send_signal(number)
    assert process.communicate() == (b"", b"")
    assert process.returncode == code


def test_a_caller_stops_a_batch(job: Path, tmp_path: Path, undisturbed: Files) -> None:
    """From another thread, or after so many ranks; the next call goes on."""
    done: list[str] = []
    with pytest.raises(ks.errors.BatchStoppedError, match="next run resumes"):
        ks.batch.run(
            job,
            tmp_path / "lake",
            workers=1,
            on_rank=lambda rank, _: done.append(rank.entry.source),
            stop=lambda: bool(done),
        )
    assert len(done) == 1
    assert len(ks.scan(tmp_path / "lake").entries) == 1
    batch(job, tmp_path / "lake")
    assert_same(tmp_path / "lake", undisturbed)
