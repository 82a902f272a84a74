"""The critical path in a file for Perfetto: a track that fills the trace, and arrows between its events."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from demo_jobs import read_job
from kernelscope import _traceparse, analysis
from kernelscope.report.conversion import convert
from kernelscope.report.perfetto.path_events import TRACK
from round_trips import differences


def nanoseconds(microseconds: Any) -> int:
    return round(float(microseconds) * 1000)


def converted(trace: ks.Trace, out: Path) -> list[dict[str, Any]]:
    convert(trace, "perfetto", out)
    return json.loads(out.read_text(), parse_float=str, parse_int=str)["traceEvents"]


@pytest.fixture(params=["kineto", "nsys"])
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> ks.Trace:
    if request.param == "nsys":
        path = tmp_path / "demo.sqlite"
        _traceparse.write_demo_database(path, kind="nsys", size_bytes=1_000_000, ranks=1, seed=1)
        return ks.read(path)
    return read_job(tmp_path, ranks=2, size_bytes=500_000)[0]


def test_the_path_fills_its_track(trace: ks.Trace, tmp_path: Path) -> None:
    events = converted(trace, tmp_path / "out.json")
    found = [event for event in events if event.get("pid") == TRACK]
    starts, ends = found[::2], found[1::2]
    assert [event["ph"] for event in found] == ["B", "E"] * len(starts)
    path = analysis.critical_path(trace)
    names, reached = [event["name"] for event in starts], path["start_ns"][0]
    assert all(name != other for name, other in itertools.pairwise(names))
    assert sum(int(event["args"]["segments"]) for event in starts) == path.height
    for start, end in zip(starts, ends, strict=True):
        assert (nanoseconds(start["ts"]), start["name"]) == (reached, end["name"])
        reached = nanoseconds(end["ts"])
        inside = path.filter(pl.col("start_ns").is_between(nanoseconds(start["ts"]), reached - 1))
        assert inside["bound_by"].unique().to_list() == [start["name"]]
    assert reached == path["start_ns"][-1] + path["dur_ns"][-1]
    if trace.meta.format == "kineto":
        assert differences(trace, ks.read(tmp_path / "out.json", strict=True)) == []


def test_arrows_lead_from_event_to_event(trace: ks.Trace, tmp_path: Path) -> None:
    events = converted(trace, tmp_path / "out.json")
    slices = [
        (event["pid"], event["tid"], nanoseconds(event["ts"]), nanoseconds(event["dur"]))
        for event in events
        if event["ph"] == "X" and event.get("pid") != TRACK
    ]
    arrows = [event for event in events if event["name"] == "critical path"]
    starts, ends = ({event["id"]: event for event in arrows if event["ph"] == phase} for phase in "sf")
    assert starts.keys() == ends.keys()
    assert starts
    others = {event["id"] for event in events if event["ph"] in "sf" and event["name"] != "critical path"}
    assert others.isdisjoint(starts)
    for arrow in arrows:
        at = nanoseconds(arrow["ts"])
        assert any(
            (arrow["pid"], arrow["tid"]) == (pid, tid) and start <= at <= start + length
            for pid, tid, start, length in slices
        ), arrow
    for number, start in starts.items():
        assert (start["pid"], start["tid"]) != (ends[number]["pid"], ends[number]["tid"])


def test_without_events_there_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')
    assert converted(ks.read(tmp_path / "empty.json"), tmp_path / "out.json") == []
