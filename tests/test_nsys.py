"""Databases of nsys: tables, broken files, costs, and what analyze shows of them."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from random import Random

import polars as pl
import pytest

import draws
import kernelscope as ks
from kernelscope import analysis, errors
from nsys_database import Database, findings, global_pid, global_tid, write_training_steps

Cli = Callable[..., subprocess.CompletedProcess[str]]

Make = Callable[..., Database]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a database."""
    return lambda name="t.sqlite", **options: Database(tmp_path / name, **options)


def test_a_launch_in_a_range(make: Make) -> None:
    database = make()
    database.range("model", 0, 100)
    database.range("aten::mm, seq = 3, op_id = 9, sizes = [[2, 3], [3, 4]], input_op_ids = [(8,0)]", 10, 40)
    database.call(20, 30)
    database.kernel(50, 90)
    trace = ks.read(database.close())
    (kernel,) = trace.gpu_ops.to_dicts()
    outer, inner = trace.ranges.to_dicts()
    (call,) = trace.launches.to_dicts()
    assert (call["name"], call["api_version"], call["range_row"]) == ("cudaLaunchKernel", 7000, inner["row"])
    links = itemgetter("launch_row", "range_row", "link")
    assert links(kernel) == (call["row"], inner["row"], "containment")
    names = itemgetter("name", "short_name", "mangled_name")
    assert names(kernel) == ("void gemm<float>(int)", "gemm", "_Z4gemm")
    assert itemgetter("grid", "block", "shared_memory_bytes")(kernel) == ([4, 2, 1], [128, 1, 1], 48)
    said = itemgetter("name", "sequence", "op_id", "sizes")
    assert said(inner) == ("aten::mm", 3, 9, "[[2, 3], [3, 4]]")
    place = itemgetter("parent_row", "depth")
    assert (place(outer), place(inner)) == ((None, 0), (outer["row"], 1))
    assert trace.extra_args.select("key", "value").rows() == [("input_op_ids", "[(8,0)]")]
    assert findings(trace, severity="lost") == {}
    assert findings(trace, severity="repaired") == {}


@pytest.mark.parametrize("seed", range(draws.count(20, 1_000)))
def test_calls_outside_ranges_of_their_thread_are_in_the_only_one_of_the_process(
    make: Make, seed: int
) -> None:
    random, database = draws.random("ranges of processes", seed), make()
    ranges, calls = [], []
    for number in range(random.randint(1, 8)):
        start, thread, pid = random.randint(0, 60), random.randint(1, 3), random.randint(7, 8)
        end, crosses = start + random.randint(0, 60), random.random() < 0.7
        other = {"endGlobalTid": global_tid(pid, 99)} if crosses else {}
        where = {"globalTid": global_tid(pid, thread), "eventType": 60, **other}
        database.range(str(number), start, end, **where)
        ranges.append((start, end, pid, None if crosses else thread, str(number)))
    for place in range(1, random.randint(2, 13)):
        start, thread, pid = random.randint(0, 100), random.randint(1, 3), random.randint(7, 8)
        end = start + random.randint(0, 9)
        database.call(start, end, correlation=place, globalTid=global_tid(pid, thread))
        database.kernel(start + 200, start + 201, correlation=place, globalPid=global_pid(pid))
        calls.append((start, end, pid, thread))
    trace = ks.read(database.close())
    names = trace.ranges.select(range_row="row", range="name")
    found = trace.gpu_ops.join(names, on="range_row", how="left").select("correlation", "range", "link")
    for correlation, name, link in found.iter_rows():
        start, end, pid, thread = calls[correlation - 1]
        around = [r for r in ranges if r[0] <= start and end <= r[1] and r[2] == pid]
        own = [r for r in around if r[3] == thread]
        of_process = [r for r in around if r[3] is None]
        if own:
            first = max(r[0] for r in own)
            assert name in {r[4] for r in own if r[0] == first}
        else:
            assert name == (of_process[0][4] if len(of_process) == 1 else None)
        several = len(of_process) > 1 and not own
        assert link == ("nvtx_range" if name else "several_ranges" if several else "no_op")


