"""Several ranks in one file: each as it was, on one clock, and as Perfetto's own processor reads it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kernelscope as ks
from demo_jobs import read_job, write_job
from events import Events
from kernelscope import _traceparse, analysis
from kernelscope.cli import main
from kernelscope.errors import InvalidArgumentError
from kernelscope.report.perfetto.added_events import CATEGORY
from kernelscope.report.perfetto.path_events import TRACK
from round_trips import comparable
from trace_processor import processing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RECORDED = Path(__file__).resolve().parents[1] / "recorded/gloo"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> list[ks.Trace]:
    """Sixteen ranks of two hosts, with clocks that differ."""
    return read_job(tmp_path_factory.mktemp("job"), ranks=16, size_bytes=500_000, seed=4)


def nanoseconds(microseconds: Any) -> int:
    return round(float(microseconds) * 1000)


def slices(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events that Perfetto shows as slices; of the path, each start with its duration."""
    path = [event for event in events if event["ph"] in "BE"]
    times = [nanoseconds(event["ts"]) for event in path]
    durations = [end - start for start, end in zip(times[::2], times[1::2], strict=True)]
    found = [{**start, "dur": by / 1000} for start, by in zip(path[::2], durations, strict=True)]
    return [event for event in events if event["ph"] in "Xi"] + found


def merged(source: Any, out: Path) -> list[dict[str, Any]]:
    ks.convert(source, "perfetto", out)
    text = gzip.decompress(out.read_bytes()) if out.suffix == ".gz" else out.read_bytes()
    return json.loads(text, parse_float=str)["traceEvents"]


def assert_same_apart_from_place(trace: ks.Trace, other: ks.Trace) -> None:
    """Compares a rank with what it was written from: times differ by one shift, ids of arrows by another."""
    ours, theirs = comparable(trace), comparable(other)
    moved: set[tuple[str, int]] = set()
    for name, frame in ours.items():
        # Tracks of added events, and names with the rank; process groups are in the file's head, of one rank.
        if name in ("threads", "metadata", "process_groups"):
            continue
        found = theirs[name]
        changing = [of for of in ("start_ns", "host_start_ns", "id") if of in frame.columns]
        for column in changing:
            kind = column.removeprefix("host_")
            moved.update((kind, by) for by in (found[column] - frame[column]).drop_nulls().unique())
        of_head = "^(process_)?group.*$|^rank$|^call_row$" if name == "collectives" else "^$"
        assert_frame_equal(*(of.drop(changing).select(pl.exclude(of_head)) for of in (frame, found)))
    assert len(moved) == len({kind for kind, _ in moved})


def test_each_rank_is_read_again_as_it_was(job: list[ks.Trace], tmp_path: Path) -> None:
    merged(job, tmp_path / "merged.json")
    again = ks.read(tmp_path / "merged.json", strict=True)
    assert [part.meta.rank for part in again.parts] == list(range(16))
    for trace, part in zip(job, again.parts, strict=True):
        assert_same_apart_from_place(trace, part)
    events = sum(trace.meta.kept for trace in job)
    added = again.diagnostics.filter(code="unranked_event")["count"].item()
    assert again.meta.kept > events + added


def test_all_ranks_are_on_one_clock(job: list[ks.Trace], tmp_path: Path) -> None:
    assert analysis.clock_offsets(job)["offset_ns"].abs().max() > 1_000_000
    merged(job, tmp_path / "merged.json")
    again = analysis.clock_offsets(ks.read(tmp_path / "merged.json"))
    assert again["offset_ns"].abs().max() < 100


def test_arrows_stay_in_their_rank(job: list[ks.Trace], tmp_path: Path) -> None:
    events = merged(job, tmp_path / "merged.json")
    ends = [event for event in events if event["ph"] in "sf" and event["name"] != "critical path"]
    assert len(ends) > 1_000
    ranks: dict[tuple[str, str, int], set[str]] = {}
    for event in ends:
        ranks.setdefault((event["cat"], event["name"], event["id"]), set()).add(event["pid"].split("]")[0])
    assert {len(found) for found in ranks.values()} == {1}


