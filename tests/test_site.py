"""The documentation site: it builds without a warning, its links lead somewhere, and it works from files."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest

import kernelscope as ks
from kernelscope.cli.main import COMMANDS
from waiting import LIMIT_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return out


def _pages(site: Path) -> list[Path]:
    # The page for missing addresses is sent by servers, at the root of their address.
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


class _Page(HTMLParser):
    """The anchors of a page, and where its links, pictures and scripts lead."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.targets.append(value)


def test_links_lead_somewhere(site: Path) -> None:
    pages = {path.as_uri(): _Page(path) for path in _pages(site)}
    assert len(pages) > 30
    for page, found in pages.items():
        for target in found.targets:
            address, anchor = urldefrag(urljoin(page, target))
            if urlparse(address).scheme != "file":
                continue
            assert Path(unquote(urlparse(address).path)).exists(), (page, target)
            known = pages[address].ids if address in pages else set()
            assert not anchor or unquote(anchor) in known, (page, target)


def test_the_reference_is_complete(site: Path) -> None:
    questions = _Page(site / "reference/kernelscope-analysis.html").ids
    assert {
        name for name in ks.analysis.__all__ if not any(i.endswith(f".{name}") for i in questions)
    } == set()
    tables = _Page(site / "reference/tables.html").ids
    assert ks.schema.TABLES.keys() <= tables
    assert {f"kernelscope-{name}" for name in COMMANDS} <= _Page(site / "reference/commands.html").ids
    diagnostics = (site / "reference/diagnostics.html").read_text()
    assert all(f"<code>{code}</code>" in diagnostics for code in ks.schema.DIAGNOSTICS)


def test_search_works_from_files(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.set_default_timeout(1_000 * LIMIT_S)
    page.fill("[data-md-component=search-query]", "idle_gaps")
    # The theme may not listen yet, and answers what was typed when a key is released.
    page.wait_for_function(
        """() => {
            document.querySelector("[data-md-component=search-query]").dispatchEvent(new Event("keyup"));
            return document.querySelector(".md-search-result__item a");
        }""",
        polling=100,
    )
    page.click(".md-search-result__item a >> nth=0")
    page.wait_for_selector("article h2[id$=idle_gaps]")
    assert {urlparse(url).scheme for url in asked} <= {"file", "data", "blob", "about"}
    page.close()


@pytest.mark.parametrize("width", [390, 1400])
def test_pages_fit_their_window(browser: Browser, site: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    for path in _pages(site):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
    page.close()
