"""The critical path of small traces against paths found by hand, and its laws on any trace."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
import nsys_database
from events import GRADIENT, Events
from kernelscope import analysis
from kernelscope.analysis.dependencies.table import BY
from kernelscope.check import check
from kernelscope.errors import InvalidArgumentError

US = 1000


def short(path: pl.DataFrame, trace: ks.Trace) -> list[tuple[Any, ...]]:
    """Name, duration in us, edge and bound of each segment."""
    names: dict[int | None, str | None] = {None: None}
    for table in ("ops", "launches", "python", "ranges", "gpu_ops"):
        names |= dict(trace.tables[table].select("row", pl.col("name").cast(pl.String)).iter_rows())
    rows = path.select("row", pl.col("dur_ns") / US, "edge", "bound_by").iter_rows()
    return [(names[row], *rest) for row, *rest in rows]


def two_steps() -> Events:
    """A step that ends with a synchronisation, and one in which the host loads data."""
    events = Events()
    events.annotation("ProfilerStep#1", 0, 200)
    events.op("aten::mm", 10, 30)
    events.call(20, 10, 1)
    events.kernel("gemm", 35, 65, 1)
    events.op("aten::add", 50, 30)
    events.call(60, 10, 2)
    events.kernel("ncclDevKernel_AllReduce", 102, 48, 2)
    events.call(90, 70, 3, name="cudaDeviceSynchronize")
    events.annotation("ProfilerStep#2", 200, 100)
    events.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 210, 50)
    events.op("aten::stack", 220, 10)
    return events


def test_path_of_a_step_that_waits_for_the_gpu(tmp_path: Path) -> None:
    trace = two_steps().read(tmp_path)
    path = analysis.critical_path(trace, 1)
    assert short(path, trace) == [
        ("ProfilerStep#1", 10, "host", "host"),
        ("aten::mm", 10, "host", "host"),
        ("gemm", 15, "launch", "launch"),
        ("gemm", 65, "execution", "compute"),
        ("ncclDevKernel_AllReduce", 2, "stream", "queue"),
        ("ncclDevKernel_AllReduce", 48, "execution", "communication"),
        ("cudaDeviceSynchronize", 10, "synchronisation", "synchronisation"),
        ("ProfilerStep#1", 40, "host", "host"),
    ]
    assert path["table"].to_list() == ["ops", "ops", *["gpu_ops"] * 4, "launches", "ops"]
    assert path["kind"].to_list() == ["annotation", "operator", *["kernel"] * 4, "call", "annotation"]


def test_path_of_a_step_that_loads_data(tmp_path: Path) -> None:
    trace = two_steps().read(tmp_path)
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert short(analysis.critical_path(trace, 2), trace) == [
        ("ProfilerStep#2", 10, "host", "host"),
        (loader, 10, "host", "data loading"),
        # What runs inside the loader loads data, too.
        ("aten::stack", 10, "host", "data loading"),
        (loader, 30, "host", "data loading"),
        ("ProfilerStep#2", 40, "host", "host"),
    ]


def test_windows(tmp_path: Path) -> None:
    trace = two_steps().read(tmp_path)
    whole = analysis.critical_path(trace)
    assert (whole["start_ns"].min(), whole["dur_ns"].sum()) == (0, 300 * US)
    path = analysis.critical_path(trace, window_ns=(40 * US, 120 * US))
    assert short(path, trace)[0] == ("gemm", 60, "execution", "compute")
    assert path["dur_ns"].sum() == 80 * US
    assert analysis.critical_path(trace, window_ns=(5, 5)).is_empty()
    with pytest.raises(InvalidArgumentError, match="no step 7: steps are 1 to 2"):
        analysis.critical_path(trace, 7)
    with pytest.raises(InvalidArgumentError, match="takes one of"):
        analysis.critical_path(trace, 1, window_ns=(0, 1))
    by_name = analysis.critical_path(trace, annotation="profilerstep#?", instance=1)
    assert by_name.equals(analysis.critical_path(trace, window_ns=(200 * US, 300 * US)))
    assert analysis.critical_path(trace, annotation="aten::mm")["dur_ns"].sum() == 30 * US
    for name, number, reason in (("aten::mm", 1, "there are 1"), ("aten::mul", 0, "has none")):
        with pytest.raises(InvalidArgumentError, match=reason):
            analysis.critical_path_table(trace, annotation=name, instance=number)
    with pytest.raises(InvalidArgumentError, match="before it starts"):
        analysis.critical_path(trace, window_ns=(1, 0))


def test_a_stream_that_waits_for_another(tmp_path: Path) -> None:
    """The profiler recorded the wait, or two operations follow each other too closely for chance."""
    for recorded in (True, False):
        events = Events()
        events.op("aten::mm", 0, 100)
        for number, at in enumerate((10, 30, 60), 1):
            events.call(at, 5, number)
        events.kernel("gemm", 15, 300, 1)
        # The last operation before it on its own stream, and an idle launch.
        events.kernel("copy", 35, 5, 2, stream=8)
        events.kernel("nccl", 318, 20, 3, stream=8)
        if recorded:
            events.call(20, 2, 11, name="cudaEventRecord")
            events.call(50, 2, 12, name="cudaStreamWaitEvent")
            args = {"cuda_sync_kind": "Stream Wait Event", "stream": 8, "wait_on_stream": 7, "device": 0}
            args |= {"wait_on_cuda_event_record_corr_id": 11, "correlation": 12, "wait_on_cuda_event_id": 1}
            events.add("cuda_sync", "Stream Wait Event", 50, 2, pid=0, tid=8, args=args)
        trace = events.read(tmp_path)
        path = short(analysis.critical_path(trace, window_ns=(0, 338 * US)), trace)
        assert path[-3:] == [
            ("gemm", 300, "execution", "compute"),
            ("nccl", 3, "event", "synchronisation"),
            ("nccl", 20, "execution", "communication"),
        ]


def test_a_wait_without_a_recorded_cause(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 500)
    events.call(10, 5, 1)
    events.kernel("gemm", 20, 10, 1)
    events.call(40, 100, 2, name="cudaStreamSynchronize")
    # It waits for nothing that runs, and may take its time.
    events.call(150, 100, 3, name="cudaMalloc")
    trace = events.read(tmp_path)
    assert short(analysis.critical_path(trace), trace) == [
        ("aten::mm", 10, "host", "host"),
        ("cudaLaunchKernel", 5, "host", "launch"),
        ("aten::mm", 25, "host", "host"),
        ("cudaStreamSynchronize", 100, "unknown", "unknown"),
        ("aten::mm", 10, "host", "host"),
        ("cudaMalloc", 100, "host", "host"),
        ("aten::mm", 250, "host", "host"),
    ]


def test_a_copy_that_blocks_the_host(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::copy_", 0, 100)
    events.call(10, 80, 1, name="cudaMemcpyAsync")
    events.copy(20, 65, 1)
    trace = events.read(tmp_path)
    assert short(analysis.critical_path(trace), trace) == [
        ("aten::copy_", 10, "host", "host"),
        ("Memcpy HtoD", 10, "launch", "launch"),
        ("Memcpy HtoD", 65, "execution", "copy"),
        ("cudaMemcpyAsync", 5, "synchronisation", "synchronisation"),
        ("aten::copy_", 10, "host", "host"),
    ]


def test_the_backward_pass_is_on_the_path(tmp_path: Path) -> None:
    events = Events()
    events.annotation("ProfilerStep#1", 0, 200)
    events.differentiated((10, 20), (60, 100))
    trace = events.read(tmp_path)
    assert trace.ops["caller_track"].drop_nulls().len() == 1
    assert short(analysis.critical_path(trace), trace) == [
        ("ProfilerStep#1", 10, "host", "host"),
        ("aten::mm", 20, "host", "host"),
        (GRADIENT, 30, "thread", "host"),
        (GRADIENT, 100, "host", "host"),
        ("ProfilerStep#1", 40, "thread", "host"),
    ]


def test_other_threads_do_not_decide(tmp_path: Path) -> None:
    """A watchdog that looks at events until the end of the recording holds up nothing."""
    events = Events()
    events.op("aten::mm", 0, 100)
    events.call(10, 5, 1)
    events.kernel("gemm", 20, 10, 1)
    events.add("cuda_runtime", "cudaEventQuery", 99, 5, tid=9, args={"correlation": 2})
    trace = events.read(tmp_path)
    assert short(analysis.critical_path(trace), trace)[-2:] == [
        ("aten::mm", 85, "host", "host"),
        (None, 4, "unknown", "unknown"),
    ]


def test_a_trace_without_events(tmp_path: Path) -> None:
    assert analysis.critical_path(Events().read(tmp_path)).is_empty()


@pytest.mark.parametrize("by_sync", [True, False])
def test_event_records_of_nsys(tmp_path: Path, *, by_sync: bool) -> None:
    """A wait names its record, or an event that was recorded several times."""
    common = "deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, eventId INTEGER"
    schema = {
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{common}, eventSyncId INTEGER, start INTEGER, end INTEGER,"
        " syncType INTEGER",
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": f"{common}, eventSyncId INTEGER, timestamp INTEGER",
    }
    database = nsys_database.Database(tmp_path / "report.sqlite", schema=schema)
    where = {"deviceId": 0, "globalPid": nsys_database.global_pid(7), "eventId": 3}
    for number, (at, end) in enumerate([(10_000, 12_000), (30_000, 32_000), (50_000, 52_000)], 1):
        database.call(at, end, correlation=number)
    for number, at in ((11, 20_000), (13, 55_000)):
        database.call(at, at + 1_000, correlation=number)
        sync = {"eventSyncId": number if by_sync else 0xFFFFFFFF}
        database.insert(
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT", timestamp=at, streamId=7, correlationId=number, **where, **sync
        )
    database.call(40_000, 41_000, correlation=12)
    database.insert(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        start=40_000, end=41_000, streamId=8, correlationId=12, syncType=2, **where,
        eventSyncId=11 if by_sync else 0xFFFFFFFF,
    )  # fmt: skip
    database.kernel(15_000, 315_000, correlation=1)
    # It was launched after the record, and holds up nothing.
    database.kernel(316_000, 317_000, correlation=2)
    database.kernel(318_000, 338_000, correlation=3, streamId=8)
    trace = ks.read(database.close())
    path = analysis.critical_path(trace, window_ns=(0, 338_000))
    assert path.tail(3).select("start_ns", "edge").rows() == [
        (15_000, "execution"), (315_000, "event"), (318_000, "execution"),
    ]  # fmt: skip


def test_the_laws_of_the_graph(tmp_path: Path) -> None:
    laws = [verdict for verdict in check(two_steps().read(tmp_path)) if "Replaying" in verdict.law]
    assert len(laws) == 1
    assert not any(verdict.faults for verdict in laws)


def predicted(trace: ks.Trace, changes: dict[str, float], step: int | None = None) -> list[tuple[Any, ...]]:
    """Step, duration before and after in us, and bound of each step."""
    found = analysis.what_if(trace, changes, step)
    columns = found.select("step", pl.col("before_ns", "after_ns") / US, "bound_by_after")
    return columns.rows()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [(1, 200, "compute"), (2, 100, "host")]),
        ({"kernel:*": 1}, [(1, 200, "compute"), (2, 100, "host")]),
        # Then the second kernel waits for its launch: 15 us after 60, instead of 2 us after the first one.
        ({"kernel:GEM?": 0.2}, [(1, 173, "host"), (2, 100, "host")]),
        ({"communication": 0.5}, [(1, 176, "compute"), (2, 100, "host")]),
        # The host is at the synchronisation after 90 us, and needs 10 us after it.
        ({"kernel:*": 0, "communication": 0}, [(1, 140, "host"), (2, 100, "host")]),
        # The host does not wait, and begins the next step before the GPU ends this one.
        ({"sync": 0}, [(1, 150, "compute"), (2, 80, "host")]),
        # The calls of the host take 10 us each, the first kernel starts 15 us after its call.
        ({"launch": 0}, [(1, 185, "compute"), (2, 100, "host")]),
        # Both kernels and their launches are gone; what is inside an operator goes with it.
        ({"op:aten::mm": 0, "op:aten::add": 0}, [(1, 80, "host"), (2, 100, "host")]),
        ({"op:aten::stack": 0}, [(1, 200, "compute"), (2, 90, "host")]),
        # Annotations are not operators.
        ({"op:*": 0}, [(1, 80, "host"), (2, 90, "host")]),
        ({"dataloader": 0}, [(1, 200, "compute"), (2, 50, "host")]),
        ({"range:ProfilerStep#2": 2}, [(1, 200, "compute"), (2, 200, "host")]),
        # It needs 30 us instead of 10 us, and waits for longer than that.
        ({"call:cudaDeviceSynchronize": 3}, [(1, 200, "compute"), (2, 100, "host")]),
    ],
)
def test_what_a_change_would_save(
    tmp_path: Path, changes: dict[str, float], expected: list[tuple[int, float, str]]
) -> None:
    trace = two_steps().read(tmp_path)
    before = {1: 200.0, 2: 100.0}
    wanted = [(step, before[step], float(after), bound) for step, after, bound in expected]
    assert predicted(trace, changes) == wanted


def test_a_change_of_one_step(tmp_path: Path) -> None:
    trace = two_steps().read(tmp_path)
    assert predicted(trace, {"range:ProfilerStep*": 0.5}, 2) == [(2, 100, 50, "host")]
    assert predicted(trace, {"kernel:gemm": 0}, 2) == [(2, 100, 100, "host")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kernel:volta*": 0}, "nothing in the trace matches kernel:volta"),
        ({"kernels:gemm": 0}, "did you mean kernel:"),
        ({"gemm": 0}, "there is no change 'gemm'"),
        ({"wait:*": 0.5}, "needs the factor 0"),
        ({"kernel:": 0}, "there is no change"),
        ({"launch": 2}, "from 0 to 1"),
        ({"kernel:gemm": -1}, "at least 0, not -1"),
        ({"kernel:gemm": float("nan")}, "at least 0"),
        ({"kernel:gemm": float("inf")}, "at least 0"),
    ],
)
def test_impossible_changes(tmp_path: Path, changes: dict[str, float], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        analysis.what_if(two_steps().read(tmp_path), changes)


def test_modules_with_their_gradients(tmp_path: Path) -> None:
    events = Events()
    for number, (name, at, dur) in enumerate(
        [("main.py(1): train", 0, 400), ("nn.Module: Linear_0", 10, 50)]
    ):
        args = {"Python id": number + 1, "Python parent id": number or None}
        if number:
            args["Python module id"] = 0
        events.add("python_function", name, at, dur, args=args)
    events.differentiated((20, 20), (100, 100))
    events.op("aten::add", 300, 50)
    trace = events.read(tmp_path)
    assert trace.ops["module"].cast(pl.String).to_list() == ["Linear_0", "Linear_0", None]
    # 50 us of the forward and 100 us of the backward pass.
    [(_, before, after, _)] = predicted(trace, {"module:linear*": 0})
    assert before - after == 150 - 10


def test_waits_of_unknown_cause_give_a_range(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::add", 0, 900)
    events.op("aten::mm", 900, 4_100)
    events.call(1_000, 5, 1)
    # It starts 3 ms after its launch, nobody knows why.
    events.kernel("gemm", 4_000, 10, 1)
    events.call(1_100, 3_000, 2, name="cudaDeviceSynchronize")
    trace = events.read(tmp_path)
    found = analysis.what_if(trace, {"op:aten::add": 0.5})
    assert found.select("before_ns", "after_ns", "after_max_ns").row(0) == (
        5_000 * US, 4_550 * US, 5_000 * US,
    )  # fmt: skip


def test_the_path_as_a_table(tmp_path: Path) -> None:
    trace = two_steps().read(tmp_path)
    table = analysis.critical_path_table(trace, step=1)
    assert table["path_ns"].sum() == 200 * US
    assert table.select("name", pl.col("path_ns") / US, "segments", "events").rows()[:3] == [
        ("gemm", 80, 2, 1),
        ("ProfilerStep#1", 50, 2, 1),
        ("ncclDevKernel_AllReduce", 50, 2, 1),
    ]
    # Its launch could return later: the kernel waits for the one before.
    rest = dict(table.select("name", pl.col("slack_ns") / US).iter_rows())
    assert rest["gemm"] is None
    assert rest["aten::add"] > 0
    by_bound = analysis.critical_path_table(trace, by="bound_by", step=1)
    assert by_bound.filter(pl.col("path_ns") > 0).select("bound_by", pl.col("path_ns") / US).rows() == [
        ("compute", 65), ("host", 60), ("communication", 48), ("launch", 15), ("synchronisation", 10),
        ("queue", 2),
    ]  # fmt: skip
    assert by_bound["share"].sum() == pytest.approx(1)
    of_ops = analysis.critical_path_table(trace, by=("op", "category"))
    assert of_ops.filter(pl.col("op") == "aten::mm").select("category", pl.col("path_ns") / US).rows() == [
        ("gemm", 80), (None, 10),
    ]  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="cannot group by colour"):
        analysis.critical_path_table(trace, by="colour")
    assert analysis.critical_path_table(Events().read(tmp_path), by=BY).is_empty()
    assert analysis.critical_path_table(trace, by=BY)["path_ns"].sum() == 300 * US


def test_the_bounds_of_all_steps_and_the_report_that_begins_with_them(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    path = two_steps().write(tmp_path / "t.json")
    trace = ks.read(path)
    bounds = analysis.step_bounds(trace)
    steps = analysis.step_times(trace)["step"]
    by_step = [analysis.critical_path(trace, step).select("bound_by", "dur_ns") for step in steps]
    sums = dict(pl.concat(by_step).group_by("bound_by").agg(pl.col("dur_ns").sum()).iter_rows())
    assert dict(bounds.select("bound_by", "path_ns").iter_rows()) == sums
    assert bounds["path_ns"].sum() == analysis.step_times(trace)["total_ns"].sum()
    assert bounds["share"].sum() == pytest.approx(1)
    text = cli("analyze", path).stdout
    assert "Critical path of the step: 200.0 us" in text
    assert text.index("Critical path of") < text.index("Step 1: 200.0 us")
    assert analysis.step_bounds(Events().read(tmp_path)).is_empty()


def test_commands(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = two_steps().write(tmp_path / "t.json")
    text = cli("critical-path", path, "--step", "1", "--by", "op,bound_by").stdout
    for part in ("Critical path of step 1: 200.0 us", "compute", "32.5 %", "aten::mm, compute", "Slack:"):
        assert part in text
    named = cli("critical-path", path, "--annotation", "ProfilerStep*", "--instance", "1").stdout
    assert "Critical path of ProfilerStep* number 1: 100.0 us" in named
    document = json.loads(cli("critical-path", path, "--format", "json").stdout)
    assert sum(row["dur_ns"] for row in document["critical_path"]) == 300 * US
    lines = cli("critical-path", path, "--format", "csv", "--by", "kind").stdout.splitlines()
    assert lines[0] == "kind,path_ns,share,segments,events,slack_ns"
    text = cli("what-if", path, "dataloader=0", "kernel:gemm=0.5").stdout
    for part in (
        "If dataloader=0, kernel:gemm=0.5: 223.0 us instead of 300.0 us, 25.7 % less",
        "after, at most",
    ):
        assert part in text
    assert "100.0 % more" in cli("what-if", path, "range:ProfilerStep#2=2", "--step", "2").stdout
    document = json.loads(cli("what-if", path, "sync=0", "--format", "json").stdout)
    assert [row["after_ns"] for row in document["what_if"]] == [150 * US, 80 * US]
    lines = cli("what-if", path, "sync=0", "--format", "csv", "--step", "2").stdout.splitlines()
    assert lines == ["step,before_ns,after_ns,after_max_ns,bound_by_after", "2,100000,100000,100000,host"]
    empty = Events().write(tmp_path / "empty.json")
    for command in (["critical-path", empty], ["what-if", empty, "launch=0"]):
        assert "no events" in cli(*command).stdout
