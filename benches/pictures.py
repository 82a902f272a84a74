"""Makes the pictures of the README from the project's own demo trace: ``make pictures``."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
LAPTOP = {"width": 1366, "height": 768}
PHONE = {"width": 390, "height": 844}
PICTURES = (
    ("report-overview", "overview", LAPTOP, "light"),
    ("report-operators", "operators", LAPTOP, "dark"),
    ("report-trace", "trace", {"width": 1366, "height": 560}, "light"),
    ("report-phone", "roofline", PHONE, "dark"),
)
"""Name of the file, view, size of the screen, theme."""


def main() -> int:
    """Writes every picture."""
    browser = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if browser is None:
        print("the pictures need Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page = _page(Path(folder))
        started = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, view, screen, theme in PICTURES:
            _picture(started, f"{page.as_uri()}#{view}", IMAGES / f"{name}.png", screen, theme)
        started.close()
    return 0


def _page(folder: Path) -> Path:
    """The page of a demo trace; the folder's name is not in the pictures."""
    command = [sys.executable, "-m", "kernelscope"]
    trace, page = "demo.pt.trace.json", "demo.html"
    for arguments in (
        ["demo", "--size", "20MB", "--ranks", "1", "--out", trace],
        ["analyze", trace, "--format", "html", "--out", page],
    ):
        subprocess.run([*command, *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    return folder / page


def _picture(browser: Browser, url: str, out: Path, screen: dict[str, int], theme: str) -> None:
    context = browser.new_context(
        viewport={"width": screen["width"], "height": screen["height"]},
        color_scheme="dark" if theme == "dark" else "light",
    )
    shown = context.new_page()
    shown.goto(url)
    shown.wait_for_selector("html[data-ready]")
    shown.wait_for_selector("main[aria-busy=false]")
    shown.screenshot(path=out)
    context.close()
    print(f"{out.name}: {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
