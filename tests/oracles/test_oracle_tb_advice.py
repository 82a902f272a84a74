"""Recommendations against those of the TensorBoard plugin (acceptance D1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from traces import ORACLES, TRACES, VALID, files, need

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


OF_NVIDIA = {"mixed_precision", "off_tensor_cores", "ddp_backend"}


@pytest.mark.parametrize("path", VALID)
def test_advice_on_real_traces(read: Read, path: Path) -> None:
    trace = read(path)
    table = analysis.recommendations(trace)
    makes = trace.devices["name"].cast(pl.String).drop_nulls()
    if (trace.devices["warp_size"] == 64).any() or makes.str.contains("AMD").any():
        assert not OF_NVIDIA & set(table["id"])
    for row in table.to_dicts():
        assert row["saving_share"] is None or 0 <= row["saving_share"] <= 1, row["id"]
        assert set(row["rows"]) <= set(trace.tables[row["table"]]["row"].to_list())
        assert len(row["rows"]) == min(row["cited"], 100)
        assert row["cited"] > 0 or row["id"] == "low_utilisation"
        above = row["value"] > row["threshold"]
        assert above != (row["id"] in {"low_utilisation", "exposed_communication"})


def test_the_plugins_advice_for_amd_is_not_given(read: Read) -> None:
    # To the plugin no kernel of AMD's uses matrix cores, so that it advises mixed precision to a bf16 model.
    trace = read(need(TRACES / "sglang-qwen3-8b-mi300.json.gz"))
    assert "Cijk_" in " ".join(trace.gpu_ops["name"].cast(pl.String).drop_nulls())
    assert not OF_NVIDIA & set(analysis.recommendations(trace)["id"])
