"""Flame graphs of the viewer: what it answers, and the journeys through them in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser
from viewing import HOSTILE, Served, Viewer, asked, each_look, served, visited

from events import Events
from kernelscope.analysis.ops.flame_tree import flame_tree
from kernelscope.errors import InvalidArgumentError, NotRecordedError
from kernelscope.view import flame

OWLV2 = "traces/kineto/owlv2-h100.json.gz"
SOFTMAX = "cunn_SoftMaxForward"


@pytest.fixture(scope="module")
def owlv2(shared: Path) -> Iterator[Served]:
    with served(shared / OWLV2) as found:
        yield found


@pytest.fixture
def opened(browser: Browser, owlv2: Served) -> Iterator[Viewer]:
    with visited(browser, owlv2) as viewer:
        yield viewer


def position(answer: dict[str, Any], name: str) -> int:
    """Where the first frame whose name has ``name`` in it stands in an answer."""
    names = answer["frames"]["name"]
    return next(at for at, of in enumerate(names["of"]) if name in names["texts"][of])


def test_the_largest_frames_are_sent_with_those_around_them(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = ks.read(shared / OWLV2)
    frames = flame_tree(trace, by="module", metric="self_cpu").frames
    monkeypatch.setattr(flame, "MOST_FRAMES", 50)
    found = flame.flame(trace, asked(by="module", metric="self_cpu"))
    assert found["left"] == frames.height - 50
    assert sorted(found["frames"]["total"]) == sorted(
        frames["total_ns"].sort(descending=True).head(50).to_list()
    )
    for at, parent in enumerate(found["frames"]["parent"]):
        above = frames["parent"][found["frames"]["n"][at]]
        assert (None if parent is None else found["frames"]["n"][parent]) == above


def test_a_frame_says_its_first_and_its_longest_event(shared: Path) -> None:
    trace = ks.read(shared / OWLV2)
    for by, metric in (
        ("op", "self_cuda"),
        ("op", "self_cpu"),
        ("module", "self_cpu"),
        ("python", "self_cpu"),
    ):
        tree = flame_tree(trace, by=by, metric=metric)
        for number in range(0, tree.frames.height, tree.frames.height // 12):
            found = flame.frame(trace, asked(by=by, metric=metric, n=number))
            rows = set(tree.events.filter(frame=number)["row"].to_list())
            timed = [
                (start, length or 0, row)
                for table in ("ops", "launches", "python", "ranges", "gpu_ops")
                for row, start, length in trace.tables[table].select("row", "start_ns", "dur_ns").iter_rows()
                if row in rows
            ]
            assert found["count"] == len(timed)
            if timed:
                assert found["first"]["row"] == min((start, row) for start, _, row in timed)[1]
                assert found["longest"]["length"] == max(length for _, length, _ in timed)
                inside = flame.framed(trace, asked(row=found["first"]["row"]))
                assert inside["n"] == number or (inside["by"], inside["metric"]) != (by, metric)
            else:
                assert found["first"] is found["longest"] is None


def test_what_is_asked_wrongly_is_said(tiny: Path) -> None:
    trace = ks.read(tiny)
    for wrong in (
        {"by": "<b>", "metric": "self_cpu"},
        {"by": "op", "metric": "gpu"},
        {"by": "op", "metric": ""},
    ):
        with pytest.raises(InvalidArgumentError):
            flame.flame(trace, asked(**wrong))
    for n in (-1, 99):
        with pytest.raises(NotRecordedError):
            flame.frame(trace, asked(by="op", metric="self_cpu", n=n))
    with pytest.raises(NotRecordedError):
        flame.framed(trace, asked(row=10_000))


def test_a_frame_leads_to_the_timeline_and_back(opened: Viewer) -> None:
    page = opened.page
    opened.show("flame")
    answer = opened.served.ask("flame")
    assert page.locator(".frame-details h2").inner_text() == "All threads"
    page.click(f".frame-details tbody button:has-text('{SOFTMAX}')")
    opened.settle()
    assert opened.values["frame"] == str(answer["frames"]["n"][position(answer, SOFTMAX)])
    assert SOFTMAX in page.inner_text(".frame-details h2")
    address = page.evaluate("location.hash")
    found = opened.served.ask("frame", by="op", metric="self_cuda", n=opened.values["frame"])
    page.click(".occurrences a:has-text('Longest')")
    assert SOFTMAX in opened.panel()
    assert opened.values["row"] == str(found["longest"]["row"])
    page.go_back()
    page.wait_for_selector(".flame")
    opened.settle()
    assert SOFTMAX in page.inner_text(".frame-details h2")
    page.click(".occurrences a:has-text('First')")
    opened.panel()
    assert opened.values["row"] == str(found["first"]["row"])
    # And from the timeline to the frame again.
    page.click(".panel button:has-text('Flame graph')")
    page.wait_for_selector(".flame")
    opened.settle()
    assert page.evaluate("location.hash") == address
    opened.open(address)
    assert SOFTMAX in page.inner_text(".frame-details h2")
    page.click(".tools button:has-text('All')")
    opened.settle()
    assert page.locator(".frame-details h2").inner_text() == "All threads"
    assert "frame" not in opened.values


def test_the_mouse_and_the_keys_enlarge_frames(opened: Viewer) -> None:
    page = opened.page
    opened.show("flame")
    answer = opened.served.ask("flame")
    area = page.locator(".flame canvas").bounding_box()
    assert area is not None
    # The widest frame of each row is on the left; the third row holds the operator.
    page.mouse.move(area["x"] + 30, area["y"] + 2 * 18 + 9)
    page.locator(".tip", has_text="aten::softmax").wait_for()
    assert "of the thread" in page.inner_text(".tip")
    page.mouse.click(area["x"] + 30, area["y"] + 2 * 18 + 9)
    opened.until(lambda: page.inner_text(".frame-details h2") == "aten::softmax")
    page.focus(".flame")
    item = page.locator(".flame [role=treeitem]")
    assert "aten::softmax" in (item.text_content() or "")
    assert item.get_attribute("aria-level") == "3"
    page.keyboard.press("ArrowDown")
    assert "aten::_softmax" in (item.text_content() or "")
    page.keyboard.press("ArrowDown")
    assert SOFTMAX in (item.text_content() or "")
    page.keyboard.press("Enter")
    opened.until(lambda: SOFTMAX in page.inner_text(".frame-details h2"))
    page.keyboard.press("Escape")
    opened.until(lambda: page.inner_text(".frame-details h2") == "aten::_softmax")
    for _ in range(4):
        page.keyboard.press("Escape")
    opened.until(lambda: page.inner_text(".frame-details h2") == "All threads")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    second = answer["frames"]["parent"].index(1, position(answer, "aten::softmax") + 1)
    siblings = [at for at, parent in enumerate(answer["frames"]["parent"]) if parent == 1]
    ordered = sorted(siblings, key=lambda at: -answer["frames"]["total"][at])
    names = answer["frames"]["name"]
    assert second in siblings
    assert names["texts"][names["of"][ordered[1]]] in (item.text_content() or "")
    assert item.get_attribute("aria-posinset") == "2"


def test_a_search_says_how_much_is_meant(opened: Viewer) -> None:
    opened.show("flame")
    page = opened.page
    page.fill("[aria-label='Search frames']", "softmax")
    trace = ks.read(Path(opened.served.session._path or ""))
    frames = flame_tree(trace, by="op", metric="self_cuda").frames
    meant = frames.filter(pl.col("name").str.to_lowercase().str.contains("softmax"))
    total = frames.filter(pl.col("name") == "aten::softmax")["total_ns"].sum()
    share = 100 * total / frames["total_ns"][0]
    opened.until(lambda: opened.said(".flame-view .said") == f"{meant.height} frames, {share:.1f} %")
    assert opened.values["find"] == "softmax"
    page.select_option("[aria-label='Stacks of']", label="Stacks of Python frames, host time")
    opened.until(lambda: opened.values.get("by") == "python")
    opened.settle()
    page.select_option("[aria-label='Colour by']", "name")
    assert opened.values["color"] == "name"
    page.fill("[aria-label='Search frames']", "no such frame")
    opened.until(lambda: opened.said(".flame-view .said") == "none")


@each_look
def test_axe_finds_nothing(browser: Browser, owlv2: Served, theme: str, options: dict[str, Any]) -> None:
    with visited(browser, owlv2, color_scheme=theme, **options) as viewer:
        for place in ("#flame", "#flame?by=module&metric=self_cuda&frame=40&find=gemm"):
            viewer.open(place)
            viewer.assert_accessible(place)


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    events = Events()
    for place, name in enumerate(HOSTILE):
        at = 1_000 * place
        events.add("cpu_op", name, at, 500, args={"External id": place + 1})
        events.add("cpu_op", name, at, 400, args={"External id": 100 + place}, tid=place + 50)
    with served(events.write(tmp_path / "names.json")) as found, visited(browser, found) as viewer:
        viewer.show("flame")
        page = viewer.page
        for name in HOSTILE[:-1]:
            page.fill("[aria-label='Search frames']", name.split("\n")[0])
            viewer.until(lambda: " frame" in viewer.said(".flame-view .said"))
        buttons = page.locator(".frame-details tbody button")
        for place in range(buttons.count()):
            viewer.open("#flame")
            buttons.nth(place).click()
            viewer.settle()
        page.focus(".flame")
        page.keyboard.press("ArrowDown")
        viewer.open("#flame?by=<b>&metric=<i>&frame=<u>&find=<s>&color=__proto__")
        viewer.open("#flame?frame=__proto__&color=constructor")
        viewer.refused(1)
        assert page.locator("main img, main script, main b:has-text('bold')").count() == 0


def test_a_trace_without_events_says_so(browser: Browser, tmp_path: Path) -> None:
    with served(Events().write(tmp_path / "empty.json")) as found, visited(browser, found) as viewer:
        viewer.show("flame")
        assert "No event of the trace has" in viewer.page.inner_text("main")
