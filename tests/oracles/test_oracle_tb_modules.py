"""The module view against that of the TensorBoard plugin (acceptance D1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tb_modules import module_statistics
from traces import ORACLES, TRACES, need

from kernelscope import analysis

Read = Callable[[Path], Any]
Load = Callable[[Path], Any]

FIGURES = ("calls", "operators", "host_total_ns", "host_self_ns", "device_total_ns", "device_self_ns")


def by_instance(trace: Any) -> dict[str, dict[str, int]]:
    """Sums over all places of an instance, as the plugin shows them."""
    table = analysis.module_table(trace).group_by("module").agg(pl.col(FIGURES).sum())
    return {row.pop("module"): row for row in table.to_dicts()}


@pytest.mark.parametrize(
    ("name", "modules"),
    [("qwen1.5-0.5b-h100", 316), ("owlv2-h100", 466), ("resnet-act-checkpoint-mi300", 73)],
)
def test_figures_are_those_of_the_plugin(read: Read, load_json: Load, name: str, modules: int) -> None:
    path = need(TRACES / f"{name}.json.gz")
    expected = module_statistics(load_json(path))
    assert len(expected) == modules
    actual = by_instance(read(path))
    assert actual == expected


def test_hierarchy_of_the_unit_case(read: Read) -> None:
    trace = read(need(ORACLES / "tb-plugin/unit/test_build_module_hierarchy.0.trace.json"))
    table = analysis.module_table(trace)
    # The plugin's own test expects two roots, one with a child that is called three times as it is.
    assert table["path"].to_list() == ["MyModule", "MyModule/Linear", "Conv2"]
    assert table["parent_path"].to_list() == [None, "MyModule", None]
    expected = {
        "calls": [3, 3, 1],
        "operators": [0, 3, 0],
        "host_total_ns": [3 * 211_000, 3 * 62_000, 211_000],
        "host_self_ns": [3 * (211_000 - 62_000), 3 * 62_000 - 96_000, 211_000],
        "device_total_ns": [None, None, None],
    }
    assert {column: table[column].to_list() for column in expected} == expected
