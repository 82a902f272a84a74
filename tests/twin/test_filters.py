"""Filters of events beside SQL, and their laws: on recorded databases and on drawn ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import draws
import kernelscope as ks
from kernelscope.check import check
from kernelscope.compat.nsys import nsys_report, parse, read_for
from nsys_database import Database, findings, global_pid, global_tid
from oracles.traces import SHARED, TRACES, files, need
from twin import drawn_databases
from twin.test_drawn_databases import BATCH, DRAWN

WORKS = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
EVENTS = ("ops", "launches", "gpu_ops", "python", "ranges", "syncs", "memory", "instants", "flows", "spans")


class Twin:
    """What SQL says of the rows of a database that a filter keeps, by their numbers in the trace."""

    def __init__(self, path: Path, trace: ks.Trace) -> None:
        self.connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        self.places = trace.meta.properties["tables"]

    def rows(self, table: str, where: str, *values: Any) -> set[int]:
        if table not in self.places:
            return set()
        first = self.places[table]["row_of_rowid_0"]
        found = self.connection.execute(f"SELECT rowid FROM {table} WHERE {where}", values)
        return {first + rowid for (rowid,) in found}

    def works(self, where: str, *values: Any) -> set[int]:
        return set[int]().union(*(self.rows(table, where, *values) for table in WORKS))

    def ranges(self, where: str, *values: Any) -> set[int]:
        return self.rows("NVTX_EVENTS", f"eventType IN (34, 59, 60, 70, 71) AND {where}", *values)


def rows(trace: ks.Trace, table: str) -> set[int]:
    return set(getattr(trace, table)["row"].to_list())


def check_time(path: Path, trace: ks.Trace, start: int, end: int) -> None:
    """What overlaps a time stays; what has no end lasts to the end of the session."""
    twin, found = Twin(path, trace), ks.read(path, filter_time=(start, end))
    overlap = "start <= ?2 AND coalesce(end, 1 << 62) >= ?1"
    assert rows(found, "gpu_ops") == twin.works(overlap, start, end)
    assert rows(found, "launches") == twin.rows(CALLS, overlap, start, end)
    moment = "start <= ?2 AND CASE eventType WHEN 34 THEN start ELSE coalesce(end, 1 << 62) END >= ?1"
    assert rows(found, "ranges") == twin.ranges(moment, start, end)
    # Nothing is cut at the border.
    kept = trace.gpu_ops.filter(pl.col("row").is_in(found.gpu_ops["row"].implode()))
    assert_frame_equal(found.gpu_ops.select("start_ns", "dur_ns"), kept.select("start_ns", "dur_ns"))
    check(found)


def check_range(path: Path, trace: ks.Trace, chosen: dict[str, Any]) -> None:
    """What the thread of a range did in it, and the work that this launched."""
    twin = Twin(path, trace)
    same = trace.ranges.filter(
        pl.col("domain").is_null(), pl.col("dur_ns").is_not_null(), name=chosen["name"]
    )
    same = same.sort("start_ns", pl.col("start_ns") + pl.col("dur_ns"), maintain_order=True)
    index = same["row"].to_list().index(chosen["row"])
    name = chosen["name"].replace("@", r"\@").replace("/", r"\/")
    found = ks.read(path, filter_nvtx=f"{name}/{index}")
    tid, start, end = chosen["thread"], chosen["start_ns"], chosen["start_ns"] + chosen["dur_ns"]
    overlap = "start <= ?3 AND end >= ?2 AND globalTid = ?1"
    assert rows(found, "launches") == twin.rows(CALLS, overlap, tid, start, end)
    launched = f"""EXISTS (SELECT 1 FROM {CALLS} AS c WHERE c.globalTid = ?1 AND c.start <= ?3 AND c.end >= ?2
        AND c.correlationId = {{table}}.correlationId AND c.globalTid >> 24 = {{table}}.globalPid >> 24)"""
    works = (twin.rows(table, launched.format(table=table), tid, start, end) for table in WORKS)
    assert rows(found, "gpu_ops") == set[int]().union(*works)
    around = "start <= ?3 AND coalesce(end, start) >= ?2 AND globalTid = ?1"
    assert rows(found, "ranges") == twin.ranges(around, tid, start, end)


def check_partitions(path: Path, trace: ks.Trace) -> None:
    """Processes share out every event that has one; GPUs share out the work."""
    pids = trace.gpu_ops["pid"].append(trace.launches["pid"]).drop_nulls().unique().to_list()
    parts = [ks.read(path, process=pid) for pid in pids]
    whole = ks.read(path, process=pids)
    for table in EVENTS:
        frame: pl.DataFrame = getattr(trace, table)
        owned = frame.filter(pl.col("pid").is_in(pids))
        assert sorted(row for part in parts for row in getattr(part, table)["row"]) == owned["row"].to_list()
        assert getattr(whole, table).height == owned.height
    devices = trace.gpu_ops["device"].drop_nulls().unique().to_list()
    shares = [ks.read(path, device=device) for device in devices]
    assert sorted(row for part in shares for row in part.gpu_ops["row"]) == trace.gpu_ops["row"].to_list()
    for device, share in zip(devices, shares, strict=True):
        assert set(share.gpu_ops["device"]) == {device}
        links = share.gpu_ops.select("row", "launch_row")
        assert_frame_equal(links, trace.gpu_ops.filter(device=device).select("row", "launch_row"))
        check(share)


def check_no_filter(path: Path, trace: ks.Trace) -> None:
    """A filter of all there is leaves all as it is, links and findings included."""
    first, last = trace.extent() or (0, 0)
    found = ks.read(path, filter_time=(min(first, 0) - 2**40, last + 2**60))
    for name, frame in trace.tables.items():
        assert_frame_equal(getattr(found, name), frame)


def check_all(path: Path, random: Random) -> None:
    trace = ks.read(path)
    check_no_filter(path, trace)
    first, last = trace.extent() or (0, 1)
    start = random.randint(first, last)
    check_time(path, trace, start, random.randint(start, last))
    if trace.gpu_ops.height:
        check_partitions(path, trace)
    pushed = trace.ranges.filter(pl.col("domain").is_null(), pl.col("dur_ns").is_not_null(), kind="push_pop")
    if pushed.height:
        at = random.randrange(pushed.height)
        chosen = pushed.with_columns(pl.col("name").cast(pl.String)).row(at, named=True)
        chosen["thread"] = thread_of(path, trace, chosen["row"])
        check_range(path, trace, chosen)


def thread_of(path: Path, trace: ks.Trace, row: int) -> int:
    twin = Twin(path, trace)
    rowid = row - twin.places["NVTX_EVENTS"]["row_of_rowid_0"]
    (found,) = twin.connection.execute("SELECT globalTid FROM NVTX_EVENTS WHERE rowid = ?", (rowid,))
    return found[0]


@pytest.mark.parametrize("path", files(SHARED / "traces" / "nsys", "*.sqlite"))
def test_recorded(path: Path) -> None:
    for seed in range(draws.count(1, 10)):
        check_all(path, Random(seed))


# Each asks every view of several filtered traces: a twentieth of what other twins draw takes long enough.
@pytest.mark.parametrize("first", range(0, DRAWN // 20, BATCH))
def test_drawn(first: int, tmp_path: Path) -> None:
    for seed in range(first, min(first + BATCH, DRAWN // 20)):
        check_all(drawn_databases.write(tmp_path / f"{seed}.sqlite", seed), Random(seed))


def test_a_trace_of_pytorch() -> None:
    path = need(TRACES / "resnet50-v100-2021.json.gz")
    trace = ks.read(path)
    check_no_filter(path, trace)
    step = trace.steps.filter(pl.col("step").is_not_null()).row(0, named=True)
    found = ks.read(path, filter_nvtx=str(step["name"]))
    # The thread of the annotation made the calls.
    inside = trace.launches.filter(
        pl.col("track") == trace.ops.filter(row=step["row"])["track"].item(),
        pl.col("start_ns") <= step["host_start_ns"] + step["host_dur_ns"],
        pl.col("start_ns") + pl.col("dur_ns") >= step["host_start_ns"],
    )
    assert found.launches["row"].to_list() == inside["row"].to_list()
    launched = trace.gpu_ops.filter(pl.col("launch_row").is_in(inside["row"].implode()))
    assert 0 < launched.height < trace.gpu_ops.height
    assert found.gpu_ops["row"].to_list() == launched["row"].to_list()
    check(found)


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Three steps of a thread, beside which another thread of the process works."""
    database = Database(tmp_path / "steps.sqlite")
    for at in range(3):
        start, correlation = 1_000 * at, 10 * at + 1
        database.range("step", start, start + 500)
        database.range("step", start + 10, start + 20, domainId=3)
        database.call(start + 100, start + 110, correlation=correlation)
        database.kernel(start + 900, start + 1_200, correlation=correlation)
        database.call(start + 100, start + 110, correlation=correlation + 1, globalTid=global_tid(7, 8))
        database.kernel(start + 120, start + 130, correlation=correlation + 1, streamId=8)
    database.range("job", 1_050, 2_105, eventType=60)
    database.insert("NVTX_EVENTS", start=0, eventType=75, text="DOM", domainId=3, globalTid=global_tid(7, 7))
    return database.close()


