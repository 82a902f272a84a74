"""FLOPs as torch.profiler counts them with ``with_flops=True``, from the recorded inputs."""

import json
from collections.abc import Callable
from math import prod
from typing import cast

import polars as pl

from kernelscope.analysis.grouping import as_text
from kernelscope.trace import Trace

Dims = list[object]
_MOST_DIMENSIONS = 64


def with_flops(events: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Adds ``flops`` to events that have the ``row`` of an operator; 0 if torch does not count it.

    torch counts seven operators, and nothing inside them. See :func:`kernelscope.analysis.costs` for FLOPs of
    more operators.

    Units: FLOP; a multiply-add is two.
    Source: torch/csrc/profiler/util.cpp, computeFlops.
    """
    counted = ["name", "input_dims", "input_types", "concrete_inputs"]
    calls = trace.ops.select("row", *counted).filter(pl.col("name").cast(pl.String).is_in(list(_FORMULAS)))
    calls = as_text(calls.filter(pl.col("input_dims").is_not_null()))
    if calls.is_empty():
        return events.with_columns(flops=pl.lit(0, pl.Int64))
    distinct = calls.select(counted).unique()
    flops = [_flops(*values) for values in distinct.iter_rows()]
    known = calls.join(
        distinct.with_columns(pl.Series("flops", flops, dtype=pl.Int64)),
        on=counted,
        how="inner",
        nulls_equal=True,
    )
    joined = events.join(known.select("row", "flops"), on="row", how="left", maintain_order="left")
    return joined.with_columns(pl.col("flops").fill_null(0))


def _flops(name: str, dims: str, types: str | None, inputs: str | None) -> int:
    """FLOPs of one call; 0 if what is needed was not recorded."""
    try:
        shapes = cast("Dims", json.loads(dims))
        kinds = cast("list[str]", json.loads(types or "[]"))
        values = cast("list[str]", json.loads(inputs or "[]"))
        count = _FORMULAS[name](shapes, kinds, values)
    except (ValueError, TypeError, LookupError, RecursionError):
        return 0
    return count if 0 <= count < 2**63 else 0


def _sizes(values: object) -> list[int]:
    """``values``, which stand in a file, as sizes: Python would repeat a list as often as a number says."""
    found = cast("list[object]", values)
    if not isinstance(values, list) or len(found) > _MOST_DIMENSIONS:
        raise TypeError
    if not all(type(size) is int and abs(size) < 2**63 for size in found):
        raise TypeError
    return cast("list[int]", found)


def _convolution(shapes: Dims, _: list[str], values: list[str]) -> int:
    batch, channels, *size = _sizes(shapes[0])
    filters, _per_group, *kernel = _sizes(shapes[1])
    stride, padding, dilation = (_sizes(json.loads(values[at])) for at in (3, 4, 5))
    groups = int(values[6])
    if not (len(size) == len(kernel) == len(stride) == len(padding) == len(dilation) == 2) or groups < 1:
        return 0
    out = [
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 if stride[i] else 0
        for i in (0, 1)
    ]
    return 2 * batch * prod(out) * prod(kernel) * channels * filters // groups


def _product(left: int) -> Callable[[Dims, list[str], list[str]], int]:
    """FLOPs of a matrix product whose factors are inputs ``left`` and ``left + 1``."""

    def flops(shapes: Dims, _: list[str], __: list[str]) -> int:
        a, b = _sizes(shapes[left]), _sizes(shapes[left + 1])
        inner = a[-1]
        batch = a[0] if len(a) == 3 else 1
        return 2 * prod(a) * prod(b) // (inner * batch) if inner and batch else 0

    return flops


def _elementwise(shapes: Dims, kinds: list[str], _: list[str]) -> int:
    sizes = _sizes(shapes[0])
    # A number in place of a tensor has an empty shape too.
    is_tensor = bool(sizes) or (bool(kinds) and kinds[0] not in ("Scalar", "", "ScalarList"))
    return prod(sizes) if is_tensor else 0


_FORMULAS: dict[str, Callable[[Dims, list[str], list[str]], int]] = {
    "aten::conv2d": _convolution,
    "aten::mm": _product(0),
    "aten::addmm": _product(1),
    "aten::bmm": _product(0),
    "aten::baddbmm": _product(1),
    "aten::mul": _elementwise,
    "aten::add": _elementwise,
}
