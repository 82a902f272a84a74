"""Databases of nvprof, and what is made of what they hold."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from random import Random

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import errors
from nsys_database import findings
from nvprof_database import MEMCPY_ASYNC, SCHEMA, Database

Make = Callable[..., Database]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a database."""
    return lambda name="t.sql", **options: Database(tmp_path / name, **options)


def test_a_launch_in_a_range(make: Make) -> None:
    database = make()
    database.insert("Version", version=11)
    database.range("model", 5, 100)
    database.range("aten::mm, seq = 3, op_id = 9, sizes = [[2, 3], [3, 4]]", 10, 40)
    database.call(20, 30)
    database.kernel(50, 90, "_Z4gemmPf")
    trace = ks.read(database.close())
    (kernel,) = trace.gpu_ops.to_dicts()
    outer, inner = trace.ranges.to_dicts()
    (call,) = trace.launches.to_dicts()
    assert (trace.meta.format, trace.meta.properties["nvprof_file_version"]) == ("nvprof", 11)
    assert (call["name"], call["category"], call["callback_id"]) == ("cudaLaunchKernel", "cuda_runtime", 211)
    assert (call["pid"], call["tid"], call["range_row"]) == (7, 7, inner["row"])
    links = itemgetter("launch_row", "range_row", "link")
    assert links(kernel) == (call["row"], inner["row"], "containment")
    assert (kernel["name"], kernel["mangled_name"]) == ("gemm(float*)", "_Z4gemmPf")
    assert (kernel["device"], kernel["stream"], kernel["pid"], kernel["dur_ns"]) == (0, 7, 7, 40)
    assert itemgetter("grid", "block", "shared_memory_bytes")(kernel) == ([4, 2, 1], [128, 1, 1], 48)
    said = itemgetter("name", "sequence", "op_id", "sizes")
    assert said(inner) == ("aten::mm", 3, 9, "[[2, 3], [3, 4]]")
    assert itemgetter("kind", "dur_ns", "depth")(outer) == ("push_pop", 95, 0)
    assert inner["parent_row"] == outer["row"]
    assert findings(trace, severity="lost") == findings(trace, severity="repaired") == {}
    assert (trace.meta.seen, trace.meta.kept) == (6, 6)


def test_copies_memsets_and_synchronisations(make: Make) -> None:
    database = make()
    work = {"start": 10, "end": 30, "deviceId": 1, "contextId": 1, "streamId": 9}
    database.insert(
        "CUPTI_ACTIVITY_KIND_MEMCPY", **work, correlationId=4, copyKind=1, srcKind=1, dstKind=3, bytes=4096
    )
    database.insert("CUPTI_ACTIVITY_KIND_MEMSET", **work, correlationId=5, memoryKind=3, bytes=64)
    database.call(1, 2, correlation=4, cbid=MEMCPY_ASYNC)
    database.insert(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", type=3, start=40, end=90, correlationId=6, streamId=9,
        cudaEventId=-1,
    )  # fmt: skip
    trace = ks.read(database.close())
    copy, memset = trace.gpu_ops.to_dicts()
    assert (copy["kind"], copy["name"], copy["bytes"]) == ("memcpy", "[CUDA memcpy Host-to-Device]", 4096)
    assert (copy["source_memory"], copy["destination_memory"]) == ("Pageable", "Device")
    assert copy["launch_row"] == trace.launches["row"][0]
    assert (memset["kind"], memset["bytes"], memset["launch_row"]) == ("memset", 64, None)
    (sync,) = trace.syncs.to_dicts()
    assert (sync["name"], sync["dur_ns"], sync["stream"], sync["event_id"]) == ("Stream sync", 50, 9, None)


def test_devices(make: Make) -> None:
    database = make()
    database.insert(
        "CUPTI_ACTIVITY_KIND_DEVICE", id=0, name=database.text("Tesla V100"), globalMemorySize=2**34,
        numMultiprocessors=80, numThreadsPerWarp=32, maxWarpsPerMultiprocessor=64, computeCapabilityMajor=7,
        computeCapabilityMinor=0,
    )  # fmt: skip
    database.kernel(1, 2)
    trace = ks.read(database.close())
    (device,) = trace.devices.to_dicts()
    assert (device["name"], device["sm_count"], device["max_threads_per_sm"]) == ("Tesla V100", 80, 2048)
    assert (device["compute_major"], device["compute_minor"], device["total_memory_bytes"]) == (7, 0, 2**34)
    assert trace.gpu_ops["name"].to_list() == ["k"]


