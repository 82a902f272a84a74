"""Hardware counters against HolisticTraceAnalysis, and models against the counters, operator by operator."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from traces import ORACLES, TRACES, read, rows_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))
from alexnet import with_shapes

from kernelscope import analysis


@pytest.fixture
def trace(shared: Path) -> Any:
    return read(TRACES / "alexnet-cupti-counters-2023.json.gz")


def test_the_table_of_holistic_trace_analysis(trace: Any) -> None:
    expected = rows_of((ORACLES / "hta/special/cupti_counters.csv").read_text())
    found = analysis.counters_with_operators(trace)
    counters = [column for column in expected[0] if column.startswith("smsp__")]
    assert len(counters) == 9
    assert found.height == len(expected) == 77
    first = found["start_ns"][0]
    shift = first - int(float(expected[0]["ts"]) * 1000)
    for row, answer in zip(found.to_dicts(), expected, strict=True):
        assert (row["name"], row["row"]) == (answer["name"], int(answer["index"]))
        assert row["start_ns"] - shift == int(float(answer["ts"]) * 1000)
        assert row["dur_ns"] == int(float(answer["dur"]) * 1000)
        assert row["op_stack"] == ast.literal_eval(answer["op_stack"])
        assert (row["top_level_op"], row["bottom_level_op"]) == (
            answer["top_level_op"],
            answer["bottom_level_op"],
        )
        assert {c: row[c] for c in counters} == {c: float(answer[c]) for c in counters}


def test_without_shapes_nothing_is_modelled(trace: Any) -> None:
    found = analysis.counters_with_operators(trace)
    assert found["modelled_flops"].null_count() == found.height
    assert found["ratio"].null_count() == found.height
    assert found["measured_flops"].null_count() == 0


# What the counters find for each call of an operator, as a multiple of what the model gives, and why it is
# not 1. The scalar instructions that are counted are not all that computes, nor do all of them compute.
MEASURED = {
    # A product of 363 values per position is computed in steps of 8: 368 / 363, and a scale per result. Then
    # a transform of Fourier, which needs a tenth of the multiply-adds; then products on tensor cores, which
    # the counters of scalar instructions do not see.
    "aten::cudnn_convolution": (1.0152, 0.1086, 0.0007, 0.0008, 0.0009),
    # A multiply-add by alpha (2), and two instructions on pairs of halves (4) that load constants.
    "aten::add_": (6.0, 6.0, 6.0, 6.0, 6.0),
    # Comparisons are none of the counted instructions.
    "aten::clamp_min_": (0.0,) * 7,
    # Nine comparisons per result, none counted; two instructions per result load constants.
    "aten::max_pool2d_with_indices": (0.2222,) * 3,
    # Windows of one value: the bounds of the windows are computed in floating point.
    "aten::_adaptive_avg_pool2d": (9.6492,),
    # Random numbers are computed, too.
    "aten::native_dropout": (2.4688, 2.625),
    # Scales and bias; and tiles that the 1000 columns of the last one do not fill.
    "aten::addmm": (1.0004, 1.001, 1.0626),
}


def test_models_against_counters(trace: Any) -> None:
    found = analysis.counters_with_operators(with_shapes(trace))
    calls = found.unique("model_row", maintain_order=True)
    modelled = calls.filter(pl.col("modelled_flops") > 0)
    for name, ratios in MEASURED.items():
        # The network runs twice.
        got = modelled.filter(pl.col("bottom_level_op") == name)["ratio"].to_list()
        assert got == pytest.approx([*ratios, *ratios], abs=6e-5), name
    assert set(modelled["bottom_level_op"]) == set(MEASURED)
    assert calls.filter(pl.col("modelled_flops") == 0)["bottom_level_op"].to_list() == ["aten::uniform_"]


def test_the_first_convolution_to_the_last_instruction(trace: Any) -> None:
    found = analysis.counters_with_operators(with_shapes(trace))
    row = found.filter(pl.col("bottom_level_op") == "aten::cudnn_convolution").row(0, named=True)
    outputs = 128 * 64 * 55 * 55
    assert row["modelled_flops"] == 2 * outputs * 3 * 11 * 11
    assert row["measured_flops"] == 2 * outputs * 368 + outputs
