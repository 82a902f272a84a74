"""Idle GPUs, the cost of launching, queues and copies, against counting by hand; views without data."""

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import draws
import kernelscope as ks
from events import Events
from kernelscope import _traceparse, analysis
from kernelscope.analysis.grouping import gather_rows, positions
from kernelscope.analysis.missing_views import VIEWS
from kernelscope.errors import InvalidArgumentError

US = 1000


def waiting() -> Events:
    """Three gaps: the host is late by a data loader, the next is short, the last lasts without the host."""
    events = Events()
    events.annotation("ProfilerStep#4", 0, 400)
    events.op("aten::mm", 0, 10)
    events.call(2, 3, 1)
    events.kernel("first", 10, 20, 1)
    events.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 35, 60)
    events.op("aten::add", 98, 30)
    events.op("aten::inner", 99, 20)
    events.call(100, 2, 2)
    events.kernel("second", 110, 10, 2)
    events.call(104, 2, 3)
    events.kernel("third", 125, 10, 3)
    events.call(106, 2, 4)
    events.kernel("fourth", 200, 10, 4)
    return events


def test_causes_of_gaps(tmp_path: Path) -> None:
    trace = waiting().read(tmp_path)
    gaps = analysis.idle_gaps(trace).sort("start_ns")
    columns = ("start_ns", "dur_ns", "cause", "op", "host", "host_ns", "step")
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert gaps.select(columns).rows() == [
        (30 * US, 80 * US, "host_wait", "aten::inner", loader, 60 * US, 4),
        (120 * US, 5 * US, "kernel_wait", "aten::inner", None, None, 4),
        (135 * US, 65 * US, "other", "aten::inner", None, None, 4),
    ]
    by_cause = analysis.idle_summary(trace)
    assert by_cause.select("cause", "idle_ns", "gaps", "share").rows() == [
        ("host_wait", 80 * US, 1, 80 / 150),
        ("other", 65 * US, 1, 65 / 150),
        ("kernel_wait", 5 * US, 1, 5 / 150),
    ]
    assert by_cause["idle_ns"].sum() == analysis.temporal_breakdown(trace)["idle_ns"].sum()
    by_host = analysis.idle_summary(trace, by=("host",))
    assert by_host.select("host", "idle_ns").rows() == [(loader, 80 * US), (None, 70 * US)]
    longer = analysis.idle_summary(trace, kernel_delay_ns=70 * US)
    assert longer.select("cause", "idle_ns").rows() == [("host_wait", 80 * US), ("kernel_wait", 70 * US)]
    with pytest.raises(InvalidArgumentError, match="cannot group by"):
        analysis.idle_summary(trace, by="colour")


def test_gaps_of_a_gpu_and_of_its_streams(tmp_path: Path) -> None:
    """While one stream idles another may work."""
    events = Events()
    for place, (start, stream) in enumerate([(0, 7), (10, 8), (20, 7)]):
        events.call(0.1 * place, 0.05, place + 1)
        events.kernel("k", start, 10, place + 1, stream=stream)
    trace = events.read(tmp_path)
    assert analysis.idle_summary(trace).is_empty()
    assert analysis.idle_summary(trace, by=("stream", "cause")).select(
        "stream", "cause", "idle_ns"
    ).rows() == [(7, "kernel_wait", 10 * US)]


def test_without_a_launch_the_cause_is_unknown(tmp_path: Path) -> None:
    events = Events()
    events.kernel("a", 0, 5, 1)
    events.kernel("b", 10, 5, 2)
    assert analysis.idle_summary(events.read(tmp_path)).select("cause", "idle_ns").rows() == [(None, 5 * US)]


