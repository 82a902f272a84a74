"""Which run, rank and window each of many traces becomes."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import batch, files_of
from test_foreign_files import InThisThread

import draws
import kernelscope as ks
from events import Events
from kernelscope.batch.jobs import JOB_GAP_NS, arrange
from kernelscope.batch.manifest import Entry, Place
from kernelscope.batch.rank_names import told_by_name, told_by_pattern
from kernelscope.errors import InvalidArgumentError
from nsys_database import Database

Run = Callable[..., subprocess.CompletedProcess[str]]
HOUR = 3600 * 10**9


def trace(
    path: Path,
    *,
    at_s: float = 0,
    steps: range = range(0),
    pid: int = 7,
    rank: int | None = None,
    world_size: int | None = None,
    host: str | None = None,
) -> Path:
    """A trace with a step every 100 us, in each of which the GPU works."""
    events = Events()
    for place, step in enumerate(steps):
        at = at_s * 1e6 + 100 * place
        events.annotation(f"ProfilerStep#{step}", at, 90)
        events.op("aten::add", at + 10, 20)
        events.call(at + 15, 5, 100 + place)
        events.kernel("add", at + 30, 40, 100 + place)
    events.op("aten::mul", at_s * 1e6, 5)
    for event in events.events:
        event["pid"] = pid if event["pid"] == 7 else event["pid"]
    job = {name: value for name, value in (("rank", rank), ("world_size", world_size)) if value is not None}
    properties: dict[str, Any] = {"distributedInfo": job} if job else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    return events.write(
        path, baseTimeNanoseconds=10**18, **properties, **({"host_name": host} if host else {})
    )


def run_batch(folder: Path, lake: Path, **options: Any) -> dict[str, tuple[str, int, int]]:
    """The run, rank and window of each trace by its path in the folder."""
    _, report = batch(folder, lake, executor=InThisThread(), **options)
    assert (report.failed, report.waiting) == (0, 0), report.failures
    rows = ks.scan(lake).manifest.select("source", "run", "rank", "window").iter_rows()
    return {str(Path(source).relative_to(folder)): (run, rank, window) for source, run, rank, window in rows}


def test_files_of_a_process_are_windows_in_order_of_time(tmp_path: Path) -> None:
    for rank in range(2):
        for cycle, first in enumerate((10, 20, 30)):
            # By name, the last one comes first.
            trace(
                tmp_path / f"traces/{9 - cycle}-of-{rank}.json",
                at_s=cycle,
                steps=range(first, first + 2),
                rank=rank,
                world_size=2,
                pid=70 + rank,
            )
    found = run_batch(tmp_path / "traces", tmp_path / "lake")
    expected = {
        f"{9 - cycle}-of-{rank}.json": ("default", rank, cycle) for rank in (0, 1) for cycle in range(3)
    }
    assert found == expected
    lake = ks.scan(tmp_path / "lake")
    steps = lake.steps.filter(rank=1).collect().sort("window", "step")
    # Numbers that go on are as they were recorded.
    assert steps.select("window", "step").rows() == [(0, 10), (0, 11), (1, 20), (1, 21), (2, 30), (2, 31)]
    _, report = batch(tmp_path / "traces", tmp_path / "lake", executor=InThisThread())
    assert report.unchanged == 6


def test_steps_that_begin_again_are_numbered_through(tmp_path: Path) -> None:
    for rank, cycles in ((0, (0, 1, 2)), (1, (1, 2))):
        for cycle in cycles:
            path = tmp_path / f"traces/rank{rank}/{cycle}.json"
            trace(path, at_s=cycle, steps=range(3), rank=rank, world_size=2, pid=70 + rank)
    found = run_batch(tmp_path / "traces", tmp_path / "lake")
    # The windows of rank 1 have the numbers of those of rank 0 that were recorded with them.
    assert found["rank1/1.json"] == ("default", 1, 1)
    lake = ks.scan(tmp_path / "lake")
    expected = {0: range(9), 1: range(3, 9)}
    for table in ("steps", "ops", "gpu_ops"):
        frame = lake.tables[table].collect()
        for rank, steps in expected.items():
            numbers = frame.filter(rank=rank)["step"].drop_nulls().unique().sort()
            assert numbers.to_list() == list(steps), table
    # All else is what reading gives.
    alone = ks.read(tmp_path / "traces/rank1/2.json").gpu_ops.with_columns(pl.col("step") + 6)
    there = lake.gpu_ops.filter(rank=1, window=2).collect()
    assert there.drop("run", "rank", "window").equals(alone)
    row = lake.manifest.row(by_predicate=(pl.col("rank") == 1) & (pl.col("window") == 2), named=True)
    assert (row["first_step"], row["last_step"], row["step_offset"]) == (6, 8, 6)
    cluster = ks.analysis.cluster_of(lake)
    assert cluster.ranks["rank"].to_list() == [0, 1]
    assert cluster.steps.select("rank", "step").rows() == [(r, s) for r, ss in expected.items() for s in ss]
    one = ks.analysis.rank_gpu_time(ks.read(tmp_path / "traces/rank0/0.json")).row(0, named=True)
    three = ks.analysis.rank_gpu_time(lake).row(0, named=True)
    assert three["compute_ns"] == 3 * one["compute_ns"]


def test_a_new_window_takes_its_place(tmp_path: Path) -> None:
    """A window that comes later may have been recorded earlier; what is in the lake makes room."""
    for cycle in (2, 0, 1):
        trace(tmp_path / f"traces/{cycle}.json", at_s=cycle, steps=range(2), rank=0, world_size=1)
        found = run_batch(tmp_path / "traces", tmp_path / "lake")
    assert found == {f"{cycle}.json": ("default", 0, cycle) for cycle in range(3)}
    trace(tmp_path / "all/0.json", at_s=0, steps=range(2), rank=0, world_size=1)
    steps = ks.scan(tmp_path / "lake").steps.collect().sort("step")
    assert steps.select("step", "window").rows() == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]
    names = {name for name in files_of(tmp_path / "lake") if name.endswith("_entry.json")}
    assert names == {f"run=default/rank=0/window={cycle}/_entry.json" for cycle in range(3)}


def test_what_waits_is_not_read_again(tmp_path: Path) -> None:
    for cycle in range(3):
        trace(tmp_path / f"traces/{cycle}.json", at_s=cycle, steps=range(2), rank=0, world_size=1)

    class StoppedError(Exception):
        pass

    def stop(_: object, report: ks.batch.BatchReport) -> None:
        if report.waiting == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        ks.batch.run(tmp_path / "traces", tmp_path / "lake", executor=InThisThread(), on_rank=stop)
    assert ks.scan(tmp_path / "lake").ranks.collect().height == 1
    found: list[tuple[str, str]] = []
    ks.batch.run(
        tmp_path / "traces",
        tmp_path / "lake",
        executor=InThisThread(),
        on_rank=lambda rank, _: found.append((Path(rank.entry.source).name, rank.status)),
    )
    assert sorted(status for _, status in found[:3]) == ["unchanged", "waiting", "waiting"]
    run_batch(tmp_path / "traces", tmp_path / "undisturbed")
    assert files_of(tmp_path / "lake") == files_of(tmp_path / "undisturbed")


def test_jobs_in_one_folder_are_runs(tmp_path: Path) -> None:
    for rank in range(3):
        trace(tmp_path / f"traces/first-{rank}.json", at_s=rank / 10, rank=rank, world_size=3, pid=10 + rank)
        trace(tmp_path / f"traces/again-{rank}.json", at_s=60 + rank, rank=rank, world_size=3, pid=20 + rank)
    trace(tmp_path / "traces/other.json", at_s=1, rank=1, world_size=2)
    trace(tmp_path / "traces/next-day.json", at_s=86400, rank=0, world_size=2)
    found = run_batch(tmp_path / "traces", tmp_path / "lake")
    assert found == {
        **{f"first-{rank}.json": ("default", rank, 0) for rank in range(3)},
        "other.json": ("default-2", 1, 0),
        **{f"again-{rank}.json": ("default-3", rank, 0) for rank in range(3)},
        "next-day.json": ("default-4", 0, 0),
    }


def test_jobs_of_one_time_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b")):
        for rank in range(2):
            path = tmp_path / f"traces/{name}/rank{rank}.json"
            trace(
                path, at_s=rank + number, steps=range(40_000), rank=rank, world_size=2, pid=10 * number + rank
            )
    found = run_batch(tmp_path / "traces", tmp_path / "lake", run="exp")
    assert found == {
        f"{name}/rank{rank}.json": (run, rank, 0)
        for name, run in (("a", "exp"), ("b", "exp-2"))
        for rank in (0, 1)
    }


def test_nameless_ranks_are_numbered_by_host_and_process(tmp_path: Path) -> None:
    for name, host, pid in (("x", "b", 5), ("y", "a", 9), ("z", "a", 4)):
        trace(tmp_path / f"traces/{name}.json", host=host, pid=pid)
    _, report = batch(tmp_path / "traces", tmp_path / "lake", executor=InThisThread())
    assert [note for note in report.notes if "numbered by host" in note]
    rows = ks.scan(tmp_path / "lake").manifest.select("source", "rank", "rank_from").iter_rows()
    assert {Path(source).name: (rank, origin) for source, rank, origin in rows} == {
        "z.json": (0, "order"),
        "y.json": (1, "order"),
        "x.json": (2, "order"),
    }


@pytest.mark.parametrize(
    ("path", "rank", "origin"),
    [
        ("host1_rank0/trace.json", 0, "folder"),
        ("rank_3/host_12345.1700000000000.pt.trace.json", 3, "folder"),
        ("rank=7/cycle1/trace.json", 7, "folder"),
        ("node2/worker-5/x.sqlite", 5, "folder"),
        ("rank3/rank4.json", 4, "name"),
        ("job.tar::rank12/trace.json.gz", 12, "folder"),
        ("rank5.tar::trace.json.gz", 5, "folder"),
        ("local_rank3/trace.json", None, None),
        ("2024-05-01/trace.json", None, None),
        ("rank99999999999/trace.json", None, None),
    ],
)
def test_ranks_in_names_of_folders(path: str, rank: int | None, origin: str | None) -> None:
    assert told_by_name(path) == (rank, origin, None)


def test_folders_above_the_input_tell_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        trace(tmp_path / f"rank7/traces/{name}/trace.json", pid=ord(name))
    found = run_batch(tmp_path / "rank7/traces", tmp_path / "lake")
    assert sorted(rank for _, rank, _ in found.values()) == [0, 1]


def test_rank_from(tmp_path: Path, cli: Run) -> None:
    for job in ("x1", "x2"):
        for gpu in (3, 4):
            trace(tmp_path / f"traces/{job}/gpu{gpu}/rank0.json", rank=0, world_size=2, at_s=gpu)
    pattern = r"(?P<run>x\d)/gpu(?P<rank>\d+)"
    found = run_batch(tmp_path / "traces", tmp_path / "lake", rank_from=pattern)
    assert found == {f"{job}/gpu{gpu}/rank0.json": (job, gpu, 0) for job in ("x1", "x2") for gpu in (3, 4)}
    manifest = ks.scan(tmp_path / "lake").manifest
    assert manifest["rank_from"].unique().to_list() == ["pattern"]
    # Another pattern reads anew.
    options = ["--rank-from", r"x1/gpu(\d+)", "--no-summary"]
    done = cli("batch", tmp_path / "traces/x1", "--out", tmp_path / "lake", *options)
    assert done.returncode == 0, done.stderr
    assert ks.scan(tmp_path / "lake", run="default").manifest["rank"].to_list() == [3, 4]


@pytest.mark.parametrize("pattern", ["(", r"gpu\d+", "(?=x)(1)", "x" * 2_000, "(a{1000}){1000}"])
def test_a_bad_pattern_is_a_usage_error(tmp_path: Path, cli: Run, pattern: str) -> None:
    trace(tmp_path / "traces/a.json")
    done = cli("batch", tmp_path / "traces", "--out", tmp_path / "lake", "--rank-from", pattern)
    assert done.returncode == 2
    assert done.stderr.startswith("kernelscope: --rank-from")
    assert not (tmp_path / "lake").exists()


def test_a_pattern_takes_time_in_proportion_to_the_name() -> None:
    assert told_by_pattern("(a+)+$", "a" * 50_000 + "b").rank is None
    assert told_by_pattern("rank([0-9]+)", "rank" + "9" * 5_000).rank is None
    assert told_by_pattern("(?P<run>.+)/r([0-9]+)", "../a b/r3") == (3, "pattern", "_._a_b")


def launched(path: Path, *variables: str, pids: tuple[int, ...] = (7,)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = Database(path)
    for number, pid in enumerate(pids):
        database.call(100, 200, correlation=number, pid=pid)
        database.kernel(300, 400, correlation=number, pid=pid)
    for variable in variables:
        database.meta("CAPTURE", **{"PROCESS_0:ENVIRONMENT_VARIABLE": variable})
    database.close()
    return path


@pytest.mark.parametrize(
    ("variables", "pids", "expected"),
    [
        (["RANK=3", "WORLD_SIZE=4", "SLURM_PROCID=1"], (7,), (3, 4, "environment")),
        (["OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=8"], (7,), (2, 8, "environment")),
        (["SLURM_PROCID=5", "SECRET=RANK=9"], (7,), (5, None, "environment")),
        # What starts several processes is none of their ranks.
        (["SLURM_PROCID=5"], (7, 8), (0, None, "order")),
        (["RANK=1", "RANK=2"], (7,), (0, None, "order")),
        (["RANK=99999999999", "RANK_=1", "RANK"], (7,), (0, None, "order")),
    ],
)
def test_the_environment_of_a_database(
    tmp_path: Path, variables: list[str], pids: tuple[int, ...], expected: tuple[int, int | None, str]
) -> None:
    launched(tmp_path / "traces/report.sqlite", *variables, pids=pids)
    run_batch(tmp_path / "traces", tmp_path / "lake")
    manifest = ks.scan(tmp_path / "lake").manifest
    assert manifest.select("rank", "world_size", "rank_from").row(0) == expected
    assert not any(b"SECRET" in content for content in files_of(tmp_path / "lake").values())


def entry(number: int, **known: Any) -> Entry:
    meta = {"seen": number, "pid": 7, "world_size": 8, **known}
    return Entry(
        source=f"/traces/{known.pop('folder', 'x')}/{number:04}.json",
        outcome="done",
        run="default",
        rank=None,
        bytes=1,
        mtime_ns=1,
        fingerprint=str(number),
        version="",
        meta=meta,
        steps=tuple(meta.pop("steps", ())),
        asked_run="default",
    )


ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "told_rank": st.one_of(st.none(), st.integers(0, 3)),
            "pid": st.one_of(st.none(), st.integers(1, 3)),
            "world_size": st.sampled_from([None, 2, 4]),
            "host": st.sampled_from([None, "a", "b"]),
            "start_ns": st.integers(0, 40).map(lambda n: n * JOB_GAP_NS // 4),
            "length": st.sampled_from([0, 1, JOB_GAP_NS // 8, JOB_GAP_NS]),
            "steps": st.lists(st.integers(0, 6), max_size=3, unique=True).map(sorted),
            "folder": st.sampled_from(["p", "q"]),
            "default_group": st.sampled_from([None, "g"]),
            "groups": st.sampled_from([{}, {"1": "u"}, {"1": "v"}]),
        }
    ),
    max_size=14,
)


def entries_of(drawn: list[dict[str, Any]]) -> list[Entry]:
    return [entry(number, **{**d, "end_ns": d["start_ns"] + d["length"]}) for number, d in enumerate(drawn)]


@settings(max_examples=draws.count(300, 6_000))
@given(ENTRIES, st.randoms(use_true_random=False))
def test_laws_of_arrangement(drawn: list[dict[str, Any]], order: random.Random) -> None:
    entries = entries_of(drawn)
    found = arrange(entries, "default", kept=(), taken=(), named={})
    # Every trace has a place of its own, or is a copy of one that has.
    assert {e.key for e in entries} == found.places.keys() | found.copies.keys()
    assert len({place.folder for place in found.places.values()}) == len(found.places)
    assert set(found.copies.values()) <= found.places.keys()
    by_key = {e.key: e for e in entries}
    of_rank: dict[tuple[str, int | None], list[tuple[int, Entry, Place]]] = {}
    for key, place in found.places.items():
        told = by_key[key].meta["told_rank"]
        assert told in (None, place.rank)
        of_rank.setdefault((place.run, place.rank), []).append((place.window, by_key[key], place))
    for windows in of_rank.values():
        windows.sort(key=lambda window: window[0])
        for (_, first, at), (_, second, then) in pairwise(windows):
            # Windows are of one process, and in order of time, and so are their steps.
            assert first.meta["end_ns"] <= second.meta["start_ns"]
            assert first.meta["pid"] == second.meta["pid"] is not None
            assert first.meta["world_size"] == second.meta["world_size"]
            if first.steps and second.steps:
                assert first.steps[-1] + at.step_offset < second.steps[0] + then.step_offset
    # Neither the order nor what was decided before changes anything.
    shuffled = [e.moved(found.places.get(e.key, e.place)) for e in entries]
    shuffled = [replace(e, steps=tuple(step + e.step_offset for step in e.steps)) for e in shuffled]
    order.shuffle(shuffled)
    assert arrange(shuffled, "default", kept=(), taken=(), named={}) == found


def test_names_of_other_runs_are_not_taken() -> None:
    entries = [entry(n, told_rank=0, pid=n, start_ns=n * HOUR, end_ns=n * HOUR + 1) for n in range(3)]
    found = arrange(entries, "default", kept=(), taken={"default-2"}, named={})
    assert sorted(place.run for place in found.places.values()) == ["default", "default-3", "default-4"]


def test_a_job_keeps_its_name_when_an_earlier_one_comes(tmp_path: Path) -> None:
    for hour in (5, 9):
        trace(tmp_path / f"traces/{hour}.json", at_s=3600 * hour, rank=0, world_size=1, pid=hour)
    assert run_batch(tmp_path / "traces", tmp_path / "lake")["9.json"] == ("default-2", 0, 0)
    before = files_of(tmp_path / "lake")
    for hour in (1, 7):
        trace(tmp_path / f"traces/{hour}.json", at_s=3600 * hour, rank=0, world_size=1, pid=hour)
    found = run_batch(tmp_path / "traces", tmp_path / "lake")
    assert {name: run for name, (run, _, _) in found.items()} == {
        "5.json": "default",
        "9.json": "default-2",
        "1.json": "default-3",
        "7.json": "default-4",
    }
    after = files_of(tmp_path / "lake")
    tables = {name for name in before if name.startswith("run=")}
    assert {name: after[name] for name in tables} == {name: before[name] for name in tables}


def test_a_rank_of_another_recorder_joins_the_job_of_its_time() -> None:
    job = [entry(n, told_rank=n, pid=n, start_ns=n, end_ns=HOUR, world_size=4) for n in range(3)]
    database = entry(9, told_rank=3, pid=9, start_ns=5, end_ns=HOUR, world_size=None)
    taken = entry(10, told_rank=2, pid=10, start_ns=5, end_ns=HOUR, world_size=None)
    late = entry(11, told_rank=3, pid=11, start_ns=9 * HOUR, end_ns=9 * HOUR, world_size=None)
    found = arrange([*job, database, taken, late], "default", kept=(), taken=(), named={}).places
    assert found[database.key] == Place("default", 3)
    assert (found[taken.key].run, found[late.key].run) == ("default-2", "default-3")


def test_a_pattern_without_a_group() -> None:
    with pytest.raises(InvalidArgumentError, match="has no group"):
        told_by_pattern("x", "x")
