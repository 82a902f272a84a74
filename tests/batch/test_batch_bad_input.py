"""What goes wrong with a thousand files: each is recorded, and costs only itself."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jobs import assert_same, batch, files_of
from process_tree import has_open, workers_of

import kernelscope as ks
from kernelscope.batch import manifest, sizing, work

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def traces(job: Path, tmp_path: Path) -> Path:
    return shutil.copytree(job, tmp_path / "traces")


def errors_of(lake: Path) -> dict[str, str | None]:
    return {Path(e.source).name: e.error_kind for e in ks.scan(lake).entries if e.outcome == "failed"}


def test_a_corrupt_file_costs_only_itself(
    traces: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    bad = traces / "rank9.pt.trace.json"
    bad.write_bytes(b"\x00\x01 this is no trace")
    (traces / "rank8.pt.trace.json.gz").write_bytes(b"\x1f\x8b" + b"\x07" * 50)
    found, report = batch(traces, tmp_path / "lake")
    assert found == {"rank0": "done", "rank1": "done", "rank2": "done", "rank8": "failed", "rank9": "failed"}
    assert set(errors_of(tmp_path / "lake")) == {"rank8.pt.trace.json.gz", "rank9.pt.trace.json"}
    assert (report.done, report.failed, len(report.failures)) == (3, 2, 2)
    assert all("rank" in (entry.error or "") for entry in report.failures)
    whole = {name for name in undisturbed if name.startswith("run=")}
    assert {name for name in files_of(tmp_path / "lake") if name.startswith("run=")} == whole

    # A failure is tried again, for what failed may be repaired by now.
    bad.unlink()
    (traces / "rank8.pt.trace.json.gz").unlink()
    assert batch(traces, tmp_path / "lake")[1].failed == 0


def test_command_says_what_failed(cli: Run, traces: Path) -> None:
    (traces / "rank9.json").write_text("no trace")
    done = cli("batch", traces, "--out", "lake", "--no-summary")
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
        assert "rank1.pt.trace.json" in (entry.error or "")
        assert "rank1-again.json" in (entry.error or "")
        assert "--run" in (entry.error or "")


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
    (traces / "rank1.pt.trace.json").write_bytes(
        (traces / "rank1.pt.trace.json").read_bytes() + b" " * 40_000_000
    )
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


def test_a_dead_process_holds_no_lock(cli: Run, traces: Path, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from kernelscope.batch.manifest import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); signal.pause()"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "lake")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    refused = cli("batch", traces, "--out", tmp_path / "lake", "--no-summary")
    assert refused.returncode == 1
    assert f"process {holder.pid}" in refused.stderr
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert cli("batch", traces, "--out", tmp_path / "lake", "--no-summary").returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_worker_that_always_dies_is_recorded(
    traces: Path, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
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
    path = traces / "rank1.pt.trace.json"
    path.write_bytes(path.read_bytes() + b" " * 300_000_000)
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


def test_a_disk_that_is_really_full(
    cli: Run, traces: Path, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    need = sum(len(content) for content in undisturbed.values())
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={need // 2}", "tmpfs", str(small)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs privileges")
    try:
        done = cli("batch", traces, "--out", small / "lake", "--workers", "1", "--no-summary")
        assert done.returncode == 1
        assert "no space left" in done.stderr
        assert "Traceback" not in done.stderr
        lake = ks.scan(small / "lake")
        assert 0 < lake.gpu_ops.collect()["rank"].n_unique() < 3
        subprocess.run(["mount", "-o", f"remount,size={need * 4}", str(small)], check=True)
        assert cli("batch", traces, "--out", small / "lake", "--no-summary").returncode == 0
        assert_same(small / "lake", relocated(undisturbed, traces))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def relocated(files: dict[str, bytes], folder: Path) -> dict[str, bytes]:
    """The files of a lake whose traces lie in another folder, with their times."""
    entries = {e.source: e for e in manifest.read_manifest(folder.parent / "small/lake")}
    return {
        name: content
        if name.endswith(".parquet") or not name.endswith(("json", "jsonl"))
        else _moved(name, entries)
        for name, content in files.items()
    }


def _moved(name: str, entries: dict[str, manifest.Entry]) -> bytes:
    lines = [entry.to_line() for entry in entries.values()]
    if name == manifest.MANIFEST:
        return "".join(lines).encode()
    return next(e.to_line() for e in entries.values() if f"rank={e.rank}/" in name).encode()


def test_files_of_a_machine_that_lost_power(traces: Path, tmp_path: Path) -> None:
    batch(traces, tmp_path / "lake")
    broken = tmp_path / "lake/run=default/rank=1/gpu_ops.parquet"
    broken.write_bytes(b"")
    (tmp_path / "lake/run=default/rank=2/_entry.json").write_bytes(b"")
    found, _ = batch(traces, tmp_path / "lake")
    assert found == {"rank0": "unchanged", "rank1": "done", "rank2": "done"}


def test_half_a_line_in_the_manifest(traces: Path, tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
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


def test_a_lake_behind_a_url(job: Path) -> None:
    with pytest.raises(ks.errors.InvalidArgumentError, match="a lake is a folder"):
        batch(job, "s3://bucket/lake")  # type: ignore[arg-type]


def test_a_file_in_place_of_the_lake(job: Path, tiny: Path) -> None:
    with pytest.raises(ks.errors.InvalidArgumentError, match="is a file"):
        batch(job, tiny)
