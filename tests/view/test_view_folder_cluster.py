"""The ranks of a lake together: what the page is told of steps and collectives, and what it is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import polars as pl
import pytest
from ranks_job import COMPUTES_US, LATE, US, Repeated, make_lake
from viewing import Reply, Served, asked, served, wait_until_read

import kernelscope as ks
from demo_jobs import write_job
from kernelscope.errors import NotRecordedError
from kernelscope.view import cluster, cluster_path, listing
from kernelscope.view.catalogue import Folder
from kernelscope.view.choice import Choice
from kernelscope.view.lake_ranks import LakeRanks

RANKS, STEPS = 10, 5
OWN_NS = {rank: (COMPUTES_US + LATE.get(rank, 0) + 220) * US for rank in range(RANKS)}
"""What each rank takes for itself: it computes, sends, and does 20 us around."""


def choice_of(lake: Any) -> Choice:
    """A choice among the ranks of a lake, of which the manifest is read."""
    choice = Choice(LakeRanks(lake))
    choice.start(on_failure=lambda: None)
    while choice.status()["state"] == "reading":
        pass
    return choice


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lake(tmp_path_factory.mktemp("job"), ranks=RANKS, steps=STEPS)


@pytest.fixture(scope="module")
def viewer(lake: Path) -> Iterator[Served]:
    with served(lake, Choice(LakeRanks(ks.scan(lake)))) as found:
        wait_until_read(found)
        yield found


@pytest.fixture(scope="module")
def thousand(lake: Path) -> Choice:
    """A lake of 1,000 ranks."""
    return choice_of(Repeated.of(ks.scan(lake), 1_000))


def refused(viewer: Served, name: str, **parameters: object) -> Reply:
    return viewer.request(f"/api/{name}?{urlencode(parameters)}", cookie=viewer.cookie)


@pytest.mark.slow
def test_cells_are_the_steps_of_ranks(viewer: Served) -> None:
    assert viewer.ask("listing")["cluster"] is True
    known = viewer.ask("cluster")
    assert (known["ranks"], known["steps"], known["run"]) == (RANKS, STEPS, "default")
    found = viewer.ask("heat")
    cells = found["cells"]
    assert found["ranks"] == {"first": list(range(RANKS)), "last": [RANKS - 1], "together": 1}
    assert found["steps"]["first"] == list(range(STEPS))
    assert cells["value_ns"] == [OWN_NS[rank] for rank in cells["rank"]]
    assert list(zip(cells["row"], cells["column"], strict=True)) == [
        (rank, step) for rank in range(RANKS) for step in range(STEPS)
    ]
    assert set(cells["median_ns"]) == {OWN_NS[0]}
    assert {rank for rank, cause in zip(cells["rank"], cells["cause"], strict=True) if cause} == {7}
    # The slowest has the full colour, and the median none.
    assert found["scale"] == [OWN_NS[0] - 244 * US, OWN_NS[0], OWN_NS[0] + 244 * US]


def test_other_values_of_cells(viewer: Served) -> None:
    waits = viewer.ask("heat", value="wait_ns")["cells"]
    arrive = max(LATE.values())
    assert waits["value_ns"] == [(arrive - LATE.get(rank, 0)) * US for rank in waits["rank"]]
    for name, _, _ in viewer.ask("cluster")["values"]:
        assert viewer.ask("heat", value=name)["value"] == name


def test_where_room_is_short_a_cell_is_the_longest_of_several(viewer: Served) -> None:
    found = viewer.ask("heat", down=3, across=2)
    assert (found["ranks"]["together"], found["steps"]["together"]) == (4, 3)
    assert found["ranks"]["first"] == [0, 4, 8]
    assert found["steps"]["first"] == [0, 3]
    cells = found["cells"]
    assert cells["rank"] == [3, 3, 7, 7, 8, 8]
    assert cells["step"] == [0, 3] * 3
    # Rooms that make no sense are the nearest that do.
    for down, across in ((0, 0), (-5, 10**29), (10**29, -1)):
        odd = viewer.ask("heat", down=down, across=across)
        assert len(odd["ranks"]["first"]) * len(odd["steps"]["first"]) == len(odd["cells"]["rank"])


def test_a_cell_opens_its_rank_and_the_timeline_knows_the_step(viewer: Served) -> None:
    number = viewer.ask("opening", rank=7, step=3)["open"]
    while viewer.ask_below(number, "status")["state"] == "reading":
        pass
    assert "rank 7 of" in viewer.ask_below(number, "status")["name"]
    assert 3 in [step for step, *_ in viewer.ask_below(number, "timeline")["steps"]]


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("opening", {"rank": 99, "step": 3}, "rank 99 does not exist"),
        ("opening", {"rank": -1, "step": 3}, "rank -1 does not exist"),
        ("opening", {"rank": 7, "step": 99}, "rank 7 has no step 99"),
        ("opening", {"rank": 7, "step": -(10**29)}, "rank 7 has no step"),
        ("opening", {"rank": "7.0", "step": 3}, "whole number"),
        ("opening", {"rank": "٣", "step": 3}, "whole number"),
        ("opening", {"rank": 7}, "lacks step="),
        ("opening", {"rank": 7, "step": "1" * 40}, "whole number"),
        ("heat", {"value": "colour"}, "no value 'colour'"),
        ("heat", {"down": "many"}, "whole number"),
        ("heat", {"run": "../other"}, "no run '../other'"),
        ("collective", {"instance": STEPS}, f"no number {STEPS}"),
        ("collective", {"instance": -1}, "no number -1"),
        ("collective", {"instance": "1e3"}, "whole number"),
        ("collective", {"run": "x" * 4_000}, "no run"),
        ("table", {"view": "steps", "table": "other"}, "no list 'other'"),
        ("table", {"view": "steps", "table": "cells", "sort": "source"}, "no column"),
        ("csv", {"view": "steps", "table": "cells", "run": "none"}, "no run 'none'"),
    ],
)
def test_what_is_not_there_is_refused(
    viewer: Served, name: str, parameters: dict[str, object], says: str
) -> None:
    reply = refused(viewer, name, **parameters)
    assert reply.status in (400, 404)
    assert says in reply.error
    assert len(reply.error) < 300
    assert viewer.request(f"/api/{name}").status == 403


def test_a_collective_has_its_ranks_on_one_clock(viewer: Served) -> None:
    found = viewer.ask("collective", instance=2)
    calls = found["calls"]
    last = max(LATE.values())
    assert (found["kind"], found["step"], found["first_rank"], found["last_rank"]) == ("all_reduce", 2, 0, 7)
    assert calls["rank"] == list(range(RANKS))
    # The clock of one is far ahead, which the ends of collectives tell.
    assert calls["offset"] == [5_000 * US if rank == 2 else 0 for rank in range(RANKS)]
    assert calls["start"] == [LATE.get(rank, 0) * US for rank in range(RANKS)]
    assert calls["wait"] == [(last - LATE.get(rank, 0)) * US for rank in range(RANKS)]
    ends = {start + length for start, length in zip(calls["start"], calls["length"], strict=True)}
    assert ends == {found["length"]} == {(last + 200) * US}
    assert (found["wait_ns"], found["transfer_ns"], found["left"]) == (sum(calls["wait"]), 200 * US, 0)


def test_a_bar_leads_to_the_call_of_its_rank(viewer: Served) -> None:
    calls = viewer.ask("collective", instance=2)["calls"]
    number, row = calls["open"][7], calls["row"][7]
    while viewer.ask_below(number, "status")["state"] == "reading":
        pass
    place = viewer.ask_below(number, "details", row=row)["place"]
    assert "AllReduce" in place["name"]
    assert place["length"] == calls["length"][7]


def test_the_critical_path_of_a_step_over_all_ranks(tmp_path: Path) -> None:
    write_job(tmp_path / "traces", ranks=4, size_bytes=400_000, seed=3)
    ks.batch.run(tmp_path / "traces", tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    choice = choice_of(lake)
    path = ks.analysis.critical_path(lake).with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    longest = cluster_path.rank_path(choice, asked())
    assert longest["length"] == max(ns for _, ns in longest["steps"])
    for step, length in longest["steps"]:
        found = cluster_path.rank_path(choice, asked(step=step))
        bars = found["bars"]
        ends = [start + ns for start, ns in zip(bars["start"], bars["length"], strict=True)]
        assert (bars["start"][0], bars["start"][1:], ends[-1]) == (0, ends[:-1], length)
        assert sum(ns for _, ns in found["parts"]) == found["length"] == length
        # Bars begin where events do, on the rank that these are of.
        row, rank, reason = (bars[name][len(ends) // 2] for name in ("row", "rank", "reason"))
        assert path.filter(row=row, rank=rank, bound_by=reason).height
        steps = lake.trace(rank).steps.filter(step=step)
        assert {one["rank"] for one in found["ranks"]} == set(bars["rank"])
        assert steps["total_ns"].item() <= length
    with pytest.raises(NotRecordedError, match="no rank has a step 99"):
        cluster_path.rank_path(choice, asked(step=99))


def test_of_many_ranks_no_path_is_followed(thousand: Choice) -> None:
    with pytest.raises(NotRecordedError, match="use kernelscope critical-path"):
        cluster_path.rank_path(thousand, asked())


def test_tables_lead_to_steps_and_collectives(viewer: Served) -> None:
    rows = viewer.ask("table", view="steps", table="cells", limit=STEPS + 1)
    assert rows["all"] == RANKS * STEPS
    # The slowest first.
    assert [lead["step"] for lead in rows["leads"]] == [*range(STEPS), 0]
    assert len({lead["open"] for lead in rows["leads"][:STEPS]}) == 1
    rows = viewer.ask("table", view="collectives", table="collectives")
    assert [lead["collective"] for lead in rows["leads"]] == list(range(STEPS))
    assert viewer.ask("csv", view="steps", table="cells")["text"].count("\n") == RANKS * STEPS + 1
    assert viewer.ask("csv", view="traces", table="traces")["rows"] == RANKS


def test_a_thousand_ranks_need_no_whole_table(thousand: Choice, viewer: Served) -> None:
    found = cluster.heat(thousand, asked(down=100, across=300))
    cells = found["cells"]
    assert (found["ranks"]["together"], len(found["ranks"]["first"])) == (10, 100)
    assert len(cells["rank"]) == 100 * STEPS
    slowest = max(range(len(cells["rank"])), key=cells["value_ns"].__getitem__)
    assert (cells["rank"][slowest], cells["step"][slowest]) == (777, 3)
    assert cells["value_ns"][slowest] - cells["median_ns"][slowest] in (395 * US, 395 * US + 500)
    calls = cluster.collective(thousand, asked(instance=0))["calls"]
    assert len(calls["rank"]) == len(set(calls["open"])) == 1_000
    assert None not in calls["open"]
    assert len(json.dumps(found)) < 60_000
    repeated = thousand.catalogue.lake
    assert repeated.asked <= {"steps", "communication_calls"}


@pytest.mark.slow
def test_each_run_has_its_own_clock(tmp_path: Path) -> None:
    choice = choice_of(ks.scan(make_lake(tmp_path, ranks=3, steps=2, runs=("first", "second"))))
    assert [cluster.cluster(choice, asked(run=run))["ranks"] for run in ("first", "second")] == [3, 2]
    assert cluster.cluster(choice, asked())["runs"] == [["first", "first"], ["second", "second"]]
    numbers = [cluster.opening(choice, asked(run=run, rank=1, step=0))["open"] for run in ("first", "second")]
    assert [choice.catalogue.opening(number).name for number in numbers] == [
        "rank 1 of first",
        "rank 1 of second",
    ]
    with pytest.raises(NotRecordedError, match="rank 2 does not exist"):
        cluster.opening(choice, asked(run="second", rank=2, step=0))


def test_ranks_without_steps_or_communication_say_so(tmp_path: Path, tiny: Path) -> None:
    document = json.loads(tiny.read_text())
    document["traceEvents"] = [e for e in document["traceEvents"] if e["cat"] == "cpu_op"]
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "one.json").write_text(json.dumps(document))
    ks.batch.run(tmp_path / "traces", tmp_path / "lake")
    choice = choice_of(ks.scan(tmp_path / "lake"))
    known = cluster.cluster(choice, asked())
    assert (known["ranks"], known["steps"], known["tables"]["collectives"]["all"]) == (1, 0, 0)
    found = cluster.heat(choice, asked())
    assert (found["cells"]["rank"], found["ranks"]["first"], found["scale"]) == ([], [], [0.0, 0.0, 0.0])
    with pytest.raises(NotRecordedError, match="communication"):
        cluster.collective(choice, asked())


def test_a_folder_has_no_common_clock(tmp_path: Path, tiny: Path) -> None:
    tiny.rename(tmp_path / "one.json")
    choice = Choice(Folder(str(tmp_path), lambda path, watch: ks.read(path, progress=watch)))
    choice.start(on_failure=lambda: None)
    while choice.status()["state"] == "reading":
        pass
    assert listing.listing(choice, asked())["cluster"] is False
    for question in (cluster.cluster, cluster.heat, cluster.collective):
        with pytest.raises(NotRecordedError, match="kernelscope batch"):
            question(choice, asked())
    choice.stop()


def test_a_lake_of_which_nothing_was_read_has_no_ranks(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "broken.json").write_text("no trace")
    ks.batch.run(tmp_path / "traces", tmp_path / "lake")
    choice = choice_of(ks.scan(tmp_path / "lake"))
    assert listing.listing(choice, asked())["cluster"] is False
    with pytest.raises(NotRecordedError, match="no rank of this lake"):
        cluster.cluster(choice, asked())


def test_windows_of_a_rank_open_by_their_steps(lake: Path) -> None:
    """Steps of a later window lead to it, and so do its calls."""
    from dataclasses import replace

    known = ks.scan(lake)
    first = next(entry for entry in known.entries if entry.rank == 0)
    later = replace(first, window=1, steps=(8, 9), source="later.json")
    ranks = LakeRanks(replace(known, entries=(replace(first, steps=(0, 1)), later)))
    assert ranks.of_steps("default") == {(0, 0): 0, (0, 1): 0, (0, 8): 1, (0, 9): 1}
    assert ranks.of_sources("default")[first.source, 1] == 1


def test_cells_of_frames_with_gaps() -> None:
    from kernelscope.analysis.ranks.rank_views import rank_cells

    steps = pl.DataFrame(
        {"rank": [0, 0, 5, 9, 9], "step": [1, 4, 4, None, 1], "own_ns": [10, 20, None, 99, 30]},
        schema_overrides={"step": pl.Int32},
    )
    cells = rank_cells(steps, value="own_ns", most_ranks=10, most_steps=10)
    assert cells.rows() == [(0, 0, 0, 1, 10, 20.0), (0, 1, 0, 4, 20, 20.0), (2, 0, 9, 1, 30, 20.0)]
    # A rank without a value has a row all the same, and one without steps has none.
    assert rank_cells(steps.clear(), value="own_ns", most_ranks=1, most_steps=1).is_empty()
