"""Measures the viewer in Chromium: ``make bench-view``.

The viewer runs in a process of its own, and its page is open at the timeline while the trace is read. Then
the page is used as people use it: by the wheel and by keys that are held, in and out and along, at several
places. What the page notes itself is taken: when the trace was read, when its first picture was there, how
long a window took from the question until its marks were ready, and the time between two frames. Memory of
the server is the peak of its process, beside that when reading was done. The exit status is 1 where a
promise is not kept.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import machine
import performance
from inputs import GB, Input, parse_size, provide
from tables import NotMeasuredError, Promise, Sample, figures_table, promises_table

# The promises are about a trace of 1 GB.
JUDGED_BYTES = 0.9 * GB
PROMISES = {
    "first picture": ("picture_s", 0.5, "s"),
    "window, 99th percentile": ("window_p99_ms", 50, "ms"),
    "search": ("search_ms", 100, "ms"),
    "server, beside reading": ("memory", 1.2, "x"),
    "heap of the browser": ("heap_mb", 150, "MB"),
}
COLUMNS = {
    "read": "{read_s:.2f} s",
    "first picture": "{picture_s:.2f} s",
    "windows": "{windows}",
    "median": "{window_p50_ms:.0f} ms",
    "99th": "{window_p99_ms:.0f} ms",
    "frame, median": "{frame_p50_ms:.1f} ms",
    "95th": "{frame_p95_ms:.1f} ms",
    "search": "{search_ms:.0f} ms",
    "server": "{server_mb:,.0f} MB",
    "of reading": "{memory:.2f}",
    "heap": "{heap_mb:.0f} MB",
}
FRAMES = """() => {
    window.frames_ms = [];
    let before = performance.now();
    const note = (now) => { window.frames_ms.push(now - before); before = now; requestAnimationFrame(note); };
    requestAnimationFrame(note);
}"""
PLACES = 8


def main() -> int:
    """Measures every size, prints what was found, and fails where a promise is not kept."""
    parser = performance.parser(__doc__, repeats=1, sizes="10MB 100MB 1GB")
    options = performance.parse(parser)
    wanted = [Input("demo", "native", parse_size(size), gzip=False) for size in options.sizes.split()]
    found = {each.name: _measure(provide(each)) for each in wanted}
    promises = [
        Promise(what, each.name, found[each.name][key], bound, unit)
        for each in wanted
        for what, (key, bound, unit) in PROMISES.items()
        if each.size_bytes >= JUDGED_BYTES
    ]
    tables = [figures_table("", "trace", COLUMNS, found), promises_table(promises)]
    print(*tables, sep="\n")
    performance.record(options, "view", "bench-view", tables)
    return int(not all(promise.kept for promise in promises))


@contextmanager
def _viewer(trace: Path) -> Iterator[tuple[str, int]]:
    """The address of a viewer of ``trace``, and the number of its process."""
    command = [sys.executable, "-m", "kernelscope", "view", trace, "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.wait()


def _measure(trace: Path) -> Sample:
    program = machine.chromium()
    if program is None:
        raise NotMeasuredError("no Chromium is installed: apt-get install chromium")
    with _viewer(trace) as (url, process), sync_playwright() as driver:
        begun = time.monotonic()
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{url}#timeline")
        page.wait_for_selector("main .timeline", timeout=600_000)
        read_s = time.monotonic() - begun
        read_mb = _peak_mb(process)
        _until(page, "performance.getEntriesByName('kernelscope-window').length > 0")
        first = page.evaluate(
            "performance.getEntriesByName('kernelscope-window').map((one) => one.startTime + one.duration)[0]"
            " - performance.getEntriesByName('kernelscope-read')[0].startTime"
        )
        page.evaluate("performance.clearMeasures()")
        page.evaluate(FRAMES)
        _use(page)
        windows = page.evaluate(
            "performance.getEntriesByName('kernelscope-window').map((one) => one.duration)"
        )
        frames = page.evaluate("window.frames_ms")
        search_ms = _search(page)
        client = page.context.new_cdp_session(page)
        client.send("HeapProfiler.collectGarbage")
        heap = page.evaluate("performance.memory.usedJSHeapSize")
        server_mb = _peak_mb(process)
        browser.close()
    return {
        "read_s": read_s,
        "picture_s": first / 1_000,
        "windows": len(windows),
        "window_p50_ms": statistics.median(windows),
        "window_p99_ms": _quantile(windows, 0.99),
        "frame_p50_ms": statistics.median(frames),
        "frame_p95_ms": _quantile(frames, 0.95),
        "search_ms": search_ms,
        "server_mb": server_mb,
        "memory": server_mb / read_mb,
        "heap_mb": heap / 1e6,
    }


def _use(page: Page) -> None:
    """Zooms in and out by the wheel and by keys, and moves along, at several places of the trace."""
    area = page.locator(".marks").bounding_box()
    assert area is not None
    page.locator(".scroller").focus()
    for place in range(PLACES):
        x = area["x"] + area["width"] * (place + 0.5) / PLACES
        page.mouse.move(x, area["y"] + 60)
        page.keyboard.down("Control")
        for _ in range(12):
            page.mouse.wheel(0, -120)
            page.wait_for_timeout(60)
        page.keyboard.up("Control")
        for key in ("d", "a", "w", "s"):
            page.keyboard.down(key)
            page.wait_for_timeout(500)
            page.keyboard.up(key)
        page.keyboard.press("0")
        page.wait_for_timeout(100)


def _search(page: Page) -> float:
    """The median time of a search over all names, ms."""
    for text in ("gemm", "aten::", "cuda", "nothing is called this"):
        page.fill(".search input", text)
        page.wait_for_timeout(800)
    return statistics.median(
        page.evaluate(
            "performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/search'))"
            ".map((one) => one.duration)"
        )
    )


def _until(page: Page, condition: str) -> None:
    while not page.evaluate(condition):
        page.wait_for_timeout(20)


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def _peak_mb(process: int) -> float:
    """The largest memory that a process has had so far."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    raise NotMeasuredError(f"process {process} is gone")


if __name__ == "__main__":
    sys.exit(main())
