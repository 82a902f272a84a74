"""Measures the page of ``analyze --format html``: ``make bench-page``.

Each measurement is a process of its own. Reading and the page are timed apart in it; the peak of memory is
taken before and after the page, without what was resident before: the interpreter, its imports and their
code. A measurement during which the host of a virtual machine gave the processor to others is taken again, up
to twice; the share of a core that it took during those that count is shown. Then Chromium, where one is
installed, opens the page a few times, as a user's does, without a debugger: from the start of the navigation
until the first view is drawn, as far as the window shows it, and answers. The exit status is 1 where a
promise is not kept.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote
from urllib.request import Request, urlopen

import machine
import performance
from inputs import DATA, Input, inputs, provide
from processes import medians, run_task, take_turns
from tables import Promise, Sample, figures_table, promises_table

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

MOST_STOLEN = 0.03
"""Of a processor, what the host may take away during a measurement."""
SETTLE_S = 2.0
"""After it a browser just started has nothing more to do; a page is given twice as long."""
# The promises name the page of a trace of 1 GB. Small ones are read in less than what any page takes.
JUDGED_MB = 900
PROMISES = {
    "time of reading": ("ratio", 1.5, "x"),
    "memory, of the JSON": ("memory", 0.5, "x"),
    "size of the page": ("size_mb", 10, "MB"),
    "until it answers": ("interactive_s", 2, "s"),
}
COLUMNS = {
    "reading": "{read_s:.2f} s",
    "page": "{page_s:.2f} s",
    "x reading": "{ratio:.2f}",
    "peak of reading": "{read_peak_mb:,.0f} MB",
    "of the page": "{page_peak_mb:,.0f} MB",
    "of the JSON": "{memory:.2f}",
    "size": "{size_mb:.1f} MB",
    "answers after": "{interactive_s:.2f} s",
    "taken by the host": "{stolen:.1%}",
}


def main() -> int:
    """Measures every size, prints what was found, and fails where a promise is not kept."""
    parser = performance.parser(__doc__, repeats=3, sizes="100MB 400MB 1GB", layouts="native compact")
    options = performance.parse(parser)
    wanted = inputs(options.sizes, options.layouts)
    found = take_turns({each.name: partial(_measure, each, options.repeats) for each in wanted}, repeats=1)
    promises = [
        Promise(what, name, sample[key], bound, unit)
        for name, sample in found.items()
        for what, (key, bound, unit) in PROMISES.items()
        if key in sample and sample["json_mb"] >= JUDGED_MB
    ]
    tables = [figures_table("", "trace", COLUMNS, found), promises_table(promises)]
    print(*tables, sep="\n")
    performance.record(options, "page", "bench-page", tables)
    return int(not all(promise.kept for promise in promises))


def _measure(wanted: Input, repeats: int) -> Sample:
    path = provide(wanted)
    page = DATA / f"{path.stem}.html"
    found = medians(_undisturbed(path, page, repeats))
    browser = machine.chromium()
    if browser is not None:
        found["interactive_s"] = _opened(page, browser, repeats)
    page.unlink()
    found["ratio"] = found["page_s"] / found["read_s"]
    found["memory"] = found["page_peak_mb"] / found["json_mb"]
    return found


def _undisturbed(trace: Path, page: Path, repeats: int) -> list[Sample]:
    """So many samples, taken again where the host takes the processor away, or those of which it takes least.

    A page loses more by it than reading, which has fewer threads that wait for each other.
    """
    taken: list[Sample] = []
    while sum(sample["stolen"] <= MOST_STOLEN for sample in taken) < repeats and len(taken) < 3 * repeats:
        taken.append(run_task("page", trace, page))
    return sorted(taken, key=lambda sample: sample["stolen"])[:repeats]


def _opened(page: Path, browser: str, repeats: int) -> float:
    """Seconds from the start of the navigation until the first view answers."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # A browser of its own each time, so that no compiled script is there already.
        return statistics.median(_answers_after(page, browser, driver) for _ in range(repeats))


def _answers_after(page: Path, browser: str, driver: "Playwright") -> float:
    # An attached debugger makes Chromium parse Plotly three times more, to note where each call stands. So
    # the driver, which is one, only comes when the page is long done, and asks what the page itself noted.
    with _started(browser) as address:
        time.sleep(SETTLE_S)
        tab = f"{address}/json/new?{quote(page.resolve().as_uri(), safe='')}"
        urlopen(Request(tab, method="PUT")).close()
        time.sleep(2 * SETTLE_S)
        attached = driver.chromium.connect_over_cdp(address)
        shown = next(page for page in attached.contexts[0].pages if page.url.startswith("file:"))
        shown.wait_for_selector("html[data-ready]")
        mark = "performance.getEntriesByName('kernelscope-interactive')[0].startTime"
        seconds = shown.evaluate(mark) / 1000
        attached.close()
        return seconds


@contextmanager
def _started(browser: str) -> Iterator[str]:
    """The address at which a browser just started takes orders."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = ["--headless", "--no-sandbox", "--no-first-run", "--remote-debugging-port=0"]
        command = [browser, *options, f"--user-data-dir={folder}", "--window-size=1280,800", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port = Path(folder, "DevToolsActivePort")
            while not (port.exists() and "\n" in port.read_text()):
                if process.poll() is not None:
                    raise RuntimeError(f"{browser} does not start")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port.read_text().split()[0]}"
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
