"""Measures the page of ``analyze --format html``: ``make bench-page``.

Each measurement is a process of its own. Reading and the page are timed apart in it, wall time and
processor time of all threads; the peak of memory is taken before and after the page, without what was
resident before: the interpreter, its imports and their code. Then Chromium, where one is installed, opens
the page a few times: from the start of the navigation until the first view is drawn, as far as the window
shows it, and answers.
"""

import argparse
import ctypes
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
from inputs import DATA, Input, MissingInputError, parse_size, provide, sources, warm
from measure import memory_bytes
from performance import record, taken_on

MB = 10**6
MADV_POPULATE_READ = 22
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# The promises name the page of a trace of 1 GB. Small ones are read in less than what any page takes.
JUDGED_BYTES = 900 * MB
PROMISES = {
    "time of reading": ("ratio", 0.5, "x"),
    "memory, of the JSON": ("memory", 0.4, "x"),
    "size of the page": ("page_mb", 10, "MB"),
    "until it answers": ("interactive_s", 2, "s"),
}


def main() -> int:
    """Measures every size, and prints what was found."""
    options = _options()
    if options.task:
        print(json.dumps(_task(Path(options.task[0]), Path(options.task[1]))))
        return 0
    warning = machine.busy()
    if warning is not None:
        print(f"warning: {warning}", file=sys.stderr)
    rows = [row for wanted in _inputs(options) if (row := _measure(wanted, options.repeats)) is not None]
    lines = [*_figures(rows), "", *_promises(rows)]
    print("\n".join(lines))
    if options.record:
        block = "\n".join(["", *lines, "", taken_on(machine.describe()), ""])
        record("page", "bench-page", block)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100MB 400MB 1GB", help="of the traces (default: 100MB 400MB 1GB)")
    parser.add_argument("--layouts", default="native compact", help="of the traces (default: native compact)")
    parser.add_argument("--repeats", type=int, default=3, help="of each measurement (default: 3)")
    parser.add_argument("--record", action="store_true", help="renew the figures in docs/performance.md")
    parser.add_argument("--task", nargs=2, metavar=("TRACE", "PAGE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _task(trace: Path, out: Path) -> dict[str, float]:
    """Reads ``trace`` and writes its page, as the command does; the time of imports is in neither."""
    from kernelscope.allocator import keep_freed
    from kernelscope.cli.main import KEEP_FREED_MS

    keep_freed(KEEP_FREED_MS)
    import kernelscope
    from kernelscope.report import asked_tables
    from kernelscope.report.html import begin_page, write_page

    _map_libraries()
    clean = memory_bytes("VmHWM")
    began = time.perf_counter()
    begin_page()
    frames = kernelscope.read(trace, tables=asked_tables("html"))
    done = time.perf_counter()
    read_peak = memory_bytes("VmHWM")
    write_page(frames, out)
    return {
        "read_s": done - began,
        "page_s": time.perf_counter() - done,
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
    taken = [
        json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(repeats)
    ]
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


def _opened(page: Path, repeats: int) -> float | None:
    """Seconds from the start of the navigation until the first view answers; null without a browser."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        return None
    from playwright.sync_api import sync_playwright

    seconds: list[float] = []
    with sync_playwright() as driver:
        for _ in range(repeats):
            # A browser of its own, so that no compiled script is there already.
            started = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            shown = started.new_page()
            shown.goto(page.resolve().as_uri())
            shown.wait_for_selector("html[data-ready]")
            mark = "performance.getEntriesByName('kernelscope-interactive')[0].startTime"
            seconds.append(shown.evaluate(mark) / 1000)
            started.close()
    return statistics.median(seconds)


def _figures(rows: list[dict[str, Any]]) -> list[str]:
    titles = ("trace", "reading", "page", "x reading", "peak of reading", "of the page", "of the JSON")
    lines = [f"| {' | '.join((*titles, 'size', 'answers after'))} |", "|---" * 9 + "|"]
    for row in rows:
        answers = "-" if row["interactive_s"] is None else f"{row['interactive_s']:.2f} s"
        peaks = f"{row['read_bytes'] / MB:,.0f} MB | {row['page_bytes'] / MB:,.0f} MB"
        lines.append(
            f"| {row['name']} | {row['read_s']:.2f} s | {row['page_s']:.2f} s | {row['ratio']:.2f} |"
            f" {peaks} | {row['memory']:.2f} | {row['page_mb']:.1f} MB | {answers} |"
        )
    return lines


def _promises(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| promise | trace | measured | promised | kept |", "|---|---|---|---|---|"]
    for row in rows:
        if row["json_bytes"] < JUDGED_BYTES:
            continue
        for name, (key, most, unit) in PROMISES.items():
            if row[key] is not None:
                kept = "yes" if row[key] <= most else "NO"
                lines.append(f"| {name} | {row['name']} | {row[key]:.2f} {unit} | ≤ {most} {unit} | {kept} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