def test_the_path_leads_through_all_ranks(job: list[ks.Trace], tmp_path: Path) -> None:
    events = merged(job, tmp_path / "merged.json")
    found = [event for event in events if event.get("pid") == TRACK]
    path = analysis.critical_path(job)
    ranks = {name.split(":")[0] for name in (event["name"] for event in found)}
    assert ranks == {f"rank {rank}" for rank in path["rank"].unique()}
    assert sum(event["args"]["segments"] for event in found[::2]) == path.height
    assert nanoseconds(found[0]["ts"]) == path["start_ns"][0]
    assert nanoseconds(found[-1]["ts"]) == path["start_ns"][-1] + path["dur_ns"][-1]
    arrows = [event for event in events if event["name"] == "critical path" and event["ph"] in "sf"]
    assert {event["cat"] for event in arrows} == {CATEGORY}
    # Both ends are inside an event of the rank.
    inside = {event["pid"] for event in events if event["ph"] == "X"}
    assert {event["pid"] for event in arrows} <= inside


def test_a_lake_is_merged_as_its_traces(tmp_path: Path) -> None:
    paths = write_job(tmp_path / "job", ranks=3, size_bytes=500_000)
    ks.batch.run(tmp_path / "job", tmp_path / "lake")
    expected = merged([ks.read(path) for path in paths], tmp_path / "merged.json")
    assert merged(ks.scan(tmp_path / "lake"), tmp_path / "lake.json.gz") == expected


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_recorded_job_is_merged(kind: str, tmp_path: Path) -> None:
    traces = [ks.read(path) for path in sorted(RECORDED.glob(f"{kind}-*.json.gz"))]
    assert len(traces) == 2
    merged(traces, tmp_path / "merged.json")
    for trace, part in zip(traces, ks.read(tmp_path / "merged.json").parts, strict=True):
        assert_same_apart_from_place(trace, part)


def test_databases_are_merged(tmp_path: Path) -> None:
    paths = [tmp_path / f"rank{rank}.sqlite" for rank in range(2)]
    for seed, path in enumerate(paths):
        _traceparse.write_demo_database(path, kind="nsys", size_bytes=1_000_000, ranks=1, seed=seed)
    traces = [ks.read(path) for path in paths]
    events = merged(traces, tmp_path / "merged.json")
    for rank, trace in enumerate(traces):
        own = [event for event in events if str(event.get("pid")).startswith(f"[rank {rank}] ")]
        names = [event["name"] for event in own if event.get("cat") == "kernel"]
        kernels = trace.gpu_ops.filter(pl.col("kind").cast(pl.String) == "kernel")
        assert sorted(names) == sorted(kernels["name"].cast(pl.String))


def test_ranks_without_events_have_no_path(tmp_path: Path) -> None:
    paths = [tmp_path / f"rank{rank}.json" for rank in range(2)]
    traces = [ks.read(Events().write(path)) for path in paths]
    assert merged(traces, tmp_path / "merged.json") == []


