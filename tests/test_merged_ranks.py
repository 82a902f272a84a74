"""Files into which several ranks were merged: every answer is that of the rank alone."""

from __future__ import annotations

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kernelscope as ks
from events import Events
from kernelscope.check import check
from kernelscope.cli.main import main
from kernelscope.report import render
from kernelscope.schema import TABLES

_LABELS = ("TP00-DP00", "TP01-DP01", "TP00-DP02")


def one(rank: int) -> Events:
    """What a rank records: its ids, its GPU and its step are those of every other."""
    events = Events()
    events.annotation("ProfilerStep#1", 1, 2000)
    for number in range(1, 5):
        events.op("aten::mm", 100 * number, 40)
        events.call(100 * number + 10, 5, number)
        late = 20 * rank if number == 4 else 0
        collective = {
            "Collective name": "allreduce",
            "Process Group Name": "0",
            "Process Group Ranks": "[0, 1, 2]",
            "Group size": 3,
            "In msg nelems": 1024,
            "dtype": "Float",
        }
        args = collective if number == 4 else {}
        name = "ncclDevKernel_AllReduce" if number == 4 else "gemm"
        events.kernel(name, 100 * number + 20 + late, 60 + 10 * rank - late, number, **args)
    return events


@pytest.fixture
def alone(tmp_path: Path) -> list[ks.Trace]:
    """The traces of three ranks, each from a file of its own."""
    return [
        ks.read(one(rank).write(tmp_path / f"rank{rank}.json", distributedInfo={"rank": rank}))
        for rank in range(3)
    ]


def merged(ranks: list[Events]) -> Events:
    """The events of ranks in one file, as SGLang merges them."""
    whole = Events()
    whole.events = [
        {**event, "pid": f"[{label}] {event['pid']}"}
        for label, rank in zip(_LABELS, ranks, strict=True)
        for event in copy.deepcopy(rank.events)
    ]
    whole.devices *= len(ranks)
    return whole


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """One file of the same ranks."""
    return merged([one(rank) for rank in range(3)]).write(tmp_path / "merged" / "merged-server.trace.json")


