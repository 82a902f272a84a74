"""Host events without a timestamp: kept apart, counted by kind, and in no figure."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kernelscope as ks
from events import Events
from kernelscope import analysis
from kernelscope.check import LAWS
from kernelscope.report.views import doubts
from nsys_database import Database

EPOCH = 1_700_000_000_000_000
COUNT = 40


def recording(first: int, *, at: int = EPOCH, untimed: bool = False, step: int = 1) -> Events:
    """Forty operators with a launch, a kernel, a frame, an annotation and an allocation each.

    Every ``step``-th from ``first`` on has no time, or is left out if not ``untimed``.
    """
    events = Events()
    for place in range(COUNT):
        begin, start = len(events.events), at + 1_000 * place
        events.annotation("part", start, 900)
        events.add("python_function", "train.py(1): f", start + 5, 800)
        events.op("aten::mm", start + 10, 100)
        events.call(start + 20, 10, place + 1)
        events.memory(start + 30, 64)
        events.kernel("gemm", start + 200, 300, place + 1)
        if place >= first and (place - first) % step == 0:
            for event in events.events[begin:]:
                event |= {"ts": 0, "dur": 0} if event["ph"] == "X" else {"ts": 0}
            if not untimed:
                del events.events[begin:]
    return events


KINDS = ("operators", "annotations", "calls", "frames", "memory")


@pytest.mark.parametrize(("first", "step"), [(20, 1), (39, 1), (3, 5)])
def test_no_figure_knows_them(first: int, step: int, tmp_path: Path) -> None:
    found = recording(first, untimed=True, step=step).read(tmp_path / "found")
    expected = recording(first, step=step).read(tmp_path / "expected")
    bad = len(range(first, COUNT, step))
    counts = dict(found.diagnostics.select("code", "count").iter_rows())
    assert {name: counts[f"untimed_{name}"] for name in KINDS} == dict.fromkeys(KINDS, bad)
    kinds = found.untimed_events["kind"].cast(pl.String).value_counts(name="events")
    assert dict(kinds.iter_rows()) == dict.fromkeys(
        ("operator", "annotation", "call", "frame", "memory"), bad
    )
    assert found.meta.seen == found.meta.kept
    assert found.extent() == expected.extent()
    numbers = pl.exclude("^(.*_)?row$", "external_id", "rows", "python_id")
    for table in ("ops", "launches", "gpu_ops", "python", "memory", "steps"):
        assert_frame_equal(found.tables[table].select(numbers), expected.tables[table].select(numbers))
    for answer in (
        analysis.op_table, analysis.annotation_table, analysis.launches, analysis.idle_summary,
        analysis.memory_timeline, analysis.timeline, analysis.step_breakdown,
    ):  # fmt: skip
        assert_frame_equal(answer(found).select(numbers), answer(expected).select(numbers))
    for law in LAWS:
        assert not list(law.find(found)), law.statement
    part = ks.read(tmp_path / "found" / "trace.json", filter_time=(0, 2**62))
    assert part.untimed_events.is_empty()


def test_the_first_lines_say_how_many_and_from_when_on(tmp_path: Path) -> None:
    (sentence, *_) = doubts.sentences(recording(20, untimed=True).read(tmp_path))
    kinds = "operators, 20 annotations, 20 API calls, 20 Python frames, 20 memory events, 20 GPU operations"
    assert sentence.startswith("50.0 % of the events have no timestamp, from ")
    assert f"after the first event on: 20 {kinds}. They are excluded from all figures" in sentence
    # The last annotation with a time starts 19 ms after the first.
    assert "from 19.00 ms after" in sentence
    (sentence, *_) = doubts.sentences(recording(1, untimed=True, step=2).read(tmp_path))
    assert ", spread over the recording: " in sentence
    # One in forty is less than 5 %.
    few = recording(39, untimed=True).read(tmp_path)
    assert "events_without_time" not in analysis.doubts(few)["doubt"].to_list()


@pytest.mark.parametrize(("first", "advises"), [(20, False), (39, True), (COUNT, True)])
def test_advice_on_idle_time_needs_the_times(first: int, advises: bool, tmp_path: Path) -> None:
    trace = recording(first, untimed=True).read(tmp_path)
    found = set(analysis.recommendations(trace)["id"].to_list())
    assert ("low_utilisation" in found) == advises
    assert (not found.isdisjoint({"launch_bound", "host_busy", "gpu_idle"})) == advises


def test_nothing_at_zero_is_taken_for_untimed_that_is_not(tmp_path: Path) -> None:
    events = Events()
    events.memory(0, 64)
    events.op("aten::mm", 0, 5)
    events.op("aten::empty", 5, 0)
    trace = events.read(tmp_path)
    assert (trace.ops.height, trace.memory.height, trace.untimed_events.height) == (2, 1, 0)


def test_exports_leave_them_out(tmp_path: Path) -> None:
    trace = recording(20, untimed=True).read(tmp_path)
    (path,) = ks.convert(trace, "perfetto", tmp_path / "out.json")
    document = json.loads(Path(path).read_text())
    slices = [
        event for event in document["traceEvents"] if event["ph"] == "X" and event["name"] == "aten::mm"
    ]
    assert len(slices) == 20
    assert all(event["ts"] > 0 for event in slices)


def test_calls_of_a_database_at_zero(tmp_path: Path) -> None:
    database = Database(tmp_path / "report.sqlite")
    for place in range(4):
        begin = 100 * place + 10 if place != 2 else 0
        database.call(begin, begin + 10 if begin else 0, correlation=place + 1)
        database.kernel(100 * place + 30, 100 * place + 60, correlation=place + 1)
    trace = ks.read(database.close())
    assert trace.launches["start_ns"].to_list() == [10, 110, 310]
    (lost,) = trace.untimed_events.iter_rows(named=True)
    assert (lost["kind"], lost["correlation"], lost["recorded_start_ns"]) == ("call", 3, 0)
    assert dict(trace.diagnostics.select("code", "count").iter_rows())["untimed_calls"] == 1