@settings(max_examples=draws.count(30, 600))
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=6),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=8),
)
def test_what_occupied_the_host(held: list[tuple[int, int]], work: list[tuple[int, int, int]]) -> None:
    events = Events()
    at, spans = 0, []
    for gap, length in held:
        at += gap
        events.op(f"op{len(spans)}", at, length)
        spans.append((at, at + length))
        at += length
    for place, (launch, delay, length) in enumerate(work):
        events.add("cuda_runtime", "cudaLaunchKernel", launch, 0.5, args={"correlation": place + 1})
        events.kernel("k", launch + delay, length, place + 1)
    with TemporaryDirectory() as folder:
        trace = events.read(Path(folder))
    calls = dict(trace.launches.select("row", "start_ns").rows())
    for gap in analysis.idle_gaps(trace).to_dicts():
        start, end = gap["start_ns"] // US, (gap["start_ns"] + gap["dur_ns"]) // US
        until = min(calls[gap["launch_row"]] // US, end)
        shared = [max(0, min(end, until) - max(begin, start)) for begin, end in spans]
        assert (gap["host_ns"] or 0) // US == max([0, *shared])
        if gap["host"] is not None:
            assert shared[int(gap["host"].removeprefix("op"))] == max(shared)


def test_ranges_stand_in_for_operators(tmp_path: Path) -> None:
    path = tmp_path / "demo.sqlite"
    _traceparse.write_demo_database(path, kind="nsys", size_bytes=1_000_000, ranks=1, seed=1)
    trace = ks.read(path)
    assert 0 < trace.ops.height < trace.ranges.height
    gaps = analysis.idle_gaps(trace)
    names = set(trace.ranges["name"].cast(pl.String))
    outside = set(trace.gpu_ops.filter(pl.col("range_row").is_null())["row"])
    assert set(gaps.filter(pl.col("op").is_null())["row"]) <= outside
    assert set(gaps["op"].drop_nulls()) <= names
    assert gaps["op"].null_count() < gaps.height / 100
    longest = gaps.row(0, named=True)
    assert (longest["cause"], "DataLoader" in longest["host"]) == ("host_wait", True)
    assert analysis.op_launch_delay(trace).height


def test_launches_and_their_work(tmp_path: Path) -> None:
    events = Events()
    events.call(0, 4, 1)
    events.kernel("short", 6, 3, 1)
    events.call(10, 60, 2)
    events.kernel("early", 20, 5, 2)
    events.call(80, 5, 3, name="cudaGraphLaunch")
    events.kernel("node", 285, 50, 3)
    events.kernel("node", 340, 1, 3)
    events.kernel("stray", 400, 1, 99)
    trace = events.read(tmp_path)
    rows = analysis.launches(trace).select(
        "name", "call", "cpu_dur_ns", "gpu_dur_ns", "launch_delay_ns", "is_short", "is_slow_call", "is_late"
    )
    assert rows.rows() == [
        ("short", "cudaLaunchKernel", 4 * US, 3 * US, 2 * US, True, False, False),
        ("early", "cudaLaunchKernel", 60 * US, 5 * US, 0, False, True, False),
        ("node", "cudaGraphLaunch", 5 * US, 50 * US, 200 * US, False, False, True),
        ("node", "cudaGraphLaunch", 5 * US, 1 * US, 255 * US, True, False, True),
    ]
    (kernels, graphs) = analysis.launch_summary(trace).to_dicts()
    assert [kernels[name] for name in ("works", "short", "slow_calls")] == [2, 1, 1]
    assert (kernels["call"], graphs["call"]) == ("cudaLaunchKernel", "cudaGraphLaunch")
    assert (kernels["cpu_dur_ns_p50"], kernels["cpu_dur_ns_max"]) == (32 * US, 60 * US)
    assert (graphs["launch_delay_ns_p50"], graphs["late"]) == (227.5 * US, 2)


@settings(max_examples=draws.count(30, 600))
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 1)), min_size=1, max_size=12)
)
def test_queue_length(work: list[tuple[int, int, int]]) -> None:
    events = Events()
    for place, (launch, delay, stream) in enumerate(work):
        events.add("cuda_runtime", "cudaLaunchKernel", launch, 0.5, args={"correlation": place + 1})
        events.kernel("k", launch + delay, 5, place + 1, stream=stream)
    with TemporaryDirectory() as folder:
        trace = events.read(Path(folder))
    series = analysis.queue_length(trace)
    # After everything that happens at an instant, the calls that have begun and whose work has not.
    last = series.group_by("stream", "at_ns", maintain_order=True).agg(pl.col("queue_length").last())
    for stream, at_ns, length in last.rows():
        at = at_ns // US
        assert length == sum(s == stream and c <= at < c + d for c, d, s in work)
    assert (series["queue_length"] >= 0).all()
    for limit in (1, 2):
        blocked = dict(analysis.queue_blocked(trace, limit=limit).select("stream", "blocked_ns").rows())
        for stream in (0, 1):
            full = [t for t in range(90) if sum(s == stream and c <= t < c + d for c, d, s in work) >= limit]
            assert blocked.get(stream, 0) == len(full) * US
    for row in analysis.queue_summary(trace).to_dicts():
        mine = [(c, d) for c, d, s in work if s == row["stream"]]
        span = max(c + d for c, d in mine) - min(c for c, _ in mine)
        assert row["mean"] == (pytest.approx(sum(d for _, d in mine) / span) if span else None)


