"""The shapes of AlexNet's forward pass as torchvision builds it, for a trace that did not record them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import polars as pl

BATCH = 128
# Input channels and size, output channels, window, stride, padding.
CONVOLUTIONS = [
    (3, 224, 64, 11, 4, 2),
    (64, 27, 192, 5, 1, 2),
    (192, 13, 384, 3, 1, 1),
    (384, 13, 256, 3, 1, 1),
    (256, 13, 256, 3, 1, 1),
]
OUTPUTS = [(64, 55), (192, 27), (384, 13), (256, 13), (256, 13)]
POOLED = [OUTPUTS[0], OUTPUTS[1], OUTPUTS[4]]
LINEAR = [(9216, 4096), (4096, 4096), (4096, 1000)]

Call = tuple[list[Any], list[str], list[str]]


def _map(channels: int, size: int) -> list[int]:
    return [BATCH, channels, size, size]


def _calls() -> dict[str, list[Call]]:
    pair = ["float", "float"]
    flags = ["1", "False", "False", "True"]
    convolutions: list[Call] = [
        (
            [_map(c, s), [out, c, window, window], [], [], [], [], [], [], []],
            [*pair, *(["ScalarList"] * 3), *(["Scalar"] * 4)],
            ["", "", f"[{pad}, {pad}]", f"[{stride}, {stride}]", "[1, 1]", *flags],
        )
        for c, s, out, window, stride, pad in CONVOLUTIONS
    ]
    biases: list[Call] = [
        ([_map(c, s), [1, c, 1, 1], []], [*pair, "Scalar"], ["", "", "1"]) for c, s in OUTPUTS
    ]
    activations = [_map(c, s) for c, s in OUTPUTS] + [[BATCH, 4096], [BATCH, 4096]]
    window = ["", "[3, 3]", "[2, 2]", "[0, 0]", "[1, 1]", "False"]
    lists = ["float", *(["ScalarList"] * 4), "Scalar"]
    return {
        "aten::uniform_": [
            ([_map(3, 224), [], [], []], ["float", "Scalar", "Scalar", ""], ["", "0.", "1.", ""])
        ],
        "aten::cudnn_convolution": convolutions,
        "aten::add_": biases,
        "aten::clamp_min_": [([dims, []], ["float", "Scalar"], ["", "0"]) for dims in activations],
        "aten::max_pool2d_with_indices": [
            ([_map(c, s), [], [], [], [], []], lists, window) for c, s in POOLED
        ],
        "aten::_adaptive_avg_pool2d": [([_map(256, 6), []], ["float", "ScalarList"], ["", "[6, 6]"])],
        "aten::native_dropout": [
            ([[BATCH, size], [], []], ["float", "Scalar", "Scalar"], ["", "0.5", "True"])
            for size in (9216, 4096)
        ],
        "aten::addmm": [
            (
                [[n], [BATCH, k], [k, n], [], []],
                ["float", "float", "float", "Scalar", "Scalar"],
                ["", "", "", "1", "1"],
            )
            for k, n in LINEAR
        ],
    }


def with_shapes(trace: Any) -> Any:
    """The trace with what its recorder left out; each operator's calls repeat in the order of the network."""
    calls = _calls()
    seen: dict[str, int] = {}
    columns: dict[str, list[str | None]] = {"input_dims": [], "input_types": [], "concrete_inputs": []}
    for name in trace.ops.sort("start_ns")["name"].cast(pl.String):
        known = calls.get(name)
        index = seen.get(name, 0)
        seen[name] = index + 1
        for column, value in zip(columns, known[index % len(known)] if known else (None,) * 3, strict=True):
            columns[column].append(None if value is None else json.dumps(value))
    texts = [pl.Series(column, values, dtype=pl.Categorical) for column, values in columns.items()]
    return dataclasses.replace(trace, ops=trace.ops.sort("start_ns").with_columns(texts))
