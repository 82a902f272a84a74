"""What every model must obey, over generated shapes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kernelscope.costs import Cost, cost_of

SIZES = st.integers(1, 40)
SHAPES = st.lists(SIZES, min_size=1, max_size=4)


def _cost(name: str, *shapes: list[int], values: tuple[str, ...] = ()) -> Cost:
    dims = [*shapes, *([] for _ in values)]
    types = [*("float" for _ in shapes), *("Scalar" for _ in values)]
    return cost_of(
        name, json.dumps(dims), json.dumps(types), None, json.dumps([*("" for _ in shapes), *values])
    )


def _figures(cost: Cost) -> tuple[int, int, int]:
    assert cost.flops is not None
    assert cost.bytes_read is not None
    assert cost.bytes_written is not None
    return cost.flops, cost.bytes_read, cost.bytes_written


POINTWISE = "relu sigmoid exp neg silu gelu isnan sign".split()
BINARY = "add mul div maximum eq threshold_backward silu_backward".split()


@given(st.sampled_from(POINTWISE), SHAPES, st.integers(2, 9))
def test_pointwise_costs_are_linear_in_the_batch(name: str, shape: list[int], times: int) -> None:
    once = _figures(_cost(f"aten::{name}", shape))
    more = _figures(_cost(f"aten::{name}", [times * shape[0], *shape[1:]]))
    assert more == tuple(times * figure for figure in once)


@given(st.sampled_from(BINARY), SHAPES, st.integers(2, 9))
def test_binary_costs_are_linear_in_the_batch(name: str, shape: list[int], times: int) -> None:
    once = _figures(_cost(f"aten::{name}", shape, shape))
    more = _figures(_cost(f"aten::{name}", *[[times * shape[0], *shape[1:]]] * 2))
    assert more == tuple(times * figure for figure in once)


@given(st.sampled_from(BINARY), SHAPES)
def test_broadcasting_never_reads_more_than_the_dense_operand(name: str, shape: list[int]) -> None:
    dense = _figures(_cost(f"aten::{name}", shape, shape))
    wide = _figures(_cost(f"aten::{name}", shape, [1] * len(shape)))
    assert wide[0] == dense[0]
    assert wide[2] == dense[2]
    assert wide[1] <= dense[1]


@given(SIZES, SIZES, SIZES, SIZES, st.integers(2, 9))
def test_products_are_linear_in_every_size(b: int, m: int, n: int, k: int, times: int) -> None:
    def flops(b: int, m: int, n: int, k: int) -> int:
        return _figures(_cost("aten::bmm", [b, m, k], [b, k, n]))[0]

    once = flops(b, m, n, k)
    assert flops(times * b, m, n, k) == flops(b, times * m, n, k) == times * once
    assert flops(b, m, times * n, k) == flops(b, m, n, times * k) == times * once


@given(SIZES, SIZES, SIZES, SIZES)
def test_a_batch_of_products_is_as_many_products(b: int, m: int, n: int, k: int) -> None:
    single, batch = (
        _figures(_cost("aten::mm", [m, k], [k, n])),
        _figures(_cost("aten::bmm", [b, m, k], [b, k, n])),
    )
    assert batch == tuple(b * figure for figure in single)


@given(SHAPES, st.data())
def test_reductions_read_all_and_write_less(shape: list[int], data: st.DataObject) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    for name in ("sum", "mean", "amax", "argmax"):
        cost = _cost(f"aten::{name}", shape, values=(f"[{dim}]" if name != "argmax" else str(dim), "False"))
        flops, read, written = _figures(cost)
        size = read // 4
        assert read == size * 4
        assert flops >= size
        assert written == size // shape[dim] * (8 if name == "argmax" else 4)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 30), st.integers(1, 30), st.booleans())
def test_masked_attention_costs_no_more(batch: int, heads: int, length: int, size: int, causal: bool) -> None:
    shapes = [[batch, heads, length, size]] * 3
    full = _cost("aten::_scaled_dot_product_flash_attention", *shapes, values=("0.0", "False"))
    masked = _cost("aten::_scaled_dot_product_flash_attention", *shapes, values=("0.0", str(causal)))
    assert (masked.flops or 0) <= (full.flops or 0)
    assert (masked.flops or 0) >= (full.flops or 0) // 2
    assert (masked.bytes_read, masked.bytes_written) == (full.bytes_read, full.bytes_written)


@given(SHAPES)
def test_copies_move_without_arithmetic(shape: list[int]) -> None:
    for name in ("clone", "copy_"):
        flops, read, written = _figures(_cost(f"aten::{name}", shape, shape))
        assert flops == 0
        assert read == written


@given(st.lists(st.integers(0, 5), max_size=4))
def test_empty_tensors_cost_nothing(shape: list[int]) -> None:
    shape = [*shape, 0]
    for name in ("relu", "clone", "zero_"):
        assert sum(_figures(_cost(f"aten::{name}", shape))) == 0
