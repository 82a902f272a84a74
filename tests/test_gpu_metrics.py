"""Samples of GPU metrics as they are read, of databases and files whose rows stand beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

import kernelscope as ks
from kernelscope.errors import KernelscopeError
from metrics_database import CLOCK, GPUS, KIND, SHARE, MetricsDatabase
from nsys_database import findings

Make = Callable[..., MetricsDatabase]
COLUMNS = ("device", "start_ns", "counter", "value", "unit")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def database(**options: Any) -> MetricsDatabase:
        return MetricsDatabase(tmp_path / "metrics.sqlite", **options)

    return database


def test_samples_of_several_gpus(make: Make) -> None:
    database = make()
    database.sample(100, 40)
    database.sample(100, 1410, metric=4)
    database.sample(100, 90, gpu=1)
    database.sample(-50, 0, gpu=1)
    trace = ks.read(database.close())
    assert trace.counters.select(COLUMNS).rows() == [
        (0, 100, SHARE, 40.0, "%"),
        (0, 100, CLOCK, 1410.0, "MHz"),
        (1, 100, SHARE, 90.0, "%"),
        (1, -50, SHARE, 0.0, "%"),
    ]
    assert trace.counters["name"].to_list() == ["GPU 0 metrics", "GPU 0 metrics", *["GPU 1 metrics"] * 2]
    assert trace.counters["category"].unique().to_list() == ["gpu_metrics"]
    assert trace.meta.seen == trace.meta.kept == 4


def test_impossible_values_are_null_and_counted(make: Make) -> None:
    database = make()
    database.sample(1, 101)
    database.sample(2, -1, metric=4)
    database.sample(3, 2**32 - 5)
    database.sample(4, 2**32, metric=4)
    database.sample(5, 100)
    path = database.close()
    trace = ks.read(path)
    assert trace.counters["value"].to_list() == [None, None, None, 2.0**32 / 1e6, 100.0]
    assert findings(trace)["impossible_metric"] == (3, "GPU_METRICS", 1)
    with pytest.raises(KernelscopeError, match="GPU_METRICS, rowid 1"):
        ks.read(path, strict=True)


def test_clocks_are_stored_in_hz(make: Make) -> None:
    database = make(names={3: SHARE, 4: CLOCK, 5: "Warps in Flight [Avg]"})
    # nsys writes Hz under names that say MHz; no clock has a million MHz.
    for at, value in enumerate([0, 1410, 999_999, 1_000_000, 1_979_991_750]):
        database.sample(at, value, metric=4)
    database.sample(5, 99_450_259, metric=5)
    found = ks.read(database.close()).counters.select("value", "unit").rows()
    clocks = [0.0, 1410.0, 999_999.0, 1.0, 1979.99175]
    assert found == [*((value, "MHz") for value in clocks), (99_450_259.0, None)]


def test_nulls_and_wrong_types(make: Make) -> None:
    database = make()
    database.sample(None, 1)
    database.sample(2, None)
    database.sample(3, 4, typeId=None)
    database.sample(5, 6, metric=None)
    database.sample(7, "12")
    database.sample(8, b"x")
    trace = ks.read(database.close())
    assert trace.counters.select(COLUMNS).rows() == [
        (0, 2, SHARE, None, "%"),
        # All types agree on the name of the metric.
        (None, 3, SHARE, 4.0, "%"),
        (0, 5, "unknown metric", 6.0, None),
        (0, 7, SHARE, 12.0, "%"),
        (0, 8, SHARE, None, "%"),
    ]
    found = findings(trace)
    assert found["missing_time"] == (1, "GPU_METRICS", 1)
    assert found["unexpected_null"] == (3, "GPU_METRICS", 2)
    assert found["wrong_type"] == (1, "GPU_METRICS", 6)


def test_metrics_without_names(make: Make) -> None:
    database = make(without=["TARGET_INFO_GPU_METRICS"])
    for at in range(3):
        database.sample(at, 250, gpu=1)
    trace = ks.read(database.close())
    assert trace.counters.select(COLUMNS).rows() == [(1, at, "metric 3", 250.0, None) for at in range(3)]
    assert findings(trace)["unknown_metric"] == (3, "GPU_METRICS", 1)


def test_names_that_types_do_not_agree_on(make: Make) -> None:
    database = make()
    named = {"typeId": KIND | 9, "metricId": 3}
    database.insert("TARGET_INFO_GPU_METRICS", **named, metricName="DRAM Read [Throughput %]")
    for gpu, metric in ((9, 3), (8, 3), (8, 4)):
        database.sample(1, 5, gpu=gpu, metric=metric)
    trace = ks.read(database.close())
    names = trace.counters.select("device", "counter").rows()
    assert names == [(9, "DRAM Read [Throughput %]"), (8, "metric 3"), (8, CLOCK)]


def test_names_without_types(make: Make) -> None:
    database = make(schema={"TARGET_INFO_GPU_METRICS": "metricId INTEGER, metricName TEXT"}, gpus=[0])
    database.sample(1, 5, gpu=6)
    trace = ks.read(database.close())
    assert trace.counters.select(COLUMNS).rows() == [(6, 1, SHARE, 5.0, "%")]


@pytest.mark.parametrize("says_gpus", [False, True])
def test_numbers_of_perfworks_are_those_of_gpus(make: Make, says_gpus: bool) -> None:
    ids = {"TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER"} if says_gpus else {}
    database = make(schema={"TARGET_INFO_GPU": GPUS, **ids})
    for number, (sampled, ordinal) in enumerate(((1, 2), (0, 3), (5, None))):
        database.insert("TARGET_INFO_GPU", id=number, name=f"G{number}", pwGpuId=sampled, cuDevice=ordinal)
    if says_gpus:
        database.insert("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=7)
    database.kernel(1, 2)
    for gpu in (0, 1, 5):
        database.sample(1, 5, gpu=gpu)
    trace = ks.read(database.close())
    # Where nothing says which GPU a process means, its work has the numbers of CUDA.
    assert trace.counters["device"].to_list() == ([1, 0, 2] if says_gpus else [3, 2, 2])
    names = dict(trace.devices.drop_nulls("name").select("name", "device").rows())
    assert names == ({"G0": 0, "G1": 1, "G2": 2} if says_gpus else {"G0": 2, "G1": 3, "G2": 2})


def test_views_and_tables_without_rowids(make: Make) -> None:
    database = make(without=["GPU_METRICS"])
    database.connection.execute(
        "CREATE TABLE kept (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value REAL)"
    )
    database.connection.execute("CREATE VIEW GPU_METRICS AS SELECT * FROM kept")
    database.connection.execute(f"INSERT INTO kept VALUES (1, {KIND}, 3, 7)")
    assert ks.read(database.close()).counters.select(COLUMNS).rows() == [(0, 1, SHARE, 7.0, "%")]


def test_a_column_that_is_missing(make: Make) -> None:
    database = make(schema={"GPU_METRICS": "timestamp INTEGER, metricId INTEGER, value INTEGER"})
    database.insert("GPU_METRICS", timestamp=1, metricId=3, value=7)
    trace = ks.read(database.close())
    assert trace.counters.select(COLUMNS).rows() == [(None, 1, SHARE, 7.0, "%")]
    assert findings(trace)["missing_column"] == (1, "GPU_METRICS.typeId", None)


def test_filters_keep_the_samples_of_what_stays(make: Make) -> None:
    database = make()
    database.range("step", 100, 200)
    for device, start in ((0, 150), (1, 400)):
        database.call(start, start + 1, correlation=start)
        database.kernel(start + 10, start + 150, correlation=start, deviceId=device)
    for gpu in range(2):
        for at in range(0, 700, 100):
            database.sample(at, gpu, gpu=gpu)
    path = database.close()

    def samples(**options: Any) -> list[tuple[Any, ...]]:
        return ks.read(path, **options).counters.select("device", "start_ns").rows()

    assert samples(device=1) == [(1, at) for at in range(0, 700, 100)]
    assert samples(filter_time=(300, 400)) == [(gpu, at) for gpu in range(2) for at in (300, 400)]
    assert samples(filter_nvtx="step") == [(0, 200), (0, 300)]
    assert len(samples(process=7)) == 14


def test_samples_of_kineto(tmp_path: Path) -> None:
    head = {"ph": "C", "cat": "hardware_counters", "tid": 0, "ts": 1}
    events = [
        {
            **head,
            "name": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
            "pid": "GPU 2 Counters",
            "args": {"": 12.5},
        },
        {**head, "name": "dram__bytes.sum", "pid": "GPU 0 Counters", "args": {"": 7}},
        {**head, "cat": "other", "name": "load [%]", "pid": 5, "args": {"load": 7}},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    found = ks.read(path).counters.select("name", "device", "counter", "value", "unit").rows()
    assert found == [
        ("sm__cycles_active.avg.pct_of_peak_sustained_elapsed", 2, "", 12.5, "%"),
        ("dram__bytes.sum", 0, "", 7.0, None),
        ("load [%]", None, "load", 7.0, None),
    ]


KINDS = {
    "GENERIC_EVENTS": "rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER, data TEXT",
    "GENERIC_EVENT_TYPES": "typeId INTEGER PRIMARY KEY, sourceId INTEGER, data TEXT",
    "GENERIC_EVENT_SOURCES": "sourceId INTEGER PRIMARY KEY, data TEXT",
}
SOURCES = {
    1: {"Name": "GpuMetrics", "TimeSource": "SessionNs"},
    2: {"Name": "FTrace", "TimeSource": "ClockMonotonicRaw"},
    3: {"Name": "GpuMetrics", "TimeSource": "ClockMonotonicRaw"},
}


class GenericDatabase(MetricsDatabase):
    """A database whose samples are generic events."""

    def __init__(self, path: Path, *, sources: Collection[int] = (1, 2, 3)) -> None:
        super().__init__(path, without=["GPU_METRICS", "TARGET_INFO_GPU_METRICS"], schema=KINDS)
        for source in sources:
            self.insert("GENERIC_EVENT_SOURCES", sourceId=source, data=json.dumps(SOURCES[source]))
            for gpu in range(2):
                self.insert(
                    "GENERIC_EVENT_TYPES", typeId=KIND | source << 8 | gpu, sourceId=source, data="{}"
                )

    def event(self, at: Any, data: Any, *, gpu: int = 0, source: int = 1, **changes: Any) -> int:
        text = json.dumps(data) if isinstance(data, dict) else data
        values = {"rawTimestamp": at, "typeId": KIND | source << 8 | gpu, "data": text}
        return self.insert("GENERIC_EVENTS", **{**values, **changes})


def test_samples_as_generic_events(tmp_path: Path) -> None:
    database = GenericDatabase(tmp_path / "old.sqlite", sources=[1])
    database.event(100, {SHARE: "40", CLOCK: "1410000000"})
    database.event(7, {SHARE: 90.5}, gpu=1, timestamp=200)
    database.event(300, {})
    database.event(400, {"SM Active": "12"})
    trace = ks.read(database.close())
    assert sorted(trace.counters.select(COLUMNS).rows()) == [
        (0, 100, CLOCK, 1410.0, "MHz"),
        (0, 100, SHARE, 40.0, "%"),
        # Before 2024 names had no unit.
        (0, 400, "SM Active", 12.0, None),
        (1, 200, SHARE, 90.5, "%"),
    ]
    assert trace.counters["name"].unique().sort().to_list() == ["GPU 0 metrics", "GPU 1 metrics"]
    assert trace.meta.seen == trace.meta.kept == 4
    assert not {"unread_table", "table_absent"} & {
        code for code, (_, source, _) in findings(trace).items() if source in (None, "GPU_METRICS")
    }


def test_generic_events_that_are_damaged_or_others(tmp_path: Path) -> None:
    database = GenericDatabase(tmp_path / "old.sqlite")
    database.event(1, '{"SM Active": "1"')
    database.event(2, "[1]")
    database.event(3, '{"SM Active": ' + "[" * 500 + "]" * 500 + "}")
    database.event(4, b'{"SM \xff": 1}')
    database.event(5, None)
    database.event(6, '{"pad": "' + "x" * (1 << 20) + '"}')
    database.event(
        7, {"a": "101", "b [%]": "101", "c": "-1", "d": None, "e": [1], "f": "x", "g": True, "h": "nan"}
    )
    database.event(8, {"common_pid": "7"}, source=2)
    # Times of another clock that nobody converted.
    database.event(9, {"a": 1}, source=3)
    database.event(9, {"a": 2}, source=3, timestamp=10)
    database.event(11, {"a": 3}, typeId=None)
    path = database.close()
    trace = ks.read(path)
    known = trace.counters.drop_nulls("value").select("start_ns", "counter", "value").rows()
    assert known == [(7, "a", 101.0), (10, "a", 2.0)]
    assert trace.counters["counter"].to_list() == [*"a", "b [%]", *"cdefgh", "a"]
    found = findings(trace)
    expected = {
        "broken_event": (5, "GENERIC_EVENTS", 1),
        "oversized_event": (1, "GENERIC_EVENTS", 6),
        "impossible_metric": (3, "GENERIC_EVENTS", 7),
        "unexpected_null": (1, "GENERIC_EVENTS", 7),
        "other_generic_event": (2, "GENERIC_EVENTS", 8),
        "missing_time": (1, "GENERIC_EVENTS", 9),
    }
    assert {code: found[code] for code in expected} == expected
    assert (trace.meta.seen, trace.meta.kept) == (11, 2)
    with pytest.raises(KernelscopeError, match="GENERIC_EVENTS, rowid 1"):
        ks.read(path, strict=True)


def test_generic_events_beside_samples(make: Make) -> None:
    """They are read where nothing else has the samples; events of other sources stay unread."""
    database = make(schema=KINDS)
    for source in (1, 2):
        database.insert("GENERIC_EVENT_SOURCES", sourceId=source, data=json.dumps(SOURCES[source]))
        database.insert("GENERIC_EVENT_TYPES", typeId=KIND | source << 8, sourceId=source, data="{}")
    database.insert("GENERIC_EVENTS", rawTimestamp=1, typeId=KIND | 1 << 8, data=json.dumps({SHARE: 5}))
    database.sample(1, 5)
    path = database.close()
    trace = ks.read(path)
    assert trace.counters.select(COLUMNS).rows() == [(0, 1, SHARE, 5.0, "%")]
    tables = trace.meta.properties["tables"]
    assert {name: tables[name]["rows"] for name in KINDS if not tables[name]["read"]} == {
        "GENERIC_EVENTS": 1,
        # Numbers that are far apart.
        "GENERIC_EVENT_TYPES": 2,
        "GENERIC_EVENT_SOURCES": 2,
    }
