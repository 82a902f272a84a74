"""Reports of several databases and of lakes, beside their answers and beside loops over SQL."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median, quantiles, stdev
from typing import Any

import pytest
from polars.testing import assert_frame_equal

import kernelscope as ks
from kernelscope import batch
from kernelscope.compat.nsys import REPORTS, Pool, nsys_pooled, nsys_report, nsys_reports, parse
from nsys_database import Database, global_tid
from twin import drawn_databases

Cli = Callable[..., Any]
KERNEL = "void gemm<float>(int)"
HEADINGS = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Q1 (ns),Med (ns),Q3 (ns),Min (ns),Max (ns),StdDev (ns),Name,"
    "Min File,Max File"
)


def write(path: Path, lengths: list[int], *, pid: int = 7, device: int = 0) -> Path:
    """A process with a kernel of each length, each under a range and a call of NCCL's of the same length."""
    path.parent.mkdir(exist_ok=True)
    database = Database(path)
    domain = {"domainId": 1, "globalTid": global_tid(pid, pid)}
    database.insert("NVTX_EVENTS", start=0, eventType=75, text="NCCL", **domain)
    for at, length in enumerate(lengths):
        start = 1_000 * at
        database.range("step", start, start + 20, pid=pid)
        database.range("ncclAllReduce", start + 30, start + 30 + length, pid=pid, domainId=1)
        database.call(start + 1, start + 5, pid=pid, correlation=at + 1)
        database.kernel(start + 50, start + 50 + length, pid=pid, correlation=at + 1, deviceId=device)
    return database.close()


@pytest.fixture
def ranks(tmp_path: Path) -> list[Path]:
    return [
        write(tmp_path / "rank0.sqlite", [1, 2, 3]),
        write(tmp_path / "rank1.sqlite", [10, 20], pid=8, device=1),
    ]


def test_figures_are_of_all_values(ranks: list[Path], cli: Cli) -> None:
    # Of 1, 2, 3, 10 and 20. The median of medians would be 8.5, the least of first quartiles 1.5.
    done = cli("stats", *ranks, "-r", "cuda_gpu_kern_sum")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        HEADINGS,
        f"100.0,36,5,7.2,2.0,3.0,10.0,1,20,8.0,{KERNEL},{ranks[0]},{ranks[1]}",
    ]
    done = cli("stats", *ranks, "-r", "nccl_sum")
    assert done.stdout.splitlines() == [
        f"{','.join(field.heading for field in REPORTS['nccl_sum'].fields)},Min File,Max File",
        f"ncclAllReduce,5,36,7.2,8.0,1,2.0,3.0,10.0,20,{ranks[0]},{ranks[1]}",
    ]
    done = cli("stats", *ranks, "-r", "nvtx_gpu_proj_sum")
    # A projection is as long as its kernel.
    assert done.stdout.splitlines()[1] == (
        f"step,PushPop,36,5,7.2,2.0,3.0,10.0,1,20,8.0,{ranks[0]},{ranks[1]}"
    )


def test_gpus_and_databases_stay_apart_where_asked(ranks: list[Path], cli: Cli) -> None:
    done = cli("stats", *ranks, "-r", "cuda_gpu_kern_sum", "--by", "device")
    assert [line.split(",")[:4] for line in done.stdout.splitlines()[1:]] == [
        ["1", "83.3", "30", "2"],
        ["0", "16.7", "6", "3"],
    ]
    done = cli("stats", *ranks, "-r", "cuda_gpu_kern_sum", "--by", "file")
    assert done.stdout.splitlines()[1:] == [
        f"{ranks[0]},100.0,6,3,2.0,2.0,1,3,1.0,{KERNEL}",
        f"{ranks[1]},100.0,30,2,15.0,15.0,10,20,7.1,{KERNEL}",
    ]
    # A pace, a map and a trace have rows of each database, and of each GPU in it.
    traces = {str(path): ks.read(path) for path in ranks}
    for report in ("cuda_gpu_time_util_map:bins=3", "cuda_gpu_kern_hist:bins=2", "cuda_gpu_trace"):
        done = cli("stats", *ranks, "-r", report, "--format", "json")
        assert done.returncode == 0
        found = nsys_reports(traces, report)
        assert done.stdout.count('"File"') == found.height
        assert found["file"].unique(maintain_order=True).to_list() == list(traces)


def test_one_database_is_as_it_was(ranks: list[Path]) -> None:
    trace = ks.read(ranks[0])
    for name, report in REPORTS.items():
        if report.sample is None:
            continue
        alone, pooled = nsys_report(trace, name), nsys_pooled({"a": trace}, name)
        shared = [column for column in alone.columns if column in pooled.columns]
        assert_frame_equal(pooled.select(shared), alone.select(shared))
        assert len(shared) >= 8, name


