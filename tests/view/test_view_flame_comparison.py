"""The flame graphs of two traces as one: by hand, beside each by itself, and in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kernelscope as ks

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser, expect
from viewing import Served, asked, pair_of, served, visited

from events import Events
from kernelscope.errors import NotRecordedError
from kernelscope.view import flame_comparison


def written(path: Path, length: int, *, extra: bool) -> Path:
    """Two steps of 100 us with a product of ``length`` us each, and maybe a copy of 10 us in the second."""
    events = Events()
    for step in (0, 1):
        at = 1_000 + 200 * step
        events.add("user_annotation", f"ProfilerStep#{step}", at, 100)
        events.add("cpu_op", "aten::mm", at + 10, length, args={"External id": step + 1})
    if extra:
        events.add("cpu_op", "aten::copy_", 1_280, 10, args={"External id": 9})
    # Outside of all steps, and so not counted.
    events.add("cpu_op", "aten::mm", 5, 400, args={"External id": 10}, tid=77)
    return events.write(path)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("two")
    before = written(folder / "before.json", 40, extra=False)
    after = written(folder / "after.json", 60, extra=True)
    with served(before, pair_of(before, after)) as found:
        yield found


def test_frames_by_hand(tmp_path: Path) -> None:
    traces = (
        ks.read(written(tmp_path / "before.json", 40, extra=False)),
        ks.read(written(tmp_path / "after.json", 60, extra=True)),
    )
    found = flame_comparison.flame(traces, asked(by="op", metric="self_cpu"))["frames"]
    names = [found["name"]["texts"][of] for of in found["name"]["of"]]
    frames = dict(
        zip(names, zip(found["before"], found["after"], found["own_before"], strict=True), strict=True)
    )
    assert frames.pop("aten::mm") == (40_000, 60_000, 40_000)
    assert frames.pop("aten::copy_") == (0, 5_000, 0)
    assert frames.pop("ProfilerStep*") == (100_000, 100_000, 60_000)
    assert list(frames.values()) == [(100_000, 100_000, 0)]
    copied = names.index("aten::copy_")
    sides = flame_comparison.frame(traces, asked(by="op", metric="self_cpu", n=found["n"][copied]))["sides"]
    assert sides[0] == {"place": None, "count": 0}
    assert sides[1]["place"]["length"] == 10_000
    with pytest.raises(NotRecordedError):
        flame_comparison.frame(traces, asked(by="op", metric="self_cpu", n=99))


def test_a_frame_leads_to_both_timelines(browser: Browser, two: Served) -> None:
    with visited(browser, two) as viewer:
        page = viewer.page
        row = page.locator(".flame-diff tbody tr", has_text="aten::mm")
        # Twice 40 us before and 60 us after, of the mean step.
        expect(row).to_contain_text("+20.00 us")
        row.locator("button").click()
        expect(page.locator(".chosen p")).to_have_count(2)
        expect(page.locator(".chosen p").nth(1)).to_contain_text("60.00 us, the longest of 2")
        viewer.settle()
        address = page.evaluate("location.hash")
        viewer.open(address)
        expect(page.locator(".chosen p")).to_have_count(2)
        item = page.locator(".flame-diff [role=treeitem]")
        assert "+20.00 us (+50.0 %)" in (item.text_content() or "")
        page.select_option("[aria-label='Width of frames']", "before")
        page.fill("[aria-label='Search frames']", "copy")
        # It takes no time before, and so has no width.
        viewer.until(lambda: viewer.said(".flame-diff .said") == "none")
        page.select_option("[aria-label='Width of frames']", "after")
        viewer.until(lambda: viewer.said(".flame-diff .said") == "1 frame")
