"""Journeys through the viewer in a real browser: from a finding to a kernel, a search, a range, and back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kernelscope as ks

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser
from viewing import HOSTILE, PHONE, Served, Viewer, each_look, served, visited

from events import Events
from kernelscope.view.session import Session

OWLV2 = "traces/kineto/owlv2-h100.json.gz"
DATABASE = "traces/nsys/h100-2gpu-emit-nvtx-2026.2.sqlite"
# The ranges of which an axis would say one text twice, or have more ticks than fit.
REPEATED_TICKS = """async () => {
    const { ticks, relative, absolute } = await import("./ticks.js");
    const epoch = 1752829952104994671n;
    const bad = [];
    for (const start of [0, -5, 1, 999, 12345678901, 3.6e12, 8.64e13, 1e15]) {
        for (let wide = 10; wide < 1e15; wide *= 3.7) {
            for (const most of [2, 7, 12]) {
                const { step, places } = ticks(start, start + wide, most);
                const since = places.map((time) => relative(time, step, start + wide));
                const clock = places.map((time) => absolute(time, step, epoch, wide >= 8.64e13));
                const same = [since, clock].some((texts) => new Set(texts).size !== texts.length);
                if (same || places.length > most + 2) bad.push([start, wide, most, since, clock]);
            }
        }
    }
    return bad;
}"""
SIXTY_FRAMES = """() => new Promise((done) => {
    let left = 60;
    const frame = () => (left-- ? requestAnimationFrame(frame) : done());
    frame();
})"""


@pytest.fixture(scope="module")
def owlv2(shared: Path) -> Iterator[Served]:
    with served(shared / OWLV2) as found:
        yield found


def test_a_link_in_another_page_opens_the_viewer(browser: Browser, owlv2: Served) -> None:
    """As in a terminal that is a page itself, by which most people reach a cluster."""
    page = browser.new_context().new_page()
    link = f"<a href='{owlv2.url}#timeline'>kernelscope</a>"
    page.route("http://terminal.example/", lambda route: route.fulfill(body=link, content_type="text/html"))
    page.goto("http://terminal.example/")
    page.click("a")
    page.wait_for_selector("html[data-ready]")
    assert page.url == f"http://{owlv2.host}/#timeline"


@pytest.fixture(scope="module")
def database(shared: Path) -> Iterator[Served]:
    with served(shared / DATABASE) as found:
        yield found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from kernelscope.cli import main

    path = tmp_path_factory.mktemp("demo") / "demo.json"
    assert main(["demo", "--size", "5MB", "--out", str(path)]) == 0
    with served(path) as found:
        yield found


@pytest.fixture
def opened(browser: Browser, owlv2: Served) -> Iterator[Viewer]:
    with visited(browser, owlv2) as viewer:
        yield viewer


def center(viewer: Viewer, selector: str) -> tuple[float, float]:
    box = viewer.page.locator(selector).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_from_the_first_finding_to_its_event_and_line_in_two_clicks(opened: Viewer) -> None:
    page = opened.page
    assert "51.1 %" in page.inner_text(".verdict")
    page.click("text=Show me >> nth=1")
    assert "Attention is not fused" in opened.panel()
    assert opened.values["evidence"] == "attention_not_fused"
    page.click(".panel .links button >> nth=0")
    page.wait_for_selector(".panel h3:has-text('Launch')")
    text = opened.panel()
    for words in (
        "cunn_SoftMaxForward",
        "aten::_softmax",
        "cudaLaunchKernel",
        ".py(",
        "Input shapes",
        "Grid",
    ):
        assert words in text
    page.wait_for_selector("h3:has-text('Costs of the operator') + dl")
    assert "FLOP" in opened.panel()


def test_the_critical_path_is_highlighted(browser: Browser, demo: Served) -> None:
    with visited(browser, demo) as viewer:
        viewer.show("timeline")
        page, tool = viewer.page, ".path-tool .note"
        plain = page.locator("canvas.marks").screenshot()
        page.click("text=Critical path")
        page.wait_for_selector(f"{tool}:has-text('%')")
        viewer.settle()
        assert viewer.values["path"] == "1"
        assert page.locator("canvas.marks").screenshot() != plain
        whole = viewer.said(tool)
        viewer.open("#timeline?path=1&step=12")
        page.wait_for_selector(f"{tool}:has-text('%')")
        assert viewer.said(tool) != whole
        page.click("text=Critical path")
        viewer.until(lambda: not viewer.said(tool))
        assert "path" not in viewer.values
        # The longest kernel says how it is with the path.
        viewer.open(f"#timeline?row={longest_kernel(demo)}")
        page.wait_for_selector("h3:has-text('Critical path') + dl")
        assert "On the path" in viewer.panel() or "Slack" in viewer.panel()


def test_sliders_replay_the_steps(browser: Browser, demo: Served) -> None:
    with visited(browser, demo) as viewer:
        viewer.show("timeline")
        page = viewer.page
        page.click("text=What if")
        page.wait_for_selector(".levers input")
        assert viewer.values["whatif"] == "1"
        before = viewer.said(".what-if-result")
        page.locator(".levers input").first.fill("0")
        viewer.until(lambda: "instead of" in viewer.said(".what-if-result"))
        assert "−" in viewer.said(".what-if-result")
        page.click("text=Reset")
        viewer.until(lambda: "0.0 %" in viewer.said(".what-if-result"))
        assert before.split(": ")[1] in viewer.said(".what-if-result")


def longest_kernel(viewer: Served) -> int:
    trace = viewer.session.trace  # type: ignore[union-attr]
    return trace.gpu_ops.sort("dur_ns", descending=True)["row"][0]


@pytest.mark.parametrize("which", ["database", "demo"])
def test_every_finding_of_other_traces_shows_its_events(
    request: pytest.FixtureRequest, browser: Browser, which: str
) -> None:
    with visited(browser, request.getfixturevalue(which)) as viewer:
        links = viewer.page.locator(".cause a.button").count()
        assert links > 0
        for place in range(links):
            viewer.show("overview")
            viewer.page.click(f".cause a.button >> nth={place}")
            assert "events" in viewer.panel()
            viewer.page.click(".panel .links button >> nth=0")
            viewer.page.wait_for_selector(".panel h2 + .note:has-text(' from ')")


def test_a_search_steps_through_all_occurrences(opened: Viewer) -> None:
    opened.show("timeline")
    page = opened.page
    page.keyboard.press("/")
    page.keyboard.type("gemm")
    count = opened.served.ask("search", text="gemm")["count"]
    page.keyboard.press("Enter")
    opened.until(lambda: opened.said(".search .said") == f"1 of {count:,}")
    opened.panel()
    rows = [opened.values.get("row")]
    page.locator(".scroller").focus()
    for key, number in (("n", 2), ("n", 3), ("p", 2), ("p", 1), ("p", count), ("n", 1)):
        page.keyboard.press(key)
        text = f"{number:,} of {count:,}"
        opened.until(lambda text=text: opened.said(".search .said") == text)
        opened.panel()
        rows.append(opened.values.get("row"))
    expected = [
        opened.served.ask("hit", text="gemm", n=n - 1)["place"]["row"] for n in (1, 2, 3, 2, 1, count, 1)
    ]
    assert rows == list(map(str, expected))
    # What is gone to is on the screen, and selected.
    assert "gemm" in page.inner_text(".panel h2")


def test_a_range_tells_its_breakdown(opened: Viewer) -> None:
    opened.show("timeline")
    page = opened.page
    x, y = center(opened, ".axis")
    page.mouse.move(x - 200, y - 15)
    page.mouse.down()
    page.mouse.move(x + 150, y - 15, steps=4)
    page.mouse.up()
    text = opened.panel()
    begin, end = int(opened.values["begin"]), int(opened.values["end"])
    found = opened.served.ask("selection", start=begin, end=end)
    kernel = next(part for part in found["parts"] if part["key"] == "kernel_ns")["ns"]
    assert f"Kernel {100 * kernel / (end - begin):.1f} %" in text
    assert "Kernels" in text
    assert "Operators" in text
    page.click("text=Zoom to it")
    shown = opened.shown
    assert shown[0] == pytest.approx(begin, abs=2)
    assert shown[1] == pytest.approx(end, abs=2)
    # A row of its kernels leads to the kernel.
    page.click(".panel td button >> nth=0")
    page.wait_for_selector(".panel h3:has-text('GPU operation')")


def test_keys_move_zoom_fit_and_mark(opened: Viewer) -> None:
    opened.show("timeline")
    page = opened.page
    whole = opened.shown
    page.locator(".scroller").focus()
    page.keyboard.press("w")
    near = opened.shown
    assert whole[0] < near[0] < near[1] < whole[1]
    page.keyboard.press("d")
    later = opened.shown
    assert later[0] > near[0]
    assert later[1] - later[0] == pytest.approx(near[1] - near[0], rel=0.01)
    page.keyboard.press("a")
    assert opened.shown[0] < later[0]
    page.keyboard.press("s")
    assert opened.shown[1] - opened.shown[0] > near[1] - near[0]
    page.keyboard.press("0")
    assert opened.shown == whole
    hit = opened.served.ask("hit", text="gemm", n=0)["place"]
    opened.open(f"#timeline?row={hit['row']}")
    opened.panel()
    page.locator(".scroller").focus()
    page.keyboard.press("f")
    start, end = opened.shown
    assert start < hit["start"] < hit["start"] + hit["length"] < end
    assert end - start < 20 * hit["length"]
    page.keyboard.press("Escape")
    page.wait_for_selector(".hint")
    assert "row" not in opened.values
    page.keyboard.press("?")
    assert page.locator("#help[open] dt").count() > 10
    page.keyboard.press("Escape")
    assert page.locator("#help[open]").count() == 0


def test_holding_a_key_goes_on(opened: Viewer) -> None:
    opened.show("timeline")
    opened.page.locator(".scroller").focus()
    first, last = opened.shown
    opened.page.keyboard.down("w")
    opened.page.evaluate(SIXTY_FRAMES)
    opened.page.keyboard.up("w")
    start, end = opened.shown
    assert end - start < 0.5 * (last - first)


def test_the_mouse_zooms_moves_and_draws_boxes(opened: Viewer) -> None:
    opened.show("timeline")
    page = opened.page
    whole = opened.shown
    x, y = center(opened, ".marks")
    page.mouse.move(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    # The driver does not wait for what a wheel does.
    opened.until(lambda: opened.shown != whole)
    page.keyboard.up("Control")
    near = opened.shown
    assert whole[0] < near[0] < near[1] < whole[1]
    page.mouse.down()
    page.mouse.move(x + 200, y, steps=4)
    page.mouse.up()
    moved = opened.shown
    assert moved[0] < near[0]
    page.keyboard.down("Alt")
    page.mouse.move(x - 50, y - 60)
    page.mouse.down()
    page.mouse.move(x + 50, y + 20, steps=4)
    assert page.locator(".box").is_visible()
    page.mouse.up()
    page.keyboard.up("Alt")
    assert page.locator(".box").is_hidden()
    boxed = opened.shown
    assert boxed[1] - boxed[0] < 0.2 * (moved[1] - moved[0])
    page.keyboard.down("Shift")
    page.mouse.move(x - 100, y + 100)
    page.mouse.down()
    page.mouse.move(x + 100, y + 100, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert "selected" in opened.panel()


def test_a_click_tells_the_slice_and_a_double_click_fits_it(opened: Viewer) -> None:
    opened.show("timeline")
    page = opened.page
    area = page.locator(".marks").bounding_box()
    assert area is not None
    # The first lane of the thread holds the step, all over the trace.
    place = page.locator(".label.track", has_text="thread 21587").first
    place.wait_for()
    label = place.bounding_box()
    assert label is not None
    at = area["x"] + area["width"] / 2, label["y"] + 8
    page.mouse.move(*at)
    page.locator(".tip", has_text="ProfilerStep#6").wait_for()
    page.mouse.click(*at)
    assert "ProfilerStep#6" in opened.panel()
    # Many events on a pixel say that they are many.
    page.keyboard.press("Escape")
    page.wait_for_selector(".hint")
    opened.settle()
    texts = set()
    for x in range(100, int(area["width"]), 37):
        page.mouse.move(area["x"] + x, label["y"] + 17 + 8)
        texts.add(page.inner_text(".tip") if page.locator(".tip").is_visible() else "")
    assert any("events in" in text and "busy" in text for text in texts)


def test_a_pointer_that_rests_is_told_what_comes_below_it(browser: Browser, owlv2: Served) -> None:
    with visited(browser, owlv2) as viewer:
        page = viewer.page
        held: list[Any] = []
        page.route("**/api/window*", lambda route: held.append(route))
        page.click("#menu a[data-view=timeline]")
        label = page.locator(".label.track", has_text="thread 21587").first.bounding_box()
        area = page.locator(".marks").bounding_box()
        assert label is not None
        assert area is not None
        viewer.until(lambda: len(held) == 2)
        page.mouse.move(area["x"] + area["width"] / 2, label["y"] + 8)
        # Of the whole trace, the picture of all and what is in sight.
        assert page.get_attribute(".timeline", "aria-busy") == "true"
        assert not page.locator(".tip").is_visible()
        for route in held:
            route.continue_()
        page.locator(".tip", has_text="ProfilerStep#6").wait_for()
        viewer.settle()
        page.unroute("**/api/window*")
        page.keyboard.press("Escape")
        page.keyboard.press("0")
        # What comes below it while the keys zoom is told, too.
        page.mouse.move(area["x"] + area["width"] / 2, label["y"] + 4 * 17 + 8)
        viewer.settle()
        before = viewer.said(".tip")
        for _ in range(20):
            page.keyboard.press("w")
        viewer.settle()
        assert viewer.said(".tip") != before


def test_a_window_that_is_refused_keeps_nobody_waiting(browser: Browser, owlv2: Served) -> None:
    viewer = Viewer(browser, owlv2)
    viewer.page.route(
        "**/api/window*", lambda route: route.fulfill(status=500, body='{"error": "no such luck"}')
    )
    viewer.show("timeline")
    assert "no such luck" in viewer.page.inner_text("#notice")
    viewer.close()


def test_zooming_ends_at_nanoseconds_and_ticks_never_repeat(opened: Viewer) -> None:
    hit = opened.served.ask("hit", text="gemm", n=0)["place"]
    opened.open(f"#timeline?from={hit['start']}&to={hit['start'] + 20}")
    start, end = opened.shown
    assert 10 <= end - start <= 30
    repeated = opened.page.evaluate(REPEATED_TICKS)
    assert repeated == []


def test_back_shows_what_was_there_and_the_address_opens_it_again(opened: Viewer) -> None:
    page = opened.page
    page.click("text=Show me >> nth=0")
    opened.panel()
    evidence = page.url
    page.click(".panel .links button >> nth=1")
    page.wait_for_selector(".panel h3:has-text('Operator')")
    page.go_back()
    page.wait_for_selector(".panel h2:has-text('Steps wait for data')")
    assert opened.values["evidence"] in evidence
    page.go_back()
    page.wait_for_selector(".verdict")
    page.go_forward()
    page.wait_for_selector(".panel h2:has-text('Steps wait for data')")
    page.click(".panel .links button >> nth=2")
    page.wait_for_selector(".panel h3:has-text('Operator')")
    title, shown, row = page.inner_text(".panel h2"), opened.shown, opened.values["row"]
    address = page.url
    opened.open("#" + address.partition("#")[2])
    opened.panel()
    assert (page.inner_text(".panel h2"), opened.values["row"]) == (title, row)
    assert opened.shown == pytest.approx(shown, abs=2)


def test_the_timeline_is_found_again_as_it_was_left(opened: Viewer) -> None:
    opened.show("timeline")
    opened.page.locator(".scroller").focus()
    opened.page.keyboard.press("w")
    near = opened.shown
    opened.show("kernels")
    opened.show("timeline")
    assert opened.shown == near


def test_tracks_fold_filter_and_fade(opened: Viewer) -> None:
    opened.show("timeline")
    page = opened.page
    labels = page.locator(".label.track")
    labels.first.wait_for()
    tracks = labels.count()
    page.click(".label.group >> nth=1")
    opened.until(lambda: labels.count() < tracks)
    # Who folded it with the keyboard can open it again.
    page.keyboard.press("Enter")
    opened.until(lambda: labels.count() == tracks)
    python = page.locator(".label.track", has_text="Python, ").first
    folded = python.bounding_box()
    assert folded is not None
    python.click()
    opened.until(lambda: (python.bounding_box() or folded)["height"] > 4 * folded["height"])
    page.fill(".filter", "stream")
    opened.until(lambda: labels.count() == 1)
    assert opened.values["tracks"] == "stream"
    button = page.locator(".legend button", has_text="kernel")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"


def test_what_is_arranged_is_kept_in_the_address(opened: Viewer) -> None:
    opened.show("timeline")
    page = opened.page
    labels = page.locator(".label.track")
    labels.first.wait_for()
    page.click(".label.group >> nth=1")
    page.locator("[aria-label^='Pin GPU']").first.click()
    page.locator(".label.group", has_text="Pinned").wait_for()
    assert page.locator(".label.group").first.inner_text() == "Pinned"
    page.select_option(".tools > [aria-label='Colour by']", "name")
    page.locator(".legend button", has_text="launch").click()
    hit = opened.served.ask("hit", text="gemm", n=0)["place"]
    opened.open(page.evaluate("location.hash") + f"&row={hit['row']}")
    opened.panel()
    page.locator(".scroller").focus()
    page.keyboard.press("m")
    assert opened.values["marks"] == f"{hit['start']}-{hit['start'] + hit['length']}"
    tracks = labels.all_inner_texts()
    opened.open(page.evaluate("location.hash"))
    opened.panel()
    assert labels.all_inner_texts() == tracks
    assert page.locator(".label.group").first.inner_text() == "Pinned"
    assert page.input_value(".tools > [aria-label='Colour by']") == "name"
    assert page.get_attribute(".legend button:has-text('launch')", "aria-pressed") == "false"
    # A pinned track stays, whatever is filtered, and can be let go.
    page.fill(".filter", "no such track")
    opened.until(lambda: labels.count() == 1)
    page.locator("[aria-label^='Pin GPU']").first.click()
    opened.until(lambda: labels.count() == 0)
    page.fill(".filter", "")
    page.locator(".scroller").focus()
    page.keyboard.press("m")
    assert "marks" not in opened.values
    opened.open(
        "#timeline?fold=g9.x.999.p&pins=__proto__.-1.5e9&marks=<b>.5-2.x-y&color=<i>&faded=constructor"
    )


def test_tables_sort_search_filter_and_lead_to_the_timeline(opened: Viewer) -> None:
    opened.show("kernels")
    page = opened.page
    table = page.locator(".card.table").first
    rows = table.locator("tbody tr")
    opened.until(lambda: rows.count() > 10)
    frame = ks.analysis.kernel_table(ks.read(Path(opened.served.session._path or "")))
    table.locator("th[data-key=calls] button").click()
    page.wait_for_selector("th[data-key=calls][aria-sort=descending]")
    calls = [int(text.replace(",", "")) for text in rows.locator("td:nth-child(2)").all_inner_texts()]
    assert calls == sorted(frame["calls"].to_list(), reverse=True)[: len(calls)]
    table.locator("th[data-key=calls] button").click()
    page.wait_for_selector("th[data-key=calls][aria-sort=ascending]")
    table.locator("input[type=search]").fill("gemm")
    matches = frame.filter(frame["name"].str.to_lowercase().str.contains("gemm")).height
    opened.until(lambda: f"{matches} of " in opened.said(".card.table .said"))
    assert opened.values["search"] == "gemm"
    table.locator("button", has_text="Filter").click()
    table.locator("input[aria-label='Filter Total']").fill("> 1 ms")
    long = frame.filter(
        frame["name"].str.to_lowercase().str.contains("gemm"), frame["total_ns"] > 10**6
    ).height
    opened.until(lambda: opened.said(".card.table .said").startswith(f"{long} of "))
    table.locator("input[aria-label='Filter Total']").fill("> 1 parsec")
    page.wait_for_selector("#notice:not([hidden])")
    assert "not a number of this column" in page.inner_text("#notice")
    opened.refused(1)
    table.locator("input[aria-label='Filter Total']").fill("")
    # The rows are other ones once it is answered.
    opened.until(lambda: table.get_attribute("aria-busy") == "false")
    rows.first.locator("button.link").click()
    page.wait_for_selector(".timeline")
    # The first event of the name is gone to, and Back comes back from it.
    opened.panel()
    assert " of " in opened.said(".search .said")
    page.go_back()
    opened.until(lambda: rows.count() > 3)
    assert opened.values["search"] == "gemm"


def answered(viewer: Viewer) -> str:
    """What the page says of a statement, once it is answered."""
    viewer.page.wait_for_selector(".sql[aria-busy=false]")
    return viewer.said(".sql .said")


def test_sql_completes_names_and_leads_to_the_timeline(opened: Viewer) -> None:
    opened.show("sql")
    page = opened.page
    field = page.locator(".sql textarea")
    field.fill("select row, na")
    page.keyboard.press("Tab")
    assert field.input_value() == "select row, name"
    page.keyboard.type(" from gpu_o")
    assert page.locator(".completion [role=option]").all_inner_texts() == ["gpu_ops"]
    page.keyboard.press("ArrowDown")
    assert page.get_attribute(".sql textarea", "aria-activedescendant") == "completion-0"
    page.keyboard.press("Enter")
    page.keyboard.type(" order by dur")
    # Of the table that is asked, and not of all.
    page.locator(".completion [role=option]", has_text="dur_ns").click()
    page.keyboard.type(" desc")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Enter")
    opened.until(lambda: answered(opened) == "the first 500 rows")
    ops = ks.read(Path(opened.served.session._path or "")).gpu_ops
    longest = ops.sort("dur_ns", descending=True)["row"].to_list()
    assert list(map(int, page.locator(".answer tbody th").all_inner_texts()))[:3] == longest[:3]
    page.click(".answer tbody button >> nth=1")
    opened.panel()
    assert opened.values["row"] == str(longest[1])
    page.go_back()
    page.wait_for_selector(".answer tbody button")
    assert field.input_value() == "select row, name from gpu_ops order by dur_ns desc"
    page.click("summary:has-text('gpu_ops')")
    field.fill("select ")
    page.click(".names details[open] button:has-text('stream')")
    page.keyboard.type(", count(*) as n from gpu_ops group by stream")
    page.click("text=Run")
    opened.until(lambda: answered(opened) == f"{ops['stream'].n_unique()} row")


def test_sql_says_what_is_wrong(opened: Viewer) -> None:
    opened.open("#sql?q=select%20*%20from%20read_csv('/etc/passwd')")
    assert "reads files" in opened.page.inner_text(".answer [role=alert]")
    opened.page.fill(".sql textarea", "select <b>x</b> from ops")
    opened.page.click("text=Run")
    opened.page.wait_for_selector(".answer [role=alert]:has-text('cannot answer')")
    assert opened.page.locator(".answer b").count() == 0
    opened.refused(2)


@pytest.mark.parametrize("which", ["owlv2", "database", "demo"])
def test_every_view_is_drawn_and_nothing_complains(
    request: pytest.FixtureRequest, browser: Browser, which: str
) -> None:
    with visited(browser, request.getfixturevalue(which)) as viewer:
        views = viewer.views()
        assert views[:2] == ["overview", "timeline"]
        assert len(views) > 10
        for view in views:
            viewer.show(view)
            assert viewer.page.locator("main h1").count() == 1, view
            assert viewer.page.locator("main :is(.card, .timeline, .flame, .note)").count() > 0, view


@each_look
def test_axe_finds_nothing(browser: Browser, owlv2: Served, theme: str, options: dict[str, Any]) -> None:
    with visited(browser, owlv2, color_scheme=theme, **options) as viewer:
        row = owlv2.ask("hit", text="gemm", n=0)["place"]["row"]
        places = [
            "#overview",
            f"#timeline?row={row}",
            "#timeline?begin=1000&end=900000000",
            "#kernels",
            "#recommendations",
            "#sql?q=select row, name, grid, start_ns, dur_ns from gpu_ops limit 30",
        ]
        for place in places:
            viewer.open(place)
            if "timeline" in place:
                viewer.panel()
            viewer.assert_accessible(place)
        if not options:
            viewer.page.click("#help-button")
            viewer.assert_accessible()


def test_fingers_move_and_tap(browser: Browser, owlv2: Served) -> None:
    with visited(browser, owlv2, **PHONE) as viewer:
        viewer.show("timeline")
        place = viewer.page.locator(".label.track", has_text="thread").first
        place.wait_for()
        label = place.bounding_box()
        assert label is not None
        viewer.page.touchscreen.tap(250, label["y"] + 8)
        assert "ProfilerStep#6" in viewer.panel()


def test_hostile_names_are_text_everywhere(browser: Browser, tmp_path: Path) -> None:
    events = Events({"id": 0, "name": "<b>GPU</b>", "numSms": 132})
    for place, name in enumerate(HOSTILE):
        at = 1_000 * place
        events.add("cpu_op", name, at, 500, args={"External id": place + 1, "Input Dims": [[2, 3], [3, 4]]})
        events.add(
            "cuda_runtime", name, at + 10, 50, args={"External id": place + 1, "correlation": place + 1}
        )
        kernel = {"External id": place + 1, "correlation": place + 1, "device": 0, "stream": 7}
        events.add("kernel", name, at + 100, 300, args=kernel, pid=0, tid=7)
    path = events.write(tmp_path / "<img src=x onerror=alert(9)>.json")
    with served(path) as found, visited(browser, found) as viewer:
        for view in viewer.views():
            viewer.show(view)
        viewer.show("timeline")
        page = viewer.page
        for name in HOSTILE[:-1]:
            page.fill(".search input", name.split("\n")[0])
            page.keyboard.press("Enter")
            viewer.until(lambda: " of " in viewer.said(".search .said"))
            viewer.panel()
        x, y = center(viewer, ".marks")
        page.mouse.move(x, y)
        page.keyboard.press("Escape")
        viewer.open(f"#timeline?find={'<img src=x onerror=alert(5)>'}&row=<b>&from=x&evidence=<i>&tracks=<u>")
        viewer.open("#<img src=x onerror=alert(6)>")
        viewer.refused(2)
        assert page.locator("main img, main script, main b:has-text('bold'), header img").count() == 0
        assert "<img src=x" in page.inner_text("#file")


def test_ten_thousand_tracks_have_labels_and_marks_where_they_are_looked_at(
    browser: Browser, tmp_path: Path
) -> None:
    events = Events()
    for track in range(10_000):
        events.add("cpu_op", f"aten::op{track % 7}", track, 900, args={"External id": track + 1}, tid=track)
    events.add("cpu_op", "as long as the trace", 0, 20_000, tid=0)
    with served(events.write(tmp_path / "tracks.json")) as found, visited(browser, found) as viewer:
        viewer.show("timeline")
        page = viewer.page
        labels = page.locator(".label")
        labels.first.wait_for()
        assert labels.count() < 100
        page.evaluate("document.querySelector('.scroller').scrollTop = 1e9")
        page.locator(".label", has_text="thread 9999").wait_for()
        assert labels.count() < 100
        # The last track is drawn, and known where it is pointed at.
        hit = found.ask("hit", text="aten::op", n=9_999)["place"]
        viewer.open(f"#timeline?row={hit['row']}")
        assert "aten::op" in viewer.panel()
        page.locator(".label", has_text="thread 9999").wait_for()
        # One slice is as long as the trace, at the other end.
        page.fill(".search input", "as long")
        page.keyboard.press("Enter")
        page.wait_for_selector(".panel h2:has-text('as long as the trace')")
        page.locator(".label", has_text="thread 0").first.wait_for()


def test_reading_is_shown_and_so_is_a_failure(browser: Browser, tiny: Path) -> None:
    go_on = threading.Event()

    def read(watch: Callable[[int, int], object]) -> ks.Trace:
        watch(30, 100)
        assert go_on.wait(60)
        raise ks.errors.NotATraceError("slow.json: is no trace of a known format")

    with served(tiny, Session("slow.json", read)) as found:
        page = browser.new_context().new_page()
        page.goto(found.url)
        page.wait_for_selector("progress[value='30']")
        assert "30 B of 100 B" in page.inner_text("main")
        assert page.title() == "slow.json - kernelscope"
        go_on.set()
        page.wait_for_selector("html[data-ready=failed]")
        assert "is no trace of a known format" in page.inner_text("main")
        page.context.close()


def test_a_trace_without_events_says_so(browser: Browser, tmp_path: Path) -> None:
    with served(Events().write(tmp_path / "empty.json")) as found, visited(browser, found) as viewer:
        assert "no complete step" in viewer.page.inner_text(".verdict")
        viewer.show("timeline")
        assert "no events with a time" in viewer.page.inner_text("main")


def test_who_skips_to_the_content_stays_in_the_view(opened: Viewer) -> None:
    opened.show("kernels")
    opened.page.locator(".skip").focus()
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "main"
    assert opened.page.url.endswith("#kernels")


def test_two_tabs_and_a_server_that_is_gone(browser: Browser, tiny: Path) -> None:
    with served(tiny) as found:
        one, other = Viewer(browser, found), Viewer(browser, found)
        one.show("timeline")
        other.show("kernels")
        assert one.complaints == other.complaints == []
        other.close()
    one.page.click("#menu a[data-view=kernels]")
    one.page.wait_for_selector("main .note:has-text('The viewer has stopped')")
    one.close()
