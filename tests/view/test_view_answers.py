"""What the viewer says is what the analyses say, and what slow loops over the tables say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from viewing import asked

import kernelscope as ks
from events import Events
from kernelscope.analysis.grouping import ON_TRACKS
from kernelscope.analysis.steps.breakdown import CATEGORIES
from kernelscope.errors import InvalidArgumentError
from kernelscope.report.parts.window import origin_ns
from kernelscope.view import (
    critical_path,
    details,
    levers,
    overview,
    places,
    search,
    selection,
    statements,
    tables,
    windows,
)
from kernelscope.view.filters import condition
from oracles.traces import TRACES, files, read

SOME = files(TRACES, "owlv2*.gz") + files(TRACES, "resnet-act*.gz") + files(TRACES, "a100-nccl*.gz")


@pytest.fixture(params=SOME, ids=lambda path: path.name.partition(".")[0])
def trace(request: pytest.FixtureRequest) -> ks.Trace:
    """A recorded trace."""
    return read(request.param)


def events_of(trace: ks.Trace) -> Iterator[dict[str, Any]]:
    """Every event on a track, one after the other."""
    for table in ON_TRACKS:
        yield from trace.tables[table].with_columns(pl.col("name").cast(pl.String)).iter_rows(named=True)


@pytest.mark.slow
def test_a_window_shows_every_event_in_it(trace: ks.Trace) -> None:
    found = windows.described(trace, asked())
    tracks = [track["track"] for track in found["tracks"]]
    start, end = found["start"], found["end"]
    middle = (start + end) // 2
    for first, last, pixels in (
        (start, end, 900),
        (middle, middle + 200_000, 5_000),
        (middle, middle + 9, 9),
    ):
        window = json.loads(
            windows.window(
                trace, asked(start=first, end=last, pixels=pixels, tracks=",".join(map(str, tracks)))
            )
        )
        marks = window["marks"]
        lengths = {len(column) for column in marks.values()}
        assert len(lengths) == 1
        origin = origin_ns(trace)
        inside = [
            event
            for event in events_of(trace)
            if event.get("kind") not in ("start_end", "mark") and first <= event["start_ns"] - origin < last
        ]
        # Of events that began before, only those that fill a pixel of their own say so.
        pixel = (last - first) / pixels
        began_before = sum(
            1
            for at, length, count in zip(marks["start"], marks["length"], marks["events"], strict=True)
            if count == 1 and at < first and length >= pixel
        )
        assert sum(marks["events"]) - began_before == len(inside)


def test_some_tracks_show_what_they_show_among_all(trace: ks.Trace) -> None:
    view = windows.timeline_of(trace)
    every = view.show(pixels=300)
    for only in ([0], [1, 3], list(range(view.tracks.height)), [99_999]):
        assert view.show(pixels=300, only=only).equals(every.filter(pl.col("track").is_in(only)))
    assert view.show(pixels=300, only=[]).is_empty()


def test_a_window_of_too_many_marks_has_fewer_pixels(
    trace: ks.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "MOST_MARKS", 100)
    end = windows.described(trace, asked())["end"]
    window = json.loads(windows.window(trace, asked(start=0, end=end, pixels=4_096, tracks="0,1,2,3")))
    assert window["pixels"] < 4_096
    assert len(window["marks"]["row"]) <= 100


def test_a_lane_has_room_for_every_event(trace: ks.Trace) -> None:
    lanes = {track["track"]: track["lanes"] for track in windows.described(trace, asked())["tracks"]}
    deepest = windows.timeline_of(trace).show(pixels=100_000).group_by("track").agg(pl.col("lane").max() + 1)
    assert lanes == dict(deepest.iter_rows())


@pytest.mark.slow
@pytest.mark.parametrize("text", ["gemm", "ATEN::", "cuda", "(", "nothing is called this"])
def test_a_search_counts_what_a_loop_counts(trace: ks.Trace, text: str) -> None:
    events = [
        event
        for event in events_of(trace)
        if text.lower() in (event["name"] or "").lower() and event.get("kind") not in ("start_end", "mark")
    ]
    events.sort(key=lambda event: (event["start_ns"], event["row"]))
    middle = (windows.timeline_of(trace).start_ns + windows.timeline_of(trace).end_ns) // 2
    found = search.search(trace, asked(text=text, **{"from": middle - origin_ns(trace)}))
    assert found["count"] == len(events)
    assert found["at"] == sum(event["start_ns"] < middle for event in events)
    assert sum(name["count"] for name in found["names"]) <= len(events)
    for n in {0, len(events) // 2, len(events) - 1} & set(range(len(events))):
        place = search.hit(trace, asked(text=text, n=n))["place"]
        assert place["row"] == events[n]["row"]
        assert place["start"] == events[n]["start_ns"] - origin_ns(trace)


@pytest.mark.slow
def test_an_exact_search_finds_the_name_alone(trace: ks.Trace) -> None:
    for name in ("aten::mul", "cudaLaunchKernel"):
        count = sum(event["name"] == name for event in events_of(trace))
        assert search.search(trace, asked(text=name, exact=1))["count"] == count


def test_a_name_that_cannot_be_shown_is_found_as_it_is_shown(tmp_path: Path) -> None:
    events = Events()
    events.op("two\nlines\u202e", 5, 10)
    trace = events.read(tmp_path)
    (name,) = search.search(trace, asked(text="lines"))["names"]
    assert search.search(trace, asked(text=name["name"], exact=1))["count"] == 1


def test_a_range_that_is_a_step_divides_as_the_step(trace: ks.Trace) -> None:
    for step in ks.analysis.step_breakdown(trace).iter_rows(named=True):
        start = step["start_ns"]
        parts = selection.parts(trace, start, start + step["total_ns"])
        assert {part["key"]: part["ns"] for part in parts} == {name: step[name] for name in CATEGORIES}


@pytest.mark.slow
def test_the_parts_of_any_range_sum_to_it(trace: ks.Trace) -> None:
    found = windows.described(trace, asked())
    length = found["end"] - found["start"]
    for share in (0.0, 0.3, 0.9):
        start = found["start"] + int(share * length)
        for size in (1, 1_000, length // 7):
            answer = selection.selection(trace, asked(start=start, end=start + size))
            assert sum(part["ns"] for part in answer["parts"]) == size
            assert all(part["ns"] >= 0 for part in answer["parts"])


def test_a_range_of_everything_has_every_kernel(trace: ks.Trace) -> None:
    found = windows.described(trace, asked())
    answer = selection.selection(trace, asked(start=found["start"], end=found["end"]))
    kernels = next(table for table in answer["tables"] if table["id"] == "kernels")
    expected = ks.analysis.kernel_table(trace).head(10)
    at = [column["key"] for column in kernels["columns"]].index("total_ns")
    assert kernels["data"][at] == expected["total_ns"].to_list()


@pytest.mark.slow
def test_details_lead_to_the_launch_and_the_operator(trace: ks.Trace) -> None:
    linked = trace.gpu_ops.filter(pl.col("launch_row").is_not_null() & pl.col("op_row").is_not_null())
    delays = dict(ks.analysis.launches(trace).select("row", "launch_delay_ns").iter_rows())
    for work in linked.gather_every(max(linked.height // 20, 1)).iter_rows(named=True):
        found = details.details(trace, asked(row=work["row"]))
        assert found["op_row"] == work["op_row"]
        launch = next(link for link in found["links"] if link["kind"] == "launch")
        assert (launch["arrow"], launch["place"]["row"]) == ("from", work["launch_row"])
        facts = {fact[0]: fact[1] for part in found["parts"] for fact in part["facts"]}
        assert facts["Delay"] == delays[work["row"]]
        back = details.details(trace, asked(row=work["launch_row"]))
        assert work["row"] in [
            link["place"]["row"] for link in back["links"] if link["kind"] == "GPU operation"
        ]


def test_places_are_where_the_timeline_draws_them(trace: ks.Trace) -> None:
    view = windows.timeline_of(trace)
    for table in ON_TRACKS:
        frame = trace.tables[table]
        for event in frame.gather_every(max(frame.height // 10, 1)).iter_rows(named=True):
            if event.get("kind") in ("start_end", "mark") or not event["dur_ns"]:
                continue
            place = places.place(trace, event)
            start, end = event["start_ns"], event["start_ns"] + event["dur_ns"]
            drawn = view.show(start_ns=start, end_ns=end, pixels=2).filter(row=event["row"])
            assert (place["track"], place["lane"]) == (drawn["track"][0], drawn["lane"][0])


@pytest.mark.parametrize("path", files(TRACES, "resnet-act*.gz"))
def test_forward_and_backward_lead_to_each_other(path: Path) -> None:
    trace = read(path)
    backward = trace.ops.filter(pl.col("forward_row").is_not_null()).row(0, named=True)
    found = details.details(trace, asked(row=backward["row"]))
    assert [link["place"]["row"] for link in found["links"] if link["kind"] == "forward"] == [
        backward["forward_row"]
    ]
    assert [link["arrow"] for link in found["links"] if link["kind"] == "forward"] == ["from"]
    # Of the work of an operator, no arrow goes to another operator.
    differentiated = trace.ops["forward_row"].drop_nulls().unique()
    work = trace.gpu_ops.filter(pl.col("op_row").is_in(differentiated.implode()))
    kernel = details.details(trace, asked(row=work["row"][0]))
    assert {link["arrow"] for link in kernel["links"] if link["kind"] == "backward"} == {None}
    there = details.details(trace, asked(row=backward["forward_row"]))
    assert backward["row"] in [link["place"]["row"] for link in there["links"] if link["kind"] == "backward"]


def test_costs_are_those_of_the_roofline(trace: ks.Trace) -> None:
    expected = ks.analysis.roofline(trace, by=("op_row",)).filter(pl.col("flops") > 0)
    for row in expected.head(5).iter_rows(named=True):
        facts = {fact[0]: fact[1] for fact in details.cost(trace, asked(row=row["op_row"]))["facts"]}
        assert facts["FLOP"] == row["flops"]
        assert facts.get("Attained") == row["attained_pct"]
    assert details.cost(trace, asked(row=4_000_000_000))["status"]


def test_the_critical_path_of_a_window(trace: ks.Trace) -> None:
    origin = origin_ns(trace)
    path = ks.analysis.critical_path(trace).with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    start, end = int(path["start_ns"][0]), int(path["end_ns"][-1])
    middle = (start + end) // 2
    windows_of_path = ((start, end, 500), (middle, middle + 300_000, 1_000), (middle, middle + 50, 50))
    for first, last, pixels in windows_of_path:
        found = critical_path.path(trace, asked(start=first - origin, end=last - origin, pixels=pixels))
        inside = path.filter(pl.col("end_ns") > first, pl.col("start_ns") < last)
        part = pl.col("end_ns").clip(None, last) - pl.col("start_ns").clip(first)
        assert dict(found["parts"]) == dict(inside.group_by("bound_by").agg(part.sum()).iter_rows())
        assert sum(ns for _, ns in found["parts"]) == last - first
        pixel = max((last - first) // pixels, 1)
        own = dict(inside.drop_nulls("row").group_by("row").agg(part.sum()).iter_rows())
        assert {row for row, ns in own.items() if ns >= pixel} <= set(found["rows"])
        # The others are operators around Python frames.
        assert set(found["rows"]) - own.keys() <= set(trace.ops["row"])
        spans: dict[int, list[tuple[int, int]]] = {}
        for track, begun, over in found["spans"]:
            spans.setdefault(track, []).append((begun, over))
        for of_track in spans.values():
            assert all(begun - over > pixel for (_, over), (begun, _) in itertools.pairwise(of_track))
        for row in [row for row in found["rows"] if row in own][:20]:
            where = places.place(trace, places.event(trace, row).values)
            until = where["start"] + where["length"]
            assert any(begun <= until and over >= where["start"] for begun, over in spans[where["track"]])
        assert len(found["arrows"]) <= critical_path.MOST_ARROWS
        for arrow in found["arrows"]:
            assert arrow["from"]["track"] != arrow["to"]["track"]
            assert arrow["from"]["start"] <= arrow["to"]["start"]


def test_an_event_is_on_the_path_or_has_slack(trace: ks.Trace) -> None:
    steps = ks.analysis.step_times(trace)
    step = steps.row(steps.height // 2, named=True)
    path = ks.analysis.critical_path(trace, step["step"]).drop_nulls("row")
    on_path = dict(path.group_by("row").agg(pl.col("dur_ns").sum()).iter_rows())
    works = trace.gpu_ops.filter(pl.col("step") == step["step"]).gather_every(20)
    ended = works.filter(
        pl.col("start_ns") >= step["start_ns"],
        pl.col("start_ns") + pl.col("dur_ns") <= step["start_ns"] + step["total_ns"],
    )
    assert ended.height
    for row in ended["row"]:
        ((title, ns, _, _),) = critical_path.slack(trace, asked(row=row))["facts"]
        assert (
            (title, ns) == ("On the path", on_path[row]) if row in on_path else (title == "Slack" and ns >= 0)
        )
    assert critical_path.slack(trace, asked(row=4_000_000_000))["status"]


def test_levers_replay_the_steps(trace: ks.Trace) -> None:
    found = levers.levers(trace, asked())
    bounds = ks.analysis.step_bounds(trace)
    steps = ks.analysis.step_times(trace)
    assert found["mean"] == steps["total_ns"].mean()
    paths = [lever["path"] for lever in found["levers"]]
    assert paths == sorted(paths, reverse=True)
    assert 0 < sum(paths) <= bounds["path_ns"].sum()
    unchanged = ",".join("100" for _ in paths)
    assert levers.what_if(trace, asked(by=unchanged))["mean"] == found["mean"]
    title = found["levers"][0]["title"]
    classes = {"Communication": "communication", "Data loading": "dataloader"}
    change = classes.get(title) or title.replace("Operator ", "op:").replace("Kernel ", "kernel:")
    for percent in (0, 50, 150, 900):
        by = ",".join([str(percent), *("100" for _ in paths[1:])])
        expected = ks.analysis.what_if(trace, {change: min(percent, 150) / 100})
        complete = expected.filter(pl.col("step").is_in(steps["step"].implode(), nulls_equal=True))
        assert levers.what_if(trace, asked(by=by))["mean"] == complete["after_ns"].mean()


def test_every_finding_leads_to_the_rows_that_it_cites(trace: ks.Trace) -> None:
    for finding in ks.analysis.recommendations(trace).iter_rows(named=True):
        if finding["same_cause_as"] or finding["table"] not in ON_TRACKS:
            continue
        device = {} if finding["device"] is None else {"device": finding["device"]}
        found = overview.evidence(trace, asked(id=finding["id"], **device))
        assert [row["row"] for row in found["rows"]] == finding["rows"]
        assert found["cited"] == finding["cited"]
        assert found["place"]["row"] == finding["rows"][0]


def pages_of(trace: ks.Trace, view: str, table: str, **parameters: object) -> tuple[list[list[Any]], int]:
    """All rows of a table, gathered page by page, and how many the server says there are."""
    rows: list[list[Any]] = []
    while True:
        page = tables.table(trace, asked(view=view, table=table, offset=len(rows), limit=7, **parameters))
        columns = [
            data
            if isinstance(data, list)
            else [None if at is None else data["texts"][at] for at in data["of"]]
            for data in page["data"]
        ]
        rows += [list(row) for row in zip(*columns, strict=True)]
        if not page["rows"] or len(rows) >= page["matches"]:
            return rows, page["matches"]


def test_pages_of_a_table_are_the_table(trace: ks.Trace) -> None:
    kernels = ks.analysis.kernel_table(trace)
    rows, matches = pages_of(trace, "kernels", "kernels", sort="calls", descending=1)
    assert matches == len(rows) == kernels.height
    keys = [
        column["key"]
        for column in tables.view(trace, asked(id="kernels"))["parts"][0]["choices"][0]["part"]["columns"]
    ]
    calls = [row[keys.index("calls")] for row in rows]
    assert calls == sorted(kernels["calls"].to_list(), reverse=True)
    found, matches = pages_of(
        trace, "kernels", "kernels", search="GEMM", filters="total_ns > 10 us\ncalls 2..9999"
    )
    expected = kernels.filter(
        pl.col("name").str.to_lowercase().str.contains("gemm"),
        pl.col("total_ns") > 10_000,
        pl.col("calls") >= 2,
    )
    assert matches == len(found) == expected.height


@pytest.mark.parametrize(
    ("unit", "written", "kept"),
    [
        ("ns", "> 1 ms", [2_000_000]),
        ("ns", ">= 1,000 us", [1_000_000, 2_000_000]),
        ("ns", "1us..1ms", [1_000, 1_000_000]),
        ("ns", "1000", [1_000]),
        ("ns", "!= 1 us", [0, 1_000_000, 2_000_000]),
        ("bytes", "< 1 KiB", [0, 1_000]),
        ("bytes", "> 1MB", [2_000_000]),
        ("count", "<= 1k", [0, 1_000]),
        ("FLOP", "> 1 MFLOP", [2_000_000]),
    ],
)
def test_a_filter_keeps_what_it_says(unit: str, written: str, kept: list[int]) -> None:
    frame = pl.DataFrame({"x": [None, 0, 1_000, 1_000_000, 2_000_000]})
    assert frame.filter(condition("x", unit, written))["x"].to_list() == kept


def test_filters_of_shares_and_texts() -> None:
    frame = pl.DataFrame(
        {"share": [0.049, 0.05, None], "text": ["Gemm", None, "a.c"], "flag": [True, False, None]}
    )
    assert frame.filter(condition("share", "share", ">= 5 %")).height == 1
    assert frame.filter(condition("share", "share", "> 0.01")).height == 2
    assert frame.filter(condition("text", "text", "gemm")).height == 1
    # A text is a text, and no pattern.
    assert frame.filter(condition("text", "text", "a.")).height == 1
    assert frame.filter(condition("text", "text", "a*")).height == 0
    assert frame.filter(condition("flag", "flag", "yes")).height == 1
    for bad in ("> x", "> 1 parsec", "..", ">", "1 ms 2"):
        with pytest.raises(InvalidArgumentError, match="is not a number of this column"):
            condition("x", "ns", bad)


@pytest.mark.slow
def test_every_view_and_table_is_answered(trace: ks.Trace) -> None:
    for view in tables.menu()["views"]:
        if view["id"] in ("overview", "timeline", "flame", "sql"):
            continue
        found = tables.view(trace, asked(id=view["id"]))
        assert found["parts"], view
        inside = [part for part in found["parts"] if part["kind"] != "group"]
        inside += [
            choice["part"] for part in found["parts"] if part["kind"] == "group" for choice in part["choices"]
        ]
        for part in inside:
            if part["kind"] == "table":
                for column in part["columns"]:
                    page = tables.table(
                        trace,
                        asked(view=view["id"], table=part["id"], sort=column["key"], descending=1, limit=3),
                    )
                    assert len(page["data"]) == len(part["columns"])
                    assert len(page["leads"]) == page["rows"]


def test_sql_tells_cells_exactly_and_leads_to_events(tiny: Path) -> None:
    trace = ks.read(tiny)
    statement = (
        "select row, name, grid, start_ns, dur_ns, occupancy_pct, 9007199254740993 as large from gpu_ops"
    )
    found = statements.answer(trace, asked(statement=statement))
    [row] = trace.gpu_ops["row"].to_list()
    assert found["leads"] == [{"row": row}]
    assert [column["unit"] for column in found["columns"]] == [
        "plain", "text", "text", "plain", "ns", "percent", "text"
    ]  # fmt: skip
    texts = [data["texts"] if isinstance(data, dict) else data for data in found["data"]]
    assert texts[0] == [row]
    assert texts[2] == ["1, 1, 1"]
    assert texts[4] == [30_500]
    assert texts[6] == ["9007199254740993"]
    assert found["more"] is False
    names = {table["name"]: table for table in statements.names(trace, asked())["tables"]}
    assert names["ops"]["rows"] == 2
    assert "ranges" not in names
    assert ["dur_ns", ks.schema.table("ops").column("dur_ns").doc] in names["ops"]["columns"]