def test_a_graph_waits_as_one(tmp_path: Path) -> None:
    events = Events()
    events.call(0, 4, 1, name="cudaGraphLaunch")
    for start in (10, 20, 30):
        events.kernel("node", start, 5, 1)
    lengths = analysis.queue_length(events.read(tmp_path)).select("at_ns", "queue_length")
    assert lengths.rows() == [(0, 1), (10 * US, 0)]


def test_bandwidth_of_copies(tmp_path: Path) -> None:
    events = Events()
    for place, (start, dur, size) in enumerate([(0, 10, 1000), (5, 5, 1000), (10, 4, 400), (30, 0, 64)]):
        args = {"device": 0, "stream": 7, "correlation": place + 1, "bytes": size}
        events.add("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", start, dur, args=args, pid=0, tid=7)
    args = {"device": 0, "stream": 7, "correlation": 9, "memory bandwidth (GB/s)": 2.5}
    events.add("gpu_memset", "Memset (Device)", 50, 2, args=args, pid=0, tid=7)
    trace = events.read(tmp_path)
    series = analysis.memory_bandwidth(trace)
    assert series.filter(name="Memcpy HtoD").select("at_ns", "bytes_per_s").rows() == [
        (0, 100_000_000),
        (5 * US, 300_000_000),
        (10 * US, 100_000_000),
        (14 * US, 0),
    ]
    # What was recorded counts where the bytes were not.
    assert series.filter(name="Memset")["bytes_per_s"].to_list() == [2_500_000_000, 0]
    copies, sets = analysis.memory_bandwidth_summary(trace).to_dicts()
    assert (copies["copies"], copies["bytes"], copies["busy_ns"]) == (4, 2464, 14 * US)
    assert copies["bytes_per_s"] == pytest.approx(2464 / 14e-6)
    assert (sets["bytes"], sets["bytes_per_s"], sets["bytes_per_s_max"]) == (None, None, 2.5e9)


def test_sequences_of_kernels(tmp_path: Path) -> None:
    events = Events()
    at, number = 0, 0
    for names in (["a", "b", "c"], ["a", "b", "c"], ["c", "b", "a"], ["a", "b"]):
        events.op("aten::block", at, 50)
        events.op("aten::inside", at + 1, 48)
        for place, name in enumerate(names):
            number += 1
            events.call(at + 2 + 10 * place, 8, number)
            events.kernel(name, at + 6 + 10 * place, 4, number)
        at += 100
    trace = events.read(tmp_path)
    found = analysis.kernel_sequences(trace, "aten::")
    assert found.rows() == [
        ("aten::block", ["a", "b", "c"], 2, 3, 6, 24 * US, 100 * US),
        ("aten::block", ["c", "b", "a"], 1, 3, 3, 12 * US, 50 * US),
    ]
    assert analysis.kernel_sequences(trace, "inside")["op"].unique().to_list() == ["aten::inside"]
    assert analysis.kernel_sequences(trace, min_kernels=2).height == 3
    assert analysis.kernel_sequences(trace, "nothing of this name").is_empty()
    delays = analysis.op_launch_delay(trace)
    assert delays.rows() == [
        ("aten::inside", ["a", "b", "c"], 2, 1 * US, 4 * US),
        ("aten::inside", ["a", "b"], 1, 1 * US, 4 * US),
        ("aten::inside", ["c", "b", "a"], 1, 1 * US, 4 * US),
    ]


