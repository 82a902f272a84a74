"""The roofline of the viewer: what it answers, and its bubbles in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernelscope as ks

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser
from viewing import HOSTILE, Served, asked, each_look, served, visited

from events import Events
from kernelscope.report.roofline.answers import answer
from kernelscope.view import roofline

# The ranges of which an axis would say one text twice, or have more ticks than fit.
REPEATED_TICKS = """async () => {
    const { decades, magnitude } = await import("./ticks.js");
    const { show } = await import("./shared.js");
    const bad = [];
    for (const unit of ["", "FLOP/s"]) {
        for (let low = -6; low < 15; low += 0.37) {
            for (let wide = 0.3; wide < 20; wide *= 1.3) {
                for (const most of [3, 8, 15]) {
                    const places = decades(low, Math.min(low + wide, 18.9), most);
                    const texts = places.map((value) => (unit ? show(value, unit) : magnitude(value)));
                    const isBad = new Set(texts).size !== texts.length || texts.length > most + 3;
                    if (isBad) bad.push([unit, low, wide, texts]);
                }
            }
        }
    }
    return bad.slice(0, 5);
}"""


@pytest.fixture(scope="module")
def owlv2(shared: Path) -> Iterator[Served]:
    with served(shared / "traces/kineto/owlv2-h100.json.gz") as found:
        yield found


def test_bubbles_are_the_rows_whose_costs_are_known(shared: Path) -> None:
    trace = ks.read(shared / "traces/kineto/owlv2-h100.json.gz")
    found = roofline.roofline(trace, asked())
    table = {row["name"]: row for row in answer(trace, ("name",)).table.iter_rows(named=True)}
    known = [
        name for name, row in table.items() if (row["flops_per_s"] or 0) > 0 and (row["intensity"] or 0) > 0
    ]
    assert sorted(bubble["name"] for bubble in found["bubbles"]) == sorted(known)
    for bubble in found["bubbles"]:
        row = table[bubble["name"]]
        assert bubble["flops_per_s"] == row["flops_per_s"] > 0
        assert bubble["intensity"] == row["intensity"] > 0
        assert bubble["attained_pct"] == row["attained_pct"]
    times = [bubble["device_ns"] for bubble in found["bubbles"]]
    assert times == sorted(times, reverse=True)
    (roof,) = found["roofs"]
    assert roof["label"] == "h100-sxm5"
    assert roof["rates"] == [("bf16", 989.4e12)]


def test_a_gpu_that_is_not_known_has_no_roof_and_its_operators_no_bound(tmp_path: Path) -> None:
    events = Events({"id": 0, "name": "Some GPU", "numSms": 8})
    sizes = {"External id": 1, "Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    events.add("cpu_op", "aten::mm", 0, 20, args=sizes)
    events.add("cuda_runtime", "cudaLaunchKernel", 5, 5, args={"External id": 1, "correlation": 9})
    kernel = {"External id": 1, "correlation": 9, "device": 0, "stream": 7}
    events.add("kernel", "gemm", 40, 2, args=kernel, pid=0, tid=7)
    found = roofline.roofline(ks.read(events.write(tmp_path / "unknown.json")), asked())
    (bubble,) = found["bubbles"]
    # 2 * 64^3 FLOPs and three matrices of 64^2 floats, in 2 us.
    assert bubble["flops_per_s"] == pytest.approx(2 * 64**3 / 2e-6)
    assert bubble["intensity"] == pytest.approx(2 * 64**3 / (3 * 64**2 * 4))
    assert bubble["attained_pct"] is None
    assert found["roofs"] == []


def test_a_bubble_leads_to_the_table_and_to_the_timeline(browser: Browser, owlv2: Served) -> None:
    with visited(browser, owlv2) as viewer:
        page = viewer.page
        viewer.show("roofline")
        largest = owlv2.ask("roofline")["bubbles"][0]
        assert page.locator(".bubble").count() == len(owlv2.ask("roofline")["bubbles"])
        page.locator(".bubble[tabindex='0']").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        viewer.until(lambda: viewer.said(".bubble-details h3") == largest["name"])
        assert viewer.values["bubble"] == largest["name"]
        assert page.locator(".bubble.chosen[aria-pressed=true]").count() == 1
        page.click(".bubble-details a:has-text('In the table')")
        viewer.until(lambda: "1 of " in viewer.said(".card.table .said"))
        assert viewer.said(".bubble-details h3") == largest["name"]
        page.click(".bubble-details a:has-text('In the timeline')")
        assert largest["name"] in viewer.panel()
        page.go_back()
        page.wait_for_selector(".bubble.chosen")
        assert page.evaluate(REPEATED_TICKS) == []


@each_look
def test_axe_finds_nothing(browser: Browser, owlv2: Served, theme: str, options: dict[str, Any]) -> None:
    with visited(browser, owlv2, color_scheme=theme, **options) as viewer:
        viewer.open("#roofline?bubble=aten::bmm")
        viewer.assert_accessible()


def test_names_of_a_file_stay_text(browser: Browser, owlv2: Served) -> None:
    """Bubbles have names of operators that the cost models know; of others the answer is hostile itself."""
    with visited(browser, owlv2) as viewer:
        answer = owlv2.ask("roofline")
        for bubble, name in zip(answer["bubbles"], HOSTILE, strict=False):
            bubble["name"] = bubble["short"] = name
            bubble["bound"] = name[:20]
        answer["roofs"][0]["label"] = HOSTILE[1]
        viewer.page.route("**/api/roofline*", lambda route: route.fulfill(json=answer))
        viewer.show("roofline")
        for place in range(8):
            viewer.page.locator(f".bubble[data-place='{place}']").dispatch_event("click")
        assert viewer.page.locator("main img, main script, main b:has-text('bold')").count() == 0