@pytest.mark.slow
def test_beside_loops(tmp_path: Path) -> None:
    for seed in range(0, 60, 3):
        paths = [drawn_databases.write(tmp_path / f"{n}.sqlite", n) for n in range(seed, seed + 3)]
        lengths: dict[str, list[tuple[int, str]]] = defaultdict(list)
        query = """SELECT value, end - start FROM CUPTI_ACTIVITY_KIND_KERNEL
            JOIN StringIds ON id = demangledName WHERE end >= start"""
        for path in paths:
            connection = sqlite3.connect(path)
            for name, length in connection.execute(query):
                lengths[name].append((length, str(path)))
            connection.close()
        found = nsys_pooled({str(path): ks.read(path) for path in paths}, "cuda_gpu_kern_sum")
        assert set(found["name"]) == set(lengths)
        for row in found.iter_rows(named=True):
            own = [length for length, _ in lengths[row["name"]]]
            assert (row["total_ns"], row["instances"]) == (sum(own), len(own))
            assert row["mean_ns"] == pytest.approx(fmean(own))
            assert row["median_ns"] == median(own)
            low, high = lengths[row["name"]], lengths[row["name"]]
            assert (row["min_ns"], row["min_file"]) == min(low, key=lambda pair: pair[0])
            assert (row["max_ns"], row["max_file"]) == max(high, key=lambda pair: pair[0])
            if len(own) > 1:
                q1, _, q3 = quantiles(own, method="inclusive")
                assert (row["q1_ns"], row["q3_ns"]) == pytest.approx((q1, q3))
                assert row["std_ns"] == pytest.approx(stdev(own))
        assert found["time_pct"].sum() == pytest.approx(100.0)


def test_a_database_without_it_is_named(ranks: list[Path], tmp_path: Path, cli: Cli) -> None:
    empty = Database(tmp_path / "empty.sqlite", without=["CUPTI_ACTIVITY_KIND_KERNEL"]).close()
    done = cli("stats", ranks[0], empty, "-r", "cuda_gpu_kern_sum")
    assert done.returncode == 0
    assert done.stderr.startswith(f"kernelscope: {empty}: cuda_gpu_kern_sum: ")
    assert done.stdout.splitlines()[1].startswith("100.0,6,3,")
    done = cli("stats", empty, empty, "-r", "cuda_gpu_kern_sum")
    assert (done.returncode, done.stdout) == (1, "")
    # Without --report every summary is of all, and what nobody recorded is named.
    done = cli("stats", *ranks)
    assert done.returncode == 0
    assert "osrt_sum: OSRT_API" in done.stderr
    assert "36" in done.stdout


@pytest.mark.slow
def test_lakes(ranks: list[Path], tmp_path: Path, cli: Cli) -> None:
    done = batch.run(ranks, tmp_path / "lake", workers=1)
    assert not done.failed
    # A lake calls its sources by where they were.
    names = [trace.meta.path for trace in batch.scan(tmp_path / "lake").traces(["gpu_ops"])]
    assert [Path(name).name for name in names] == ["rank0.sqlite", "rank1.sqlite"]
    for report in ("cuda_gpu_kern_sum", "nvtx_sum", "nvtx_gpu_proj_sum", "nccl_sum", "cuda_api_sum"):
        pool = Pool(*parse(report))
        for name, path in zip(names, ranks, strict=True):
            pool.add(name, ks.read(path))
        of_lake = Pool(*parse(report))
        wanted = ["gpu_ops", "ranges", "launches", "threads", "extra_args"]
        for trace in batch.scan(tmp_path / "lake").traces(wanted):
            of_lake.add(trace.meta.path, trace)
        assert_frame_equal(of_lake.table(), pool.table())
        printed = cli("stats", tmp_path / "lake", "-r", report)
        assert printed.returncode == 0, printed.stderr
        assert len(printed.stdout.splitlines()) == pool.table().height + 1
    printed = cli("stats", tmp_path / "lake", "-r", "nvtx_pace:name=step")
    assert len(printed.stdout.splitlines()) == 1 + 5
    assert cli("stats", tmp_path / "lake", "-r", "osrt_sum").returncode == 1
    assert cli("stats", tmp_path / "lake", "-r", "nvtx_sum", "--process", "7").returncode == 2


def test_what_cannot_be_pooled_is_refused(ranks: list[Path]) -> None:
    trace = ks.read(ranks[0])
    with pytest.raises(ks.errors.InvalidArgumentError, match="has rows of single databases"):
        nsys_pooled({"a": trace}, "cuda_gpu_trace")
    with pytest.raises(ks.errors.InvalidArgumentError, match="needs at least one"):
        nsys_pooled({}, "nvtx_sum")


def test_a_lake_without_ranks_is_refused(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "rank0.json").write_text("no trace")
    assert batch.run(tmp_path / "rank0.json", tmp_path / "lake", workers=1).failed == 1
    done = cli("stats", tmp_path / "lake", "-r", "nvtx_sum")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is a lake without ranks; add some with kernelscope batch" in " ".join(done.stderr.split())