def test_ids_of_processes_are_kept_apart(make: Make) -> None:
    database = make()
    for pid in (7, 8):
        database.range(f"of {pid}", 0, 100, pid=pid)
        database.call(10 + pid, 20 + pid, pid=pid, correlation=5)
    database.kernel(50, 60, pid=7, correlation=5)
    database.kernel(51, 61, pid=8, correlation=5)
    database.kernel(52, 62, pid=9, correlation=5)
    trace = ks.read(database.close())
    calls = trace.launches.select(launch_row="row", call_pid="pid")
    linked = trace.gpu_ops.join(calls, on="launch_row", how="left").select("pid", "call_pid", "link")
    assert linked.rows() == [(7, 7, "nvtx_range"), (8, 8, "nvtx_range"), (9, None, "no_launch")]
    assert findings(trace)["launch_outside_trace"][0] == 1
    assert findings(trace)["ambiguous_device"][0] == 1
    assert trace.threads["pid"].to_list() == [7, 8]


def test_the_input_is_never_touched(make: Make) -> None:
    database = make()
    database.kernel(1, 2)
    path = database.close()
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent)))
    path.chmod(stat.S_IRUSR)
    ks.read(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent))) == before


def test_absent_empty_and_newer_are_told_apart(make: Make) -> None:
    database = make(without=("NVTX_EVENTS",))
    database.meta("CAPTURE", CAPTURE_EVENT_TYPE="Cuda")
    trace = ks.read(database.close())
    by_source = dict(trace.diagnostics.drop_nulls("source").select("source", "code").iter_rows())
    assert by_source["NVTX_EVENTS"] == "not_captured"
    assert by_source["CUPTI_ACTIVITY_KIND_KERNEL"] == "captured_empty"
    assert by_source["CUPTI_ACTIVITY_KIND_MEMCPY"] == "captured_empty"
    assert by_source["GPU_METRICS"] == "table_absent"
    assert trace.diagnostics.filter(pl.col("code") == "no_events").height == 1


def test_columns_of_newer_versions_are_null(make: Make) -> None:
    database = make()
    database.kernel(1, 2)
    trace = ks.read(database.close())
    newer = trace.diagnostics.filter(pl.col("code") == "newer_column")["source"].cast(pl.String).to_list()
    assert "CUPTI_ACTIVITY_KIND_KERNEL.clusterX" in newer
    assert trace.gpu_ops["cluster"].to_list() == [None]


def test_kinds_of_ranges_and_names(make: Make) -> None:
    database = make()
    database.range("late", 1, 2, domainId=3, category=4)
    database.range("DOM", 5, None, eventType=75, domainId=3)
    database.range("other process", 1, 2, domainId=3, pid=8)
    database.range("CAT", 5, None, eventType=33, domainId=3, category=4)
    database.range(None, 10, 30, textId=2, eventType=60, endGlobalTid=(1 << 48) | (7 << 24) | 9)
    database.range("point", 11, None, eventType=34, int64Value=-5)
    database.range("open", 20, None)
    trace = ks.read(database.close())
    named = trace.ranges.select("name", "domain", "category", "kind", "dur_ns", "end_tid").rows()
    assert named == [
        ("late", "DOM", "CAT", "push_pop", 1, None),
        ("other process", "domain 3", None, "push_pop", 1, None),
        ("gemm", None, None, "start_end", 20, 9),
        ("point", None, None, "mark", None, None),
        ("open", None, None, "push_pop", 999_980, None),
    ]
    assert findings(trace)["open_range"] == (1, "NVTX_EVENTS", 7)
    assert trace.extra_args.select("key", "value").rows() == [("int64Value", "-5")]
    assert trace.meta.seen == trace.meta.kept == 7


def steps_of(trace: ks.Trace) -> list[tuple[int, str, int, int, int]]:
    columns = ("step", "name", "host_start_ns", "host_dur_ns", "kernel_ns")
    return trace.steps.select(columns).rows()


