"""What the project promises about reading, next to what was measured.

Every promise is a ratio of two measurements of one run, so that it holds on any machine.
"""

from collections.abc import Iterator
from typing import Any

from inputs import MB
from tables import Promise

# Below these, starting threads is a visible part of the time, and buffers are one of the memory.
LARGE_BYTES = 90 * MB
MEMORY_BYTES = 350 * MB

# Times that others take, in times of kernelscope.read.
SPEED = (
    ("native", "json_load", 20),
    ("native", "orjson_loads", 14),
    ("compact", "json_load", 12),
    ("compact", "orjson_loads", 8),
)
GZIP = 1.8
# Both end with the whole content in memory: the 1.6 GB/s of libdeflate on which the promise rests are those.
INFLATERS = {"libdeflate": "libdeflate", "inflate_kept": "the inflater"}
MEMORY = 0.4
STEADY = 0.85
ANALYZE_TIME = 0.65
ANALYZE_MIB = 170
HELP_S = 0.2
IMPORT_S = 0.1

Entry = dict[str, Any]


def promises(results: dict[str, Any]) -> Iterator[Promise]:
    """Every promise that this run has the measurements for."""
    entries: list[Entry] = results["inputs"]
    yield from _speed(entries)
    yield from _memory(entries)
    yield from _programs(results["programs"])


def ratio(entry: Entry, of: str, to: str) -> float | None:
    """The median time of a contestant on an input, as a multiple of another's, if both were measured."""
    times = [entry["readings"].get(name, {}).get("seconds") for name in (of, to)]
    return None if None in times else times[0] / times[1]


def _speed(entries: list[Entry]) -> Iterator[Promise]:
    plain = [entry for entry in entries if not entry["gzip"]]
    for layout, name, bound in SPEED:
        of_layout = [entry for entry in plain if entry["layout"] == layout]
        for on, value in _largest(of_layout, name, "kernelscope"):
            yield Promise(f"faster than {name.replace('_', '.')}", on, value, bound, at_least=True)
    for name, title in INFLATERS.items():
        for on, value in _largest([entry for entry in entries if entry["gzip"]], "kernelscope", name):
            yield Promise(f"time of {title} alone", on, value, GZIP)
    rates = {
        (entry["source"], entry["layout"], entry["gzip"], entry["size_bytes"]): entry["content_bytes"]
        / seconds
        for entry in entries
        if (seconds := entry["readings"].get("kernelscope", {}).get("seconds"))
    }
    for entry in entries:
        kind = entry["source"], entry["layout"], entry["gzip"]
        small, large = rates.get((*kind, 400 * MB)), rates.get((*kind, entry["size_bytes"]))
        if entry["size_bytes"] == 4000 * MB and small and large:
            what = "bytes a second at 4 GB, of those at 400 MB"
            yield Promise(what, entry["name"], large / small, STEADY, at_least=True)


def _largest(entries: list[Entry], of: str, to: str) -> Iterator[tuple[str, float]]:
    """Name and ratio of the largest input of up to 1 GB that has one, of every source and layout."""
    found: dict[tuple[str, str], tuple[str, float]] = {}
    for entry in sorted(entries, key=lambda entry: entry["size_bytes"]):
        value = ratio(entry, of, to)
        if LARGE_BYTES <= entry["size_bytes"] <= 1000 * MB and value is not None:
            found[entry["source"], entry["layout"]] = entry["name"], value
    yield from found.values()


def _memory(entries: list[Entry]) -> Iterator[Promise]:
    for entry in entries:
        share = entry["readings"].get("kernelscope", {}).get("share")
        if share is not None and entry["size_bytes"] >= MEMORY_BYTES:
            yield Promise("peak memory per byte of JSON", entry["name"], share, MEMORY)


def _programs(programs: dict[str, dict[str, Any]]) -> Iterator[Promise]:
    took = {name: found["seconds"] for name, found in programs.items() if "seconds" in found}
    analyze, loaded = "kernelscope analyze", 'python -c "json.load(gzip.open(...))"'
    if {analyze, loaded} <= took.keys():
        on, share = "gzip, whole process", took[analyze] / took[loaded]
        yield Promise(f"{analyze}, of json.load", on, share, ANALYZE_TIME)
        yield Promise(f"{analyze}, peak", on, programs[analyze]["peak_mib"], ANALYZE_MIB, unit="MiB")
    shown, polars = "kernelscope --help", 'python -c "import polars"'
    if shown in took:
        yield Promise(shown, "whole process", took[shown], HELP_S, unit="s")
    for code in ("import kernelscope", "from kernelscope import read"):
        name = f'python -c "{code}"'
        if {name, polars} <= took.keys():
            over = took[name] - took[polars]
            yield Promise(f"{code}, over import polars", "whole process", over, IMPORT_S, unit="s")
