"""Recommendations against those of the TensorBoard plugin (acceptance D1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traces import ORACLES, TRACES, files, need

from kernelscope import analysis

Read = Callable[[Path], Any]
Load = Callable[[Path], Any]

PLUGIN = ORACLES / "tb-plugin"
# What the plugin's sentences begin with, and the share that they state.
SENTENCES = {
    "data_loading": r"This run has high time cost on input data loading\. (?P<value>[\d.]+)%",
    "data_parallel": r".*DataParallel.*DistributedDataParallel",
    "ddp_backend": r".*[Nn]ccl",
    "communication": r"This run has high time cost on communication\. (?P<value>[\d.]+)%",
    "low_utilisation": r"GPU (?P<gpus>[\d, and]+) ha(?:s|ve) low utilization",
    "mixed_precision": r"Kernels with (?P<value>[\d.]+)% time",
    "memory_near_capacity": r"Device memory usage",
}


def stated(sentences: list[str]) -> dict[str, str | None]:
    """By rule, what the plugin says: the share in percent, or the GPUs."""
    found: dict[str, str | None] = {}
    for sentence in sentences:
        for rule, pattern in SENTENCES.items():
            match = re.match(pattern, sentence)
            if match:
                groups = match.groupdict()
                found[rule] = groups.get("value", groups.get("gpus"))
                break
        else:
            raise AssertionError(f"a sentence of no known rule: {sentence}")
    return found


def ours(trace: Any) -> dict[str, str | None]:
    """The same of what we say."""
    found: dict[str, str | None] = {}
    for row in analysis.recommendations(trace).to_dicts():
        if row["id"] == "low_utilisation":
            found[row["id"]] = ", ".join(re.findall(r"GPU (\d+)", row["evidence"]))
        elif row["id"] == "mixed_precision":
            found[row["id"]] = f"{row['value'] * 100:.0f}"
        elif row["id"] in SENTENCES:
            found[row["id"]] = f"{row['value'] * 100:.1f}"
    return found


def test_resnet50(read: Read, load_json: Load) -> None:
    expected = stated(load_json(need(PLUGIN / "workers0.span1.recommendations.json"))["list"])
    assert expected == {"data_loading": "33.4", "mixed_precision": "68"}
    assert ours(read(need(TRACES / "resnet50-v100-2021.json.gz"))) == expected


@pytest.mark.parametrize("path", files(PLUGIN / "unit", "*.trace.json"))
def test_unit_trace(read: Read, load_json: Load, path: Path) -> None:
    oracle = load_json(path.with_name(path.name.replace(".trace.", ".expected.")))
    expected, actual = stated(oracle["recommendations"] or []), ours(read(path))
    mean = oracle["avg"]
    if "communication" in actual and "communication" not in expected:
        # Either the step lasts minus 2^64 us to the plugin, which finds no operators in it, or it takes a
        # kernel of NCCL for computing, as no operator of NCCL's name launched it.
        kernels = [event for event in load_json(path)["traceEvents"] if event.get("cat") == "Kernel"]
        of_nccl = bool(kernels) and all(kernel["name"].startswith("nccl") for kernel in kernels)
        assert mean["Total"] < 0 or (of_nccl and mean["Communication"] == 0 < mean["Kernel"])
        del actual["communication"]
    assert actual == expected
