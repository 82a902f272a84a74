"""The page in a real browser: every view is drawn, nothing complains, and nothing asks the network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import draws
import kernelscope as ks

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser

from browsing import Opened
from kernelscope.report.html.page import write_page
from kernelscope.report.parts.columns import COLUMNS

TRACES = {
    "owlv2-h100": "traces/kineto/owlv2-h100.json.gz",
    "h100-2gpu-emit-nvtx": "traces/nsys/h100-2gpu-emit-nvtx-2026.2.sqlite",
    "resnet50-v100-2021": "traces/kineto/resnet50-v100-2021.json.gz",
}
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>&amp;<b>bold</b>",
    "\"><svg onload='alert(4)'>",
    "{{script}} ${alert(5)} `alert(6)`",
    "javascript:alert(7)",
    "<a href='https://example.org/'>link</a>",
    "two\nlines\tand\r\n\x00more",
    "\u202eright to left\u202c and \u05d0\u05d1\u05d2",
    "--accent",
    "__proto__",
    "=HYPERLINK(1)",
    "long" * 25_000,
)


def page_of(trace: Path, folder: Path, **options: Any) -> Path:
    out = folder / f"{trace.name}.html"
    write_page(ks.read(trace, **options), out)
    return out


@pytest.fixture(scope="module", params=draws.some(list(TRACES), 2))
def real(request: pytest.FixtureRequest, browser: Browser, shared: Path, pages: Path) -> Iterator[Opened]:
    """A page of a real trace."""
    opened = Opened(browser, page_of(shared / TRACES[request.param], pages))
    yield opened
    opened.close()


def test_every_view_is_drawn_and_nothing_complains(real: Opened) -> None:
    views = real.views()
    assert len(views) == 20
    assert views[-1] == "glossary"
    for view in views:
        real.show(view)
        page = real.page
        assert page.locator("main h1").inner_text() == page.locator("#menu a[aria-current]").inner_text()
        assert page.locator("main .part, main .note.missing").count() > 0, view
        assert page.locator("main .part > canvas").count() == (view == "trace")
        for without in (
            ".figure:not(:has(svg.main-svg))",
            "section.table:not(:has(tbody tr, .note))",
            # Every figure and table says what it is, and every column of it.
            ":is(.part.table, .part:has(.figure)):not(:has(.what p:not(:empty)):has(h2:not(:empty)))",
            "section.table thead th:is(:not([title]), [title=''])",
        ):
            assert page.locator(without).count() == 0, (view, without)
        real.assert_accessible(view)
    assert real.complaints == []


def test_a_figure_leads_to_its_meaning(real: Opened) -> None:
    real.show("overview")
    tile = real.page.locator(".tiles dt a", has_text="GPU utilisation")
    tile.click()
    real.page.wait_for_selector("#part-utilisation")
    assert real.page.locator("main h1").inner_text() == "Glossary"
    assert real.page.evaluate("document.activeElement.id") == "part-utilisation"
    real.show("kernels")
    links = real.page.locator("section.table .what a").all()
    assert links
    for link in links:
        key = (link.get_attribute("href") or "").removeprefix("#glossary/")
        assert key in COLUMNS


@pytest.fixture
def phone(real: Opened) -> Iterator[Opened]:
    """The same page on a small screen."""
    size = real.page.viewport_size
    assert size
    real.page.set_viewport_size({"width": 390, "height": 844})
    yield real
    real.page.set_viewport_size(size)


def test_phones_need_not_scroll_sideways(phone: Opened) -> None:
    first, *views = phone.views()
    phone.show(first)
    assert phone.page.locator("#menu").is_hidden()
    for view in (first, *views):
        phone.go(view)
        assert phone.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view
    assert phone.complaints == []


@pytest.fixture
def opened(demo: Opened) -> Opened:
    """The page of the demo trace, with no view of tables or figures drawn yet."""
    demo.go("glossary")
    return demo


@pytest.fixture(scope="module")
def demo(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A page of the project's own demo trace."""
    folder = tmp_path_factory.mktemp("demo")
    from kernelscope.cli import main

    assert main(["demo", "--size", "5MB", "--out", str(folder / "demo.json")]) == 0
    found = Opened(browser, page_of(folder / "demo.json", folder))
    yield found
    found.close()


