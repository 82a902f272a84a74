"""A browser for the tests that open pages."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Chromium without a window."""
    pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")
    from browsing import chromium, started

    path = chromium()
    if path is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with started(path) as found:
        yield found


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for pages that several tests open."""
    return tmp_path_factory.mktemp("pages")