def test_driver_launches_and_unknown_functions(make: Make) -> None:
    database = make()
    database.call(1, 2, correlation=1, api="DRIVER", cbid=307)
    database.call(3, 4, correlation=2, cbid=99_999, returnValue=2)
    trace = ks.read(database.close())
    failed, launch = sorted(trace.launches.to_dicts(), key=lambda row: row["name"], reverse=True)
    assert {launch["name"], failed["name"]} == {"cuLaunchKernel", "cuda_runtime function 99999"}
    assert trace.launches["error"].drop_nulls().to_list() == [2]


def test_threads_marks_and_ranges_of_processes(make: Make) -> None:
    database = make()
    database.range("on a thread", 1, 9, tid=2**32 - 5)
    database.marker(1, 5, id=50, name=database.text("a mark"), domain=database.text("mine"))
    database.range("of the process", 2, 8, objectKind=1)
    database.call(3, 4, tid=-5)
    trace = ks.read(database.close())
    kinds = {row["name"]: row for row in trace.ranges.to_dicts()}
    assert {name: row["kind"] for name, row in kinds.items()} == {
        "on a thread": "push_pop", "a mark": "mark", "of the process": "start_end",
    }  # fmt: skip
    assert (kinds["a mark"]["domain"], kinds["a mark"]["dur_ns"]) == ("mine", None)
    (call,) = trace.launches.to_dicts()
    assert (call["tid"], call["range_row"]) == (2**32 - 5, kinds["on a thread"]["row"])


def test_ranges_of_a_process_enclose_calls_of_its_threads(make: Make) -> None:
    database = make()
    database.range("one", 0, 50, objectKind=1)
    database.range("two", 30, 90, objectKind=1)
    for place, at in enumerate((10, 35, 60, 95), 1):
        database.call(at, at + 2, correlation=place, tid=100 + place)
        database.kernel(at + 100, at + 101, correlation=place)
    trace = ks.read(database.close())
    names = trace.ranges.select(range_row="row", range="name")
    works = trace.gpu_ops.sort("start_ns").join(names, on="range_row", how="left", maintain_order="left")
    assert works.select("range", "link").rows() == [
        ("one", "nvtx_range"), (None, "several_ranges"), ("two", "nvtx_range"), (None, "no_op"),
    ]  # fmt: skip
    projected = ks.analysis.nvtx_projection(trace)
    assert projected.select("name", "launches").rows() == [("one", 2), ("two", 2)]


def test_ends_may_stand_before_starts(make: Make) -> None:
    database = make()
    database.marker(4, 90, id=1)
    database.marker(2, 10, id=1, name=database.text("late"))
    trace = ks.read(database.close(), strict=True)
    assert trace.ranges.select("name", "dur_ns").rows() == [("late", 80)]


def test_what_is_repaired_or_lost(make: Make) -> None:
    database = make()
    table = "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"
    rows = {
        "negative_duration": database.kernel(50, 40),
        "missing_duration": database.kernel(50, None),
        "unknown_string": database.kernel(1, 2, 4711),
        "bad_number": database.kernel(1, 2, correlation=-3),
        "bad_utf8": database.kernel(1, 2, b"k\xff"),
        "wrong_type": database.kernel(17, 20, deviceId="gpu"),
    }
    untimed = database.kernel(0, 0)
    database.kernel(None, 40)
    markers = "CUPTI_ACTIVITY_KIND_MARKER"
    unclosed = database.range("open", 10, None)
    stray = database.marker(4, 20, id=99)
    strange = database.marker(2, 30, id=77, objectId="no blob", name=database.text("x"))
    trace = ks.read(database.close())
    found = findings(trace)
    for code, rowid in rows.items():
        if code != "wrong_type":
            assert found[code] == (1, table, rowid), code
    assert found["untimed_work"] == (2, table, untimed)
    assert found["range_without_start"] == (1, markers, stray)
    assert found["open_range"] == (2, markers, unclosed)
    wrong = trace.diagnostics.filter(code="wrong_type").select("source", "first_rowid").rows()
    assert sorted(wrong) == sorted([(table, rows["wrong_type"]), (markers, strange)])
    assert (trace.gpu_ops.height, trace.untimed_gpu_ops.height) == (6, 2)
    assert trace.meta.seen == trace.meta.kept + trace.meta.dropped
    assert trace.ranges.filter(name="open")["dur_ns"].to_list() == [30]


