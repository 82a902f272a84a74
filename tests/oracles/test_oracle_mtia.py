"""Devices that are no CUDA GPU: HolisticTraceAnalysis 0.6.1 on a recorded inference on MTIA.

Its answers stand here, because it was run for this test: durations not rounded, in microseconds.
"""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest
from traces import TRACES, load_json, need, read

import kernelscope as ks
from kernelscope import analysis
from kernelscope.compat import hta

MTIA = TRACES / "mtia-inference.json.gz"
DEVICE = 17
# Name: sum, longest, shortest.
KERNELS = {
    "event_record": (99.265, 1.352, 0.136),
    "event_wait": (352569.592, 19228.741, 775.336),
    "merge": (257869.75, 7606.409, 6884.489),
    "remote": (48529.645, 1569.657, 709.768),
    "dma_request": (45371.19, 1196.221, 4.144),
}
# Stream: idle time while the host waits, between kernels, other; rounded as the tool prints them by default.
IDLE = {
    101: (278746, 244, 30588),
    102: (224017, 486, 154663),
    103: (262091, 167, 69166),
    104: (304943, 397, 94379),
    105: (361836, 176, 217),
    106: (314118, 352, 24672),
    107: (242303, 323, 8271),
    108: (228224, 616, 60202),
    109: (202237, 494, 17004),
    110: (232683, 400, 32123),
    111: (208072, 576, 91676),
    112: (299058, 432, 36813),
}
# Stream: changes of its queue, mean and greatest length.
CHANGES = {101: 16, 103: 6, 104: 20, 105: 4, 106: 8, 107: 4, 108: 12, 109: 12, 110: 10, 111: 14, 112: 8}
QUEUES = {102: (32, 0.75, 3)} | {stream: (changes, 0.5, 1) for stream, changes in CHANGES.items()}


@pytest.fixture(scope="module")
def trace() -> ks.Trace:
    return read(need(MTIA))


def test_temporal_breakdown(trace: ks.Trace) -> None:
    (row,) = hta.temporal_breakdown(trace, rounded=False).to_dicts()
    found = [row[f"{part}_time(us)"] for part in ("idle", "compute", "non_compute", "kernel")]
    assert found == pytest.approx([19045.764695, 382063.207095, 42166.732287, 443275.704077], abs=1e-6)
    (row,) = hta.temporal_breakdown(trace).to_dicts()
    found = [row[f"{part}_time(us)"] for part in ("idle", "compute", "non_compute", "kernel")]
    assert found == [19235.0, 381972.0, 42068.0, 443275.0]


def test_kernels(trace: ks.Trace) -> None:
    table = hta.kernel_breakdown(trace, rounded=False)
    found = {name: row for name, *row in table.select("name", "^(sum|max|min) .us.$").iter_rows()}
    assert found == {name: pytest.approx(list(row), rel=1e-9) for name, row in KERNELS.items()}
    types = hta.kernel_type_breakdown(trace, rounded=False).select("kernel_type", "sum").rows()
    assert types == [("COMPUTATION", 348692), ("COMPUTATION overlapping MEMORY", 32842), ("MEMORY", 6965)]


def test_idle_time(trace: ks.Trace) -> None:
    found = hta.idle_time(trace).pivot("idle_category", index="stream", values="idle_time").sort("stream")
    assert {
        stream: tuple(row)
        for stream, *row in found.select("stream", "host_wait", "kernel_wait", "other").iter_rows()
    } == IDLE


def test_launches_and_queues(trace: ks.Trace) -> None:
    launches = hta.launch_stats(trace)
    assert (launches.height, *launches.sum().drop("correlation").row(0)) == (73, 413.0, 306327.0, 530932.0)
    queues = hta.queue_summary(trace).select("stream", "count", "mean", "max")
    assert {stream: tuple(row) for stream, *row in queues.iter_rows()} == QUEUES
    # Its only operator with a launch is of another thread than the launch.
    assert hta.op_launch_delay(trace).is_empty()


def test_all_work_of_the_device_is_read(trace: ks.Trace) -> None:
    """As work, but for events that streams record and wait for."""
    events = [e for e in load_json(MTIA)["traceEvents"] if e.get("cat") == "mtia_ccp_events"]
    assert trace.gpu_ops.height + trace.syncs.height == len(events) == 1313
    kinds = {"dma_request": "memcpy"} | dict.fromkeys(("merge", "remote", "pe_exe"), "kernel")
    names = Counter(kinds.get(event["name"]) for event in events)
    found = dict(trace.gpu_ops["kind"].cast(pl.String).value_counts().iter_rows())
    assert found == {"memcpy": names["memcpy"], "kernel": names["kernel"]}
    waits = [event["args"]["wait_on_stream"] for event in events if event["name"] == "event_wait"]
    assert Counter(trace.syncs["wait_stream"].drop_nulls().to_list()) == Counter(waits)
    work = [event for event in events if event["name"] in kinds]
    assert trace.gpu_ops["bytes"].sum() == sum(event["args"].get("size", 0) for event in work)
    streams = {event["args"]["stream"] for event in work}
    assert set(trace.gpu_ops.select("device", "stream").unique().iter_rows()) == {
        (DEVICE, stream) for stream in streams
    }
    calls = set(trace.launches["correlation"].drop_nulls().to_list())
    linked = sum(event["args"].get("correlation") in calls for event in work)
    assert trace.gpu_ops["launch_row"].count() == linked == 730


def test_the_device_is_in_every_answer(trace: ks.Trace) -> None:
    (gpu,) = analysis.gpu_summary(trace).to_dicts()
    assert (gpu["device"], gpu["name"], gpu["kernels"]) == (DEVICE, "ARTEMIS", 97)
    assert set(analysis.kernel_table(trace)["name"].cast(pl.String)) == {"merge", "remote", "pe_exe"}
    (row,) = analysis.temporal_breakdown(trace).to_dicts()
    assert row["compute_ns"] == 414_085_123
    (step,) = analysis.step_breakdown(trace).to_dicts()
    assert step["kernel_ns"] > 0 < step["memcpy_ns"]
    assert set(trace.launches["activity"].cast(pl.String).drop_nulls()) == {"launch", "wait"}