def starts(trace: ks.Trace) -> list[int]:
    return trace.gpu_ops["start_ns"].sort().to_list()


def test_ranges_by_name_domain_and_index(steps: Path) -> None:
    # Without an index the first; work that ran after the range goes with its call.
    assert starts(ks.read(steps, filter_nvtx="step")) == [900]
    assert starts(ks.read(steps, filter_nvtx="step/2")) == [2_900]
    assert starts(ks.read(steps, filter_nvtx="step@default/1")) == [1_900]
    assert ks.read(steps, filter_nvtx="step@DOM/1").ranges["start_ns"].to_list() == [1_000, 1_010]
    # A range that was started belongs to the process.
    assert starts(ks.read(steps, filter_nvtx="job")) == [1_120, 1_900, 2_120, 2_900]
    both = ks.read(steps, filter_nvtx="step/1", filter_time=(0, 1_899))
    assert starts(both) == []
    assert both.launches.height == 1
    assert findings(both)["filtered"][0] == 15


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"filter_nvtx": "stop"}, 'no NVTX range or annotation has the name "stop"'),
        ({"filter_nvtx": "step/3"}, 'there are 3 ranges with the name "step", numbered from 0'),
        ({"filter_nvtx": "job@DOM"}, "are in the domains default: write RANGE@DOMAIN"),
        ({"process": 9}, "no event belongs to the process 9; there are 7"),
        ({"device": [0, 4]}, "no event belongs to the GPU 4; there are 0"),
        ({"filter_time": "1s"}, "'1s' is not a time; write START/END in ns or with a unit"),
        ({"filter_time": "2s/1s"}, "ends before it starts"),
        ({"filter_time": "/"}, "is not a time"),
        ({"filter_time": "1h/"}, "is not a time"),
    ],
)
def test_what_is_not_there_is_refused(steps: Path, option: dict[str, Any], message: str) -> None:
    with pytest.raises(ks.errors.InvalidArgumentError, match=message.replace("(", r"\(")):
        ks.read(steps, **option)


