"""Makes the pictures of the README from the project's own demo trace: ``make pictures``."""

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from inputs import ROOT
from machine import chromium

IMAGES = ROOT / "docs" / "images"
PICTURES = (
    ("report-overview", "overview", (1366, 768), "light"),
    ("report-operators", "operators", (1366, 768), "dark"),
    ("report-trace", "trace", (1366, 560), "light"),
    ("report-phone", "roofline", (390, 844), "dark"),
)
"""Of the page that works offline: name of the file, view, size of the screen, theme."""

VIEWED = (
    ("view-overview", "overview", (1440, 900), "light"),
    ("view-timeline", "timeline", (1440, 900), "dark"),
    ("view-phone", "overview", (390, 844), "light"),
)
"""The same of the viewer."""
# The folder's name is not in the pictures.
COMMANDS = (
    "demo --size 20MB --ranks 1 --out demo.pt.trace.json",
    "analyze demo.pt.trace.json --format html --out demo.html",
)


def main() -> int:
    """Writes every picture."""
    program = chromium()
    if program is None:
        print("the pictures need Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        for command in COMMANDS:
            arguments = [sys.executable, "-m", "kernelscope", *command.split()]
            subprocess.run(arguments, check=True, cwd=folder, stdout=subprocess.DEVNULL)
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, view, screen, theme in PICTURES:
            url = f"{Path(folder, 'demo.html').as_uri()}#{view}"
            _picture(browser, url, IMAGES / f"{name}.png", screen, theme)
        _viewer(browser, Path(folder, "demo.pt.trace.json"))
        browser.close()
    return 0


def _viewer(browser: Browser, trace: Path) -> None:
    """Writes the pictures of the viewer."""
    command = [sys.executable, "-m", "kernelscope", "view", trace, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout is not None
        address = viewer.stdout.readline().strip()
        for name, view, (width, height), theme in VIEWED:
            shown = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            shown.goto(f"{address}#{view}")
            shown.wait_for_selector("html[data-ready]")
            shown.wait_for_selector("main[aria-busy=false]")
            if view == "timeline":
                _select(shown)
            shown.screenshot(path=IMAGES / f"{name}.png")
            shown.context.close()
            print(f"{name}.png")
        viewer.terminate()


def _select(shown: Page) -> None:
    """Goes to a kernel that fills some of the screen, with its launch in sight."""
    shown.fill(".search input", "cunn_SoftMaxForward")
    shown.keyboard.press("Enter")
    shown.wait_for_selector("h3:has-text('Costs of the operator') + dl")
    shown.keyboard.press("Escape")
    shown.locator(".scroller").focus()
    for _ in range(6):
        shown.keyboard.press("s")
    shown.wait_for_timeout(1_500)


def _picture(browser: Browser, url: str, out: Path, screen: tuple[int, int], theme: str) -> None:
    width, height = screen
    shown = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
    shown.goto(url)
    shown.wait_for_selector("html[data-ready]")
    shown.wait_for_selector("main[aria-busy=false]")
    shown.screenshot(path=out)
    shown.close()
    print(f"{out.name}: {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
