"""Databases of nsys, and what is made of what they hold."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import errors
from nsys_database import Database, findings

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
    assert (kernel["launch_row"], kernel["range_row"], kernel["link"]) == (
        call["row"],
        inner["row"],
        "nvtx_range",
    )
    assert (kernel["name"], kernel["short_name"], kernel["mangled_name"]) == (
        "void gemm<float>(int)", "gemm", "_Z4gemm",
    )  # fmt: skip
    assert (kernel["grid"], kernel["block"], kernel["shared_memory_bytes"]) == (
        [4, 2, 1],
        [128, 1, 1],
        48,
    )
    assert (inner["name"], inner["sequence"], inner["op_id"], inner["sizes"]) == (
        "aten::mm", 3, 9, "[[2, 3], [3, 4]]",
    )  # fmt: skip
    assert (outer["parent_row"], outer["depth"], inner["parent_row"], inner["depth"]) == (
        None,
        0,
        outer["row"],
        1,
    )
    assert trace.extra_args.select("key", "value").rows() == [("input_op_ids", "[(8,0)]")]
    assert findings(trace, severity="lost") == {}
    assert findings(trace, severity="repaired") == {}


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
    assert "launched inside an NVTX range" in analysed.stdout


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