def test_a_view_that_was_left_is_not_drawn_on(opened: Opened) -> None:
    opened.go("operators")
    noted = opened.page.evaluate("""async () => {
        await Promise.all(["operators", "memory"].map(viewOf));
        await showView("memory");
        const left = showView("operators");
        while (document.querySelector("main h1").textContent !== "Operators") await null;
        await showView("memory");
        await left;
        const drawn = [...figures].map(({ place }) => place);
        return {
            tables: [...shownTables.keys()],
            figures: drawn.length,
            there: drawn.every((place) => place.isConnected),
            busy: document.getElementById("main").ariaBusy,
        };
    }""")
    tables = opened.page.eval_on_selector_all(
        "main section.table", "all => all.map(one => one.id.replace('part-', ''))"
    )
    assert set(noted["tables"]) <= set(tables)
    assert noted["there"]
    assert noted["figures"] == opened.page.locator("main .figure").count() > 0
    assert noted["busy"] == "false"
    assert opened.complaints == []


def test_a_click_on_a_title_sorts_by_number(opened: Opened) -> None:
    opened.go("operators")
    title = opened.page.locator("#part-ops thead th", has_text="Calls").first
    index = int(title.evaluate("cell => cell.cellIndex"))
    for direction in ("ascending", "descending"):
        title.locator(".dt-column-title").click()
        opened.page.wait_for_selector(f"#part-ops thead th:nth-child({index + 1})[aria-sort={direction}]")
        calls = [int(text.replace(",", "")) for text in opened.column("ops", index)]
        assert len(calls) > 5
        assert calls == sorted(calls, reverse=direction == "descending")


def test_search_keeps_the_rows_that_hold_the_text(opened: Opened) -> None:
    opened.go("operators")
    opened.page.locator("#part-ops select.dt-input").select_option("500")
    every = opened.column("ops", 0)
    opened.page.fill("#part-ops input[type=search]", "BACKWARD")
    found = opened.column("ops", 0)
    assert found == [name for name in every if "backward" in name.lower()]
    assert 5 < len(found) < len(every)