def test_missing_tables_and_columns(make: Make) -> None:
    database = make(without=["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY"])
    database.connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, bytes INT)")
    database.connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 2)")
    database.connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL DROP COLUMN streamId")
    database.connection.execute(
        "INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (start, end) VALUES (1, 5)"
    )
    trace = ks.read(database.close())
    assert trace.gpu_ops.select("dur_ns", "stream").rows() == [(4, None)]
    found = trace.diagnostics.select("code", "source").rows()
    assert ("unreadable_table", "CUPTI_ACTIVITY_KIND_MEMCPY.end") in found
    assert ("missing_column", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL.streamId") in found
    assert ("table_absent", "CUPTI_ACTIVITY_KIND_RUNTIME") in found
    assert ("captured_empty", "CUPTI_ACTIVITY_KIND_MEMSET") in found


def test_strict_names_the_first_loss(make: Make) -> None:
    database = make()
    database.kernel(0, 0)
    with pytest.raises(errors.StrictError, match="table CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, rowid 1"):
        ks.read(database.close(), strict=True)


def test_only_what_is_asked_for_is_read(make: Make) -> None:
    database = make()
    database.kernel(1, 2)
    database.range("r", 1, 2)
    trace = ks.read(database.close(), tables=["ranges"])
    assert (trace.gpu_ops.height, trace.ranges.height, trace.meta.seen) == (0, 1, 2)


def test_two_processes_share_no_launches(make: Make) -> None:
    database = make()
    database.call(1, 2, pid=7)
    database.call(3, 4, pid=8, correlation=2)
    database.kernel(5, 6, correlation=2)
    trace = ks.read(database.close())
    assert trace.gpu_ops["pid"].to_list() == [None]
    assert trace.gpu_ops["launch_row"].to_list() == trace.launches.filter(pid=8)["row"].to_list()


def test_the_input_is_never_written(make: Make) -> None:
    database = make()
    database.kernel(1, 2)
    path = database.close()
    path.chmod(stat.S_IRUSR)
    before, listing = path.read_bytes(), sorted(os.listdir(path.parent))
    ks.read(path)
    assert (path.read_bytes(), sorted(os.listdir(path.parent))) == (before, listing)


def test_a_database_that_is_cut_short(make: Make) -> None:
    database = make()
    for at in range(3000):
        database.kernel(at, at + 1, 0)
    path = database.close()
    whole = path.read_bytes()
    refusals: list[str] = []
    for share in (0.05, 0.3, 0.6, 0.9):
        path.write_bytes(whole[: int(len(whole) * share)])
        try:
            trace = ks.read(path)
        except errors.TraceFormatError as error:
            refusals.append(str(error))
            continue
        assert trace.diagnostics.filter(pl.col("severity") == "lost").height > 0
        assert trace.gpu_ops.height < 3000
    assert all("SQLite" in message for message in refusals)
    assert len(refusals) < 4


def test_another_program_s_database(tmp_path: Path) -> None:
    database = Database(tmp_path / "other.sqlite", without=[])
    for table in SCHEMA:
        if table.startswith("CUPTI_ACTIVITY_KIND_"):
            database.connection.execute(f"DROP TABLE {table}")
    with pytest.raises(errors.NotATraceError, match="not an nsys export"):
        ks.read(database.close())


@pytest.mark.slow
def test_random_damage_is_answered_or_refused(make: Make) -> None:
    database = make()
    for at in range(400):
        database.range(f"aten::mm, seq = {at}", 10 * at, 10 * at + 9)
        database.call(10 * at + 1, 10 * at + 3, correlation=at + 1)
        database.kernel(10 * at + 2, 10 * at + 8, f"kernel {at % 7}", correlation=at + 1)
    path = database.close()
    whole = path.read_bytes()
    random = Random(7)
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(random.randint(1, 40)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        path.write_bytes(damaged)
        try:
            trace = ks.read(path)
        except (errors.TraceFormatError, errors.NotATraceError, errors.TraceReadError) as error:
            assert str(path) in str(error)  # noqa: PT017 - either outcome is right
            continue
        assert trace.meta.seen == trace.meta.kept + trace.meta.dropped
        assert path.read_bytes() == damaged
