"""What a screen shows of a trace: nothing lost, nothing more than fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from events import Events

from kernelscope import analysis
from kernelscope.analysis.timeline import TimelineView
from kernelscope.errors import InvalidArgumentError


@pytest.fixture
def trace(tmp_path: Path) -> Any:
    """A step of 100 us with nested operators, three short kernels and a long one."""
    e = Events()
    e.annotation("ProfilerStep#1", 0, 100)
    e.op("aten::linear", 10, 50)
    e.op("aten::addmm", 20, 30)
    e.call(22, 5, 1)
    e.op("aten::relu", 5, 90, tid=8)
    for start in (40, 41.5, 42.5):
        e.kernel("short", start, 1, 1)
    e.kernel("other", 43.5, 0.4, 1)
    e.kernel("long", 50, 30, 1)
    e.kernel("late", 60, 5, 1, stream=9)
    return e.read(tmp_path)


def shown(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return frame.select(columns).rows()


def test_wide_events_stand_alone_and_narrow_ones_are_summed_up(trace: Any) -> None:
    # A pixel is 10 us wide.
    stream = analysis.timeline(trace, pixels=10).filter(label="GPU 0 stream 7")
    assert shown(stream, "start_ns", "end_ns", "busy_ns", "events", "name", "name_ns") == [
        (40_000, 43_900, 3_400, 4, "short", 3_000),
        (50_000, 80_000, 30_000, 1, "long", 30_000),
    ]
    assert stream["busy_share"].to_list() == [3_400 / 3_900, 1.0]
    assert shown(stream, "longest_name", "longest_ns") == [("short", 1_000), ("long", 30_000)]
    by_row = dict(trace.gpu_ops.select("row", pl.col("name").cast(pl.String)).rows())
    assert [by_row[row] for row in stream["row"]] == stream["name"].to_list()


def test_tracks_and_lanes(trace: Any) -> None:
    frame = analysis.timeline(trace, pixels=1000)
    tracks = frame.unique("track", keep="first", maintain_order=True)
    assert shown(tracks, "track", "track_kind", "label", "device", "stream", "tid") == [
        (0, "stream", "GPU 0 stream 7", 0, 7, None),
        (1, "stream", "GPU 0 stream 9", 0, 9, None),
        (2, "thread", "thread 7", None, None, 7),
        (3, "thread", "thread 8", None, None, 8),
    ]
    main = frame.filter(tid=7)
    assert shown(main, "lane", "name", "category") == [
        (0, "ProfilerStep#1", "annotation"),
        (1, "aten::linear", "operator"),
        (2, "aten::addmm", "operator"),
        (3, "cudaLaunchKernel", "launch"),
    ]


def test_zoom_keeps_lanes_and_the_true_extent_of_wide_events(trace: Any) -> None:
    view = TimelineView(trace)
    zoomed = view.show(start_ns=41_000, end_ns=45_000, pixels=4)
    assert shown(zoomed.filter(track_kind="thread"), "lane", "name", "start_ns", "end_ns") == [
        (0, "ProfilerStep#1", 0, 100_000),
        (1, "aten::linear", 10_000, 60_000),
        (2, "aten::addmm", 20_000, 50_000),
        (0, "aten::relu", 5_000, 95_000),
    ]
    stream = zoomed.filter(track_kind="stream")
    assert shown(stream, "name", "start_ns", "end_ns") == [
        ("short", 41_500, 42_500),
        ("short", 42_500, 43_500),
        ("other", 43_500, 43_900),
    ]
    assert view.show(start_ns=500_000, end_ns=600_000).is_empty()
    assert view.show(pixels=10).equals(analysis.timeline(trace, pixels=10))


def test_traces_with_one_event_or_none(tmp_path: Path) -> None:
    nothing = analysis.timeline(Events().read(tmp_path))
    assert nothing.is_empty()
    e = Events()
    e.op("<script>\n\u202e", 5, 0)
    frame = analysis.timeline(e.read(tmp_path))
    assert shown(frame, "name", "events", "busy_ns", "busy_share") == [("<script>\n\u202e", 1, 0, None)]
    assert frame.schema == nothing.schema


def test_python_frames_are_tracks_of_their_own(tmp_path: Path) -> None:
    e = Events()
    e.op("aten::mm", 10, 5)
    e.add("python_function", "train.py(3): step", 0, 50, args={"Python id": 1})
    trace = e.read(tmp_path)
    frame = analysis.timeline(trace, kinds=("thread", "python"))
    assert shown(frame, "track_kind", "lane", "name") == [
        ("thread", 0, "aten::mm"),
        ("python", 0, "train.py(3): step"),
    ]
    assert analysis.timeline(trace)["track_kind"].to_list() == ["thread"]


@pytest.mark.parametrize(
    "wrong",
    [{"pixels": 0}, {"pixels": 1 << 21}, {"start_ns": 5, "end_ns": 5}, {"kinds": ("cpu",)}, {"kinds": ()}],
    ids=str,
)
def test_nonsense_is_refused(trace: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        analysis.timeline(trace, **wrong)