def test_a_column_can_be_filtered(opened: Opened) -> None:
    opened.go("operators")
    every = [int(text.replace(",", "")) for text in opened.column("ops", 1)]
    bound = sorted(every)[len(every) // 2]
    page = opened.page
    page.locator("#part-ops thead th").nth(1).locator("button.dtcc-button").click()
    page.locator(".dtcc-dropdown select").select_option("greater")
    page.locator(".dtcc-dropdown input").fill(str(bound))
    page.wait_for_function("document.querySelector('#part-ops .dt-info').textContent.includes('filtered')")
    found = [int(text.replace(",", "")) for text in opened.column("ops", 1)]
    assert found
    assert min(found) > bound


def test_a_row_opens_and_shows_its_kernels(opened: Opened) -> None:
    opened.go("operators")
    button = opened.page.locator("#part-ops button.open", has_text="aten::mm").first
    assert button.get_attribute("aria-expanded") == "false"
    button.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    details = opened.page.locator("#part-ops td.details")
    assert details.locator("h3", has_text="GPU operations").count() == 1
    assert details.locator(".related tbody tr").count() >= 1
    assert opened.page.evaluate("location.hash").startswith("#operators/ops/")


def test_an_address_leads_to_a_row(opened: Opened) -> None:
    opened.go("operators")
    names = opened.column("ops", 0)
    opened.open("#operators/ops/3")
    assert opened.page.locator("#part-ops td.details").count() == 1
    assert names[3] in opened.page.locator("#part-ops td.details dd").first.inner_text()
    focused = opened.page.evaluate("document.activeElement.textContent")
    assert focused == names[3]


@pytest.mark.parametrize(
    ("address", "title"),
    [
        ("nonsense", "Overview"),
        ("operators/nonsense/1", "Operators"),
        ("operators/ops/-7", "Operators"),
        ("operators/ops/x", "Operators"),
        ("%E0%A4%A", "Overview"),
    ],
)
def test_an_address_that_leads_nowhere_shows_a_view(opened: Opened, address: str, title: str) -> None:
    opened.page.evaluate("address => { location.hash = address }", address)
    opened.page.wait_for_selector(f"#menu a[aria-current]:has-text('{title}')")
    opened.settle()
    assert opened.page.locator("main h1").inner_text() == title
    assert opened.complaints == []


def test_a_page_is_opened_at_an_address_that_leads_nowhere(opened: Opened) -> None:
    opened.open("#nonsense")
    assert opened.page.locator("main h1").inner_text() == "Overview"
    assert opened.complaints == []


def test_csv_has_raw_numbers_under_the_names_of_the_frames(opened: Opened) -> None:
    opened.go("kernels")
    with opened.page.expect_download() as waiting:
        opened.page.locator("#part-kernels button", has_text="CSV").click()
    lines = Path(waiting.value.path()).read_text(encoding="utf-8-sig").splitlines()
    assert lines[0].replace('"', "").split(",")[:3] == ["name", "calls", "total_ns"]
    assert len(lines) > 5


def test_a_copy_has_what_the_table_shows(opened: Opened) -> None:
    opened.go("kernels")
    page = opened.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.fill("#part-kernels input[type=search]", "multi_tensor")
    names = opened.column("kernels", 0)
    page.locator("#part-kernels button", has_text="Copy").click()
    page.wait_for_selector(".dt-button-info")
    copied = page.evaluate("navigator.clipboard.readText()")
    lines = [line for line in copied.splitlines() if line]
    assert lines[0].split("\t")[:3] == ["name", "calls", "total_ns"]
    assert len(lines) == 1 + len(names) > 2
    assert opened.complaints == []


def test_the_theme_follows_the_system_and_its_button(browser: Browser, opened: Opened) -> None:
    path = Path(opened.url.removeprefix("file://"))
    dark = Opened(browser, path, color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    at_night = dark.page.evaluate(background)
    dark.page.click("#theme-button")
    assert dark.page.evaluate("document.documentElement.dataset.theme") == "light"
    assert dark.page.evaluate(background) != at_night
    dark.page.click("#theme-button")
    assert dark.page.evaluate(background) == at_night
    assert dark.complaints == []
    dark.close()


def test_the_keyboard_reaches_the_content_and_the_views(opened: Opened) -> None:
    opened.open()
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator("#menu a[data-view=kernels]").press("Enter")
    page.wait_for_selector("#menu a[data-view=kernels][aria-current=page]")
    opened.settle()
    assert page.locator("main h1").inner_text() == "Kernels"
    page.wait_for_function("document.activeElement.tagName == 'H1'")


def hostile_trace(folder: Path) -> Path:
    """A trace whose every name tries to be something else."""
    events: list[dict[str, Any]] = []
    for number, name in enumerate(HOSTILE):
        at = 1000 * number
        host = {"ph": "X", "pid": 7, "tid": 7}
        own = {"External id": number + 1}
        call = {**own, "correlation": number + 1}
        shapes = {"Input Dims": [[4, 4], [4, 4]], "Input type": ["float", name[:200]], "Call stack": name}
        gpu = {"ph": "X", "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7, **call}}
        events += [
            host | {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": 900},
            host | {"cat": "cpu_op", "name": name, "ts": at + 10, "dur": 100, "args": {**own, **shapes}},
            host | {"cat": "cuda_runtime", "name": name, "ts": at + 20, "dur": 10, "args": call},
            gpu | {"cat": "kernel", "name": name, "ts": at + 200, "dur": 300 + number},
        ]
    path = folder / "<img src=x onerror=alert(8)>.json"
    devices = [{"id": 0, "name": HOSTILE[2], "totalGlobalMem": 1, "numSms": 132}]
    document = {
        "schemaVersion": 1,
        "deviceProperties": devices,
        "host_name": HOSTILE[0],
        "traceEvents": events,
    }
    path.write_text(json.dumps(document))
    return path


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    found = Opened(browser, page_of(hostile_trace(tmp_path), tmp_path))
    page = found.page
    for view in found.views():
        found.go(view)
        page.eval_on_selector_all("button.open", "all => all.slice(0, 30).forEach(one => one.click())")
        foreign = page.locator(
            "main img, main iframe, main a[href^=http], main svg a, main b, body > script[src]"
        )
        assert foreign.count() == 0, view
    found.go("operators")
    shown = found.column("ops", 0)
    for name in HOSTILE[:7]:
        assert any(name in text for text in shown), name
    for text in ("<img", "onerror", "&amp;", "alert"):
        found.page.fill("#part-ops input[type=search]", text)
        assert found.column("ops", 0) == [name for name in shown if text in name]
    assert found.complaints == []
    found.close()


Make = Callable[[Path], list[dict[str, Any]]]
_HOST = {"ph": "X", "pid": 7, "tid": 7, "dur": 5}
_ODD: dict[str, list[dict[str, Any]]] = {
    "no event": [],
    "one operator": [_HOST | {"cat": "cpu_op", "name": "aten::mm", "ts": 1}],
    "one kernel": [_HOST | {"cat": "kernel", "name": "k", "ts": 1, "args": {"device": 0, "stream": 7}}],
    "one frame": [_HOST | {"cat": "python_function", "name": "f", "ts": 1, "args": {"Python id": 1}}],
    "nothing takes time": [_HOST | {"cat": "kernel", "name": "k", "ts": 1, "dur": 0, "args": {"device": 0}}],
    "no name": [{"ph": "X", "pid": 7, "tid": 7, "dur": 5, "cat": "cpu_op", "ts": 1}],
    "not a number": [
        _HOST | {"cat": "kernel", "name": "k", "ts": 1, "args": {"est. achieved occupancy %": float("nan")}}
    ],
}


@pytest.mark.parametrize("kind", draws.some(list(_ODD), 4))
def test_odd_traces_give_a_page_that_says_what_is_missing(
    browser: Browser, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": _ODD[kind]}))
    found = Opened(browser, page_of(path, tmp_path))
    for view in found.views():
        found.go(view)
        empty = found.page.locator("#menu a[aria-current].empty").count()
        assert not empty or found.page.locator(".note.missing").count(), view
    assert found.complaints == []
    found.close()


def test_the_timeline_zooms_moves_and_names_what_is_pointed_at(opened: Opened) -> None:
    opened.go("trace")
    page = opened.page
    canvas = page.locator("canvas")
    shown = "() => [...themed][0].range"
    whole = page.evaluate(shown)
    page.get_by_label("Zoom in").click()
    zoomed = page.evaluate(shown)
    assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) / 2)
    canvas.press("ArrowRight")
    assert page.evaluate(shown)[0] > zoomed[0]
    page.get_by_label("Go to a step").select_option("3")
    start, length, _ = page.evaluate("() => [...themed][0].part.steps[3]")
    assert page.evaluate(shown)[0] == pytest.approx(start - 0.02 * length)
    box = canvas.bounding_box()
    assert box
    top = page.evaluate("() => [...themed][0].tops.at(-1)")
    for x in range(20, int(box["width"]), 40):
        page.mouse.move(box["x"] + x, box["y"] + top + 5)
        if "from" in page.locator(".timeline-details").inner_text():
            break
    assert "thread" in page.locator(".timeline-details").inner_text()
    canvas.press("Home")
    assert page.evaluate(shown) == whole
    assert opened.complaints == []


def test_every_grouping_can_be_chosen(opened: Opened) -> None:
    for view in ("operators", "kernels", "flame"):
        opened.go(view)
        choice = opened.page.locator(".choice select")
        for option in range(choice.locator("option").count()):
            choice.select_option(str(option))
            opened.page.wait_for_selector(".group tbody tr, .group svg.main-svg")
    assert opened.complaints == []
