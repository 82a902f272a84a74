"""Where traces come from: folders, archives, URLs; and the plan of reading them."""

from __future__ import annotations

import gzip
import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import batch

import draws
import kernelscope as ks
from kernelscope.batch import sizing
from kernelscope.batch import workers as worker_pools
from kernelscope.batch.dask_cluster import Needs
from kernelscope.batch.rank_names import rank_from_name
from kernelscope.batch.reports import consistency_warnings
from kernelscope.batch.sizing import WORKER_BYTES
from kernelscope.batch.sources import Source, find
from kernelscope.batch.workers import WorkerPool, open_workers
from kernelscope.cli.batch_progress import final_text, progress_text
from kernelscope.cli.main import main
from kernelscope.errors import WorkerDiedError
from nsys_database import Database


def tables_of(lake: Path) -> dict[str, pl.DataFrame]:
    opened = ks.scan(lake)
    tables = {name: opened.tables[name] for name in ("ops", "gpu_ops")}
    return {name: table.sort("rank", maintain_order=True).collect() for name, table in tables.items()}


@pytest.fixture(scope="module")
def expected(job: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    lake = tmp_path_factory.mktemp("expected") / "lake"
    batch(job, lake)
    return tables_of(lake)


def assert_equal(lake: Path, expected: dict[str, pl.DataFrame]) -> None:
    for name, frame in tables_of(lake).items():
        assert frame.equals(expected[name]), name


def test_a_folder_tree(job: Path, expected: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    for rank in range(3):
        folder = tmp_path / f"traces/node{rank}/deep"
        folder.mkdir(parents=True)
        shutil.copy(job / f"rank{rank}.pt.trace.json", folder)
    (tmp_path / "traces/.hidden.json").write_text("{}")
    (tmp_path / "traces/rank0.truth.json").write_text("{}")
    (tmp_path / "traces/notes.txt").write_text("read me")
    # What the traces beside it replay is of no rank.
    shutil.copytree(job, tmp_path / "traces/node0/deep/capture_traces")
    (tmp_path / "traces/loop").symlink_to(tmp_path / "traces")
    assert batch(tmp_path / "traces", tmp_path / "lake")[1].done == 3
    assert batch(tmp_path / "traces", tmp_path / "lake")[1].unchanged == 3
    assert_equal(tmp_path / "lake", expected)
    # Other lakes may lie among the traces.
    (tmp_path / "lake").rename(tmp_path / "traces/old")
    assert batch(tmp_path / "traces", tmp_path / "lake")[1].done == 3


def test_an_input_named_twice_is_read_once(job: Path, tmp_path: Path) -> None:
    _, report = batch([job, job / "rank1.pt.trace.json", str(job)], tmp_path / "lake")
    assert (report.total, report.done) == (3, 3)


@pytest.mark.parametrize("name", ["traces.tar", "traces.tar.gz", "traces.tgz"])
def test_an_archive(job: Path, expected: dict[str, pl.DataFrame], tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / name, "w" if name.endswith(".tar") else "w:gz") as archive:
        for path in sorted(job.iterdir()):
            packed = gzip.compress(path.read_bytes(), 1)
            member = tarfile.TarInfo(f"job/{path.name}.gz")
            member.size = len(packed)
            archive.addfile(member, io.BytesIO(packed))
        archive.add(__file__, "job/notes.txt")
    _, report = batch(tmp_path / name, tmp_path / "lake")
    assert (report.total, report.done) == (3, 3)
    assert_equal(tmp_path / "lake", expected)
    assert ks.scan(tmp_path / "lake").manifest["source"][0].endswith(f"{name}::job/rank0.pt.trace.json.gz")
    assert batch(tmp_path / name, tmp_path / "lake")[1].unchanged == 3
    # Nothing unpacked is left.
    assert [path.name for path in (tmp_path / "lake/.batch").iterdir()] == ["lock"]


@pytest.mark.parametrize("name", ["broken.tar", "broken.tar.gz"])
def test_an_archive_that_is_none(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no archive at all" * 100)
    with pytest.raises(ks.errors.InvalidArgumentError, match="broken"):
        batch(tmp_path / name, tmp_path / "lake")


def test_urls(job: Path, expected: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    for url in (f"file://{job}", f"file://{job}/rank*.json"):
        lake = tmp_path / f"lake{len(url)}"
        assert batch(url, lake)[1].done == 3
        assert_equal(lake, expected)
        assert batch(url, lake)[1].unchanged == 3
    single = f"file://{job}/rank1.pt.trace.json"
    assert batch(single, tmp_path / "single")[0] == {"rank1": "done"}
    assert ks.scan(tmp_path / "single").manifest["source"].to_list() == [single]


VERSIONS = [
    {"ETag": '"1"'},
    {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"},
    {"last_modified": 1},
    {"generation": "1"},
    {},
    {"ETag": None, "created": 1},
]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_replaced_trace_behind_a_url(job: Path, tmp_path: Path, version: dict[str, object]) -> None:
    """A web server, say: its file system for fsspec knows files by nothing but their URLs."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    local = pytest.importorskip("fsspec.implementations.local", reason="fsspec is not installed")
    now = dict(version)

    class Web(local.LocalFileSystem):  # type: ignore[misc, name-defined]
        protocol = "web"
        cachable = False

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(path).removeprefix("web://")

        def info(self, path: str, **_: object) -> dict[str, object]:
            info = super().info(path)
            return {name: info[name] for name in ("name", "size", "type")} | now

        def ukey(self, path: str) -> str:
            return path

    fsspec.register_implementation("web", Web, clobber=True)
    trace = Path(shutil.copy(job / "rank0.pt.trace.json", tmp_path))
    with ThreadPoolExecutor(1) as executor:
        statuses = []
        for _ in range(2):
            found, report = batch(f"web://{trace}", tmp_path / "lake", executor=executor)
            statuses.append(found["rank0"])
        # Of the same length, and other at an end or by what the storage says.
        if any(name != "created" and value for name, value in version.items()):
            now |= dict.fromkeys(version, "changed")
            is_vague = False
        else:
            trace.write_bytes(trace.read_bytes().replace(b"node00", b"node77"))
            is_vague = True
        statuses.append(batch(f"web://{trace}", tmp_path / "lake", executor=executor)[0]["rank0"])
    assert statuses == ["done", "unchanged", "done"]
    warnings = consistency_warnings(report.entries.values(), run="default")
    assert any("neither a version nor a modification time" in text for text in warnings) == is_vague


def test_urls_that_lead_nowhere(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with pytest.raises(ks.errors.TraceNotFoundError):
        batch(f"file://{tmp_path}/nothing", tmp_path / "lake")
    with pytest.raises(ks.errors.InvalidArgumentError, match="nosuch"):
        batch("nosuch://bucket/traces", tmp_path / "lake")


def test_both_formats_in_one_call(job: Path, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    shutil.copy(job / "rank0.pt.trace.json", traces)
    database = Database(traces / "report.1.sqlite")
    database.call(100, 200, correlation=1)
    database.kernel(300, 400, correlation=1)
    database.close()
    batch(traces, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    ranks = lake.ranks.collect().sort("rank")
    assert ranks["rank"].to_list() == [0, 1]
    assert ranks["format"].to_list() == ["kineto", "nsys"]
    assert lake.gpu_ops.filter(pl.col("rank") == 1).collect()["dur_ns"].to_list() == [100]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        *[("rank12.pt.trace.json.gz", 12), ("trace_rank-3.json", 3), ("Rank_07.json", 7), ("7.json", 7)],
        *[("worker4.1700000000000.pt.trace.json", 4), ("node2_rank5.json", 5), ("report.7.sqlite", 7)],
        *[("report-11.nsys-rep.sqlite", 11), ("report_3.sqlite", 3), ("report.2021.sqlite", 2021)],
        *[("host_12345.1700000000000.pt.trace.json", None), ("h100-2gpu-emit-nvtx-2026.2.sqlite", None)],
        *[("cuda-graphs-2025.5.2.sqlite", None), ("v100-ns-2024.json.gz", None), ("trace.json", None)],
        *[("trace-2024-05-01.json", None), ("node_rank2.json", None), ("local_rank2.json", None)],
    ],
)
def test_rank_from_name(name: str, rank: int | None) -> None:
    assert rank_from_name(name) == rank


def source_of(path: Path) -> Source:
    return find([path], path.parent / "lake")[0]


def test_expected_peak_knows_what_is_inside_or_guesses(tmp_path: Path) -> None:
    content = b'{"traceEvents": []}'.ljust(3_000_000)
    (tmp_path / "a.json").write_bytes(content)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(content))
    (tmp_path / "c.json.zst").write_bytes(zstandard.compress(content))
    peaks = {sizing.expected_peak(source) for source in find([tmp_path], tmp_path / "lake")}
    assert peaks == {WORKER_BYTES + 1_500_000}
    # These frames do not say how large their content is.
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(content)
    (tmp_path / "c.json.zst").write_bytes(packed)
    assert sizing.expected_peak(source_of(tmp_path / "c.json.zst")) == WORKER_BYTES + len(packed) * 6


def test_expected_peak_is_not_exceeded(job: Path, tmp_path: Path) -> None:
    found: list[int] = []
    trace = job / "rank0.pt.trace.json"
    ks.batch.run(trace, tmp_path / "lake", on_rank=lambda rank, _: found.append(rank.peak_bytes or 0))
    assert 0 < found[0] <= sizing.expected_peak(source_of(trace))


Run = Callable[..., subprocess.CompletedProcess[str]]

MB = 10**6


def source(number: int) -> Source:
    return Source(f"{number:03}", f"{number:03}", "file", number)


@settings(max_examples=draws.count(30, 600))
@given(st.lists(st.integers(0, 400), min_size=1, max_size=25), st.integers(1, 4), st.integers(300, 1200))
def test_the_plan_never_exceeds_memory(extras: list[int], workers: int, memory: int) -> None:
    peaks = {source(number): WORKER_BYTES + extra * MB for number, extra in enumerate(extras)}
    limit = memory * MB
    lock, at_work, largest = threading.Lock(), [0], [0]

    def work(given: Source) -> str:
        with lock:
            at_work[0] += peaks[given] - WORKER_BYTES
            largest[0] = max(largest[0], at_work[0])
        time.sleep(0.0005)
        with lock:
            at_work[0] -= peaks[given] - WORKER_BYTES
        return given.name

    threads = ThreadPoolExecutor(workers)
    hired = open_workers(peaks, workers, limit, threads, None, None, needs=Needs(""))
    with threads, hired as hands:
        done = {taken.name: value for taken, value in hands.results(lambda taken, _: (work, taken), int)}
        refused = {taken.name for taken in hands.too_large}
    assert set(done) | refused == {taken.name for taken in peaks}
    assert set(done).isdisjoint(refused)
    assert largest[0] + workers * WORKER_BYTES <= max(limit, workers * WORKER_BYTES)


def test_processes_make_room_for_the_largest() -> None:
    order = [(source(1), WORKER_BYTES + 500 * MB), (source(2), WORKER_BYTES), (source(3), WORKER_BYTES)]
    assert worker_pools._processes(order, 8, WORKER_BYTES + 500 * MB) == (1, 1)
    assert worker_pools._processes(order, 8, 2 * WORKER_BYTES + 500 * MB) == (2, 1)
    assert worker_pools._processes(order, 3, 10**10) == (3, 1)
    # Fewer traces than cores: each has several.
    assert worker_pools._processes(order[:1], 8, 10**10) == (1, 8)
    assert worker_pools._processes(order[:2], 8, 10**10) == (2, 4)


def test_a_trace_whose_worker_dies_is_tried_twice() -> None:
    tries: list[str] = []

    def die(given: Source) -> None:
        tries.append(given.name)
        if given.name == "000" or len(tries) == 1:
            raise WorkerDiedError("signal 9")

    with ThreadPoolExecutor(1) as executor:
        waiting = deque((source(number), WORKER_BYTES) for number in range(3))
        pool = WorkerPool(worker_pools._Local(executor, 1), 1, waiting, {}, "", 10**9)
        outcomes = {taken.name: value for taken, value in pool.results(lambda taken, _: (die, taken), int)}
    assert tries.count("000") == 2
    assert isinstance(outcomes["000"], WorkerDiedError)
    assert outcomes["001"] is None
    assert outcomes["002"] is None


def test_consistency_warnings(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    entries = ks.scan(tmp_path / "lake").entries
    assert consistency_warnings(entries, run="default") == []
    assert consistency_warnings(entries, run="other") == []
    assert consistency_warnings(entries[:2], run="default") == ["3 ranks expected, missing: 2"]
    odd = replace(entries[1], lost=3, steps=(99,), meta={**entries[1].meta, "format": "nsys"})
    assert consistency_warnings([entries[0], odd, entries[2]], run="default") == [
        "other format than most ranks: 1",
        "other steps than most ranks: 1",
        "ranks that lost events, see their diagnostics: 1",
    ]


def test_progress_has_rate_and_time_left(tmp_path: Path) -> None:
    report = ks.batch.BatchReport(tmp_path, total=10, total_bytes=100 * MB, done=4, failed=1)
    report.seen_bytes, report.read_bytes = 50 * MB, 40 * MB
    report.started = time.monotonic() - 20
    assert re.fullmatch(r"5 of 10 traces, 1 failed, 1\.9\d\d MiB/s, 25 s left", progress_text(report))
    report.done, report.seen_bytes = 9, 100 * MB
    assert final_text(report).startswith("10 traces in 20 s, 1.9")


def test_progress_on_a_terminal(job: Path, tmp_path: Path) -> None:
    """The line is written over, and gone at the end; stdout is no terminal and has JSON only."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "kernelscope", "batch", str(job), "--out", str(tmp_path / "lake")]
    done = subprocess.Popen([*command, "--no-summary"], stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    output, _ = done.communicate()
    shown = os.read(leader, 100_000).decode()
    os.close(leader)
    assert done.returncode == 0
    assert len(output.splitlines()) == 3
    assert shown.rstrip().endswith(f"the lake is {tmp_path / 'lake'}")


@pytest.mark.parametrize("option", [["--html", "page.html"], []])
def test_page_from_the_command(cli: Run, job: Path, tmp_path: Path, option: list[str]) -> None:
    if option:
        pytest.importorskip("itables", reason="itables, which ships the tables of the page, is not installed")
    done = cli("batch", job, "--out", "lake", "--no-json-lines", *option)
    assert done.returncode == 0
    assert done.stdout.startswith("3 ranks, ")
    assert (tmp_path / "page.html").exists() == bool(option)


def test_processes_of_a_database(tmp_path: Path) -> None:
    """Each process is a rank, whatever the file is called."""
    database = tmp_path / "node.3.sqlite"
    assert main(["demo", "--kind", "nsys", "--ranks", "2", "--size", "2MB", "--out", str(database)]) == 0
    batch(database, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    assert [entry.meta["processes"] for entry in lake.entries] == [1, 1]
    assert not any("several" in text for text in consistency_warnings(lake.entries, run="default"))
    assert ks.analysis.cluster_of(lake).ranks["rank"].to_list() == [0, 1]
    assert ks.analysis.rank_gpu_time(lake)["rank"].unique().sort().to_list() == [0, 1]
    # A trace of JSON that has several stays one rank, and it is said.
    both = [replace(entry, meta={**entry.meta, "processes": 2}) for entry in lake.entries]
    (doubt,) = [text for text in consistency_warnings(both, run="default") if "several processes" in text]
    assert "not in steps: 0, 1." in doubt