def test_times_have_units(steps: Path) -> None:
    written = ("1us/0.002ms", "1000/2000", "1000ns/2us", " 1 us / 2us ")
    found = [starts(ks.read(steps, filter_time=text)) for text in written]
    assert found == [[900, 1_120, 1_900]] * 4
    assert starts(ks.read(steps, filter_time="/150ns")) == [120]


FILTERS: list[dict[str, Any]] = [
    {"filter_nvtx": "step/1"},
    {"filter_time": "1us/2us"},
    {"process": 7, "device": 0},
]
REPORTS = ("cuda_gpu_kern_sum", "cuda_kern_exec_sum", "cuda_api_sum", "nvtx_sum", "gpu_gaps")


@pytest.mark.parametrize("report", REPORTS)
def test_reports_of_filtered_databases(steps: Path, report: str, cli: Callable[..., Any]) -> None:
    """A report that reads what it needs is that of the trace."""
    for filters in FILTERS:
        part = read_for(steps, *parse(report), **filters)
        assert_frame_equal(nsys_report(part, report), nsys_report(ks.read(steps, **filters), report))
    done = cli("stats", steps, "-r", report, "--filter-nvtx", "step/1", "--process", "7", "--device", "0")
    assert done.returncode == 0, done.stderr


def test_commands(steps: Path, cli: Callable[..., Any]) -> None:
    done = cli("stats", steps, "-r", "cuda_gpu_kern_sum", "--filter-time", "1us/2us")
    assert done.stdout.splitlines()[1].startswith("100.0,610,3,")
    done = cli("analyze", steps, "--filter-nvtx", "step/1")
    assert done.returncode == 0, done.stderr
    done = cli("stats", steps, "-r", "cuda_gpu_kern_sum", "--filter-time", "soon/later")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    done = cli("stats", steps, "-r", "cuda_gpu_kern_sum", "--timeunit", "micro")
    assert done.stdout.splitlines()[:2] == [
        "Time (%),Total Time (us),Instances,Avg (us),Med (us),Min (us),Max (us),StdDev (us),Name",
        "100.0,0.930,6,0.1550,0.1550,0.010,0.300,0.1588,void gemm<float>(int)",
    ]
    assert cli("stats", steps, "-r", "nvtx_sum", "--timeunit", "m").returncode == 2
    done = cli("stats", steps, "-r", "cuda_gpu_kern_sum", "--format", "table")
    first, *_, last = done.stdout.splitlines()
    assert first == last
    assert set(first) == {"+", "-"}


