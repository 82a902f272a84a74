"""Durations that cannot be, and steps of one operation or of none, are told and cost no figure."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import draws
import kernelscope as ks
import nvprof_database
from events import Events
from kernelscope import analysis
from kernelscope.cli.main import main
from kernelscope.reading import read_part
from nsys_database import Database

Span = tuple[float, float]
"""A start and a duration, us."""


def kineto(folder: Path, kernels: list[Span]) -> ks.Trace:
    events = Events()
    for place, (at, dur) in enumerate(kernels, 1):
        events.call(at - 5, 2, place)
        events.kernel("norm", at, dur, place)
    return events.read(folder)


def nsys(folder: Path, kernels: list[Span]) -> ks.Trace:
    database = Database(folder / "report.sqlite")
    return written(database, folder / "report.sqlite", kernels)


def nvprof(folder: Path, kernels: list[Span]) -> ks.Trace:
    database = nvprof_database.Database(folder / "report.nvprof")
    return written(database, folder / "report.nvprof", kernels)


def written(database: Any, path: Path, kernels: list[Span]) -> ks.Trace:
    for place, (at, dur) in enumerate(kernels, 1):
        database.call(int(1_000 * (at - 5)), int(1_000 * (at - 3)), correlation=place)
        database.kernel(int(1_000 * at), int(1_000 * (at + dur)), correlation=place)
    database.close()
    return ks.read(path)


@pytest.mark.parametrize("write", [kineto, nsys, nvprof])
def test_a_duration_that_cannot_be_costs_no_figure(tmp_path: Path, write: Any) -> None:
    trace = write(tmp_path, [(100, 50), (160, 2_000_000), (220, 50), (280, 50)])
    assert trace.gpu_ops.sort("start_ns")["dur_ns"].to_list() == [50_000, 60_000, 50_000, 50_000]
    assert trace.gpu_ops.sort("start_ns")["recorded_dur_ns"].to_list() == [None, 2 * 10**9, None, None]
    assert trace.extent()[1] < 10**6 + trace.extent()[0]
    assert analysis.kernel_table(trace)["total_ns"].sum() == 210_000
    (finding,) = trace.diagnostics.filter(pl.col("severity") == "repaired").iter_rows(named=True)
    assert (finding["code"], finding["count"]) == ("impossible_duration", 1)
    (doubt,) = analysis.doubts(trace).iter_rows(named=True)
    assert (doubt["doubt"], doubt["events"], doubt["time_ns"]) == ("impossible_duration", 1, 1_999_940_000)
    assert doubt["row"] == trace.gpu_ops.sort("start_ns")["row"][1]
    assert "2.000 s of recorded GPU time is impossible and not counted: 1 operation" in doubt["text"]
    assert doubt["text"].endswith(doubt["name"])


@pytest.mark.parametrize("seed", range(draws.count(4, 200)))
def test_whatever_the_order_the_streams_and_the_names(tmp_path: Path, seed: int) -> None:
    """Some operations of each stream last for ever; the answers are those of the same file without them."""
    random = draws.random("doubts", seed)
    right, wrong = Events(), Events()
    for device in range(random.randint(1, 3)):
        for stream in random.sample(range(1, 90), random.randint(1, 4)):
            add_stream(random, right, wrong, device, stream)
    pairs = list(zip(right.events, wrong.events, strict=True))
    random.shuffle(pairs)
    right.events, wrong.events = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    expected, found = right.read(tmp_path / "right"), wrong.read(tmp_path / "wrong")
    assert found.gpu_ops.drop("recorded_dur_ns").equals(expected.gpu_ops.drop("recorded_dur_ns"))
    assert analysis.doubts(expected).is_empty()
    changed = sum(pair[0]["dur"] != pair[1]["dur"] for pair in pairs)
    assert found.gpu_ops["recorded_dur_ns"].count() == changed > 0
    assert analysis.doubts(found)["events"].to_list() == [changed]
    assert analysis.kernel_table(found).equals(analysis.kernel_table(expected))


def add_stream(random: Random, right: Events, wrong: Events, device: int, stream: int) -> None:
    """Some work lasts for ever: the next begins where it ends, and takes time, too."""
    at, lasts, last = 10.0, False, random.randint(3, 12)
    for place in range(last + 1):
        dur = random.choice((1.0, 20.5) if lasts or place == last else (0.0, 1.0, 20.5))
        lasts = place < last and dur > 0 and (place == 0 or random.random() < 0.3)
        cat, name = random.choice(
            (("kernel", "gemm"), ("gpu_memcpy", "Memcpy HtoD"), ("kernel", "ncclAllReduce"))
        )
        args = {"device": device, "stream": stream, "correlation": len(right.events) + 1}
        for events, time in ((right, dur), (wrong, random.choice((5e3, 1e6, 9e9)) if lasts else dur)):
            events.add(cat, name, at, time, args=args, pid=device, tid=stream)
        at += dur if lasts else dur + random.choice((0.0, 3.0))


def test_work_longer_than_the_capture_ends_with_it(tmp_path: Path) -> None:
    """Nothing follows on its stream; what ends a little late is real."""
    last, late = (700, 1_000_001), (800, 900)
    events = Events()
    events.add("Trace", "PyTorch Profiler (0)", 0, 1_000, pid="Spans", tid="PyTorch Profiler")
    for number, (at, dur) in enumerate((last, late), 1):
        events.call(at - 5, 2, number)
        events.kernel("norm", at, dur, number, stream=number)
    database = Database(tmp_path / "report.sqlite")  # of a session of 1,000 us
    for number, (at, dur) in enumerate((last, late), 1):
        database.call(1_000 * at - 5_000, 1_000 * at, correlation=number)
        database.kernel(1_000 * at, 1_000 * (at + dur), correlation=number, streamId=number)
    for trace in (events.read(tmp_path), ks.read(database.close())):
        works = trace.gpu_ops.sort("start_ns").select("dur_ns", "recorded_dur_ns")
        assert works.rows() == [(300_000, 1_000_001_000), (900_000, None)]
        (doubt,) = analysis.doubts(trace).iter_rows(named=True)
        assert (doubt["doubt"], doubt["events"]) == ("impossible_duration", 1)
        assert read_part(trace.meta.path, tables={"gpu_ops": ["dur_ns"]}).gpu_ops["dur_ns"].sum() == 1_200_000


@pytest.mark.parametrize(
    ("name", "pid", "is_capture"),
    [
        ("PyTorch Profiler (0)", "Spans", True),
        ("PyTorch Profiler (0)", "[TP00] Spans", True),
        ("__cupti_profiler__ (-1)", "Spans", False),
        ("PyTorch Profiler (0)", "Phases", False),
        ("warm up", 7, False),
    ],
)
def test_only_the_profilers_own_span_is_the_capture(
    tmp_path: Path, name: str, pid: str | int, is_capture: bool
) -> None:
    events = Events()
    events.add("Trace", name, 0, 100, pid=pid, tid="PyTorch Profiler")
    events.kernel("norm", 10, 500, 1)
    trace = events.read(tmp_path)
    assert trace.gpu_ops["recorded_dur_ns"].to_list() == [500_000 if is_capture else None]


def test_what_is_real_is_not_doubted(tmp_path: Path) -> None:
    events = Events()
    events.kernel("overlaps the next", 0, 13, 1)
    events.kernel("ends with the next", 10, 20, 2)
    events.kernel("short", 28, 2, 3)
    events.kernel("around one of no length", 40, 10, 4)
    events.kernel("of no length", 45, 0, 5)
    events.kernel("on another stream", 0, 100, 6, stream=8)
    events.kernel("on another GPU", 0, 100, 7, device=1)
    trace = events.read(tmp_path)
    assert trace.gpu_ops["recorded_dur_ns"].null_count() == trace.gpu_ops.height
    assert analysis.doubts(trace).is_empty()


def test_a_time_is_asked_for_after_it_was_doubted(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    kineto(tmp_path, [(100, 50), (160, 2_000_000), (220, 50), (280, 50)])
    late = ks.read(path, filter_time=(250_000, None))
    assert late.gpu_ops["dur_ns"].to_list() == [50_000, 50_000]


def test_a_part_of_a_trace_has_the_durations_of_the_whole(tmp_path: Path) -> None:
    database = Database(tmp_path / "report.sqlite", schema={
        "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
        " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER"
    })  # fmt: skip
    database.kernel(100, 9_000, correlation=1)
    where = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": 7 << 24 | 1 << 48}
    database.insert(
        "CUPTI_ACTIVITY_KIND_MEMSET", start=200, end=250, correlationId=2, value=0, bytes=8, **where
    )
    database.close()
    path, wanted = tmp_path / "report.sqlite", {"gpu_ops": ["dur_ns", "kind"]}
    for trace in (ks.read(path), read_part(path, tables=wanted)):
        assert trace.gpu_ops.filter(pl.col("kind") == "kernel")["dur_ns"].to_list() == [100]


def test_a_step_whose_work_was_not_recorded(tmp_path: Path) -> None:
    events = Events()
    for step in range(3):
        events.annotation(f"ProfilerStep#{step}", 1_000 * step, 1_000)
        for call in range(2):
            number = 10 * step + call
            events.call(1_000 * step + 10 * call, 5, number + 1)
            if step != 1:
                events.kernel("k", 1_000 * step + 100 + 10 * call, 5, number + 1)
    (doubt,) = analysis.doubts(events.read(tmp_path)).iter_rows(named=True)
    assert (doubt["doubt"], doubt["step"], doubt["events"]) == ("step_without_gpu_work", 1, 2)
    # Where the GPU was not recorded at all, of every step.
    events.events = [event for event in events.events if event["cat"] != "kernel"]
    assert analysis.doubts(events.read(tmp_path))["step"].to_list() == [0, 1, 2]
    # Who recorded the host alone has no calls either.
    events.events = [event for event in events.events if event["cat"] != "cuda_runtime"]
    assert analysis.doubts(events.read(tmp_path)).is_empty()


def test_one_operation_that_hides_all_others(tmp_path: Path) -> None:
    events = Events()
    for place in range(10):
        events.kernel(f"k{place}", 100 * place, 10 if place < 9 else 810, place + 1)
    (doubt,) = analysis.doubts(events.read(tmp_path)).iter_rows(named=True)
    assert (doubt["doubt"], doubt["step"], doubt["events"], doubt["time_ns"]) == (
        "one_operation",
        None,
        10,
        810_000,
    )
    assert doubt["name"] == "k9"
    assert "90.0 % of the GPU time of the trace on GPU 0, 810.0 us" in doubt["text"]
    events.events.pop(0)
    assert analysis.doubts(events.read(tmp_path)).is_empty()


def test_doubts_come_before_everything_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kineto(tmp_path, [(100, 50), (160, 2_000_000), (220, 50), (280, 50)])
    assert main(["analyze", str(tmp_path / "trace.json")]) == 0
    said = capsys.readouterr().out
    assert said.index("2.000 s of recorded GPU time is impossible and not counted") < said.index(
        "The whole trace"
    )


@pytest.mark.parametrize(
    "wrong", [{"ts": 0, "dur": 0}, {"ts": None}, {"ts": "soon"}, {"ts": 0}, {"ts": 9e15}]
)
@pytest.mark.parametrize("bad", [1, 4])
def test_work_without_a_time_is_in_no_figure(tmp_path: Path, wrong: dict[str, Any], bad: int) -> None:
    """It keeps its links; every other answer is that of the file without it."""
    now = 1_615_207_264_505_000
    with_it, without = Events(), Events()
    for events in (with_it, without):
        events.annotation("ProfilerStep#1", now, 1_000)
    for place in range(9):
        at = now + 100 * place
        for events in (with_it, without):
            events.op("aten::mm", at, 50)
            events.call(at + 5, 10, place + 1)
        with_it.kernel("k", at + 30, 20, place + 1, stream=7 + place % 2)
        if place % 2 == 1 and place < 2 * bad:
            event = with_it.events[-1] | wrong
            with_it.events[-1] = {key: value for key, value in event.items() if value is not None}
        else:
            without.events.append(with_it.events[-1])
    found, expected = with_it.read(tmp_path / "found"), without.read(tmp_path / "expected")
    assert found.untimed_gpu_ops.height == bad
    assert found.extent() == expected.extent()
    calls = found.launches.filter(pl.col("row").is_in(found.untimed_gpu_ops["launch_row"].implode()))
    assert calls["op_row"].to_list() == found.untimed_gpu_ops["op_row"].to_list()
    assert calls["correlation"].to_list() == found.untimed_gpu_ops["correlation"].to_list()
    numbers = pl.exclude("^(.*_)?row$")
    assert found.gpu_ops.select(numbers).equals(expected.gpu_ops.select(numbers))
    for answer in (analysis.kernel_table, analysis.step_breakdown, analysis.idle_summary, analysis.timeline):
        assert_frame_equal(answer(found).select(numbers), answer(expected).select(numbers))
    counts = dict(found.diagnostics.select("code", "count").iter_rows())
    assert counts["untimed_work"] == bad
    # What was launched has work, if none with a time.
    assert "launch_without_gpu_work" not in counts
    assert found.meta.seen == found.meta.kept
    told = dict(analysis.doubts(found).select("doubt", "events").iter_rows())
    many = {"events_without_time": bad} if bad > 1 else {}
    assert told == {**many, "work_without_time": bad}
    assert ks.read(tmp_path / "found" / "trace.json", device=0).untimed_gpu_ops.is_empty()


def test_lengths_of_nothing_are_real(tmp_path: Path) -> None:
    events = Events()
    for place in range(4):
        events.kernel("k", 1_000 + place, 0, place + 1)
    events.kernel("from the beginning", 0, 5, 9, stream=8)
    assert events.read(tmp_path).untimed_gpu_ops.is_empty()


@pytest.mark.parametrize("writer", [Database, nvprof_database.Database])
@pytest.mark.parametrize("times", [(0, 0), (None, None), (None, 500)])
def test_databases_without_times(tmp_path: Path, writer: Any, times: tuple[Any, Any]) -> None:
    database = writer(tmp_path / "report.sqlite")
    for place in range(3):
        database.call(100 * place + 10, 100 * place + 20, correlation=place + 1)
        started = (100 * place + 30, 100 * place + 60) if place != 1 else times
        database.kernel(*started, correlation=place + 1)
    database.close()
    trace = ks.read(tmp_path / "report.sqlite")
    assert trace.gpu_ops["start_ns"].to_list() == [30, 230]
    (lost,) = trace.untimed_gpu_ops.iter_rows(named=True)
    assert lost["launch_row"] == trace.launches.filter(correlation=2)["row"].item()
    assert (lost["stream"], lost["recorded_start_ns"], lost["recorded_dur_ns"]) == (7, None, None)
    assert trace.diagnostics.filter(severity="lost").is_empty()
    wanted = {"untimed_gpu_ops": ["correlation"]}
    part = read_part(tmp_path / "report.sqlite", tables=wanted)
    assert part.untimed_gpu_ops["correlation"].to_list() == [2]
