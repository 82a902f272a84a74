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
    [
        ("qwen1.5-0.5b-h100", 316),
        ("owlv2-h100", 466),
        ("resnet-act-checkpoint-mi300", 73),
        ("eager-b200-rank0of8", 401),
    ],
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


def test_modules_that_operators_call_are_not_their_callers_own(read: Read, load_json: Load) -> None:
    path = need(TRACES / "sglang-qwen3-8b-mi300.json.gz")
    expected, actual = module_statistics(load_json(path)), by_instance(read(path))
    different = {name for name in expected if actual[name] != expected[name]}
    # Attention is an operator here, and that calls a module: to the plugin its GPU time is the outer module's
    # own, and the inner module's, too. So what modules did themselves sums to more than what was done.
    assert different
    assert all(name.startswith("Qwen3Attention_") for name in different)
    table = analysis.module_table(read(path))
    inside = table.group_by("parent_path").agg(pl.col("device_total_ns").sum().alias("inside_ns"))
    nested = table.join(inside, left_on="path", right_on="parent_path", how="left")
    own = pl.col("device_total_ns") - pl.col("inside_ns").fill_null(0)
    assert nested.select((own == pl.col("device_self_ns")).all()).item()
    for name in different:
        changed = {key for key in FIGURES if actual[name][key] != expected[name][key]}
        assert changed == {"device_self_ns"}
        row = nested.row(by_predicate=pl.col("module") == name, named=True)
        assert expected[name]["device_self_ns"] + row["inside_ns"] > row["device_total_ns"]
