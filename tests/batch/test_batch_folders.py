"""Folders as clusters leave them: links, circles, pipes, cut archives, and jobs that were recorded again."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import batch

import kernelscope as ks
from events import Events

Run = Callable[..., subprocess.CompletedProcess[str]]


def write_rank(path: Path, rank: int | None, *, op: str = "aten::add") -> Path:
    events = Events()
    events.op(op, 0, 5)
    return events.write(
        path, **({} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 4}})
    )


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for rank in range(3):
        write_rank(tmp_path / f"traces/rank{rank}.json", rank)
    return tmp_path / "traces"


def test_spellings_of_a_file_are_one(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latest").symlink_to(traces)
    (tmp_path / "first.json").symlink_to("traces/rank0.json")
    spellings = ["traces", str(traces), "latest", "latest/../traces/rank0.json", "first.json"]
    _, report = batch(spellings, tmp_path / "lake", workers=1)
    assert (report.total, report.done) == (3, 3)
    for spelling in spellings:
        assert batch(spelling, tmp_path / "lake", workers=1)[1].unchanged in (1, 3)
    assert ks.scan(tmp_path / "lake").manifest["source"].to_list() == [
        str(traces / f"rank{rank}.json") for rank in range(3)
    ]


def test_a_link_may_tell_the_rank(tmp_path: Path) -> None:
    """Stores of content name files by their hashes, and link to them."""
    for rank in (4, 7):
        write_rank(tmp_path / f"store/{'ab' * rank}", None)
        (tmp_path / "traces").mkdir(exist_ok=True)
        (tmp_path / f"traces/rank{rank}.json").symlink_to(tmp_path / f"store/{'ab' * rank}")
    assert batch(tmp_path / "traces", tmp_path / "lake", workers=1)[1].done == 2
    assert ks.scan(tmp_path / "lake").ranks.collect()["rank"].to_list() == [4, 7]


def test_circles_are_walked_once(traces: Path, tmp_path: Path) -> None:
    for place in ("a", "b"):
        (traces / place).mkdir()
    (traces / "a/to-b").symlink_to(traces / "b")
    (traces / "b/to-a").symlink_to(traces / "a")
    (traces / "b/up").symlink_to(traces)
    (traces / "itself").symlink_to("itself")
    (traces / "itself.json").symlink_to("itself.json")
    write_rank(traces / "a/rank5.json", 5)
    found, report = batch(traces, tmp_path / "lake", workers=1)
    assert (report.done, report.failed) == (4, 1)
    assert found["itself"] == "failed"


def test_what_is_no_file_costs_itself(traces: Path, tmp_path: Path) -> None:
    os.mkfifo(traces / "rank7.json")
    (traces / "rank8.json").symlink_to("/dev/zero")
    (traces / "rank9.json").symlink_to("nowhere")
    found, report = batch(traces, tmp_path / "lake", workers=1)
    assert (report.done, report.failed) == (3, 3)
    errors = {entry.error_kind for entry in report.failures}
    assert errors == {"NotAFileError", "TraceReadError"}
    assert {"rank7": "failed"}.items() <= found.items()


def test_a_folder_that_cannot_be_read_costs_itself(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rank(traces / "closed/rank5.json", 5)
    scandir = os.scandir

    def guarded(path: object) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", guarded)
    _, report = batch(traces, tmp_path / "lake", workers=1)
    assert (report.done, report.failed) == (3, 1)
    assert "closed: Permission denied" in (report.failures[0].error or "")
    monkeypatch.undo()
    _, report = batch(traces, tmp_path / "lake", workers=1)
    assert (report.unchanged, report.done, report.failures) == (3, 1, [])


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_archive_costs_itself(traces: Path, tmp_path: Path, packed: bool) -> None:
    whole = tmp_path / "whole.tar"
    with tarfile.open(whole, "w") as archive:
        for rank in (5, 6, 7):
            archive.add(write_rank(tmp_path / f"more/rank{rank}.json", rank), f"rank{rank}.json")
    # All of rank 5 and the beginning of rank 6.
    content = whole.read_bytes()
    with tarfile.open(whole) as archive:
        end = archive.getmembers()[1].offset_data + 10
    cut = traces / ("cut.tar.gz" if packed else "cut.tar")
    cut.write_bytes(gzip.compress(content[:end])[:-8] if packed else content[:end])
    _, report = batch(traces, tmp_path / "lake", workers=1)
    assert ks.scan(tmp_path / "lake").ranks.collect()["rank"].to_list() == [0, 1, 2, 5]
    assert {Path(entry.source).name for entry in report.failures} >= {cut.name}
    cut.write_bytes(gzip.compress(content) if packed else content)
    _, report = batch(traces, tmp_path / "lake", workers=1)
    assert report.failures == []
    assert ks.scan(tmp_path / "lake").ranks.collect()["rank"].to_list() == [0, 1, 2, 5, 6, 7]


def test_a_job_of_fewer_ranks(traces: Path, tmp_path: Path, cli: Run) -> None:
    lake = tmp_path / "lake"
    batch(traces, lake, workers=1)
    batch(traces, lake, run="kept", workers=1)
    other = write_rank(tmp_path / "other/rank9.json", 9)
    batch(other, lake, workers=1)
    shutil.rmtree(traces)
    write_rank(traces / "again.rank0.json", 0, op="aten::mul")
    # What only the lake has is not replaced unasked.
    done = cli("batch", traces, "--out", lake, "--no-summary")
    assert done.returncode == 1
    told = " ".join(done.stderr.split())
    assert "whose traces no longer exist, left unchanged; --prune removes them: 0, 1, 2" in told
    assert ks.scan(lake, run="default").ranks.collect()["rank"].to_list() == [0, 1, 2, 9]
    done = cli("batch", traces, "--out", lake, "--no-summary", "--prune")
    assert done.returncode == 0, done.stderr
    assert "taken out: 0, 1, 2" in " ".join(done.stderr.split())
    assert ks.scan(lake, run="default").ranks.collect()["rank"].to_list() == [0, 9]
    assert ks.scan(lake, run="kept").ranks.collect()["rank"].to_list() == [0, 1, 2]


def test_ranks_of_other_archives_and_storages_are_not_left_over(traces: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with tarfile.open(tmp_path / "job.tar", "w") as archive:
        archive.add(traces / "rank1.json", "rank1.json")
    for given in (tmp_path / "job.tar", f"file://{traces}/rank2.json", traces / "rank0.json"):
        _, report = batch(given, tmp_path / "lake", prune=True, workers=1)
        assert report.notes == []
    assert ks.scan(tmp_path / "lake").ranks.collect()["rank"].to_list() == [0, 1, 2]
