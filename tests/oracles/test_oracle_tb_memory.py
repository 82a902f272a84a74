"""The memory view against that of the TensorBoard plugin (acceptance D1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traces import ORACLES, TRACES, need

from kernelscope import analysis

Read = Callable[[Path], Any]
Load = Callable[[Path], Any]

PLUGIN = ORACLES / "tb-plugin"
FIGURES = (
    "calls",
    "increase_bytes",
    "self_increase_bytes",
    "allocations",
    "self_allocations",
    "allocated_bytes",
    "self_allocated_bytes",
)


def figures(trace: Any) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for row in analysis.memory_table(trace).iter_rows(named=True):
        found[row["device"]][row["name"]] = [row[column] for column in FIGURES]
    return dict(found)


def test_resnet50_operators(read: Read, load_json: Load) -> None:
    # The plugin shows kilobytes with two digits; calls and counts are whole.
    stated = load_json(need(PLUGIN / "workers0.span1.memory.json"))["stats_KB"]["rows"]
    expected = {device: {row[0]: row[1:] for row in rows} for device, rows in stated.items()}
    assert {device: len(rows) for device, rows in expected.items()} == {"CPU": 12, "GPU0": 44}
    actual = figures(read(need(TRACES / "resnet50-v100-2021.json.gz")))
    in_bytes = (1, 2, 5, 6)
    shown = {
        device: {
            name: [in_kib(v) if i in in_bytes else v for i, v in enumerate(row)] for name, row in rows.items()
        }
        for device, rows in actual.items()
    }
    assert shown == expected


def in_kib(size: int) -> float:
    """As the plugin rounds: two digits, or the first that is not 0."""
    kib = size / 1024
    if kib == 0 or abs(kib) >= 0.01:
        return round(kib, 2)
    digits = next(n for n in range(3, 20) if round(kib, n) != 0)
    return round(kib, digits)


def test_unit_case(read: Read, load_json: Load) -> None:
    expected = load_json(need(PLUGIN / "unit/test_memory_view.0.expected.json"))["memory_stats_bytes"]
    actual = figures(read(PLUGIN / "unit/test_memory_view.0.trace.json"))
    # The oracle writes own figures first and calls last.
    order = (2, 6, 4, 1, 5, 3, 0)
    assert {
        d: {n: [row[i] for i in order] for n, row in rows.items()} for d, rows in actual.items()
    } == expected


def pairs_of_the_plugin(document: Any) -> list[tuple[Any, ...]]:
    """Allocations with their frees by the plugin's rule: an address is the same on all devices."""
    records = [e for e in document["traceEvents"] if e.get("ph") == "i" and e["name"] == "[memory]"]
    records.sort(key=lambda e: e["ts"])
    waiting: dict[int, tuple[int, int]] = {}
    found: list[tuple[Any, ...]] = []
    for event in records:
        args = event["args"]
        address, size, time = args["Addr"], args["Bytes"], round(event["ts"] * 1000)
        if size > 0:
            if address in waiting:
                found.append((address, *waiting[address], None))
            waiting[address] = (size, time)
        elif address in waiting:
            found.append((address, *waiting.pop(address), time))
        else:
            found.append((address, -size, None, time))
    return found + [(address, *allocated, None) for address, allocated in waiting.items()]


@pytest.mark.parametrize(
    "path",
    [
        TRACES / "qwen1.5-0.5b-h100.json.gz",
        TRACES / "owlv2-h100.json.gz",
        PLUGIN / "unit/test_memory_view.0.trace.json",
        PLUGIN / "unit/test_memory_curve_step_plot.0.trace.json",
    ],
    ids=lambda path: path.name.split(".")[0],
)
def test_pairing(read: Read, load_json: Load, path: Path) -> None:
    expected = pairs_of_the_plugin(load_json(need(path)))
    table = analysis.memory_allocations(read(path), pairing="address")
    actual = table.select("address", "bytes", "alloc_ns", "free_ns").rows()
    assert sorted(actual, key=str) == sorted(expected, key=str)


def test_qwen_events_and_peak(read: Read) -> None:
    trace = read(need(TRACES / "qwen1.5-0.5b-h100.json.gz"))
    events = analysis.memory_allocations(trace).group_by("device").len().sort("device")
    assert events.rows() == [("CPU", 100), ("GPU0", 1125)]
    summary = analysis.memory_summary(trace)
    assert dict(summary.select("device", "peak_bytes").iter_rows())["GPU0"] == 2_088_508_416
    held = analysis.memory_peak(trace, by=("op", "module"))
    of_gpu = held.filter(device="GPU0")
    assert of_gpu["bytes"].sum() == 2_088_508_416
    assert of_gpu.filter("is_older")["bytes"].item() == 984_742_400


def test_curves_are_what_the_allocator_says(read: Read, load_json: Load) -> None:
    path = need(PLUGIN / "unit/test_memory_curve_step_plot.0.trace.json")
    records = [event for event in load_json(path)["traceEvents"] if event["name"] == "[memory]"]
    curve = analysis.memory_timeline(read(path))
    for device, kind in (("CPU", 0), ("GPU0", 1)):
        expected = [
            (e["ts"] * 1000, e["args"]["Total Allocated"], e["args"]["Total Reserved"])
            for e in records
            if e["args"]["Device Type"] == kind
        ]
        points = curve.filter(device=device).select("start_ns", "allocated_bytes", "reserved_bytes")
        assert points.rows() == sorted(expected)