def test_the_command_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [path.name for path in write_job(tmp_path, ranks=2, size_bytes=200_000)]
    assert main(["convert", *paths, "--merge", "--to", "perfetto"]) == 0
    assert capsys.readouterr().out == "merged.perfetto.json\n"
    assert [part.meta.rank for part in ks.read("merged.perfetto.json").parts] == [0, 1]
    assert main(["convert", "merged.perfetto.json", "--merge", "--to", "perfetto", "--out", "b.json.gz"]) == 0
    for arguments, message in (
        ([*paths, "--to", "perfetto"], "with --merge"),
        ([*paths, "--merge", "--to", "folded"], "pass --to perfetto"),
        ([paths[0], paths[0], "--merge", "--to", "perfetto"], "both of rank 0"),
    ):
        assert main(["convert", *arguments]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(InvalidArgumentError, match="perfetto alone, not arrow"):
        ks.convert([ks.read(path) for path in paths], ["arrow", "perfetto"], tmp_path / "out")


SLICES = "select slice.name, ts, dur from slice"
NAMES = (
    "select process.name, slice.name, count(*) from slice"
    " join thread_track on slice.track_id = thread_track.id"
    " join thread using (utid) join process using (upid) group by 1, 2"
)
FAULTS = "select name, value from stats where value > 0 and severity != 'info'"


def test_perfetto_loses_no_event(job: list[ks.Trace], tmp_path: Path, browser: Browser) -> None:
    """Every event is a slice of its process, and every recorded pair of ends a flow."""
    out = tmp_path / "merged.json"
    events = merged(job, out)
    shown = slices(events)
    begun = {(event["cat"], event["id"]) for event in events if event["ph"] == "s"}
    flows = [event for event in events if event["ph"] == "f" and (event["cat"], event["id"]) in begun]
    with processing(browser, out) as processor:
        assert processor.rows(FAULTS) == []
        assert processor.rows("select count(*) from flow") == [(len(flows),)]
        found, of_threads = processor.rows(SLICES), processor.rows(NAMES)
    times = [(event["name"], nanoseconds(event["ts"]), nanoseconds(event.get("dur", 0))) for event in shown]
    # It reads microseconds as floats.
    for ours, theirs in zip(sorted(times), sorted(found), strict=True):
        assert ours[0] == theirs[0]
        assert ours[1:] == pytest.approx(theirs[1:], abs=1, rel=0)
    on_threads = [event for event in shown if event.get("s", "t") == "t"]
    names = Counter((str(event["pid"]), event["name"]) for event in on_threads)
    assert {(process, name): count for process, name, count in of_threads} == names


def test_a_protobuf_has_the_same_events(job: list[ks.Trace], tmp_path: Path, browser: Browser) -> None:
    events = merged(job, tmp_path / "merged.json")
    shown = slices(events)
    times = [(event["name"], nanoseconds(event["ts"]), nanoseconds(event.get("dur", 0))) for event in shown]
    numbers = ("select count(*) from flow", "select count(*), sum(value) from counter")
    with processing(browser, tmp_path / "merged.json") as processor:
        expected = [processor.rows(sql) for sql in numbers]
    ks.convert(job, "perfetto", tmp_path / "merged.pftrace.gz")
    with processing(browser, tmp_path / "merged.pftrace.gz") as processor:
        assert processor.rows(FAULTS) == []
        assert sorted(processor.rows(SLICES)) == sorted(times)
        assert [processor.rows(sql) for sql in numbers] == expected
        names = {process for process, *_ in processor.rows(NAMES)}
        numbered = processor.rows("select upid, pid from process where pid != 0")
    for trace in job:
        assert {f"rank {trace.meta.rank}: python3 (CPU)"} <= names
    assert len({pid for _, pid in numbered}) == len(numbered)


@pytest.mark.parametrize("kind", ["native", "nsys"])
def test_a_protobuf_has_the_same_arguments(kind: str, tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "demo.sqlite"
    if kind == "nsys":
        _traceparse.write_demo_database(path, kind=kind, size_bytes=1_000_000, ranks=1, seed=1)
    else:
        (path,) = write_job(tmp_path, size_bytes=500_000)
    found = []
    for out in (tmp_path / "out.json", tmp_path / "out.pftrace"):
        ks.convert(ks.read(path), "perfetto", out)
        with processing(browser, out) as processor:
            assert processor.rows(FAULTS) == []
            rows = processor.rows(
                "select name, dur, category, flat_key, display_value from slice"
                " left join args using (arg_set_id)"
            )
        # Keys have another prefix and no dots; numbers may be floats.
        shown = [
            (*of, (key or "").partition(".")[2].replace(".", "_"), (value or "").removesuffix(".0"))
            for *of, key, value in rows
        ]
        found.append(Counter(row for row in shown if row[-2] != "Comms Id"))
    assert found[0] == found[1]


@pytest.mark.parametrize("suffix", ["json", "pftrace"])
def test_perfetto_shows_a_path_of_times_since_1970(suffix: str, tmp_path: Path, browser: Browser) -> None:
    """Times of JSON are then rounded to 256 ns."""
    events, epoch_us = Events(), 1_700_000_000_000_000
    for number in range(1, 200):
        at = epoch_us + number * 50.003
        events.op("aten::mm", at, 20.001)
        events.call(at + 5, 5, number)
        events.kernel("gemm", at + 30.001, 10.001, number)
    trace = ks.read(events.write(tmp_path / "trace.json"))
    out = tmp_path / f"out.{suffix}"
    ks.convert(trace, "perfetto", out)
    with processing(browser, out) as processor:
        assert processor.rows(FAULTS) == []
        parts = processor.rows(
            "select count(*), sum(dur) from slice join thread_track on slice.track_id = thread_track.id"
            f" join thread using (utid) where thread.name = '{TRACK}'"
        )
    path = analysis.critical_path(trace)
    reasons = path.select(pl.col("bound_by").rle_id().n_unique()).item()
    assert parts[0][0] == reasons
    assert parts[0][1] == pytest.approx(path["dur_ns"].sum(), abs=0 if suffix == "pftrace" else 512)
