"""The journeys of who has many traces, in a real browser: from a list to a trace, and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser, Route, expect
from viewing import HOSTILE, PHONE, Served, Viewer, each_look, served, visited

import kernelscope as ks
from kernelscope.cli import main
from kernelscope.view.catalogue import Folder
from kernelscope.view.choice import Choice
from kernelscope.view.lake_ranks import LakeRanks
from kernelscope.view.session import Progress
from waiting import wait_until

RANKS = 16


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of sixteen ranks, and two files that are none."""
    folder = tmp_path_factory.mktemp("job") / "traces"
    assert main(["demo", "--size", "400kB", "--ranks", str(RANKS), "--out", str(folder)]) == 0
    (folder / "broken.json").write_text("no trace")
    (folder / f"{HOSTILE[1].replace('/', '_')}.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def many(job: Path) -> Iterator[Served]:
    with served(job, Choice(Folder(str(job), lambda path, watch: ks.read(path, progress=watch)))) as found:
        yield found


@pytest.fixture(scope="module")
def lake(job: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("lake") / "lake"
    ks.batch.run(job, place)
    with served(place, Choice(LakeRanks(ks.scan(place)))) as found:
        yield found


@pytest.fixture
def opened(browser: Browser, many: Served) -> Iterator[Viewer]:
    with visited(browser, many) as viewer:
        yield viewer


def chosen(viewer: Viewer, text: str) -> None:
    """Opens the trace whose row has ``text`` in its first column."""
    viewer.page.get_by_role("link", name=text, exact=True).click()
    viewer.page.wait_for_selector("#above")
    viewer.page.wait_for_selector("html[data-ready=yes]")
    viewer.settle()


def test_a_folder_lists_its_traces_and_one_click_opens_one(opened: Viewer) -> None:
    page = opened.page
    expect(page.locator(".said")).to_have_text(f"{RANKS + 2} rows")
    page.fill(".card-head input", "rank7.")
    expect(page.locator(".said")).to_have_text(f"1 of {RANKS + 2} rows")
    link = page.locator("tbody th a")
    name = link.inner_text()
    chosen(opened, name)
    assert page.inner_text("#file") == name
    expect(page.locator(".verdict")).to_be_visible()
    opened.show("timeline")
    assert page.locator(".label").count() > 2
    page.go_back()
    page.go_back()
    page.wait_for_selector("html[data-ready=yes]")
    # The list is as it was left.
    expect(page.locator(".said")).to_have_text(f"1 of {RANKS + 2} rows")
    assert page.input_value(".card-head input") == "rank7."


def test_the_page_of_a_trace_leads_back_to_the_list(opened: Viewer) -> None:
    opened.page.locator("tbody th a").nth(2).click()
    opened.page.wait_for_selector("#above")
    opened.page.click("#above")
    expect(opened.page.locator(".choose")).to_be_visible()


def test_a_filter_of_a_column_and_the_keyboard_choose_a_rank(opened: Viewer) -> None:
    page = opened.page
    page.get_by_role("button", name="Filter").press("Enter")
    page.get_by_label("Filter Rank").fill("7")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody th a").press("Enter")
    page.wait_for_selector("html[data-ready=yes]")
    expect(page.locator("#file")).to_contain_text("rank7")


def test_a_file_that_is_no_trace_is_listed_and_says_why(opened: Viewer) -> None:
    page = opened.page
    row = page.locator("tbody tr", has_text="broken.json")
    expect(row).to_contain_text("does not begin like a trace")
    row.locator("a").click()
    expect(page.locator(".note.missing")).to_contain_text("broken.json")
    page.click("#above")
    expect(page.locator(".choose")).to_be_visible()


def test_a_trace_that_is_not_there_is_said(browser: Browser, many: Served) -> None:
    with visited(browser, many) as viewer:
        viewer.open(below="999/")
        expect(viewer.page.locator(".note.missing")).to_contain_text("there is no number 999")
        viewer.refused(3)


@each_look
def test_the_list_has_no_violation_and_fits_a_phone(
    browser: Browser, many: Served, lake: Served, theme: str, options: dict[str, Any]
) -> None:
    for source in (many, lake):
        with visited(browser, source, color_scheme=theme, **options) as viewer:
            viewer.assert_accessible()


def test_touch_opens_a_trace(browser: Browser, many: Served) -> None:
    with visited(browser, many, **PHONE) as viewer:
        viewer.page.locator("tbody th a").nth(3).tap()
        viewer.page.wait_for_selector("#above")
        viewer.page.wait_for_selector("html[data-ready=yes]")


def test_a_lake_lists_its_ranks_and_opens_rank_7(browser: Browser, lake: Served) -> None:
    with visited(browser, lake) as viewer:
        page = viewer.page
        expect(page.locator(".said")).to_have_text(f"{RANKS + 2} rows")
        expect(page.locator("tbody tr", has_text="broken.json")).to_contain_text("not a trace")
        # Each rank has one window.
        assert "Window" not in page.inner_text("thead")
        chosen(viewer, "7")
        expect(page.locator("#file")).to_contain_text("rank 7 of")
        expect(page.locator(".verdict")).to_be_visible()
        for view in ("timeline", "kernels", "sql"):
            viewer.show(view)


def test_thousands_of_files_do_not_freeze_the_list(browser: Browser, tmp_path: Path) -> None:
    for number in range(3_000):
        (tmp_path / f"rank{number}.json").write_text(f'{{"distributedInfo": {{"rank": {number}}}}}')
    choice = Choice(Folder(str(tmp_path), lambda path, watch: ks.read(path, progress=watch)))
    with served(tmp_path, choice) as many, visited(browser, many) as viewer:
        page = viewer.page
        expect(page.locator(".said")).to_contain_text("of 3,000")
        assert page.locator("tbody tr").count() <= 50
        page.fill(".card-head input", "rank2999.")
        expect(page.locator("tbody tr")).to_have_count(1)


class _Held(Folder):
    """A folder whose files are looked into once they are let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), lambda path, watch: ks.read(path, progress=watch))
        self.let_go = Event()

    def __enter__(self) -> None:
        """A test that fails lets go, too."""

    def __exit__(self, *_: object) -> None:
        self.let_go.set()

    def look_inside(self, advance: Progress) -> None:
        self.let_go.wait()
        super().look_inside(advance)


@pytest.mark.parametrize("stays", [True, False], ids=["focused", "left"])
@pytest.mark.parametrize("known", ["", ', "deviceProperties": [{"id": 0, "name": "H100"}]'], ids=["", "gpus"])
def test_what_is_typed_before_all_is_known_is_not_lost(
    browser: Browser, tmp_path: Path, known: str, stays: bool
) -> None:
    """The last file is looked into before the list asks for what was typed, and may add a column."""
    for rank in range(8):
        (tmp_path / f"rank{rank}.json").write_text(f'{{"distributedInfo": {{"rank": {rank}}}{known}}}')
    held = _Held(tmp_path)
    choice, asked = Choice(held), list[Route]()
    with served(tmp_path, choice) as many, held, visited(browser, many) as viewer:
        page = viewer.page
        page.clock.install(time=0)
        viewer.open()
        page.route("**/api/listing?*", lambda route: asked.append(route))
        page.clock.pause_at(10**6)
        viewer.until(lambda: bool(asked))
        field = page.get_by_role("searchbox")
        field.fill("rank7.")
        if not stays:
            field.blur()
        held.let_go.set()
        wait_until(lambda: choice.is_complete)
        asked.pop().continue_()
        expect(page.locator(".choose > [role=status]")).to_have_text("")
        viewer.settle()
        page.clock.run_for(1_000)
        expect(page.locator(".said")).to_have_text("1 of 8 rows")
        assert field.input_value() == "rank7."
        heads, row = page.locator("thead tr:first-child th"), page.locator("tbody tr > *")
        cells = dict(zip(heads.all_inner_texts(), row.all_inner_texts(), strict=True))
        size = (tmp_path / "rank7.json").stat().st_size
        added = {"GPU": "H100"} if known and not stays else {}
        assert cells == {"Trace": "rank7.json", "Rank": "7", "Bytes": f"{size} B", **added}
