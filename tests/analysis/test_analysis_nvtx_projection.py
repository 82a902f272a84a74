"""NVTX ranges and annotations on the GPU."""

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kernelscope as ks
from kernelscope.analysis import nvtx_projection, nvtx_table, ops
from kernelscope.reading import read_part
from nsys_database import MACHINE, Database, global_tid

GRAPHS = {
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER"
}


def launch(database: Database, at: int, runs: tuple[int, int], *, correlation: int, pid: int = 7) -> None:
    database.call(at, at + 1, correlation=correlation, pid=pid)
    database.kernel(*runs, correlation=correlation, pid=pid)


def test_span_busy_and_exclusive_time_differ(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    database.range("step", 0, 100)
    database.range("op", 10, 20)
    launch(database, 5, (100, 110), correlation=1)
    launch(database, 12, (105, 120), correlation=2)
    launch(database, 30, (200, 205), correlation=3)
    found = nvtx_projection(ks.read(database.close()))
    columns = ("name", "gpu_span_ns", "gpu_busy_ns", "gpu_exclusive_ns", "launches", "depth", "children")
    assert found.select(columns).rows() == [("step", 105, 25, 15, 3, 0, 1), ("op", 15, 15, 15, 1, 1, 0)]
    assert found["parent_row"].to_list() == [None, found["row"][0]]


def test_innermost_gives_work_to_one_range(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    database.range("step", 0, 100)
    database.range("op", 10, 20)
    launch(database, 12, (105, 120), correlation=2)
    trace = ks.read(database.close())
    assert nvtx_projection(trace, innermost=True)["name"].to_list() == ["op"]
    assert nvtx_projection(trace)["launches"].to_list() == [1, 1]


def test_a_domain_is_looked_at_alone(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    database.range("lib", 0, 0, eventType=75, domainId=1)
    database.range("outer", 0, 100)
    database.range("inner", 10, 50, domainId=1)
    launch(database, 12, (105, 120), correlation=2)
    trace = ks.read(database.close())
    both = nvtx_projection(trace)
    assert both.select("domain", "depth").rows() == [(None, 0), ("lib", 1)]
    assert nvtx_projection(trace, domain="lib").select("name", "depth").rows() == [("inner", 0)]
    assert nvtx_projection(trace, domain="", innermost=True)["name"].to_list() == ["outer"]


def test_a_range_that_another_thread_ends_belongs_to_the_process(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    database.range("request", 0, 100, eventType=60, endGlobalTid=global_tid(7, 8))
    database.call(10, 11, correlation=1, globalTid=global_tid(7, 99))
    database.kernel(200, 210, correlation=1)
    # The same id in another process is another launch.
    launch(database, 20, (300, 310), correlation=1, pid=8)
    found = nvtx_projection(ks.read(database.close()))
    assert found.select("name", "gpu_start_ns", "gpu_ops", "parent_row").rows() == [("request", 200, 1, None)]
    table = nvtx_table(ks.read(database.path))
    assert table.select("name", "ranges", "dur_ns", "gpu_ops").rows() == [("request", 1, 100, 1)]


def test_a_range_without_an_end_lasts_to_the_end_of_the_session(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    database.range("open", 0, None)
    launch(database, 900_000, (900_100, 900_200), correlation=1)
    found = nvtx_projection(ks.read(database.close()))
    assert found.select("dur_ns", "launches").rows() == [(1_000_000, 1)]


def test_graphs_are_gpu_work_and_projected(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite", schema=GRAPHS)
    database.range("replay", 0, 100)
    database.call(10, 20, correlation=1)
    database.insert(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=50, end=90, deviceId=0, contextId=1, streamId=7,
        correlationId=1, globalPid=MACHINE | 7 << 24, graphId=3, graphExecId=4,
    )  # fmt: skip
    found = nvtx_projection(ks.read(database.close()))
    assert found.select("name", "gpu_busy_ns", "gpu_ops").rows() == [("replay", 40, 1)]


def test_the_table_sums_ranges_of_a_name(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    for step in range(3):
        start = 1000 * step
        database.range(f"aten::mm, seq = {step}, op_id = {step}", start, start + 100)
        launch(database, start + 10, (start + 200, start + 210 + step), correlation=step + 1)
    table = nvtx_table(ks.read(database.close()))
    assert table.select("name", "ranges", "dur_ns", "gpu_busy_ns").rows() == [("aten::mm", 3, 300, 33)]
    with pytest.raises(ks.errors.InvalidArgumentError, match="cannot group by nonsense"):
        nvtx_table(ks.read(database.path), by="nonsense")


@pytest.mark.parametrize("by", [["domain", "name"], ["name"], ["kind", "tid"], ["dur_ns"], ["depth"]])
def test_the_table_equals_the_sums_of_the_projection(tmp_path: Path, by: list[str]) -> None:
    database = Database(tmp_path / "a.sqlite")
    database.range("lib", 0, 0, eventType=75, domainId=3)
    for at in range(12):
        start = 1000 * at
        database.range(f"outer{at % 3}", start, start + 500, domainId=3 * (at % 2))
        database.range("inner", start + 5, start + 60 + at % 2)
        # Work of neighbours overlaps, so that busy times are no plain sums.
        for call in range(at % 4):
            work = (start + 20 * call, start + 35 * call + 50)
            launch(database, start + 10 + 30 * call, work, correlation=10 * at + call)
    trace = ks.read(database.close())
    summed = (
        "gpu_span_ns", "gpu_busy_ns", "gpu_exclusive_ns", "other_thread_ns", "launches", "gpu_ops"
    )  # fmt: skip
    projection = nvtx_projection(trace)
    sums = [pl.col(name).sum() for name in ("dur_ns", *summed) if name not in by]
    expected = projection.group_by(by).agg(pl.len().cast(pl.Int64).alias("ranges"), *sums)
    found = nvtx_table(trace, by=by)
    assert found.height > 1 or by == ["kind", "tid"]
    assert_frame_equal(found, expected.select(found.columns), check_row_order=False)


def test_a_trace_without_ranges_or_work_gives_an_empty_frame(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    launch(database, 10, (20, 30), correlation=1)
    empty = nvtx_projection(ks.read(database.close()))
    assert empty.is_empty()
    assert empty.schema["gpu_busy_ns"] == pl.Int64
    assert nvtx_table(ks.read(database.path)).is_empty()


def kineto(annotations: list[tuple[int, int]], launches: list[int]) -> dict[str, Any]:
    host = {"ph": "X", "pid": 7, "tid": 7}
    events: list[dict[str, Any]] = [
        {**host, "cat": "user_annotation", "name": f"a{number}", "ts": start, "dur": dur}
        for number, (start, dur) in enumerate(annotations)
    ]
    for number, at in enumerate(launches, 1):
        args = {"correlation": number}
        events.append(
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 1, "args": args}
        )
        gpu = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 20, "ts": 100 + at, "dur": 2}
        events.append({**gpu, "args": {**args, "device": 0, "stream": 20}})
    return {"schemaVersion": 1, "traceEvents": events}


def test_annotations_of_kineto_are_projected_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(kineto([(0, 50), (10, 10), (60, 5)], [5, 12, 55])))
    found = nvtx_projection(ks.read(path))
    columns = ("name", "kind", "gpu_busy_ns", "gpu_exclusive_ns", "launches", "depth")
    assert found.select(columns).rows() == [
        ("a0", "annotation", 4000, 2000, 2, 0),
        ("a1", "annotation", 2000, 2000, 1, 1),
    ]


def test_steps_that_were_recorded_as_operators_are_projected(tmp_path: Path) -> None:
    trace = kineto([(0, 50), (10, 10), (60, 5)], [5, 12, 55])
    names = ("ProfilerStep#3", "aten::mm", "ProfilerStep#abc")
    for event, name in zip(trace["traceEvents"], names, strict=False):
        event |= {"cat": "Operator", "name": name}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(trace))
    found = nvtx_projection(ks.read(path))
    assert found.select("name", "gpu_busy_ns").rows() == [("ProfilerStep#3", 4000)]
    is_operator = ops(ks.read(path)).select("name", "is_operator").rows()
    assert is_operator == [("ProfilerStep#3", False), ("aten::mm", True), ("ProfilerStep#abc", True)]


@pytest.mark.parametrize("seed", range(6))
def test_only_launching_ranges_are_enough(tmp_path: Path, seed: int) -> None:
    """What a database is read for in part equals what it is read for as a whole."""
    random.seed(seed)
    database = Database(tmp_path / "a.sqlite")
    for number in range(300):
        pid, start = random.choice([7, 8]), random.randrange(3000)
        end = None if random.random() < 0.02 else start + random.randrange(200)
        changes: dict[str, Any] = {
            "eventType": random.choice([59, 59, 60, 34]),
            "domainId": random.choice([0, 1]),
        }
        if random.random() < 0.05:
            changes["endGlobalTid"] = global_tid(pid, 99)
        database.range(f"r{number % 9}", start, end, pid=pid, **changes)
    for correlation in range(1, 150):
        pid, at = random.choice([7, 8]), random.randrange(3200)
        database.call(at, at + random.randrange(4), correlation=correlation, pid=pid)
        if random.random() < 0.4:
            database.kernel(at + 10, at + 30, correlation=correlation, pid=pid)
    path = database.close()
    part = read_part(path, tables=["ranges", "launches", "gpu_ops"], only_launching=True)
    whole = ks.read(path)
    assert part.ranges.height < whole.ranges.height
    assert part.launches.height < whole.launches.height
    assert nvtx_projection(part).equals(nvtx_projection(whole))


def test_launching_needs_its_tables(tmp_path: Path) -> None:
    path = Database(tmp_path / "a.sqlite").close()
    with pytest.raises(ks.errors.InvalidArgumentError, match="request both"):
        read_part(path, tables=["ranges"], only_launching=True)
