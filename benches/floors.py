"""What the project promises, next to what was measured.

Every promise is a ratio of two measurements of one run, so that it holds on any machine.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MB = 10**6
# Below these, starting threads is a visible part of the time, and buffers are one of the memory.
LARGE_BYTES = 90 * MB
MEMORY_BYTES = 350 * MB
MIB = 2**20

Entry = dict[str, Any]


@dataclass(frozen=True)
class Floor:
    """A promise: ``value`` is to be at least, or at most, ``bound``."""

    what: str
    on: str
    value: float
    bound: float
    at_least: bool
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether it holds."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def cells(self) -> tuple[str, str, str, str, str]:
        """What, on what, measured, promised, verdict."""
        sign = "≥" if self.at_least else "≤"
        value = _number(self.value, self.unit)
        return (
            self.what,
            self.on,
            value,
            f"{sign} {_number(self.bound, self.unit)}",
            "yes" if self.met else "NO",
        )


def _number(value: float, unit: str) -> str:
    digits = 0 if unit == "MiB" else 3 if unit == "s" else 2 if value < 10 else 1
    return f"{value:.{digits}f} {unit}"


# Times that json.load and orjson.loads take, in times of kernelscope.read.
SPEED = {
    "native": (("json_load", 20), ("orjson_loads", 14)),
    "compact": (("json_load", 12), ("orjson_loads", 8)),
}
GZIP = 1.8
# Both end with the whole content in memory: the 1.6 GB/s of libdeflate on which the promise rests are those.
INFLATERS = {"libdeflate": "libdeflate", "inflate_kept": "the inflater"}
MEMORY = 0.4
STEADY = 0.85
ANALYZE_TIME = 0.65
ANALYZE_MIB = 170
HELP_S = 0.2
IMPORT_S = 0.1


def judge(results: dict[str, Any]) -> list[Floor]:
    """Every promise that this run has the measurements for."""
    entries: list[Entry] = results["inputs"]
    found = [*_speed(entries), *_gzip(entries), *_memory(entries), *_steady(entries)]
    return [*found, *_programs(results["programs"])]


def text(floors: list[Floor]) -> str:
    """The promises as a table for a terminal."""
    head = ("promise", "on", "measured", "promised", "kept")
    rows = [head, *(floor.cells() for floor in floors)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n" + "\n".join(lines)


def seconds(entry: Entry, task: str) -> float | None:
    """The median of a contestant on an input, if it was measured."""
    value: float | None = entry["readings"].get(task, {}).get("seconds")
    return value


def _largest(entries: list[Entry], has: Callable[[Entry], bool]) -> Iterator[Entry]:
    """Of every source and layout, the largest input of up to 1 GB that ``has`` what is needed."""
    kinds: dict[tuple[str, str], Entry] = {}
    for entry in sorted(entries, key=lambda entry: entry["size_bytes"]):
        if LARGE_BYTES <= entry["size_bytes"] <= 1000 * MB and has(entry):
            kinds[entry["source"], entry["layout"]] = entry
    yield from kinds.values()


def _speed(entries: list[Entry]) -> Iterator[Floor]:
    plain = [entry for entry in entries if not entry["gzip"] and seconds(entry, "kernelscope")]
    for layout, bounds in SPEED.items():
        for task, bound in bounds:
            of_layout = [entry for entry in plain if entry["layout"] == layout]
            for entry in _largest(of_layout, lambda entry, task=task: seconds(entry, task) is not None):
                ratio = (seconds(entry, task) or 0) / (seconds(entry, "kernelscope") or 1)
                what = f"faster than {task.replace('_', '.')}"
                yield Floor(what, entry["name"], ratio, bound, at_least=True)


def _gzip(entries: list[Entry]) -> Iterator[Floor]:
    packed = [entry for entry in entries if entry["gzip"] and seconds(entry, "kernelscope")]
    for task, what in INFLATERS.items():
        for entry in _largest(packed, lambda entry, task=task: seconds(entry, task) is not None):
            ratio = (seconds(entry, "kernelscope") or 0) / (seconds(entry, task) or 1)
            yield Floor(f"time of {what} alone", entry["name"], ratio, GZIP, at_least=False)


def _memory(entries: list[Entry]) -> Iterator[Floor]:
    for entry in entries:
        peak = entry["readings"].get("kernelscope", {}).get("peak_above_imports_bytes")
        if peak is not None and entry["size_bytes"] >= MEMORY_BYTES:
            ratio = peak / entry["content_bytes"]
            yield Floor("peak memory per byte of JSON", entry["name"], ratio, MEMORY, at_least=False)


def _steady(entries: list[Entry]) -> Iterator[Floor]:
    def rate(entry: Entry) -> float:
        return entry["content_bytes"] / (seconds(entry, "kernelscope") or float("inf"))

    by_kind = {
        (e["source"], e["layout"], e["gzip"], e["size_bytes"]): e
        for e in entries
        if seconds(e, "kernelscope")
    }
    for (source, layout, gzip, size_bytes), large in by_kind.items():
        small = by_kind.get((source, layout, gzip, 400 * MB))
        if size_bytes == 4000 * MB and small is not None:
            ratio = rate(large) / rate(small)
            yield Floor(
                "bytes a second at 4 GB, of those at 400 MB", large["name"], ratio, STEADY, at_least=True
            )


def _programs(programs: dict[str, dict[str, Any]]) -> Iterator[Floor]:
    def took(name: str) -> float | None:
        value: float | None = programs.get(name, {}).get("seconds")
        return value

    analyze, python_json = took("analyze"), took("python_json")
    if analyze is not None and python_json is not None:
        ratio = analyze / python_json
        yield Floor(
            "kernelscope analyze, of json.load", "gzip, whole process", ratio, ANALYZE_TIME, at_least=False
        )
        peak = programs["analyze"]["peak_bytes"] / MIB
        yield Floor(
            "kernelscope analyze, peak", "gzip, whole process", peak, ANALYZE_MIB, at_least=False, unit="MiB"
        )
    shown = took("help")
    if shown is not None:
        yield Floor("kernelscope --help", "whole process", shown, HELP_S, at_least=False, unit="s")
    polars = took("import_polars")
    for name, what in (
        ("import_kernelscope", "import kernelscope"),
        ("import_read", "from kernelscope import read"),
    ):
        took_import = took(name)
        if took_import is not None and polars is not None:
            over = took_import - polars
            yield Floor(
                f"{what}, over import polars", "whole process", over, IMPORT_S, at_least=False, unit="s"
            )
