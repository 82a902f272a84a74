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
    assert sum(event["args"]["segments"] for event in found) == path.height
    assert nanoseconds(found[0]["ts"]) == path["start_ns"][0]
    assert sum(nanoseconds(event["dur"]) for event in found) == path["dur_ns"].sum()
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


def test_perfetto_loses_no_event(job: list[ks.Trace], tmp_path: Path, browser: Browser) -> None:
    """Every event is a slice of its process, and every recorded pair of ends a flow."""
    out = tmp_path / "merged.json"
    events = merged(job, out)
    shown = [event for event in events if event["ph"] in "Xi"]
    begun = {(event["cat"], event["id"]) for event in events if event["ph"] == "s"}
    flows = [event for event in events if event["ph"] == "f" and (event["cat"], event["id"]) in begun]
    with processing(browser, out) as processor:
        assert processor.rows("select name from stats where value > 0 and severity != 'info'") == []
        assert processor.rows("select count(*) from flow") == [(len(flows),)]
        found = processor.rows("select name, ts, dur from slice")
        of_threads = processor.rows(
            "select process.name, slice.name, count(*) from slice"
            " join thread_track on slice.track_id = thread_track.id"
            " join thread using (utid) join process using (upid) group by 1, 2"
        )
    times = [(event["name"], nanoseconds(event["ts"]), nanoseconds(event.get("dur", 0))) for event in shown]
    # It reads microseconds as floats.
    for ours, theirs in zip(sorted(times), sorted(found), strict=True):
        assert ours[0] == theirs[0]
        assert ours[1:] == pytest.approx(theirs[1:], abs=1, rel=0)
    on_threads = [event for event in shown if event["ph"] == "X" or event["s"] == "t"]
    names = Counter((str(event["pid"]), event["name"]) for event in on_threads)
    assert {(process, name): count for process, name, count in of_threads} == names