OF_GPU_WORK = """temporal_breakdown comm_comp_overlap idle_summary idle_gaps launches launch_summary
    queue_length queue_summary queue_blocked memory_bandwidth memory_bandwidth_summary
    kernel_sequences op_launch_delay"""


@pytest.mark.parametrize("question", OF_GPU_WORK.split())
def test_a_trace_without_gpu_work_gives_empty_tables(tmp_path: Path, question: str) -> None:
    events = Events()
    events.op("aten::mm", 0, 10)
    answer = getattr(analysis, question)(events.read(tmp_path))
    assert answer.is_empty()
    assert answer.width > 2


def test_an_empty_trace_misses_every_view_but_links(tmp_path: Path) -> None:
    events = Events({"id": 0})
    events.events.append({"ph": "i", "name": "start", "ts": 1, "pid": 1, "tid": 1, "s": "t"})
    missing = analysis.missing_views(events.read(tmp_path))
    assert missing["view"].to_list() == [view for view in VIEWS if view != "links"]
    assert missing.columns == ["view", "why", "remedy"]
    assert all(text.endswith(".") for text in [*missing["why"], *missing["remedy"]])


def test_what_was_recorded_is_not_missing(tmp_path: Path) -> None:
    events = Events()
    events.annotation("ProfilerStep#1", 0, 100)
    events.op("aten::mm", 10, 20, Input_Dims=[[2, 2], [2, 2]])
    events.call(12, 2, 1)
    events.kernel("sgemm", 20, 5, 1, grid=[1, 1, 1], block=[32, 1, 1])
    events.memory(15, 64)
    missing = set(analysis.missing_views(events.read(tmp_path))["view"])
    shown = {"steps", "operators", "input_shapes", "kernels", "launch_sizes", "gpu_limits", "links", "memory"}
    assert not missing & (shown | {"roofline", "phases"})
    assert {"python", "modules", "memory_lifetimes", "ranges", "communication"} <= missing


def test_kernels_without_operators_miss_their_links(tmp_path: Path) -> None:
    events = Events()
    events.kernel("sgemm", 20, 5, 1)
    missing = analysis.missing_views(events.read(tmp_path))
    assert {"operators", "links"} <= set(missing["view"])
    remedy = dict(missing.select("view", "remedy").iter_rows())["links"]
    assert "ProfilerActivity.CPU" in remedy


def test_remedies_are_those_of_the_recorder(tmp_path: Path) -> None:
    """Neither nsys nor CUDA's options help on AMD's GPUs, and new recorders have no range profiler."""
    remedies = {}
    for call in ("cudaLaunchKernel", "hipLaunchKernel"):
        events = Events()
        events.call(12, 2, 1, name=call)
        events.kernel("sgemm", 20, 5, 1)
        remedies[call] = dict(
            analysis.missing_views(events.read(tmp_path)).select("view", "remedy").iter_rows()
        )
    assert "until May 2026" in remedies["cudaLaunchKernel"]["counters"]
    assert "rocprofv3" in remedies["hipLaunchKernel"]["counters"]
    for view in ("counters", "ranges", "synchronisation"):
        assert "nsys" not in remedies["hipLaunchKernel"][view]
        assert "cuda" not in remedies["hipLaunchKernel"][view].lower()


ROWS = st.one_of(
    st.lists(st.integers(0, 60), unique=True, max_size=12),
    st.builds(lambda first, count: list(range(first, first + count)), st.integers(0, 9), st.integers(0, 9)),
)


@given(ROWS, st.lists(st.one_of(st.none(), st.integers(0, 70)), max_size=20))
def test_rows_are_where_they_are(rows: list[int], asked: list[int | None]) -> None:
    table = pl.DataFrame({"row": pl.Series(rows, dtype=pl.UInt32)}).with_columns(
        name=pl.format("name {}", "row").cast(pl.Categorical)
    )
    sought = pl.Series(asked, dtype=pl.UInt32)
    assert positions(table["row"], sought).to_list() == [
        rows.index(row) if row in rows else None for row in asked
    ]
    names = gather_rows(sought, table, "name")["name"]
    assert names.to_list() == [f"name {row}" if row in rows else None for row in asked]