def test_steps_are_found_among_ranges(make: Make) -> None:
    database = make()
    for step in range(3):
        at = 100 * step
        database.range(f"step {step + 5}", at, at + 90)
        database.range("aten::mm", at + 5, at + 20)
        database.call(at + 6, at + 9, correlation=step + 1)
        database.kernel(at + 30, at + 50, correlation=step + 1)
    path = database.close()
    trace = ks.read(path)
    assert steps_of(trace) == [
        (5, "step 5", 0, 90, 20),
        (6, "step 6", 100, 90, 20),
        (7, "step 7", 200, 90, 20),
    ]
    assert trace.gpu_ops["step"].to_list() == [5, 6, 7]
    assert trace.steps["row"].to_list() == trace.ranges.filter(pl.col("depth") == 0)["row"].to_list()
    parts = trace.steps.select(pl.sum_horizontal(pl.col("^.*_ns$").exclude("start_ns", "host_start_ns")))
    totals = trace.steps.select(2 * pl.col("total_ns") + pl.col("host_dur_ns"))
    assert parts.to_series().to_list() == totals.to_series().to_list()
    chosen = ks.read(path, step_range="aten::mm")
    assert [row[:4] for row in steps_of(chosen)] == [
        (0, "aten::mm", 5, 15), (1, "aten::mm", 105, 15), (2, "aten::mm", 205, 15),
    ]  # fmt: skip


def test_steps_of_several_processes_are_merged(make: Make) -> None:
    database = make()
    for pid, delay in ((7, 0), (8, 60)):
        for step in range(2):
            at = 100 * step + delay
            database.range("train_step", at, at + 90, pid=pid)
            database.call(at + 6, at + 9, pid=pid, correlation=step + 1)
            database.kernel(at + 30, at + 50, pid=pid, correlation=step + 1)
    trace = ks.read(database.close())
    assert [row[:4] for row in steps_of(trace)] == [(0, "train_step", 0, 150), (1, "train_step", 100, 150)]
    by_pid = trace.gpu_ops.select("pid", "start_ns", "step").rows()
    assert by_pid == [(7, 30, 0), (7, 130, 1), (8, 90, 0), (8, 190, 1)]


@pytest.mark.parametrize(
    ("normalize", "shift", "base"), [("false", "0", 10**18), ("true", "0", 0), ("false", "500", 10**18 - 500)]
)
def test_shifts_of_the_export_are_undone(make: Make, normalize: str, shift: str, base: int) -> None:
    database = make(schema={"TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER"})
    database.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=10**18)
    database.meta("EXPORT", EXPORT_PARAM_TIME_NORMALIZE=normalize, EXPORT_PARAM_TIME_SHIFT=shift)
    assert ks.read(database.close()).meta.base_time_ns == base


