"""Tables of the viewer: rows below one another, rows as text, and their tools in a real browser."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser
from viewing import HOSTILE, PHONE, Served, Viewer, asked, served, visited

from events import Events
from kernelscope.view import tables

OWLV2 = "traces/kineto/owlv2-h100.json.gz"


@pytest.fixture(scope="module")
def owlv2(shared: Path) -> Iterator[Served]:
    with served(shared / OWLV2) as found:
        yield found


def visible(depths: list[int], levels: int, turned: set[int]) -> list[int]:
    """The numbers of the rows all of whose callers are open, each looked up by itself."""
    found = []
    for number, depth in enumerate(depths):
        callers, wanted = [], depth - 1
        for above in range(number - 1, -1, -1):
            if depths[above] == wanted:
                callers.append(above)
                wanted -= 1
        if all((depths[caller] < depths[0] + levels) != (caller in turned) for caller in callers):
            found.append(number)
    return found


@pytest.mark.parametrize(
    ("levels", "turned"), [(0, set()), (1, {0}), (3, {1, 7}), (99, set()), (99, {2, 30})]
)
def test_a_tree_shows_what_is_below_open_rows(shared: Path, levels: int, turned: set[int]) -> None:
    trace = ks.read(shared / OWLV2)
    given = {"view": "modules", "table": "modules", "levels": levels, "limit": 500}
    found = tables.table(trace, asked(**given, turned=",".join(map(str, turned))))
    depths = ks.analysis.module_table(trace)["depth"].to_list()
    numbers = visible(depths, levels, turned)
    assert found["matches"] == len(numbers)
    assert found["all"] == len(depths)
    assert [number for number, *_ in found["branches"]] == numbers[:500]
    for number, depth, inner, _ in found["branches"]:
        assert depth == depths[number]
        assert inner == (number + 1 < len(depths) and depths[number + 1] > depth)


def test_rows_that_are_searched_are_no_tree(shared: Path) -> None:
    trace = ks.read(shared / OWLV2)
    found = tables.table(trace, asked(view="modules", table="modules", search="layernorm"))
    names = ks.analysis.module_table(trace)["class"].cast(pl.String)
    assert found["matches"] == names.str.to_lowercase().str.contains("layernorm").sum()
    assert "branches" not in found


def test_all_rows_that_match_are_text(shared: Path) -> None:
    trace = ks.read(shared / OWLV2)
    given = {"view": "kernels", "table": "kernels-name", "filters": "total_ns > 1 ms", "sort": "calls"}
    view = tables.view(trace, asked(id="kernels"))
    group = next(part for part in view["parts"] if part["kind"] == "group")
    given["table"] = group["choices"][0]["part"]["id"]
    found = tables.csv(trace, asked(**given, descending=1, columns="name,calls"))
    frame = ks.analysis.kernel_table(trace).filter(pl.col("total_ns") > 10**6)
    rows = list(csv.DictReader(io.StringIO(found["text"])))
    assert found["rows"] == found["matches"] == frame.height == len(rows)
    assert [int(row["calls"]) for row in rows] == frame["calls"].sort(descending=True).to_list()
    assert set(rows[0]) == {"name", "calls"}
    lines = tables.csv(trace, asked(**given, tabs=1))["text"].splitlines()
    assert "\t" in lines[0]
    assert len(lines) == frame.height + 1


def test_formulas_of_a_trace_are_text_in_csv(tmp_path: Path) -> None:
    events = Events()
    for place, name in enumerate(HOSTILE):
        events.add("cpu_op", name, 1_000 * place, 500, args={"External id": place + 1})
    trace = ks.read(events.write(tmp_path / "names.json"))
    view = tables.view(trace, asked(id="operators"))
    group = next(part for part in view["parts"] if part["kind"] == "group")
    found = tables.csv(trace, asked(view="operators", table=group["choices"][0]["part"]["id"]))
    names = [row["name"] for row in csv.DictReader(io.StringIO(found["text"]))]
    assert len(names) == len(HOSTILE)
    # A name with two dashes in front is no formula.
    assert [name for name in names if name.startswith(("=", "+", "-", "@"))] == ["--accent"]
    assert "'=HYPERLINK(1)" in names


def test_columns_are_chosen_and_kept_in_the_address(browser: Browser, owlv2: Served) -> None:
    with visited(browser, owlv2) as viewer:
        page = viewer.page
        viewer.show("kernels")
        table = page.locator(".card.table").first
        assert table.locator("th[data-key=calls]").is_visible()
        table.locator("summary:has-text('Columns')").click()
        table.locator(".choices label", has_text="Calls").click()
        assert not table.locator("th[data-key=calls]").is_visible()
        assert viewer.values["hide"] == "calls"
        page.keyboard.press("Escape")
        assert not table.locator(".choices").is_visible()
        table.locator("button", has_text="Filter").click()
        table.locator("input[aria-label='Filter Total']").fill("> 1 ms")
        viewer.until(lambda: viewer.said(".card.table .said").startswith("11 of "))
        with page.expect_download() as download:
            table.locator("button", has_text="CSV").click()
        rows = list(csv.DictReader(io.StringIO(download.value.path().read_text(encoding="utf-8"))))
        assert len(rows) == 11
        assert "calls" not in rows[0]
        viewer.open(page.evaluate("location.hash"))
        viewer.until(lambda: viewer.said(".card.table .said").startswith("11 of "))
        assert not table.locator("th[data-key=calls]").is_visible()
        assert table.locator("input[aria-label='Filter Total']").input_value() == "> 1 ms"
        table.locator("input[aria-label='Filter Total']").fill("> 1 parsec")
        page.wait_for_selector(".card.table [role=alert]:not([hidden])")
        assert "not a number of this column" in page.inner_text(".card.table [role=alert]")
        viewer.refused(1)


def test_copied_rows_are_those_that_match(browser: Browser, owlv2: Served) -> None:
    viewer = Viewer(browser, owlv2, permissions=["clipboard-read", "clipboard-write"])
    viewer.open("#kernels?search=gemm")
    viewer.page.locator(".card.table button", has_text="Copy").first.click()
    viewer.page.wait_for_selector("#notice:has-text('copied')")
    lines = viewer.page.evaluate("navigator.clipboard.readText()").splitlines()
    assert len(lines) > 1
    assert all("gemm" in line for line in lines[1:])
    viewer.close()


def test_modules_open_and_fold(browser: Browser, owlv2: Served) -> None:
    with visited(browser, owlv2) as viewer:
        page = viewer.page
        viewer.show("modules")
        rows = page.locator(".card.table tbody tr")
        viewer.until(lambda: rows.count() > 10)
        shown = rows.count()
        first = page.locator("button.branch").first
        assert first.get_attribute("aria-expanded") == "true"
        first.click()
        viewer.until(lambda: rows.count() < shown)
        assert viewer.values["turned"] == "0"
        viewer.open(page.evaluate("location.hash"))
        viewer.until(lambda: 0 < rows.count() < shown)
        page.locator("button.branch").first.click()
        viewer.until(lambda: rows.count() == shown)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_shows_cards(browser: Browser, owlv2: Served, theme: str) -> None:
    with visited(browser, owlv2, color_scheme=theme, **PHONE) as viewer:
        viewer.open("#kernels?filters=total_ns > 1 ms")
        page = viewer.page
        row = page.locator(".card.table tbody tr").first
        box = row.bounding_box()
        assert box is not None
        assert box["width"] < 390
        assert box["height"] > 100
        page.locator(".order").first.select_option("calls")
        viewer.until(lambda: viewer.values.get("sort") == "calls")
        viewer.assert_accessible()
