"""The journey of who compares two traces, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser, expect
from viewing import HOSTILE, Served, Viewer, each_look, pair_of, served, visited

from events import Events

SIDES = (".side >> nth=0", ".side >> nth=1")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from kernelscope.cli import main

    folder = tmp_path_factory.mktemp("two")
    paths = [folder / "before.json", folder / "after.json"]
    for seed, path in enumerate(paths):
        assert main(["demo", "--size", "3MB", "--seed", str(seed), "--out", str(path)]) == 0
    with served(paths[0], pair_of(*paths)) as found:
        yield found


@pytest.fixture
def opened(browser: Browser, two: Served) -> Iterator[Viewer]:
    with visited(browser, two) as viewer:
        yield viewer


def axes(viewer: Viewer) -> list[str]:
    """What both axes say that they show, once both are drawn."""
    viewer.settle()
    return [viewer.page.get_attribute(f"{side} >> .axis", "aria-label") or "" for side in SIDES]


def test_a_change_leads_to_both_timelines_and_to_the_page_of_each(opened: Viewer) -> None:
    page = opened.page
    known = opened.served.ask("comparison")
    assert page.inner_text(".verdict") == known["verdict"]
    tables = page.locator(".group > label select option").all_inner_texts()
    assert tables == ["What changed", "Operators", "Kernels", "Phases"]
    page.select_option(".group > label select", label="Kernels")
    row = page.locator("table[aria-label=Kernels] tbody th button").nth(2)
    row.click()
    expect(page.locator(".chosen p")).to_have_count(2)
    found = opened.served.ask("events", table="kernels", change=2, steps="0,0")["sides"]
    for place, side in enumerate(found):
        expect(page.locator(".chosen p").nth(place)).to_contain_text(side["place"]["short"])
    assert opened.values["change"] == "2"
    # Both axes show the same times since their steps began.
    before, after = axes(opened)
    assert before == after
    page.click(".chosen a >> nth=1")
    page.wait_for_selector("html[data-ready]")
    assert found[1]["place"]["short"] in opened.panel()
    page.click("#above")
    page.wait_for_selector(".compare")


def test_one_zooms_and_the_other_follows(opened: Viewer) -> None:
    page = opened.page
    whole = axes(opened)
    assert whole[0] == whole[1]
    page.locator(f"{SIDES[1]} >> .scroller").focus()
    page.keyboard.press("w")
    opened.until(lambda: axes(opened)[0] != whole[0])
    near = axes(opened)
    assert near[0] == near[1]
    page.keyboard.press("d")
    opened.until(lambda: axes(opened)[0] != near[0])
    assert len(set(axes(opened))) == 1
    # Far outside of one trace, where the other goes on, both show the same, too.
    page.keyboard.press("0")
    opened.until(lambda: axes(opened)[0] not in whole + near)
    assert len(set(axes(opened))) == 1


def test_other_steps_are_aligned_and_kept_in_the_address(opened: Viewer) -> None:
    page = opened.page
    page.select_option("[aria-label='Step after']", index=2)
    page.wait_for_selector(".aligned:not([data-moved])")
    assert opened.values["b"] == "2"
    assert len(set(axes(opened))) == 1
    page.locator("table[aria-label='Causes of the difference'] tbody th button").nth(1).click()
    found = opened.served.ask("events", table="changes", change=1, steps="0,2")["sides"]
    expect(page.locator(".chosen a").nth(1)).to_have_attribute(
        "href", f"1/#timeline?row={found[1]['place']['row']}"
    )
    assert page.input_value("[aria-label='Step after']") == "2"
    page.wait_for_selector(".aligned:not([data-moved])")
    hash_ = page.evaluate("location.hash")
    opened.open(hash_)
    assert page.input_value("[aria-label='Step after']") == "2"
    expect(page.locator(".chosen a")).to_have_count(2)


def test_a_part_of_the_waterfall_and_a_slice_lead_to_both(opened: Viewer) -> None:
    page = opened.page
    page.click(".waterfall button:has-text('Kernel')")
    expect(page.locator(".chosen p")).to_have_count(2)
    expect(page.locator(".chosen")).to_contain_text("the longest of")
    opened.settle()
    # The slice that is framed is in the middle: a click on it finds its partner.
    place = opened.served.ask("events", table="parts", change=0, steps="0,0")["sides"][0]["place"]
    row, start = place["row"], place["start"]
    opened.until(lambda: "from" in opened.values)
    from_, to = (int(opened.values[name]) for name in ("from", "to"))
    zero = opened.served.ask("comparison")["sides"][0]["steps"][0][1]
    canvas = page.locator(f"{SIDES[0]} >> .marks").bounding_box()
    label = page.locator(f"{SIDES[0]} >> .label.track").first.bounding_box()
    assert canvas is not None
    assert label is not None
    share = (start + place["length"] / 2 - zero - from_) / (to - from_)
    page.mouse.click(canvas["x"] + share * canvas["width"], label["y"] + 6)
    opened.until(lambda: opened.values.get("row") == str(row))
    partner = opened.served.ask("partners", side=0, row=row)["sides"][1]["place"]
    expect(page.locator(".chosen a").nth(1)).to_have_attribute("href", f"1/#timeline?row={partner['row']}")
    page.keyboard.press("Escape")
    page.go_back()


@each_look
def test_axe_finds_nothing(browser: Browser, two: Served, theme: str, options: dict[str, Any]) -> None:
    with visited(browser, two, color_scheme=theme, **options) as viewer:
        for place in ("", "#timeline?table=changes&change=1"):
            viewer.open(place)
            viewer.assert_accessible()


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    paths = []
    for number in (0, 1):
        events = Events()
        for place, name in enumerate(HOSTILE):
            at = 1_000 * place
            events.add("cpu_op", name, at, 500 + 90 * number, args={"External id": place + 1})
            kernel = {"External id": place + 1, "correlation": place + 1, "device": 0, "stream": 7}
            events.add("kernel", name, at + 100, 300 + 50 * number, args=kernel, pid=0, tid=7)
        paths.append(events.write(tmp_path / f"<img src=x onerror=alert({number})>.json"))
    with served(paths[0], pair_of(*paths)) as found, visited(browser, found) as viewer:
        rows = viewer.page.locator("table[aria-label='Causes of the difference'] tbody th button")
        for place in range(rows.count()):
            rows.nth(place).click()
            expect(viewer.page.locator(".chosen[aria-busy=false] p")).not_to_have_count(0)
        viewer.open("#timeline?table=<b>&change=<i>&a=__proto__&b=-1&from=x&to=<u>")
        viewer.open("#<img src=x onerror=alert(6)>?row=<s>&side=9")
        viewer.refused(4)
        assert viewer.page.locator("main img, main script, main b:has-text('bold'), header img").count() == 0
        assert "<img src=x" in viewer.page.inner_text("#file")
