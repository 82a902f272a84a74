"""The journeys of who has a job of many ranks: from a step or a collective to a rank's timeline, and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser, expect
from ranks_job import STEP_US, US, Repeated, make_lake
from test_view_parallelism import training_lake
from viewing import PHONE, Served, Viewer, each_look, served, visited

import kernelscope as ks
from kernelscope.view.choice import Choice
from kernelscope.view.lake_ranks import LakeRanks

RANKS, STEPS = 16, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lake(tmp_path_factory.mktemp("job"), ranks=RANKS, steps=STEPS)


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Served]:
    with served(folder, Choice(LakeRanks(ks.scan(folder)))) as found:
        yield found


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = training_lake(tmp_path_factory.mktemp("training"))
    with served(place, Choice(LakeRanks(ks.scan(place)))) as found:
        yield found


@pytest.fixture
def opened(browser: Browser, lake: Served) -> Iterator[Viewer]:
    with visited(browser, lake) as viewer:
        yield viewer


def tab(viewer: Viewer, title: str) -> None:
    """Chooses a view of all ranks."""
    viewer.page.get_by_role("navigation", name="Views of the ranks").get_by_text(title, exact=True).click()
    expect(viewer.page.locator(".tabs [aria-current]")).to_have_text(title)
    viewer.settle()


def in_trace(viewer: Viewer, rank: int) -> None:
    """Waits until the page of a rank shows its timeline."""
    viewer.page.wait_for_selector("#above")
    expect(viewer.page.locator("#file")).to_contain_text(f"rank {rank} of")
    viewer.page.wait_for_selector("html[data-ready=yes]")
    viewer.settle()
    viewer.page.wait_for_selector(".timeline-view:not([data-moved])")


def back(viewer: Viewer) -> None:
    viewer.page.go_back()
    viewer.page.wait_for_selector(".tabs")
    viewer.page.wait_for_selector("html[data-ready=yes]")
    viewer.settle()


def click_cell(viewer: Viewer, rank: int, step: int) -> None:
    """Clicks the middle of a cell, which is where the labels say."""
    box = viewer.page.locator(".heat canvas").bounding_box()
    assert box is not None
    wide = min((box["width"] - 54) / STEPS, 96)
    viewer.page.mouse.click(box["x"] + 52 + (step + 0.5) * wide, box["y"] + 8 + (rank + 0.5) * 24)


def test_from_a_collective_to_rank_7_at_that_time_and_back(opened: Viewer) -> None:
    page = opened.page
    tab(opened, "Collectives")
    # The one that waited longest is shown, the others are below.
    expect(page.locator(".collective h2")).to_have_text("all_reduce, step 0")
    page.locator("[aria-label='All collectives'] tbody tr").nth(4).get_by_role("button").click()
    expect(page.locator(".collective h2")).to_have_text("all_reduce, step 4")
    expect(page.locator(".collective [role=status]")).to_contain_text(
        "Rank 7 arrived last, 300.0 us after rank 0"
    )
    assert page.locator(".lanes tbody tr").count() == RANKS
    place = page.url
    page.locator(".lanes").get_by_role("link", name="7", exact=True).click()
    in_trace(opened, 7)
    expect(page.locator(".panel-head h2")).to_contain_text("AllReduce")
    first, last = (int(opened.values[name]) for name in ("from", "to"))
    call = (4 * STEP_US + 1_310) * US
    assert first < call < last
    assert last - first < STEP_US * US
    back(opened)
    assert page.url.startswith(place)
    expect(page.locator(".collective h2")).to_have_text("all_reduce, step 4")
    expect(page.locator(".lanes tr[aria-current] th")).to_have_text("7")
    page.go_back()
    expect(page.locator(".collective h2")).to_have_text("all_reduce, step 0")


def test_from_the_critical_path_to_the_event_of_a_rank_and_back(opened: Viewer) -> None:
    page = opened.page
    tab(opened, "Critical path")
    page.get_by_label("Step", exact=True).select_option("4")
    expect(page.locator(".collective [role=status]")).to_contain_text("Step 4 takes 1.520 ms: host")
    assert opened.values["step"] == "4"
    rank = page.locator(".lanes tbody tr").first
    number = int(rank.get_by_role("link").inner_text())
    rank.locator("a[data-reason=host]").last.click()
    in_trace(opened, number)
    expect(page.locator(".panel-head h2")).to_contain_text("ProfilerStep#")
    expect(page.get_by_role("button", name="Critical path")).to_have_attribute("aria-pressed", "true")
    back(opened)
    expect(page.locator(".collective [role=status]")).to_contain_text("Step 4 takes 1.520 ms: host")


def test_from_the_schedule_of_a_pipeline_to_a_rank_and_back(browser: Browser, training: Served) -> None:
    with visited(browser, training) as viewer:
        page = viewer.page
        tab(viewer, "Pipeline")
        said = page.locator(".collective [role=status]")
        expect(said).to_contain_text("1F1B with 6 micro-batches. The bubble is")
        choice = page.get_by_role("combobox", name="Pipeline")
        first, other = choice.locator("option").all_inner_texts()[:2]
        choice.select_option(other)
        ranks = [text.strip() for text in other.removeprefix("ranks ").split(",")]
        assert ranks != [text.strip() for text in first.removeprefix("ranks ").split(",")]
        names = page.locator(".lanes tbody th")
        expect(names).to_have_text(ranks)
        page.get_by_role("combobox", name="Step", exact=True).select_option(index=1)
        step = viewer.values["step"]
        expect(said).to_contain_text(f"Step {step} takes")
        # Each micro-batch goes forward and back in each stage.
        bars = page.locator(".lanes tbody tr").last.locator(".slot")
        expect(bars).to_have_count(12)
        assert sorted(bars.all_inner_texts()) == sorted(2 * [str(number) for number in range(6)])
        expect(page.locator("[aria-label=Stages] tbody tr")).to_have_count(4)
        bars.first.click()
        in_trace(viewer, int(ranks[-1]))
        # The timeline shows the step.
        assert int(viewer.values["from"]) < int(viewer.values["begin"])
        back(viewer)
        expect(names).to_have_text(ranks)
        expect(said).to_contain_text(f"Step {step} takes")


def test_from_the_place_of_a_rank_to_its_trace(browser: Browser, training: Served) -> None:
    with visited(browser, training) as viewer:
        page = viewer.page
        tab(viewer, "Parallelism")
        expect(page.locator(".lanes tbody th")).to_have_text(["tp", "dp", "pp"])
        for line in page.locator(".lanes tbody tr").all():
            assert sorted(line.locator(".slot").all_inner_texts()) == ["0"] * 4 + ["1"] * 4
        expect(page.locator("[aria-label='Process groups'] tbody tr")).to_have_count(3)
        page.locator(".lanes tbody tr").first.locator(".slot").nth(5).click()
        expect(page.locator("#file")).to_contain_text("rank 5 of")
        back(viewer)
        page.locator("[aria-label=Ranks] tbody tr").nth(3).get_by_role("link").click()
        expect(page.locator("#file")).to_contain_text("rank 3 of")


def test_a_job_without_a_pipeline_says_so(browser: Browser, lake: Served) -> None:
    with visited(browser, lake) as viewer:
        tab(viewer, "Pipeline")
        expect(viewer.page.locator(".note.missing")).to_contain_text("No process group is for a pipeline")
        viewer.refused(1)


def test_a_cell_opens_the_rank_at_the_step_and_back_shows_it(opened: Viewer) -> None:
    page = opened.page
    tab(opened, "Steps")
    click_cell(opened, 7, 3)
    in_trace(opened, 7)
    values = opened.values
    assert int(values["begin"]) == 3 * STEP_US * US
    assert int(values["from"]) < int(values["begin"]) < int(values["end"]) < int(values["to"])
    expect(page.locator(".panel-head h2")).to_be_visible()
    back(opened)
    assert (opened.values["rank"], opened.values["step"]) == ("7", "3")
    # The keyboard goes on where the click was.
    page.focus(".heat")
    expect(page.locator(".heat [role=gridcell]")).to_contain_text("Rank 7, step 3")


def test_cells_say_what_they_are_to_mouse_keyboard_and_readers(opened: Viewer) -> None:
    page = opened.page
    tab(opened, "Steps")
    grid = page.get_by_role("grid")
    assert (grid.get_attribute("aria-rowcount"), grid.get_attribute("aria-colcount")) == (
        str(RANKS),
        str(STEPS),
    )
    grid.focus()
    for _ in range(7):
        page.keyboard.press("ArrowDown")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    words = "Rank 7, step 2, Own time 1.520 ms, +300.0 us (+24.6 %) from the median of the step, 1.220 ms"
    expect(page.locator(".heat [role=gridcell]")).to_have_text(f"{words}, straggles: compute")
    expect(page.locator(".heat-holder .tip")).to_contain_text("Rank 7, step 2")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".heat-holder .tip")).to_contain_text("the median of the step")
    for key, at in (
        ("End", (6, 5)),
        ("ArrowRight", (6, 5)),
        ("PageDown", (15, 5)),
        ("Home", (15, 0)),
        ("PageUp", (0, 0)),
    ):
        page.keyboard.press(key)
        expect(page.locator(".heat [role=gridcell]")).to_contain_text(f"Rank {at[0]}, step {at[1]},")
    page.get_by_label("Value of a cell").select_option("wait_ns")
    expect(page.locator(".heat [role=gridcell]")).to_contain_text("Waiting 300.0 us")
    page.keyboard.press("Tab")
    page.get_by_role("grid").focus()
    page.keyboard.press("Enter")
    in_trace(opened, 0)
    back(opened)
    assert page.get_by_label("Value of a cell").input_value() == "wait_ns"


def test_the_table_of_steps_leads_where_the_cells_do(opened: Viewer) -> None:
    page = opened.page
    tab(opened, "Steps")
    rows = page.locator("[aria-label='Steps of all ranks'] tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.nth(2)).to_contain_text("compute")
    rows.nth(2).get_by_role("link").click()
    in_trace(opened, 7)
    assert int(opened.values["begin"]) == 2 * STEP_US * US
    back(opened)
    page.fill(".card.table .card-head input", "compute")
    expect(page.locator(".card.table .said")).to_have_text(f"{STEPS} of {RANKS * STEPS} rows")
    # What is looked for is left as it is.
    tab(opened, "Ranks")
    expect(page.locator(".said")).to_have_text(f"{RANKS} rows")
    tab(opened, "Steps")
    expect(page.locator(".card.table .said")).to_have_text(f"{STEPS} of {RANKS * STEPS} rows")


def test_ranks_of_a_collective_are_put_in_order(opened: Viewer) -> None:
    page = opened.page
    opened.open("#collectives?collective=1")
    names = page.locator(".lanes tbody th")
    assert names.all_inner_texts() == [str(rank) for rank in range(RANKS)]
    page.get_by_label("Order of the ranks").select_option("start")
    assert names.all_inner_texts()[-2:] == ["3", "7"]
    # Bars end together, and the waiting of the last is nothing.
    assert page.locator(".lanes tbody tr").last.locator("i").count() == 1
    opened.open("#collectives?collective=1&order=wait&rank=3")
    assert names.all_inner_texts()[-2:] == ["3", "7"]
    expect(page.locator(".lanes tr[aria-current] th")).to_have_text("3")


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("#collectives?collective=999", "there is no number 999"),
        ("#collectives?collective=x", "whole number"),
        ("#steps?run=../etc", "no run"),
    ],
)
def test_addresses_of_what_is_not_there_say_so(browser: Browser, lake: Served, place: str, says: str) -> None:
    with visited(browser, lake) as viewer:
        viewer.open(place)
        expect(viewer.page.locator(".note.missing")).to_contain_text(says)
        viewer.refused(2)
        tab(viewer, "Ranks")
        expect(viewer.page.locator(".said")).to_have_text(f"{RANKS} rows")


def test_odd_values_of_the_address_show_the_usual(opened: Viewer) -> None:
    opened.open("#steps?value=colour&rank=x&step=-4")
    assert opened.page.get_by_label("Value of a cell").input_value() == "own_ns"
    opened.open("#steps?rank=99&step=99")
    opened.page.focus(".heat")
    expect(opened.page.locator(".heat [role=gridcell]")).to_contain_text("Rank 15, step 5")
    opened.open("#elsewhere")
    expect(opened.page.locator(".tabs [aria-current]")).to_have_text("Ranks")


def test_a_step_that_a_trace_has_not_is_said(opened: Viewer) -> None:
    opened.open("#timeline?step=77", below="3/")
    expect(opened.page.locator("#notice")).to_have_text("This trace has no complete step 77.")
    assert "step" not in opened.values


@each_look
def test_no_violation_and_no_overflow(
    browser: Browser, lake: Served, training: Served, theme: str, options: dict[str, Any]
) -> None:
    places = {
        lake: ("#steps", "#collectives?collective=1", "#path?step=2"),
        training: ("#pipeline", "#layout"),
    }
    for server, views in places.items():
        with visited(browser, server, color_scheme=theme, **options) as viewer:
            for place in views:
                viewer.open(place)
                viewer.assert_accessible()


def test_a_thousand_ranks_are_aggregated_and_say_so(browser: Browser, folder: Path) -> None:
    lake = Repeated.of(ks.scan(folder), 1_000)
    with served(folder, Choice(LakeRanks(lake))) as many, visited(browser, many) as viewer:
        page = viewer.page
        viewer.open("#steps")
        expect(page.locator(".card .note").first).to_contain_text(
            "each is the longest of up to 9 ranks and 1 step"
        )
        # The slowest of 1,000 is seen, and named.
        viewer.open("#steps?rank=777&step=3")
        page.focus(".heat")
        expect(page.locator(".heat [role=gridcell]")).to_contain_text("Rank 777, step 3")
        expect(page.locator(".heat [role=gridcell]")).to_contain_text("the longest of several cells")
        page.keyboard.press("Enter")
        in_trace(viewer, 777)
        back(viewer)
        tab(viewer, "Collectives")
        expect(page.locator(".lanes tbody tr")).to_have_count(1_000)


def test_touch_opens_a_rank(browser: Browser, lake: Served) -> None:
    with visited(browser, lake, **PHONE) as viewer:
        tab(viewer, "Collectives")
        viewer.page.locator(".lanes .bars").nth(7).tap()
        in_trace(viewer, 7)


def test_runs_are_chosen(browser: Browser, tmp_path: Path) -> None:
    place = make_lake(tmp_path, ranks=3, steps=2, runs=("first", "second"))
    with served(place, Choice(LakeRanks(ks.scan(place)))) as runs, visited(browser, runs) as viewer:
        viewer.open("#steps")
        expect(viewer.page.locator(".card h2").first).to_have_text("3 ranks, 2 steps")
        viewer.page.get_by_label("Run").select_option("second")
        expect(viewer.page.locator(".card h2").first).to_have_text("2 ranks, 2 steps")
        viewer.page.go_back()
        expect(viewer.page.locator(".card h2").first).to_have_text("3 ranks, 2 steps")
        assert viewer.page.get_by_label("Run").input_value() == "first"
