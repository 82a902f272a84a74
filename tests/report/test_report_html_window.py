"""What stands for a large trace where every event would be too much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_report_text import trace_of

import kernelscope as ks
from kernelscope.report.html import window
from kernelscope.report.html.views import timeline
from kernelscope.report.html.views.flame import _figure
from kernelscope.report.html.views.modules import _nested


def test_a_small_trace_is_shown_whole(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, steps=5)
    found = window.window_of(trace, ks.analysis.step_breakdown(trace), trace.extent())
    assert found.trace is trace
    assert found.remark == ""


def test_of_a_large_trace_the_median_step_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MOST_EVENTS", 4)
    trace = trace_of(tmp_path, steps=5)
    steps = ks.analysis.step_breakdown(trace)
    found = window.window_of(trace, steps, trace.extent())
    median = steps.sort("total_ns", "start_ns").row(2, named=True)
    assert f"step {median['step']}" in found.remark
    assert found.trace.ops["name"].to_list() == [f"ProfilerStep#{median['step']}", "aten::mm"]
    assert found.trace.gpu_ops.height == 1


def test_of_a_large_trace_without_steps_the_middle_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "MOST_EVENTS", 3)
    trace = trace_of(tmp_path, steps=9)
    found = window.window_of(trace, pl.DataFrame(), trace.extent())
    assert "from the middle" in found.remark
    assert 0 < found.trace.ops.height < trace.ops.height


def test_of_a_large_step_the_middle_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of(tmp_path, steps=9)
    first, last = trace.extent() or (0, 0)
    # Nine steps of the recording in each of two, the second of which is the longer one.
    half = (last - first) // 2
    steps = pl.DataFrame({"step": [1, 2], "start_ns": [first, first + half], "total_ns": [half, half + 1]})
    whole = window.window_of(trace, steps, (first, last))
    assert whole.trace is trace
    monkeypatch.setattr(window, "MOST_EVENTS", 6)
    found = window.window_of(trace, steps, (first, last))
    assert " % of step 2, whose length is the median, from its middle" in found.remark
    assert 0 < window.host_events(found.trace) <= 6
    starts = found.trace.ops["start_ns"]
    assert starts.is_between(first + half + half // 4, last - half // 4).all()


def test_what_reaches_out_of_the_window_is_shortened(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, steps=1)
    start = trace.ops["start_ns"].min()
    assert isinstance(start, int)
    found = window.cut(trace, start + 50_000, start + 70_000)
    rows: list[dict[str, Any]] = found.ops.select("start_ns", "dur_ns").to_dicts()
    assert [(row["start_ns"] - start, row["dur_ns"]) for row in rows] == [(50_000, 20_000)] * 2


@pytest.mark.parametrize(
    ("lengths", "inside"),
    [
        ([2, None, 9, 1], [(2, 12, 8), (3, 18, 1)]),
        ([30, 1, None, 9], [(0, 10, 10), (2, 12, None), (3, 18, 2)]),
    ],
)
def test_rows_side_by_side_are_cut_as_others(
    lengths: list[int | None], inside: list[tuple[int | None, ...]]
) -> None:
    frame = pl.DataFrame({"row": range(4), "start_ns": [0, 5, 12, 18], "dur_ns": lengths})
    assert window._cut(frame, 10, 20).rows() == inside


def test_frames_hold_the_time_of_what_they_called() -> None:
    stacks = pl.DataFrame({"stack": ["main;f", "main;g;f", "main"], "value_ns": [5, 7, 1]})
    (icicle,) = _figure(stacks, "op", "self_cpu", "operators").traces
    assert icicle["labels"] == ["all", "main", "f", "g", "f"]
    assert icicle["parents"] == ["", "all", "0", "0", "2"]
    assert icicle["values"] == [13, 13, 5, 7, 7]


def test_a_module_is_as_wide_as_what_is_inside_it() -> None:
    assert _nested([-1, 0, 0], [10, 8, 5]) == [13, 8, 5]
    assert _nested([-1, 0, 1], [10, 8, 5]) == [10, 8, 5]


def test_the_timeline_of_a_large_trace_has_the_threads_of_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = trace_of(tmp_path, steps=5)
    whole = ks.report.views(trace)["trace"].payload()["parts"]
    monkeypatch.setattr(window, "MOST_EVENTS", 4)
    monkeypatch.setattr(timeline, "_MOST_EVENTS", 4)
    shown, note = ks.report.views(trace)["trace"].payload()["parts"]
    assert [part["kind"] for part in whole] == ["timeline"]
    assert [track["label"] for track in shown["tracks"]] == [t["label"] for t in whole[0]["tracks"]]
    assert [len(level["track"]) for level in shown["levels"]] == [5, 5, 4]
    assert [len(level["track"]) for level in whole[0]["levels"]] == [20, 20, 4]
    assert "threads are shown in step" in note["text"]


def test_levels_of_detail_keep_times_and_names(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, steps=2)
    (shown,) = ks.report.views(trace)["trace"].payload()["parts"]
    level = shown["levels"][0]
    starts, at = [], 0
    for step in level["start_steps"]:
        at += step
        starts.append(at)
    names = [shown["names"][name] for name in level["name"]]
    found = sorted(zip(names, starts, level["length"]))
    assert ("aten::mm", 10_000, 100_000) in found
    assert ("gemm", 1_200_000, 301_000) in found
    assert len(found) == 8