def test_secrets_of_the_environment_are_left_out(make: Make) -> None:
    database = make()
    database.insert("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value="TOKEN=hunter2")
    capture = ks.read(database.close()).meta.properties["capture"]
    assert capture == {"PROCESS_0:ENVIRONMENT_VARIABLE": "TOKEN"}


def test_rows_tell_rowids(make: Make) -> None:
    database = make()
    database.insert("NVTX_EVENTS", rowid=40, start=1, end=2, eventType=59, text="a")
    database.kernel(1, 2)
    trace = ks.read(database.close())
    tables = trace.meta.properties["tables"]
    assert trace.ranges["row"].to_list() == [tables["NVTX_EVENTS"]["row_of_rowid_0"] + 40]
    assert trace.gpu_ops["row"].to_list() == [tables["CUPTI_ACTIVITY_KIND_KERNEL"]["row_of_rowid_0"] + 1]


def test_rowids_that_do_not_fit_are_counted(make: Make) -> None:
    database = make()
    for rowid in (-5, 3, 1 << 40, (1 << 63) - 1):
        database.insert("NVTX_EVENTS", rowid=rowid, start=1, end=2, eventType=59, text=str(rowid))
    database.kernel(1, 2)
    trace = ks.read(database.close())
    assert trace.gpu_ops["row"].to_list() == [0]
    assert trace.ranges["row"].to_list() == [1, 2, 3, 4]
    assert trace.meta.properties["tables"]["NVTX_EVENTS"]["row_of_rowid_0"] is None


@pytest.mark.slow
def test_threads_make_no_difference(make: Make) -> None:
    database = make()
    rows = (
        (i, i + 3, 59, f"name {i % 977}, op_id = {i}", (1 << 48) | (i % 5 << 24) | i % 7, i % 3)
        for i in range(200_000)
    )
    columns = "start, end, eventType, text, globalTid, domainId"
    database.connection.executemany(f"INSERT INTO NVTX_EVENTS ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
    path = database.close()
    one, many = ks.read(path, threads=1), ks.read(path, threads=4)
    for name, frame in one.tables.items():
        plain = [f.with_columns(pl.col(pl.Categorical).cast(pl.String)) for f in (frame, many.tables[name])]
        assert plain[0].equals(plain[1]), name


def test_names_of_processes_and_threads(make: Make) -> None:
    tables = {
        "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
        "ThreadNames": "nameId INTEGER, priority INTEGER, globalTid INTEGER",
        "TARGET_INFO_GPU": "id INTEGER, name TEXT, smCount INTEGER, totalMemory INTEGER",
        "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER",
    }
    database = make(schema=tables)
    database.range("a", 1, 2)
    for pid, gpu in ((7, 3), (8, 2)):
        database.insert("PROCESSES", globalPid=(1 << 48) | pid << 24, name=f"rank {pid}")
        database.insert("ThreadNames", nameId=2, globalTid=(1 << 48) | pid << 24 | pid)
        database.insert("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid)
        database.kernel(1, 2, pid=pid)
    database.insert("TARGET_INFO_GPU", id=3, name="H100", smCount=132, totalMemory=0)
    trace = ks.read(database.close())
    assert trace.threads.select("pid", "tid", "process_name", "thread_name").rows() == [
        (7, 7, "rank 7", "gemm")
    ]
    assert trace.gpu_ops.select("pid", "device").rows() == [(7, 3), (8, 2)]
    assert trace.devices.select("device", "name", "sm_count", "total_memory_bytes").rows() == [
        (3, "H100", 132, None), (2, None, None, None),
    ]  # fmt: skip
    assert "ambiguous_device" not in findings(trace)


def test_the_commands_show_such_a_trace(make: Make, cli: Callable[..., object]) -> None:
    database = make()
    database.meta("EXPORT", EXPORT_PRODUCT_VERSION="2026.2.1", EXPORT_SCHEMA_VERSION="3.25.0")
    database.range("aten::mm, op_id = 1", 0, 20)
    database.call(5, 9)
    database.kernel(10, 40)
    path = database.close()
    shown = cli("info", path)
    assert shown.returncode == 0, shown.stderr
    assert "Nsight Systems 2026.2.1, schema 3.25.0" in shown.stdout
    assert "CUPTI_ACTIVITY_KIND_KERNEL" in shown.stdout
    analysed = cli("analyze", path)
    assert analysed.returncode == 0, analysed.stderr
    assert "Operators by their own time on the device" in analysed.stdout


def test_only_what_is_wanted_is_read(make: Make) -> None:
    database = make()
    database.range("a", 0, 20)
    database.call(5, 9)
    database.kernel(10, 40)
    path = database.close()
    kernels = ks.read(path, tables=["gpu_ops"])
    assert (kernels.gpu_ops.height, kernels.launches.height, kernels.meta.seen) == (1, 0, 1)
    assert kernels.gpu_ops.select("name", "launch_row", "link").rows() == [
        ("void gemm<float>(int)", None, None)
    ]
    calls = ks.read(path, tables=["gpu_ops", "launches"])
    assert calls.gpu_ops["launch_row"].to_list() == calls.launches["row"].to_list()
    assert calls.steps.is_empty()
    ranges = ks.read(path, tables=["gpu_ops", "launches", "ranges"])
    assert ranges.gpu_ops["range_row"].to_list() == ranges.ranges["row"].to_list()
    with pytest.raises(errors.InvalidArgumentError, match='there is no table "kernels"'):
        ks.read(path, tables=["kernels"])
    part = ks.read(path, tables={"gpu_ops": ["name", "dur_ns"], "launches": []})
    assert part.gpu_ops.select("name", "dur_ns", "grid", "launch_row").rows() == [
        ("void gemm<float>(int)", 30, None, part.launches["row"][0]),
    ]  # fmt: skip
    assert part.launches["name"].to_list() == ["cudaLaunchKernel"]
    with pytest.raises(errors.InvalidArgumentError, match="gpu_ops has no column"):
        ks.read(path, tables={"gpu_ops": ["nme"]})


def test_a_table_without_its_times_is_lost_and_the_others_are_read(make: Make) -> None:
    columns = "end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER"
    database = make(schema={"CUPTI_ACTIVITY_KIND_RUNTIME": columns})
    database.insert("CUPTI_ACTIVITY_KIND_RUNTIME", end=5, nameId=4)
    database.kernel(1, 2)
    path = database.close()
    trace = ks.read(path)
    assert findings(trace)["unreadable_table"] == (1, "CUPTI_ACTIVITY_KIND_RUNTIME.start", None)
    assert (trace.launches.height, trace.gpu_ops.height) == (0, 1)
    with pytest.raises(errors.StrictError, match=r"CUPTI_ACTIVITY_KIND_RUNTIME\.start"):
        ks.read(path, strict=True)


def test_odd_values_are_repaired_and_counted(make: Make) -> None:
    database = make()
    database.kernel(1, 2)
    database.kernel("30", 40.0)  # SQLite keeps 40.0 as 40 in a column of integers
    database.kernel(b"x", 50)
    database.kernel(90, 80)
    database.kernel(100, None)
    database.kernel(110, 120, demangledName=None, deviceId="a")
    database.kernel(130, 140, demangledName=999, correlation=-4)
    trace = ks.read(database.close())
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    assert findings(trace, severity="lost") == {}
    assert findings(trace, severity="repaired") == {
        "untimed_work": (1, table, 3),
        "missing_duration": (1, table, 5),
        "negative_duration": (1, table, 4),
        "bad_number": (1, table, 7),
        "wrong_type": (2, table, 3),
        "unexpected_null": (1, table, 6),
        "unknown_string": (1, table, 7),
    }
    kernels = trace.gpu_ops.select("start_ns", "dur_ns", "device", pl.col("name").is_null()).rows()
    assert kernels[:4] == [(1, 1, 0, False), (30, 10, 0, False), (90, None, 0, False), (100, None, 0, False)]
    assert kernels[4:] == [(110, 10, None, True), (130, 10, 0, True)]
    assert trace.untimed_gpu_ops["recorded_start_ns"].to_list() == [None]
    assert (trace.meta.seen, trace.meta.kept, trace.meta.dropped) == (7, 7, 0)


def test_text_that_is_no_utf8(make: Make) -> None:
    database = make()
    database.connection.execute("UPDATE StringIds SET value = CAST(x'67ff' AS TEXT) WHERE id = 1")
    database.kernel(1, 2)
    database.range("x", 5, 9)
    database.connection.execute("UPDATE NVTX_EVENTS SET text = CAST(x'fe' AS TEXT)")
    trace = ks.read(database.close())
    assert trace.gpu_ops["name"].to_list() == ["g�"]
    assert trace.ranges["name"].to_list() == ["�"]
    sources = trace.diagnostics.filter(pl.col("code") == "bad_utf8")["source"].to_list()
    assert sorted(sources) == ["CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"]


def refused(path: Path) -> str:
    with pytest.raises(errors.KernelscopeError) as caught:
        ks.read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def test_files_that_are_no_export(make: Make, tmp_path: Path) -> None:
    empty = tmp_path / "empty.sqlite"
    empty.write_bytes(b"")
    assert "is empty" in refused(empty)
    report = tmp_path / "a.nsys-rep"
    report.write_bytes(bytes(range(200)))
    assert "nsys export --type sqlite" in refused(report)
    header = tmp_path / "header.sqlite"
    header.write_bytes(b"SQLite format 3\0" + b"\xff" * 500)
    assert "SQLite" in refused(header)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE cookies (a)")
    connection.close()
    assert "not an nsys export" in refused(other)
    bare = tmp_path / "bare.sqlite"
    with sqlite3.connect(bare) as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    assert "without tables" in refused(bare)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(make: Make) -> None:
    path = make().close()
    path.chmod(0)
    with pytest.raises(errors.TracePermissionError):
        ks.read(path)


def large(make: Make) -> Path:
    database = make()
    for i in range(4000):
        database.kernel(10 * i, 10 * i + 5, correlation=i + 1)
        database.call(10 * i, 10 * i + 1, correlation=i + 1)
    return database.close()


def test_a_database_cut_short_at_any_place(make: Make, tmp_path: Path) -> None:
    whole = large(make).read_bytes()
    path = tmp_path / "cut.sqlite"
    answered = 0
    for tenth in range(1, 40):
        path.write_bytes(whole[: len(whole) * tenth // 40])
        try:
            trace = ks.read(path)
        except errors.TraceFormatError:
            continue
        answered += 1
        lost = findings(trace, severity="lost")
        assert lost["truncated_database"][0] == 1
        assert trace.gpu_ops.height + trace.launches.height < 8000
    assert answered > 20
    with pytest.raises(errors.StrictError, match="shorter than its header says"):
        ks.read(path, strict=True)


def test_damaged_pages_cost_what_stands_in_them(make: Make, tmp_path: Path) -> None:
    whole = bytearray(large(make).read_bytes())
    page = 4096 * (len(whole) // 4096 // 2)
    whole[page : page + 4096] = b"\xa5" * 4096
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(whole)
    trace = ks.read(path)
    assert findings(trace, severity="lost")["damaged_pages"][0] == 1
    assert 4000 < trace.gpu_ops.height + trace.launches.height < 8000


def test_a_database_that_is_being_written(make: Make) -> None:
    database = make()
    database.kernel(1, 2)
    path = database.close()
    writer = sqlite3.connect(path)
    try:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        writer.commit()
        trace = ks.read(path)
        # The log counts: the kernel in the database itself has been deleted.
        assert findings(trace, severity="lost") == {}
        assert trace.gpu_ops.height == 0
    finally:
        writer.close()


@pytest.mark.slow
def test_random_damage_is_answered_or_refused(make: Make, tmp_path: Path) -> None:
    database = make()
    for i in range(300):
        database.kernel(10 * i, 10 * i + 5, correlation=i + 1)
        database.call(10 * i, 10 * i + 1, correlation=i + 1)
        database.range(f"aten::mm, seq = {i}, op_id = {i}, sizes = [[{i}]]", 10 * i, 10 * i + 8)
    whole = database.close().read_bytes()
    path = tmp_path / "damaged.sqlite"
    random = Random(20)
    answered = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(random.choice((1, 3, 30, 300))):
            damaged[random.randrange(16, len(damaged))] = random.randrange(256)
        path.write_bytes(damaged)
        try:
            trace = ks.read(path)
        except (errors.TraceFormatError, errors.NotATraceError):
            continue
        answered += 1
        assert trace.meta.seen == trace.meta.kept + trace.meta.dropped
    assert answered > 100


@pytest.fixture
def trace(tmp_path: Path) -> ks.Trace:
    """A wrapper and the product in it with a kernel, as emit_nvtx marks them; and a range of the program."""
    database = Database(tmp_path / "t.sqlite")
    database.range("step, whatever it does", 0, 900)
    database.range("aten::linear, seq = 3, op_id = 8, sizes = [[8, 64], [32, 64], []]", 10, 200)
    database.range("aten::mm, seq = 3, op_id = 9, sizes = [[8, 64], [64, 32]]", 20, 100)
    database.call(30, 40)
    database.kernel(1000, 41_000)
    database.call(300, 310, correlation=2)
    database.kernel(50_000, 60_000, correlation=2)
    return ks.read(database.close())


def test_ranges_stand_for_operators(trace: ks.Trace) -> None:
    mm, other = analysis.costs(trace).sort("op_row", descending=True).to_dicts()
    # The sizes are in the text of the range, the types are not.
    assert (mm["name"], mm["flops"], mm["bytes_read"]) == ("aten::mm", 2 * 8 * 64 * 32, None)
    assert (mm["status"], mm["device_ns"]) == ("unknown_dtype", 40_000)
    assert (other["status"], other["flops"], other["device_ns"]) == ("unknown_op", None, 10_000)


def test_operators_of_emit_nvtx(tmp_path: Path) -> None:
    """With and without numbers and sizes, on one row with their ranges, in every answer about operators."""
    database = Database(tmp_path / "t.sqlite")
    database.range("train_step", 0, 1_000)
    database.range("layer:1", 5, 290)
    database.range("aten::linear", 10, 200)
    database.range("aten::mm, seq = 3, op_id = 9, sizes = [[8, 64], [64, 32]]", 20, 100)
    database.range("autograd::engine::evaluate_function: MmBackward0, op_id = 10", 300, 500)
    database.range("MmBackward0, seq = 3, op_id = 11", 310, 490)
    database.range("aten::mm, op_id = 12, sizes = [[64, 8], [8, 32]]", 320, 400)
    database.range("Optimizer.step#SGD.step, op_id = 13", 600, 900)
    database.range("aten::add_, op_id = 14", 610, 700)
    database.range("AddBackward, seq = 2", 950, 960)
    database.range("aten::other", 970, 980, domainId=4)
    for number, at in enumerate((30, 150, 330, 620), start=1):
        database.call(at, at + 10, correlation=number)
        database.kernel(1_000 * number, 1_000 * number + 100, correlation=number)
    path = database.close()
    trace = ks.read(path)
    found = trace.ops.join(trace.ranges.select("row", "op_id", "depth"), on="row", suffix="_of_range")
    columns = ("name", "phase", "is_annotation", "depth", "record_function_id", "input_dims")
    assert found.select(columns).rows() == [
        ("aten::linear", "other", False, 0, None, None),
        ("aten::mm", "forward", False, 1, 9, "[[8, 64], [64, 32]]"),
        ("autograd::engine::evaluate_function: MmBackward0", "backward", False, 0, 10, None),
        ("MmBackward0", "backward", False, 1, 11, None),
        ("aten::mm", "backward", False, 2, 12, "[[64, 8], [8, 32]]"),
        ("Optimizer.step#SGD.step", "optimizer", True, 0, 13, None),
        ("aten::add_", "optimizer", False, 1, 14, None),
        ("AddBackward", "backward", False, 0, None, None),
    ]
    assert trace.gpu_ops["op_row"].to_list() == trace.gpu_ops["range_row"].to_list()
    table = analysis.op_table(trace).filter(pl.col("device_self_ns") > 0)
    assert dict(table.select("name", "device_self_ns").rows()) == {
        "aten::mm": 200, "aten::linear": 100, "aten::add_": 100,
    }  # fmt: skip
    work = analysis.roofline(trace, by=("name",), gpu="h100-sxm5")
    assert dict(work.select("name", "device_ns").rows()) == dict(
        table.select("name", "device_self_ns").rows()
    )
    assert not {"operators", "input_shapes", "links"} & set(analysis.missing_views(trace)["view"])
    assert analysis.timeline(trace).filter(pl.col("name").cast(pl.String) == "aten::mm").height == 2
    only = ks.read(path, tables={"ops": ["name", "phase"]})
    assert only.ops["name"].to_list() == trace.ops["name"].to_list()
    assert only.ranges.is_empty()


def test_their_roofline(trace: ks.Trace) -> None:
    table = analysis.roofline(trace, by=("name", "input_dims"), gpu="h100-sxm5")
    row = table.filter(name="aten::mm").row(0, named=True)
    assert row["input_dims"] == "[[8, 64], [64, 32]]"
    assert row["flops_per_s"] == pytest.approx(2 * 8 * 64 * 32 / 40e-6)
    # Without types there is no peak to hold it against.
    assert (row["attainable_ns"], row["saveable_ns"]) == (None, None)


def test_analyze_shows_steps_and_ranges(cli: Cli, tmp_path: Path) -> None:
    report = write_training_steps(tmp_path / "report.sqlite")
    text = cli("analyze", report, "--step-range", "train_step").stdout
    assert "Mean of 2 steps" in text or "2 steps" in text
    _, found, ranges = text.partition("NVTX ranges by their own time on the GPU")
    assert found
    row = next(line for line in ranges.splitlines() if line.startswith("aten::mm"))
    assert row.split()[1:4] == ["4.500", "ms", "100.0"]


def test_analyze_of_ranges_without_gpu_work(cli: Cli, tmp_path: Path) -> None:
    database = Database(tmp_path / "host.sqlite")
    database.range("load", 0, 4_000)
    text = cli("analyze", database.close()).stdout
    assert "NVTX ranges by their time on the host" in text
    assert "No range encloses a call that launched GPU operations." in text
