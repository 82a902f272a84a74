"""Opens pages in an installed Chromium, and notes whatever it complains about."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waiting import LIMIT_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# First the one without windows, which opens a page in half the time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Chromium's sandbox does not work for root, who runs the tests inside a container. All pages are our own: one
# process draws them.
_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-site-isolation-trials", "--renderer-process-limit=1")
_LOCAL = ("file:", "blob:", "data:", "about:")


def chromium() -> str | None:
    """The path of an installed Chromium; null if there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def started(path: str) -> Iterator[Browser]:
    """The browser at ``path`` without a window."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=1_000 * LIMIT_S)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=_OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page in a browser, and what went wrong in it."""

    settled = "main[aria-busy=false]"
    """What is there once a view is drawn."""

    def __init__(self, browser: Browser, url: str, own: Sequence[str], **options: Any) -> None:
        """Opens ``url``, which may ask for what begins with one of its ``own`` addresses only."""
        self.url = url
        self.complaints: list[str] = []
        self.page: Page = browser.new_context(**options).new_page()
        self.page.set_default_timeout(1_000 * LIMIT_S)
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self._dialog(dialog))
        self.page.on("request", lambda request: self._request(request.url, tuple(own)))
        self.open()

    def _request(self, url: str, own: tuple[str, ...]) -> None:
        if not url.startswith(own):
            self.complaints.append(f"request: {url}")

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, place: str = "") -> None:
        """Opens the page anew at ``place``, such as ``#kernels``."""
        self.page.goto("about:blank")
        self.page.goto(self.url + place)
        self.page.wait_for_selector("html[data-ready]")
        self.settle()

    def settle(self) -> None:
        """Waits until the view is drawn, with what it had to fetch."""
        self.page.wait_for_selector(self.settled)

    def views(self) -> list[str]:
        """The views of the menu."""
        return self.page.eval_on_selector_all("#menu a", "links => links.map(link => link.dataset.view)")

    def show(self, view: str) -> None:
        """Chooses a view in the menu."""
        if self.page.locator("#menu-button").is_visible():
            self.page.click("#menu-button")
        self.page.click(f"#menu a[data-view={view}]")
        self._wait_for(view)

    def go(self, view: str) -> None:
        """Goes to the address of a view, sooner than by a click."""
        self.page.evaluate("view => { location.hash = view }", view)
        self._wait_for(view.partition("/")[0])

    def _wait_for(self, view: str) -> None:
        self.page.wait_for_selector(f"#menu a[data-view={view}][aria-current]", state="attached")
        self.settle()

    def assert_accessible(self, what: str = "") -> None:
        """Nothing keeps who has a screen reader or a keyboard from the page, and nobody scrolls sideways."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page)
        assert found.violations_count == 0, f"{what}: {found.generate_report()}"
        assert self.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, what

    def close(self) -> None:
        """Closes the page."""
        self.page.context.close()


class Opened(Visit):
    """A page of kernelscope in a file."""

    def __init__(self, browser: Browser, path: Path, **options: Any) -> None:
        super().__init__(browser, path.resolve().as_uri(), _LOCAL, **{"accept_downloads": True, **options})

    def column(self, table: str, index: int) -> list[str]:
        """The texts of a column of the rows that a table shows."""
        cells = f"#part-{table} tbody tr:not(:has(td.details)) td:nth-child({index + 1})"
        return [text.strip() for text in self.page.locator(cells).all_inner_texts()]