# Of one process with work on GPU 1 alone, one that copies on GPU 2, and one that only calls the system.
REFUSED = [
    ("cuda_gpu_kern_sum", "--process", "9", "no event belongs to the process 9; there are 7, 8"),
    ("cuda_gpu_mem_time_sum", "--device", "0", "no event belongs to the GPU 0; there are 1, 2"),
    ("nvtx_sum", "--device", "4", "no event belongs to the GPU 4; there are 1, 2"),
    ("nvtx_gpu_proj_sum", "--process", "9", "no event belongs to the process 9; there are 7, 8"),
    ("osrt_sum", "--device", "3", "no event belongs to the GPU 3; there are 1, 2"),
    ("osrt_sum", "--process", "77", "no event belongs to the process 77; there are 7, 8"),
    ("gpu_gaps", "--process", "10", "no event belongs to the process 10; there are 7, 8"),
]


@pytest.fixture
def places(tmp_path: Path) -> Path:
    copies = "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER,"
    copies += " correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER"
    calls = "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, nameId INTEGER"
    schema = {"CUPTI_ACTIVITY_KIND_MEMCPY": copies, "OSRT_API": calls}
    database = Database(tmp_path / "places.sqlite", schema=schema)
    database.range("step", 0, 500)
    database.call(100, 110)
    database.kernel(150, 200, deviceId=1)
    database.insert(
        "CUPTI_ACTIVITY_KIND_MEMCPY", start=300, end=310, deviceId=2, contextId=1, streamId=7,
        correlationId=9, bytes=4, copyKind=1, globalPid=global_pid(7),
    )  # fmt: skip
    database.insert("OSRT_API", start=1, end=2, eventClass=27, globalTid=global_tid(8, 8), nameId=2)
    return database.close()


@pytest.mark.parametrize(("report", "option", "number", "message"), REFUSED)
def test_numbers_that_nothing_has_are_refused_by_every_report(
    places: Path, cli: Callable[..., Any], report: str, option: str, number: str, message: str
) -> None:
    done = cli("stats", places, "-r", report, option, number)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    done = cli("analyze", places, option, number)
    assert (done.returncode, message in done.stderr) == (2, True)


def test_numbers_of_what_a_report_does_not_read_are_known(places: Path, cli: Callable[..., Any]) -> None:
    """A report of what a process or a GPU has none of is empty, and no error."""
    for report, option in (
        ("cuda_gpu_kern_sum", ("--process", "8")),
        ("cuda_gpu_kern_sum", ("--device", "2")),
        ("cuda_kern_exec_sum", ("--process", "8")),
        ("cuda_api_sum", ("--process", "8")),
        ("osrt_sum", ("--device", "2")),
    ):
        done = cli("stats", places, "-r", report, *option)
        assert (done.returncode, done.stderr) == (0, ""), report
    assert len(cli("stats", places, "-r", "osrt_sum", "--process", "8").stdout.splitlines()) == 2


def test_numbers_of_gpus_are_no_processes_of_a_trace_of_pytorch() -> None:
    path = need(TRACES / "resnet50-v100-2021.json.gz")
    with pytest.raises(
        ks.errors.InvalidArgumentError, match="no event belongs to the process 0; there are 25738"
    ):
        ks.read(path, process=0)
