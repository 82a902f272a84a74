"""Makes the pictures of the README from the project's own demo trace: ``make pictures``."""

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from inputs import ROOT
from machine import chromium

IMAGES = ROOT / "docs" / "images"
PICTURES = (
    ("report-overview", "overview", (1366, 768), "light"),
    ("report-operators", "operators", (1366, 768), "dark"),
    ("report-trace", "trace", (1366, 560), "light"),
    ("report-phone", "roofline", (390, 844), "dark"),
)
"""Name of the file, view, size of the screen, theme."""
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
        browser.close()
    return 0


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
