"""Against the PyTorch Profiler's TensorBoard plugin 0.4.3 (acceptance A3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tb_compare as tb
from traces import ORACLES, TRACES, files, need

Read = Callable[[Path], Any]
Load = Callable[[Path], Any]

PLUGIN = ORACLES / "tb-plugin"
RESNET = TRACES / "resnet50-v100-2021.json.gz"


def oracle(load: Load, name: str) -> Any:
    return load(need(PLUGIN / f"workers0.span1.{name}"))


def test_resnet50_step_breakdown(read: Read, load_json: Load) -> None:
    expected = oracle(load_json, "step_breakdown.json")
    actual = tb.steps(read(need(RESNET)))
    assert tb.differences(actual, expected["steps_raw"]) == []
    averages = {key: sum(step[key] for step in actual) / len(actual) for key in expected["avg_raw"]}
    assert tb.differences(averages, expected["avg_raw"]) == []


@pytest.mark.parametrize("by_input", [False, True], ids=["name", "name-and-shape"])
def test_resnet50_operators(read: Read, load_json: Load, by_input: bool) -> None:
    rows = oracle(load_json, "operator_table.json.gz")["raw_by_name_input" if by_input else "raw_by_name"]
    expected = tb.expected_operators(rows, by_input=by_input)
    assert len(expected) == len(rows) > 70
    assert tb.differences(tb.operators(read(need(RESNET)), by_input=by_input), expected) == []


def test_resnet50_kernels(read: Read, load_json: Load) -> None:
    rows = oracle(load_json, "kernel_table.json.gz")["raw_by_name"]
    expected = {row.pop("name"): row for row in rows}
    assert len(expected) == 67
    assert tb.differences(tb.kernels(read(need(RESNET))), expected) == []


def test_resnet50_kernels_by_launch(read: Read, load_json: Load) -> None:
    expected = tb.expected_by_launch(oracle(load_json, "kernel_table.json.gz")["raw_by_properties_and_op"])
    assert len(expected) == 226
    actual = tb.kernels_by_launch(read(need(RESNET)))
    # A mean weighted by duration over calls that all lasted 0 us is 0 to the plugin, although each
    # call has blocks and an occupancy; here it is the plain mean.
    weightless = [key for key, row in expected.items() if row["total"] == 0]
    assert len(weightless) == 2
    for key in weightless:
        assert expected[key]["blocks_per_sm"] == 0 < actual[key]["blocks_per_sm"]
        for column in ("blocks_per_sm", "occupancy"):
            expected[key][column] = actual[key][column]
    assert tb.differences(actual, expected) == []


def test_resnet50_gpu_summary(read: Read, load_json: Load) -> None:
    raw = oracle(load_json, "gpu_metrics.json")["raw"]["0"]
    keys = {
        "util": "gpu_utilization",
        "sm_eff": "sm_efficiency",
        "occ": "achieved_occupancy_pct",
        "tc_ratio": "tc_ratio",
    }
    expected = {ours: raw[theirs] for ours, theirs in keys.items()}
    assert tb.differences(tb.gpus(read(need(RESNET)))["0"], expected) == []


def known_faults(expected: Any, raw: Any) -> list[str]:
    """Patterns of the differences that faults of the plugin explain, each fault proved first."""
    events = raw["traceEvents"]
    patterns = []
    for index, step in enumerate(expected["steps"]):
        parts = sum(value for key, value in step.items() if key not in ("step", "Total"))
        if step["Total"] < 0:
            # Without operators, a step lasts minus 2^64 us.
            patterns.append("steps")
        elif parts > step["Total"]:
            # Once the step is used up, the plugin starts over with the whole step: the parts sum to more.
            patterns.append(rf"steps/{index}/\w+: 0 instead of \d+$")
    for name in orphans(events):
        # A kernel whose launch is not recorded is in no operator, although its External id names one.
        patterns += [rf"ops_by_name(_input)?/.*{name}.*/(self_)?device_duration: \d+ instead of 0$"]
        patterns += [rf"launches/.*'{name}'.*: not expected$", r"gpu/\d+/tc_ratio: 0.0 instead of None$"]
    if any(event.get("cat") == "Kernel" and event["name"].startswith("nccl") for event in events):
        # An NCCL kernel is computation to the plugin unless an operator of NCCL's name launched it.
        patterns.append(r"steps/\d+/(Kernel|Communication)")
    return patterns


def orphans(events: list[Any]) -> list[str]:
    """Operators that the External ids of kernels without a recorded launch name."""
    launched = {event["args"]["correlation"] for event in events if event.get("cat") == "Runtime"}
    names = {
        event["args"]["External id"]: event["name"]
        for event in events
        if "External id" in event.get("args", {})
    }
    kernels = [event["args"] for event in events if event.get("cat") == "Kernel"]
    return [
        names[k["external id"]]
        for k in kernels
        if k["correlation"] not in launched and k["external id"] in names
    ]


@pytest.mark.parametrize("path", files(PLUGIN / "unit", "*.trace.json"))
def test_unit_trace(read: Read, load_json: Load, path: Path) -> None:
    expected = load_json(path.with_name(path.name.replace(".trace.", ".expected.")))
    trace = read(path)
    found = tb.differences(tb.steps(trace), expected["steps"], "steps")
    for key, by_input in (("ops_by_name", False), ("ops_by_name_input", True)):
        rows = tb.expected_operators(expected[key] or [], by_input=by_input)
        found += tb.differences(tb.operators(trace, by_input=by_input), rows, key)
    kernels = {
        row["name"]: {k: v for k, v in row.items() if k != "name"}
        for row in expected["kernels_by_name"] or []
    }
    found += tb.differences(tb.kernels(trace), kernels, "kernels")
    launches = tb.expected_by_launch(expected["kernels_by_properties_and_op"] or [])
    # The root of the plugin's tree stands for no operator.
    launches = {key: row for key, row in launches.items() if key[1] != "CallTreeRoot"}
    found += tb.differences(tb.kernels_by_launch(trace), launches, "launches")
    keys = ("util", "sm_eff", "occ", "tc_ratio")
    gpus = {gpu: {key: row[key] for key in keys} for gpu, row in (expected["gpu"] or {}).items()}
    found += tb.differences(tb.gpus(trace), gpus, "gpu")
    faults = known_faults(expected, load_json(path))
    assert [d for d in found if not any(re.match(fault, d) for fault in faults)] == []
