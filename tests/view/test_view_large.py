"""A trace of a gigabyte in the viewer: everything that leads somewhere in a small one does here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser
from viewing import Served, Viewer, served, visited

from demo_jobs import write_job

pytestmark = pytest.mark.slow
SIZE_BYTES = 1_000_000_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    (path,) = write_job(tmp_path_factory.mktemp("viewed"), size_bytes=SIZE_BYTES)
    with served(path) as found:
        yield found
    path.unlink()


@pytest.fixture
def opened(browser: Browser, large: Served) -> Iterator[Viewer]:
    with visited(browser, large) as viewer:
        yield viewer


def test_from_the_first_finding_to_its_event_and_line(opened: Viewer) -> None:
    opened.page.click(".cause a.button >> nth=0")
    assert "events" in opened.panel()
    opened.page.click(".panel .links button >> nth=0")
    opened.page.wait_for_selector(".panel h2 + .note:has-text(' from ')")
    assert "train.py(" in opened.panel()


def test_a_search_steps_through_a_kernel(opened: Viewer) -> None:
    opened.show("timeline")
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("cunn_SoftMaxForward")
    opened.page.keyboard.press("Enter")
    count = opened.served.ask("search", text="cunn_SoftMaxForward")["count"]
    assert count > 100
    opened.until(lambda: opened.said(".search .said") == f"1 of {count:,}")
    opened.page.locator(".scroller").focus()
    opened.page.keyboard.press("p")
    opened.until(lambda: opened.said(".search .said") == f"{count:,} of {count:,}")
    assert "cunn_SoftMaxForward" in opened.panel()
    last = opened.served.ask("hit", text="cunn_SoftMaxForward", n=count - 1)["place"]["row"]
    assert opened.values["row"] == str(last)


def test_sql_leads_to_the_timeline(opened: Viewer) -> None:
    opened.show("sql")
    opened.page.locator(".sql textarea").fill("select row, name from gpu_ops order by dur_ns desc, row")
    opened.page.keyboard.press("Control+Enter")
    opened.page.wait_for_selector(".answer tbody button")
    first = opened.page.inner_text(".answer tbody th >> nth=0")
    opened.page.click(".answer tbody button >> nth=0")
    opened.page.wait_for_selector(".panel h3:has-text('GPU operation')")
    assert opened.values["row"] == first
