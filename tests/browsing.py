"""Opens pages in an installed Chromium, and notes whatever it complains about."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LOCAL = ("file:", "blob:", "data:", "about:")
_PATIENCE_MS = 60_000


def chromium() -> str | None:
    """The path of an installed Chromium; null if there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def started(path: str) -> Iterator[Browser]:
    """The browser at ``path`` without a window."""
    with sync_playwright() as driver:
        # Chromium's sandbox does not work for root, who runs the tests inside a container.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A page of kernelscope in a browser, and what went wrong in it."""

    def __init__(self, browser: Browser, path: Path, **options: Any) -> None:
        self.complaints: list[str] = []
        self.page: Page = browser.new_context(**{"accept_downloads": True, **options}).new_page()
        self.page.set_default_timeout(_PATIENCE_MS)
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self._dialog(dialog))
        self.page.on("request", lambda request: self._request(request.url))
        self.url = path.resolve().as_uri()
        self.open()

    def _request(self, url: str) -> None:
        if not url.startswith(_LOCAL):
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
        """Waits until the view is drawn."""
        self.page.wait_for_selector("main[aria-busy=false]")

    def views(self) -> list[str]:
        """The views of the menu."""
        return self.page.eval_on_selector_all("#menu a", "links => links.map(link => link.dataset.view)")

    def show(self, view: str) -> None:
        """Chooses a view in the menu."""
        if self.page.locator("#menu-button").is_visible():
            self.page.click("#menu-button")
        self.page.click(f"#menu a[data-view={view}]")
        self.page.wait_for_selector(f"#menu a[data-view={view}][aria-current]", state="attached")
        self.settle()

    def column(self, table: str, index: int) -> list[str]:
        """The texts of a column of the rows that a table shows."""
        cells = f"#part-{table} tbody tr:not(:has(td.details)) td:nth-child({index + 1})"
        return [text.strip() for text in self.page.locator(cells).all_inner_texts()]

    def close(self) -> None:
        """Closes the page."""
        self.page.context.close()