def unlike(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame without what the place in a file decides."""
    places = [
        name for name in frame.columns if name == "row" or name.endswith("_row") or name in ("rank", "path")
    ]
    return frame.drop(places)


def test_the_whole_has_a_column_of_ranks(path: Path, alone: list[ks.Trace]) -> None:
    trace = ks.read(path)
    assert list(trace.meta.ranks) == [0, 1, 2]
    assert trace.meta.ranks[1] == {"label": "TP01-DP01", "tp": 1, "dp": 1}
    assert trace.meta.rank is None
    assert (trace.meta.seen, trace.meta.kept) == (
        sum(t.meta.seen for t in alone),
        sum(t.meta.kept for t in alone),
    )
    assert repr(trace).split("\n")[0].endswith("ranks 0, 1, 2, 2.000 ms)")
    for name, frame in trace.tables.items():
        if name not in ("collectives", "diagnostics"):
            assert set(frame.columns) == {"rank", *(column.name for column in TABLES[name].columns)}
    # Each row is linked to rows of its own rank, and each number of a track is of one.
    calls = trace.gpu_ops.join(trace.launches, left_on="launch_row", right_on="row", suffix="_of_call")
    assert calls.height == trace.gpu_ops.height == 12
    assert calls["rank"].equals(calls["rank_of_call"])
    assert trace.threads["track"].is_unique().all()
    threads = trace.ops.join(trace.threads, on="track", suffix="_of_thread")
    assert threads["rank"].equals(threads["rank_of_thread"])
    assert set(trace.ops["pid"]) == {7}
    assert trace.ops["row"].is_sorted()


def test_threads_that_call_autograd_are_of_their_rank(tmp_path: Path) -> None:
    rank = Events()
    rank.annotation("ProfilerStep#1", 0, 200)
    rank.differentiated((10, 20), (60, 100))
    trace = merged([rank] * 3).read(tmp_path)
    called = trace.ops.drop_nulls("caller_track")
    assert called["rank"].to_list() == [0, 1, 2]
    callers = called.join(trace.threads, left_on="caller_track", right_on="track", suffix="_of_caller")
    assert callers["rank"].equals(callers["rank_of_caller"])


@pytest.mark.parametrize("rank", range(3))
def test_a_rank_is_as_if_alone(path: Path, alone: list[ks.Trace], rank: int) -> None:
    whole = ks.read(path)
    chosen = ks.read(path, rank=rank)
    assert chosen.meta.rank == rank
    for name, expected in alone[rank].tables.items():
        for trace in (chosen, whole.of_rank(rank)):
            if name != "diagnostics":
                assert_frame_equal(unlike(trace.tables[name]), unlike(expected))
    assert chosen.diagnostics.filter(code="filtered")["count"].to_list() == [2 * 13]
    assert all(not verdict.faults for verdict in check(whole))


def test_questions_are_answered_for_each_rank(path: Path, alone: list[ks.Trace]) -> None:
    trace = ks.read(path)
    for question in (
        ks.analysis.gpu_summary,
        ks.analysis.op_table,
        ks.analysis.step_breakdown,
        ks.analysis.kernel_table,
    ):
        found = question(trace)
        assert found.columns[0] == "rank"
        for rank, expected in enumerate(map(question, alone)):
            assert_frame_equal(unlike(found.filter(rank=rank)), unlike(expected))
    assert ks.analysis.gpu_summary(trace)["busy_ns"].to_list() == [
        240_000,
        280_000 - 20_000,
        320_000 - 40_000,
    ]


def test_ranks_are_compared_with_one_another(path: Path, alone: list[ks.Trace]) -> None:
    trace = ks.read(path)
    for question in (ks.analysis.communication, ks.analysis.rank_steps, ks.analysis.stragglers):
        assert_frame_equal(question(trace), question(alone))
        assert_frame_equal(question([trace]), question(alone))
    instances = ks.analysis.collective_instances(trace)
    assert_frame_equal(instances, ks.analysis.collective_instances(alone))
    assert instances["ranks_seen"].to_list() == [3]


def test_places_in_parallelism_group_ranks(path: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        ks.batch.run(path.parent, tmp_path / "lake", executor=executor)
    lake = ks.scan(tmp_path / "lake")
    assert lake.ranks.select("rank", "tp", "dp", "pp").sort("rank").collect().rows() == [
        (0, 0, 0, None),
        (1, 1, 1, None),
        (2, 0, 2, None),
    ]
    for source in (ks.read(path), lake):
        works = ks.analysis.table_quantiles(source, by="tp").select("tp", "count").sort("tp")
        assert works.rows() == [(0, 8), (1, 4)]
        steps = ks.analysis.rank_quantiles(source, by="tp").filter(part="total_ns").select("tp", "count")
        assert steps.rows() == [(0, 2), (1, 1)]


def test_what_is_about_one_rank_asks_which(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = ks.read(path)
    with pytest.raises(
        ks.errors.InvalidArgumentError, match="several ranks are merged into perfetto alone, not folded"
    ):
        ks.convert(trace, "folded", tmp_path / "out")
    with pytest.raises(ks.errors.InvalidArgumentError, match="no event belongs to rank 3; there are 0, 1, 2"):
        trace.of_rank(3)
    with pytest.raises(ks.errors.InvalidArgumentError, match="no event belongs to rank 3; there are 0, 1, 2"):
        ks.read(path, rank=3)
    assert main(["roofline", str(path)]) == 2
    assert "Choose one with --rank: 0 (TP00-DP00), 1 (TP01-DP01)" in capsys.readouterr().err
    assert main(["roofline", str(path), "--rank", "1"]) == 0


def test_reports_are_of_each_rank(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(path)]) == 0
    text = capsys.readouterr().out
    assert [line.split(maxsplit=1)[1] for line in text.split("\n") if line.startswith("  rank ")] == [
        f"{rank} ({label}), one of 3 in the file" for rank, label in enumerate(_LABELS)
    ]
    assert main(["analyze", str(path), "--rank", "2"]) == 0
    steps = [line for line in capsys.readouterr().out.split("\n") if line.startswith("Step 1:")]
    assert [line for line in text.split("\n") if line.startswith("Step 1:")][2:] == steps
    assert main(["info", str(path), "--check"]) == 0
    info = capsys.readouterr().out
    assert "0 (TP00-DP00), 1 (TP01-DP01), 2 (TP00-DP02), merged into the file" in info
    assert "3 ranks: 1 x Tesla V100" in info

    trace = ks.read(path)
    render(trace, format="json", out=tmp_path / "report.json")
    document: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    assert [rank["trace"]["rank"] for rank in document["ranks"]] == [0, 1, 2]
    render(trace, format="csv", out=tmp_path / "csv")
    render(trace, format="html", out=tmp_path / "report.html")
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == ["rank0", "rank1", "rank2"]
    assert sorted(path.name for path in tmp_path.glob("*.html")) == [
        f"report.rank{rank}.html" for rank in range(3)
    ]


def test_a_batch_takes_the_file_as_its_ranks(path: Path, alone: list[ks.Trace], tmp_path: Path) -> None:
    for _ in range(2):
        with ThreadPoolExecutor(1) as executor:
            report = ks.batch.run(path.parent, tmp_path / "lake", executor=executor)
        assert report.done + report.unchanged == 3
    assert report.unchanged == 3
    lake = ks.scan(tmp_path / "lake")
    for rank, expected in enumerate(alone):
        found = lake.trace(rank=rank)
        assert_frame_equal(unlike(found.gpu_ops), unlike(expected.gpu_ops))
        assert_frame_equal(unlike(found.steps), unlike(expected.steps))
    assert_frame_equal(ks.analysis.communication(lake), ks.analysis.communication(alone))
