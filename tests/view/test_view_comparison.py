"""What the viewer says of two traces is what ``diff`` says, and leads to the events that slow loops find."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from viewing import asked, pair_of, served, wait_until_read

import kernelscope as ks
from events import Events
from kernelscope import _traceparse
from kernelscope.analysis.diff.comparison import SIDES, compare
from kernelscope.errors import InvalidArgumentError, NotRecordedError
from kernelscope.report.parts.window import origin_ns
from kernelscope.view import comparison

TABLES = ("changes", "operators", "kernels")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from kernelscope.cli import main

    folder = tmp_path_factory.mktemp("two")
    found = []
    for name, size, seed in (("before", "2MB", 1), ("after", "3MB", 2)):
        path = folder / f"{name}.json"
        assert main(["demo", "--size", size, "--seed", str(seed), "--out", str(path)]) == 0
        found.append(path)
    return found[0], found[1]


@pytest.fixture(scope="module")
def traces(paths: tuple[Path, Path]) -> tuple[ks.Trace, ks.Trace]:
    return ks.read(paths[0]), ks.read(paths[1])


def test_the_parts_lead_from_the_mean_step_before_to_the_one_after(traces: tuple[ks.Trace, ks.Trace]) -> None:
    found = comparison.comparison(traces, asked())
    steps = ks.analysis.diff_steps(*traces)
    for place, side in enumerate(SIDES):
        assert found[f"{side}_ns"] == pytest.approx(steps[f"{side}_ns"].mean())
        assert sum(part[side] for part in found["parts"]) == pytest.approx(steps[f"{side}_ns"].mean())
        # The first step that is compared is the one that is shown first.
        origin = origin_ns(traces[place])
        shown = found["sides"][place]
        step, start, length = shown["steps"][shown["first"]]
        assert [step, start + origin, length] == [
            steps.row(0, named=True)[name] for name in (f"step_{side}", f"start_{side}", f"{side}_ns")
        ]
    by_category = ks.analysis.diff(*traces, by="category")
    for category, delta in by_category.select("category", "delta_ns").iter_rows():
        part = next(part for part in found["parts"] if part["key"] == category)
        assert part["after"] - part["before"] == pytest.approx(delta)


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("changes", ks.analysis.diff),
        ("operators", ks.analysis.diff_operators),
        ("kernels", ks.analysis.diff_kernels),
    ],
)
def test_tables_are_those_of_diff(
    traces: tuple[ks.Trace, ks.Trace], name: str, frame: Callable[..., pl.DataFrame]
) -> None:
    expected = frame(*traces)
    found = comparison.table(traces, asked(table=name, limit=500))
    assert found["matches"] == expected.height
    assert found["leads"][7] == {"table": name, "change": 7}
    head = next(t for t in comparison.comparison(traces, asked())["tables"] if t["id"] == name)
    keys = [column["key"] for column in head["columns"]]
    first = "op" if name == "operators" else "name"
    texts = found["data"][keys.index(first)]
    assert [texts["texts"][at] for at in texts["of"]] == expected[first].to_list()[:500]
    delta = {"changes": "delta_ns", "operators": "device_delta_ns", "kernels": "total_delta_ns"}[name]
    assert found["data"][keys.index(delta)] == pytest.approx(expected[delta].to_list()[:500], rel=1e-3)
    # A sorted row leads to the same change as before.
    turned = comparison.table(traces, asked(table=name, sort=delta, limit=1))
    smallest = expected[delta].arg_min()
    assert turned["leads"][0]["change"] == smallest


def _slow_longest(
    trace: ks.Trace, is_meant: Callable[[dict[str, Any]], bool], step: list[int]
) -> tuple[int, int] | None:
    """The length of the longest event in a step, of all if none is in it, and how many there are."""
    origin, (_, start, length) = origin_ns(trace), step
    rows = [
        row
        for row in trace.gpu_ops.with_columns(pl.col("name", "kind").cast(pl.String)).iter_rows(named=True)
        if is_meant(row)
    ]
    inside = [row for row in rows if start <= row["start_ns"] - origin < start + length] or rows
    return (max(row["dur_ns"] for row in inside), len(inside)) if inside else None


@pytest.mark.slow
def test_a_kernel_leads_to_its_longest_call_in_the_steps_that_are_shown(
    traces: tuple[ks.Trace, ks.Trace],
) -> None:
    both = compare(*traces)
    kernels = ks.analysis.diff_kernels(*traces)
    sides = comparison.comparison(traces, asked())["sides"]
    checked = 0
    for change in range(kernels.height):
        name = kernels["name"][change]
        for steps in ((0, 0), (1, 2)):
            found = comparison.events(
                traces, asked(table="kernels", change=change, steps=",".join(map(str, steps)))
            )
            for place, side in enumerate(SIDES):
                trace, names = both.side(side)
                called = dict(names.select("row", pl.col("name").cast(pl.String)).iter_rows())
                slow = _slow_longest(
                    trace,
                    lambda row, called=called, name=name: called.get(row["row"]) == name,
                    sides[place]["steps"][steps[place]],
                )
                shown = found["sides"][place]
                if slow is None:
                    assert shown == {"place": None, "count": 0}
                else:
                    checked += 1
                    assert (shown["place"]["length"], shown["count"]) == slow
    assert checked > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_row_leads_somewhere_and_a_part_to_an_event_of_it(
    traces: tuple[ks.Trace, ks.Trace], name: str
) -> None:
    found = comparison.comparison(traces, asked())
    rows = next(table["all"] for table in found["tables"] if table["id"] == name)
    nowhere = []
    for change in range(rows):
        sides = comparison.events(traces, asked(table=name, change=change, steps="0,0"))["sides"]
        if all(side["place"] is None for side in sides):
            nowhere.append(change)
    allowed = ks.analysis.diff(*traces).with_row_index("change").filter(category="other")["change"].to_list()
    assert nowhere == (allowed if name == "changes" else [])
    kernel = comparison.events(traces, asked(table="parts", change=0, steps="0,0"))["sides"][0]
    longest = traces[0].gpu_ops.filter(kind="kernel")["dur_ns"].max()
    assert kernel["place"]["length"] <= longest
    assert kernel["count"] > 10


def test_what_corresponds_corresponds_both_ways(traces: tuple[ks.Trace, ks.Trace]) -> None:
    pairs = compare(*traces).pairs
    for before, after in pairs.work.sample(20, seed=1).iter_rows():
        there = comparison.partners(traces, asked(side=0, row=before))["sides"]
        back = comparison.partners(traces, asked(side=1, row=after))["sides"]
        assert there == back
        assert [side["place"]["row"] for side in there] == [before, after]
    alone = set(traces[1].gpu_ops["row"]) - set(pairs.work["after"])
    row = min(alone)
    sides = comparison.partners(traces, asked(side=1, row=row))["sides"]
    assert [side["place"] and side["place"]["row"] for side in sides] == [None, row]


@pytest.mark.parametrize(
    ("question", "parameters", "error"),
    [
        (comparison.table, {"table": "nothing"}, NotRecordedError),
        (comparison.table, {}, InvalidArgumentError),
        (comparison.events, {"table": "nothing", "change": 0}, NotRecordedError),
        (comparison.events, {"table": "kernels", "change": 9_999_999}, NotRecordedError),
        (comparison.events, {"table": "kernels", "change": -1}, NotRecordedError),
        (comparison.partners, {"side": 0, "row": 2**40}, NotRecordedError),
    ],
)
def test_what_makes_no_sense_is_refused(
    traces: tuple[ks.Trace, ks.Trace],
    question: Callable[..., Any],
    parameters: dict[str, Any],
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        question(traces, asked(**parameters))


def test_each_trace_answers_below_its_number(paths: tuple[Path, Path]) -> None:
    with served(paths[0], pair_of(*paths)) as viewer:
        for number in (0, 1):
            assert viewer.request(f"/{number}/api/status").status == 403
        status = wait_until_read(viewer)
        assert status["names"] == ["before.json", "after.json"]
        assert status["done"] == status["total"] == sum(path.stat().st_size for path in paths)
        for number, path in enumerate(paths):
            found = viewer.request(f"/{number}/api/timeline", cookie=viewer.cookie)
            assert found.status == 200
            own = viewer.request(f"/{number}/api/status", cookie=viewer.cookie).body
            assert path.name.encode() in own
            assert b"Both traces" in own
        for address in ("/2/api/timeline", "/2/api/status", "/-1/", "/0/compare.html", "/nothing"):
            assert viewer.request(address, cookie=viewer.cookie).status == 404, address


def test_one_trace_that_cannot_be_read_ends_the_comparison(paths: tuple[Path, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("no trace")
    pair, ended = pair_of(paths[0], broken), threading.Event()
    pair.start(on_failure=ended.set)
    assert ended.wait(60)
    status = pair.status()
    assert status["state"] == "failed"
    assert "broken.json" in status["error"]
    pair.stop()
    with pytest.raises(ks.KernelscopeError, match=r"broken\.json"):
        pair.raise_failure()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[ks.Trace, ks.Trace]:
    """The first rank of a job of training, without recomputation before, and with it after."""
    folder = tmp_path_factory.mktemp("jobs")
    found: list[ks.Trace] = []
    for recompute in ("none", "full"):
        written, _ = _traceparse.write_demo_training(
            folder / recompute, parallel="tp=2,pp=2,dp=2", recompute=recompute, seed=0, steps=2, layers=2
        )
        found.append(ks.read(written[0][0]))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("name", "key", "frame"),
    [("phases", "phase", ks.analysis.diff_phases), ("dimensions", "dimension", ks.analysis.diff_dimensions)],
)
def test_training_has_tables_of_its_own(
    jobs: tuple[ks.Trace, ks.Trace], name: str, key: str, frame: Callable[..., pl.DataFrame]
) -> None:
    expected = frame(*jobs)
    assert name in {table["id"] for table in comparison.comparison(jobs, asked())["tables"]}
    found = comparison.table(jobs, asked(table=name))
    assert found["matches"] == expected.height > 1
    for change, one in enumerate(expected[key]):
        sides = comparison.events(jobs, asked(table=name, change=change, steps="0,0"))["sides"]
        kernels = [_of_phase(t, one) if name == "phases" else _of_dimension(t, one) for t in jobs]
        for trace, shown, rows in zip(jobs, sides, kernels, strict=True):
            if one is not None and rows:
                start, length = trace.steps.row(0, named=True)["start_ns"], trace.steps["total_ns"][0]
                work = trace.gpu_ops.filter(pl.col("row").is_in(rows))
                work = work.filter(pl.col("start_ns").is_between(start, start + length, closed="left"))
                assert (shown["count"], shown["place"]["length"]) == (work.height, work["dur_ns"].max())
            elif one == "recompute":
                assert shown == {"place": None, "count": 0}
        assert any(side["place"] for side in sides)


def _of_phase(trace: ks.Trace, phase: str | None) -> list[int]:
    """The kernels of a phase that ``ops`` has."""
    phases = dict(trace.ops.select("row", pl.col("phase").cast(pl.String)).iter_rows())
    return [row for row, op in trace.gpu_ops.select("row", "op_row").iter_rows() if phases.get(op) == phase]


def _of_dimension(trace: ks.Trace, dimension: str | None) -> list[int]:
    """The kernels whose process group names a dimension."""
    called = trace.collectives.select("row", pl.col("process_group_description").cast(pl.String))
    named = set(called.filter(process_group_description=f"mesh_{dimension}")["row"])
    return sorted(named.intersection(trace.gpu_ops["row"]))


def test_other_traces_have_no_tables_of_training(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 20)
    events.call(5, 5, 1)
    events.kernel("gemm", 20, 10, 1)
    trace = events.read(tmp_path)
    shown = comparison.comparison((trace, trace), asked())["tables"]
    assert {table["id"] for table in shown} == set(TABLES)
