"""Answers about many ranks do not depend on how many calls are in memory at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from many_ranks import BASE_NS
from polars.testing import assert_frame_equal

import draws
from kernelscope import analysis
from kernelscope.analysis.ranks import cluster as clusters
from kernelscope.analysis.ranks import parts
from kernelscope.analysis.ranks.cluster import RANK_SCHEMA, Cluster, Lake, cluster_of
from kernelscope.analysis.ranks.collective_calls import CALL_SCHEMA, COMMUNICATION, SYNCHRONISING, TRANSFERS
from kernelscope.analysis.ranks.parts import LEAST_MEMORY
from kernelscope.analysis.steps.breakdown import CATEGORIES
from kernelscope.schema import TABLES
from kernelscope.trace import DTYPES

QUESTIONS = (
    *("cluster_findings", "stragglers", "communication", "clock_offsets", "collective_instances"),
    *("collective_stragglers", "rank_calls", "rank_steps", "rank_quantiles", "step_pace", "rank_groups"),
    *("parallel_dimensions", "rank_layout"),
)
_STEPS = {"rank": pl.Int64, "step": pl.Int32, "start_ns": pl.Int64, "total_ns": pl.Int64}
STEP_SCHEMA = {
    **_STEPS,
    **dict.fromkeys(CATEGORIES, pl.Int64),
    "is_partial": pl.Boolean,
    "row": pl.UInt32,
    "host_start_ns": pl.Int64,
    "host_dur_ns": pl.Int64,
}


def _empty(table: str) -> pl.LazyFrame:
    columns = {column.name: DTYPES[column.dtype] for column in TABLES[table].columns}
    return pl.LazyFrame(schema={**columns, "rank": pl.Int64, "window": pl.Int64})


class DrawnLake:
    """What a lake keeps of each rank, of calls and steps as rows."""

    def __init__(self, windows: list[dict[str, Any]], calls: list[Any], steps: list[Any]) -> None:
        listed = pl.DataFrame(windows, schema={**RANK_SCHEMA, "window": pl.Int64, "outcome": pl.String})
        calls_schema = {**CALL_SCHEMA, "window": pl.Int64}
        self.tables = {
            COMMUNICATION: pl.DataFrame(calls, schema=calls_schema, orient="row").lazy(),
            "steps": pl.DataFrame(steps, schema={**STEP_SCHEMA, "window": pl.Int64}, orient="row").lazy(),
            **{name: _empty(name) for name in ("ops", "collectives", "process_groups")},
        }
        counted = self.tables[COMMUNICATION].group_by("rank", "window").agg(calls=pl.len().cast(pl.Int64))
        listed = listed.join(counted.collect(), on=["rank", "window"], how="left")
        self.manifest = listed.with_columns(pl.col("calls").fill_null(0))

    def part(self, window: int, ranks: Sequence[int]) -> DrawnLake:
        wanted = pl.col("rank").is_in(list(ranks)) & (pl.col("window") == window)
        some = copy(self)
        some.tables = {name: table.filter(wanted) for name, table in self.tables.items()}
        return some


@st.composite
def lakes(draw: st.DrawFn) -> DrawnLake:
    """Ranks of which some lack collectives, steps or windows, number them or not, and have wrong clocks."""
    ranks = draw(st.lists(st.integers(0, 40), min_size=1, max_size=7, unique=True))
    windows: list[dict[str, Any]] = []
    calls: list[Any] = []
    steps: list[Any] = []
    lines = draw(st.lists(st.sampled_from(_LINES), min_size=1, max_size=4, unique=True))
    repeats = draw(st.integers(1, 3))
    row = 0
    for rank in ranks:
        numbered, identified = draw(
            st.sampled_from([(True, True), (True, False), (False, True), (False, False)])
        )
        clock = draw(st.integers(-5_000, 5_000)) * 1000
        for window in range(draw(st.integers(1, 2))):
            host = draw(st.sampled_from(["a", "b", None]))
            base = draw(st.sampled_from([BASE_NS, None, BASE_NS + 10**10])) if window == 0 else BASE_NS
            known = {"rank": rank, "base_time_ns": base, "host": host, "rank_from": "metadata"}
            windows.append({**known, "window": window, "outcome": "done"})
            for step in range(draw(st.integers(0, 3))):
                at = 1_000_000 * (3 * window + step + 1) + clock
                parts = [draw(st.integers(0, 400)) * 1000 for _ in CATEGORIES]
                steps.append((rank, step, at, sum(parts), *parts, draw(st.booleans()), None, at, 0, window))
                for place, line in enumerate(lines):
                    if draw(st.integers(0, 7)) == 0:
                        continue
                    number = (3 * window + step) * 100 + place
                    ids = number if numbered else None, 2**63 + 2 * number if identified else None
                    for again in range(draw(st.sampled_from([1, 1, repeats]))):
                        row += 1
                        start = at + 100_000 * place + 30_000 * again + draw(st.integers(0, 9_000))
                        dur = draw(st.integers(0, 20_000))
                        hidden = draw(st.integers(0, dur))
                        calls.append(_call(rank, window, line, ids, row, (step, start, dur, hidden)))
    return DrawnLake(windows, calls, steps)


_LINES = (
    ("all_reduce", "0 [0,1]", 2, None),
    ("all_gather", "1 [0,1,2]", 3, None),
    ("broadcast", None, None, None),
    ("send", "2 [0,1]", 2, "0-1"),
    ("recv", "2 [0,1]", 2, "0-1"),
    ("send_recv", "2 [0,1]", 2, None),
    (None, "", None, None),
)


_Line = tuple[str | None, str | None, int | None, str | None]


def _call(
    rank: int,
    window: int,
    line: _Line,
    ids: tuple[int | None, int | None],
    row: int,
    times: tuple[int, int, int, int],
) -> Any:
    kind, group, size, peer = line
    described = (size, None if row % 7 == 0 else "mesh_tp")
    said = (rank, row, kind, kind, group, *described, *ids, "Float", None if row % 5 == 0 else 4096, peer)
    step, start, dur, hidden = times
    issued = start - row * 7_919 % 20_000 if row % 9 == 0 else None
    return (*said, 7, None if row % 9 == 0 else 0, 20, step, "forward", issued, start, dur, hidden, window)


def answers(cluster: Cluster) -> Iterator[tuple[str, pl.DataFrame]]:
    for question in QUESTIONS:
        yield question, getattr(analysis, question)(cluster)
    yield (
        "communication by all",
        analysis.communication(cluster, by=("kind", "name", "group", "step", "peer")),
    )
    yield "run_difference", analysis.run_difference(cluster, cluster)


def same(one: Cluster, other: Cluster) -> None:
    for (name, expected), (_, found) in zip(answers(one), answers(other), strict=True):
        assert found.schema == expected.schema, name
        assert_frame_equal(found, expected, check_exact=True)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=draws.count(20, 1_200))
@given(lakes(), st.sampled_from([1, 2, 5, 40]), st.integers(1, 4))
def test_parts_change_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: Lake, rows: int, ranks: int
) -> None:
    whole = cluster_of(lake)
    with monkeypatch.context() as patch:
        patch.setattr(clusters, "RANKS_AT_ONCE", {"events": ranks, "calls": ranks})
        patch.setattr(parts, "ROW_BYTES", LEAST_MEMORY // rows)
        cut = cluster_of(lake, memory=LEAST_MEMORY, folder=tmp_path)
    assert len(whole.calls) == 1
    same(whole, cut)
    del cut
    assert not list(tmp_path.iterdir()), "files go with what they are of"


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=draws.count(30, 1_200))
@given(lakes())
def test_collectives_are_matched_as_by_hand(monkeypatch: pytest.MonkeyPatch, lake: Any) -> None:
    """The rule in a few lines of Python, one call after the other."""
    calls = lake.tables[COMMUNICATION].collect().to_dicts()
    calls.sort(key=lambda call: (call["rank"], call["issued_ns"] or call["start_ns"], call["row"]))
    lines: defaultdict[Any, list[Any]] = defaultdict(list)
    for call in calls:
        passes_on = call["kind"] in TRANSFERS
        channel = call["kind"] if passes_on or call["group"] is None else None
        if passes_on and call["peer"] is not None:
            is_first = str(call["rank"]) == call["peer"].split("-")[0]
            channel = "both" if call["kind"] == "send_recv" else is_first == (call["kind"] == "send")
        lines[call["window"], call["group"], call["peer"], channel].append(call)
    instances: defaultdict[Any, list[Any]] = defaultdict(list)
    for line, members in lines.items():
        is_pair = members[0]["peer"] is not None
        given = [
            not is_pair and all(call[name] is not None for call in members)
            for name in ("sequence", "comms_id")
        ]
        name = "sequence" if given[0] else "comms_id" if given[1] else "step"
        places: defaultdict[Any, int] = defaultdict(int)
        for call in members:
            key = call[name]
            instances[line, key, places[call["rank"], key]].append(call)
            places[call["rank"], key] += 1
    expected = {}
    for members in instances.values():
        shortest = min(call["dur_ns"] for call in members)
        for call in members:
            kinds = (*SYNCHRONISING, *TRANSFERS) if call["device"] is None else SYNCHRONISING
            waits = len(members) > 1 and call["kind"] in kinds
            expected[call["row"]] = len(members), call["dur_ns"] - shortest if waits else None
    with monkeypatch.context() as patch:
        patch.setattr(parts, "ROW_BYTES", LEAST_MEMORY // 5)
        found = analysis.rank_calls(cluster_of(lake, memory=LEAST_MEMORY))
    rows = found.select("row", "ranks_seen", "wait_ns").iter_rows()
    assert {row: (seen, wait) for row, seen, wait in rows} == expected
