"""Utilisation and SM efficiency over time against the TensorBoard plugin's counters (acceptance D1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traces import ORACLES, TRACES, files, need

from kernelscope import analysis
from kernelscope.analysis.gpu.timeline import sm_segments

Read = Callable[[Path], Any]
Load = Callable[[Path], Any]

PLUGIN = ORACLES / "tb-plugin"


def buckets(trace: Any, device: int) -> list[tuple[float, float]]:
    """As the plugin writes them: start in microseconds and value, and a last one at the end."""
    rows = analysis.gpu_timeline(trace).filter(device=device).to_dicts()
    found = [(row["start_ns"] / 1000, row["utilisation"]) for row in rows]
    return [*found, ((rows[-1]["start_ns"] + rows[-1]["dur_ns"]) / 1000, 0)]


def same(actual: list[tuple[float, ...]], expected: list[Any]) -> bool:
    flat = [value for row in expected for value in row]
    return [value for row in actual for value in row] == pytest.approx(flat, rel=1e-9, abs=1e-9)


def test_resnet50(read: Read, load_json: Load) -> None:
    expected = load_json(need(PLUGIN / "workers0.span1.gpu_metrics.json"))["raw"]["0"]
    trace = read(need(TRACES / "resnet50-v100-2021.json.gz"))
    assert same(buckets(trace, 0), expected["util_buckets"])
    timeline = analysis.gpu_timeline(trace)
    summary = analysis.gpu_summary(trace).row(0, named=True)
    # All kernels lie inside the steps, so that both integrals are of the same thing.
    busy = (timeline["utilisation"] * timeline["dur_ns"]).sum()
    assert busy == pytest.approx(summary["busy_ns"], rel=1e-3)
    full = (timeline["sm_efficiency"] * timeline["dur_ns"]).sum()
    assert full == pytest.approx(summary["sm_efficiency"] * summary["span_ns"], rel=1e-3)


@pytest.mark.parametrize("path", files(PLUGIN / "unit", "*.trace.json"))
def test_unit_trace(read: Read, load_json: Load, path: Path) -> None:
    expected = load_json(path.with_name(path.name.replace(".trace.", ".expected.")))["gpu"] or {}
    trace = read(path)
    devices = analysis.gpu_timeline(trace)["device"].unique().to_list()
    assert sorted(map(str, devices)) == sorted(expected)
    for device, stated in expected.items():
        assert same(buckets(trace, int(device)), stated["util_buckets"])
        segments = sm_segments(trace).filter(device=int(device))
        # Where nothing runs, the plugin's sum of floats may be a little more than 0.
        ranges = [row for row in stated["sm_eff_ranges"] if row[2] > 1e-12]
        found = [(start / 1000, end / 1000, value) for _, start, end, value in segments.rows()]
        assert same(found, ranges)
