"""Every view says whether a trace has anything for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from events import Events

from kernelscope import analysis
from kernelscope.analysis.missing_views import VIEWS

if TYPE_CHECKING:
    from pathlib import Path


def test_an_empty_trace_misses_every_view_but_links(tmp_path: Path) -> None:
    events = Events({"id": 0})
    events.events.append({"ph": "i", "name": "start", "ts": 1, "pid": 1, "tid": 1, "s": "t"})
    missing = analysis.missing(events.read(tmp_path))
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
    missing = set(analysis.missing(events.read(tmp_path))["view"])
    shown = {"steps", "operators", "input_shapes", "kernels", "launch_sizes", "gpu_limits", "links", "memory"}
    assert not missing & (shown | {"roofline", "phases"})
    assert {"python", "modules", "memory_lifetimes", "ranges", "communication"} <= missing


def test_kernels_without_operators_miss_their_links(tmp_path: Path) -> None:
    events = Events()
    events.kernel("sgemm", 20, 5, 1)
    missing = analysis.missing(events.read(tmp_path))
    assert {"operators", "links"} <= set(missing["view"])
    remedy = dict(missing.select("view", "remedy").iter_rows())["links"]
    assert "ProfilerActivity.CPU" in remedy
