"""No track of an exported trace has events that overlap without nesting: viewers drop or cut them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import draws
import kernelscope as ks
from events import Events
from kernelscope.report.perfetto.added_events import CATEGORY
from round_trips import differences


def exported(trace: ks.Trace, folder: Path) -> tuple[list[dict[str, Any]], ks.Trace]:
    """The events of the exported trace, and the trace that is read from it."""
    ks.convert(trace, "perfetto", folder / "perfetto.json")
    document = json.loads((folder / "perfetto.json").read_text())
    return document["traceEvents"], ks.read(folder / "perfetto.json")


def crossing(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Tracks and pairs of their events that overlap and do not nest, in whole ns."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start, end = event["ts"], event["ts"] + (event.get("dur") or 0)
            tracks[str(event.get("pid")), str(event.get("tid"))].append(
                (round(start * 1e3), round(end * 1e3))
            )
    found = []
    for track, extents in tracks.items():
        open_ends: list[int] = []
        for start, end in sorted(extents, key=lambda extent: (extent[0], -extent[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends and open_ends[-1] < end:
                found.append((track, start, end))
            open_ends.append(end)
    return found


def told(event: dict[str, Any]) -> str:
    """An event without the track that it is drawn on."""
    args = dict(event.get("args", {}))
    tid = json.dumps(args.pop("recorded tid", event.get("tid")))
    return json.dumps({**event, "args": args, "tid": tid}, sort_keys=True)


_TIMES = {"ts": st.integers(1, 60), "dur": st.integers(0, 30)}
_HOST = st.sampled_from(["cpu_op", "user_annotation", "cuda_runtime", "python_function", "other"])
_HOST_EVENTS = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": _HOST,
        "pid": st.sampled_from([7, "Host"]),
        "tid": st.sampled_from([7, 8, "main"]),
    }
    | _TIMES
)
_GPU = st.sampled_from(["kernel", "gpu_memcpy", "gpu_user_annotation", "cuda_sync"])
_GPU_EVENTS = st.fixed_dictionaries(
    {"ph": st.just("X"), "cat": _GPU, "pid": st.integers(0, 1), "tid": st.integers(0, 8)} | _TIMES
)


@given(st.lists(_HOST_EVENTS | _GPU_EVENTS, max_size=30))
def test_events_of_a_track_nest(drawn: list[dict[str, Any]]) -> None:
    events = Events()
    for number, event in enumerate(drawn):
        on_gpu = {"device": event["pid"], "stream": event["tid"]} if "gpu" in event["cat"] else {}
        on_gpu = on_gpu or (
            {"device": event["pid"], "stream": event["tid"]} if event["cat"] == "kernel" else {}
        )
        events.events.append({**event, "name": f"e{number}", "args": {"number": number, **on_gpu}})
    with TemporaryDirectory() as folder:
        trace = events.read(Path(folder))
        written, again = exported(trace, Path(folder))
        assert crossing(written) == []
        # What was not believed is written as it is.
        differs = [text for text in differences(trace, again) if "recorded_dur_ns" not in text]
        assert differs == []
        recorded = [event for event in written if event.get("cat") != CATEGORY and event["ph"] == "X"]
        assert len(recorded) == len(drawn)
        # Nothing moves without need.
        if not crossing(json.loads("[" + ",".join(map(told, recorded)) + "]")):
            assert not any("recorded tid" in event["args"] for event in recorded)


def test_a_stream_with_overlap_gets_a_second_track(tmp_path: Path) -> None:
    events = Events()
    for number, (start, dur) in enumerate([(100, 100), (150, 0), (180, 100), (260, 40), (500, 50)], 1):
        events.call(10 * number, 5, number)
        events.kernel(f"k{number}", start, dur, number)
        events.events.append(
            {"ph": "s", "id": number, "pid": 7, "tid": 7, "ts": 10 * number, "cat": "ac2g", "name": "ac2g"}
        )
        flow = {
            "ph": "f",
            "id": number,
            "pid": 0,
            "tid": 7,
            "ts": start,
            "cat": "ac2g",
            "name": "ac2g",
            "bp": "e",
        }
        events.events.append(flow)
    trace = events.read(tmp_path)
    written, again = exported(trace, tmp_path)
    assert crossing(written) == []
    assert differences(trace, again) == []
    tracks = {event["name"]: event["tid"] for event in written if event.get("cat") == "kernel"}
    assert tracks == {"k1": 7, "k2": 7, "k3": 8, "k4": 7, "k5": 7}
    # Its arrow goes with it, and who looks at the track sees what it is.
    ends = {event["id"]: event["tid"] for event in written if event["ph"] == "f" and event["name"] == "ac2g"}
    assert ends == {1: 7, 2: 7, 3: 8, 4: 7, 5: 7}
    names = [event["args"]["name"] for event in written if event["ph"] == "M"]
    assert names == ["stream 7 (2)"]
    assert ks.analysis.gpu_summary(again)["busy_ns"].to_list() == [250_000]
    assert again.gpu_ops["stream"].to_list() == [7] * 5


def test_arrows_that_are_added_lead_to_further_tracks(tmp_path: Path) -> None:
    events = Events()
    for number, start in enumerate([100, 150], 1):
        events.call(10 * number, 5, number)
        events.kernel(f"k{number}", start, 100, number)
    written, _ = exported(events.read(tmp_path), tmp_path)
    ends = [event for event in written if event["ph"] == "f"]
    assert [event["tid"] for event in ends if event["name"] == "launch"] == [7, 8]


@pytest.mark.slow
def test_real_traces_nest(shared: Path, tmp_path: Path) -> None:
    paths = sorted((shared / "traces" / "kineto").glob("*.json.gz"))
    for path in draws.some(paths, few=3):
        written, again = exported(ks.read(path), tmp_path)
        assert crossing(written) == [], path
        assert differences(ks.read(path), again) == [], path
