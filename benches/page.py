"""Measures the page of ``analyze --format html``: ``make bench-page``.

Each measurement is a process of its own. Reading and the page are timed apart in it; the peak of memory is
taken before and after the page, without what was resident before: the interpreter, its imports and their
code. A measurement during which the host of a virtual machine gave the processor to others is taken again, up
to twice; what it took of a core during those that count is told. Then Chromium, where one is installed, opens
the page a few times, as a user's does, without a debugger: from the start of the navigation until the first
view is drawn, as far as the window shows it, and answers. The exit status is 1 where a promise is not kept.
"""

import argparse
import ctypes
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import machine
from floors import Floor
from inputs import DATA, Input, MissingInputError, parse_size, provide, sources, warm
from measure import memory_bytes
from performance import record, taken_on

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

MB = 10**6
MADV_POPULATE_READ = 22
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MOST_STOLEN = 0.03
"""Of a processor, what the host may take away during a measurement."""
SETTLE_S = 2.0
"""After it a browser just started has nothing more to do; a page is given twice as long."""
# The promises name the page of a trace of 1 GB. Small ones are read in less than what any page takes.
JUDGED_BYTES = 900 * MB
PROMISES = {
    "time of reading": ("ratio", 1.5, "x"),
    "memory, of the JSON": ("memory", 0.5, "x"),
    "size of the page": ("page_mb", 10, "MB"),
    "until it answers": ("interactive_s", 2, "s"),
}


def main() -> int:
    """Measures every size, prints what was found, and fails where a promise is not kept."""
    options = _options()
    if options.task:
        print(json.dumps(_task(Path(options.task[0]), Path(options.task[1]))))
        return 0
    warning = machine.busy()
    if warning is not None:
        print(f"warning: {warning}", file=sys.stderr)
    rows = [row for wanted in _inputs(options) if (row := _measure(wanted, options.repeats)) is not None]
    floors = [floor for row in rows for floor in _judged(row)]
    lines = [*_figures(rows), "", *_promises(floors)]
    print("\n".join(lines))
    if options.record:
        block = "\n".join(["", *lines, "", taken_on(machine.describe()), ""])
        record("page", "bench-page", block)
    return int(not all(floor.met for floor in floors))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100MB 400MB 1GB", help="of the traces (default: 100MB 400MB 1GB)")
    parser.add_argument("--layouts", default="native compact", help="of the traces (default: native compact)")
    parser.add_argument("--repeats", type=int, default=3, help="of each measurement (default: 3)")
    parser.add_argument("--record", action="store_true", help="renew the figures in benches/results.json")
    parser.add_argument("--task", nargs=2, metavar=("TRACE", "PAGE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _task(trace: Path, out: Path) -> dict[str, float]:
    """Reads ``trace`` and writes its page, as the command does; the time of imports is in neither."""
    import kernelscope
    from kernelscope.report import required_tables
    from kernelscope.report.html.page import write_page

    _map_libraries()
    clean = memory_bytes("VmHWM")
    stolen = machine.stolen_seconds()
    began = time.perf_counter()
    frames = kernelscope.read(trace, tables=required_tables("html"))
    done = time.perf_counter()
    read_peak = memory_bytes("VmHWM")
    write_page(frames, out)
    ended = time.perf_counter()
    return {
        "read_s": done - began,
        "page_s": ended - done,
        "stolen": (machine.stolen_seconds() - stolen) / (ended - began),
        "read_bytes": read_peak - clean,
        "page_bytes": memory_bytes("VmHWM") - clean,
        "page_mb": out.stat().st_size / MB,
        "json_bytes": frames.meta.content_bytes,
    }


def _map_libraries() -> None:
    """Maps in the code of every library that is loaded, so that it counts with the imports."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, *_, name = line.split()
        if access.startswith("r-x") and name.startswith("/"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            madvise(start, end - start, MADV_POPULATE_READ)


def _inputs(options: argparse.Namespace) -> Iterator[Input]:
    for text in options.sizes.split():
        for layout in options.layouts.split():
            for source in sources(layout):
                for is_gzip in (False, True):
                    yield Input(source, layout, parse_size(text), gzip=is_gzip)


def _measure(wanted: Input, repeats: int) -> dict[str, Any] | None:
    try:
        path = provide(wanted)
    except MissingInputError as missing:
        print(f"left out: {missing}", file=sys.stderr)
        return None
    warm(path)
    page = DATA / f"{path.stem}.html"
    command = [sys.executable, __file__, "--task", str(path), str(page)]
    taken = _undisturbed(command, repeats)
    found = {key: statistics.median(sample[key] for sample in taken) for key in taken[0]}
    opened = _opened(page, repeats)
    page.unlink()
    return {
        **found,
        "name": wanted.name,
        "ratio": found["page_s"] / found["read_s"],
        "memory": found["page_bytes"] / found["json_bytes"],
        "interactive_s": opened,
    }


def _undisturbed(command: list[str], repeats: int) -> list[dict[str, float]]:
    """So many samples, taken again where the host takes the processor away, or those of which it takes least.

    A page loses more by it than reading, which has fewer threads that wait for each other.
    """
    taken: list[dict[str, float]] = []
    while sum(sample["stolen"] <= MOST_STOLEN for sample in taken) < repeats and len(taken) < 3 * repeats:
        taken.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    return sorted(taken, key=lambda sample: sample["stolen"])[:repeats]


def _opened(page: Path, repeats: int) -> float | None:
    """Seconds from the start of the navigation until the first view answers; null without a browser."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        return None
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


def _figures(rows: list[dict[str, Any]]) -> list[str]:
    titles = ("trace", "reading", "page", "x reading", "peak of reading", "of the page", "of the JSON")
    lines = [f"| {' | '.join((*titles, 'size', 'answers after', 'taken by the host'))} |", "|---" * 10 + "|"]
    for row in rows:
        answers = "-" if row["interactive_s"] is None else f"{row['interactive_s']:.2f} s"
        peaks = f"{row['read_bytes'] / MB:,.0f} MB | {row['page_bytes'] / MB:,.0f} MB"
        lines.append(
            f"| {row['name']} | {row['read_s']:.2f} s | {row['page_s']:.2f} s | {row['ratio']:.2f} |"
            f" {peaks} | {row['memory']:.2f} | {row['page_mb']:.1f} MB | {answers} | {row['stolen']:.1%} |"
        )
    return lines


def _judged(row: dict[str, Any]) -> Iterator[Floor]:
    if row["json_bytes"] < JUDGED_BYTES:
        return
    for what, (key, bound, unit) in PROMISES.items():
        if row[key] is not None:
            yield Floor(what, row["name"], row[key], bound, at_least=False, unit=unit)


def _promises(floors: list[Floor]) -> list[str]:
    lines = ["| promise | trace | measured | promised | kept |", "|---|---|---|---|---|"]
    return [*lines, *(f"| {' | '.join(floor.cells())} |" for floor in floors)]


if __name__ == "__main__":
    sys.exit(main())
