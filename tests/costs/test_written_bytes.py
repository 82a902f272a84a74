"""Bytes written are those of the results that torch really gives, for a call of every kind of operator."""

from collections.abc import Callable
from typing import Any

import pytest

from kernelscope.costs import cost_of, find_model

torch = pytest.importorskip("torch", reason="PyTorch is not installed; its results' sizes are compared with")

from recording import recording  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

aten = torch.ops.aten


def _x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def _half(*shape: int) -> torch.Tensor:
    return _x(*shape, dtype=torch.bfloat16)


INT, BOOL = torch.int64, torch.bool
INDEX = torch.tensor([2, 0, 1])

# Each gives tensors that did not exist before, by one operator.
CALLS: dict[str, Callable[[], Any]] = {
    "add, broadcast": lambda: _x(4, 1, 3) + _x(5, 1),
    "add, mixed types": lambda: _half(4, 3) + _x(4, 3),
    "add, number": lambda: _x(4, 3, dtype=INT) + 1.5,
    "add, tensor without dimensions": lambda: _half(4, 3) + torch.tensor(2.0),
    "add, float16 and bfloat16": lambda: _half(4) + _x(4, dtype=torch.float16),
    "div of whole numbers": lambda: _x(4, 3, dtype=INT) / _x(4, 3, dtype=INT),
    "rounded div": lambda: torch.div(_x(4, 3, dtype=INT), _x(4, 3, dtype=INT), rounding_mode="trunc"),
    "floor division": lambda: _x(4, 3, dtype=INT) // 2,
    "comparison": lambda: _x(4, 3) < _x(3),
    "logical": lambda: torch.logical_and(_x(4, 3), _x(4, 3)),
    "bitwise": lambda: _x(4, 3, dtype=BOOL) & _x(4, 3, dtype=BOOL),
    "exp of whole numbers": lambda: _x(4, dtype=INT).exp(),
    "isnan": lambda: aten.isnan(_x(4)),
    "neg": lambda: -_half(4, 3),
    "clamp": lambda: _half(4, 3).clamp(0, 1),
    "clamp by tensor": lambda: aten.clamp.Tensor(_x(4, 1), _x(1, 3)),
    "pow": lambda: _half(4) ** 2,
    "rsub": lambda: 1 - _half(4),
    "where": lambda: torch.where(_x(4, 1, dtype=BOOL), _half(4, 3), _half(3)),
    "where, number": lambda: aten.where.ScalarOther(_x(4, dtype=BOOL), _half(4), 2.0),
    "masked_fill": lambda: _half(4, 3).masked_fill(_x(4, 1, dtype=BOOL), 0),
    "addcmul": lambda: torch.addcmul(_x(4), _x(4), _x(4)),
    "lerp": lambda: torch.lerp(_x(4), _x(4), 0.5),
    "gelu": lambda: F.gelu(_half(4)),
    "silu": lambda: F.silu(_half(4)),
    "sigmoid gradient": lambda: aten.sigmoid_backward(_half(4), _half(4)),
    "gelu gradient": lambda: aten.gelu_backward(_half(4), _half(4)),
    "glu": lambda: F.glu(_half(4, 6)),
    "glu gradient": lambda: aten.glu_backward(_half(4, 3), _half(4, 6), -1),
    "dropout": lambda: torch.native_dropout(_half(4, 3), 0.5, True),
    "sum": lambda: aten.sum(_half(4, 3)),
    "sum over a dimension": lambda: _half(4, 3, 5).sum((0, -1)),
    "sum of whole numbers": lambda: _x(4, 3, dtype=torch.int32).sum(1),
    "sum to another type": lambda: _half(4, 3).sum(0, dtype=torch.float32),
    "mean": lambda: _half(4, 3).mean(1, keepdim=True),
    "prod": lambda: _x(4, 3).prod(1),
    "amax": lambda: _x(4, 3).amax(0),
    "max": lambda: aten.max(_x(4, 3)),
    "max over a dimension": lambda: _half(4, 3).max(1),
    "maximum": lambda: torch.maximum(_x(4, 3), _x(4, 3)),
    "argmax": lambda: _x(4, 3).argmax(1),
    "any": lambda: _x(4, 3, dtype=BOOL).any(1),
    "norm": lambda: torch.linalg.vector_norm(_half(4, 3), dim=1),
    "var": lambda: _x(4, 3).var(1),
    "var_mean": lambda: torch.var_mean(_x(4, 3), 1),
    "logsumexp": lambda: aten.logsumexp(_x(4, 3), [1]),
    "cumsum": lambda: _x(4, 3, dtype=torch.int32).cumsum(0),
    "cummax": lambda: _x(4, 3).cummax(0),
    "sort": lambda: _half(4, 3).sort(),
    "topk": lambda: _half(4, 30).topk(7),
    "softmax": lambda: _half(4, 3).softmax(-1),
    "softmax, widened": lambda: aten._softmax(_half(4, 3), -1, False),
    "softmax gradient": lambda: aten._softmax_backward_data(_half(4, 3), _half(4, 3), -1, torch.bfloat16),
    "nll_loss": lambda: aten.nll_loss_forward(_x(4, 5), torch.ones(4, dtype=INT), None, 1, -100),
    "nll_loss, not reduced": lambda: aten.nll_loss_forward(_x(4, 5), torch.ones(4, dtype=INT), None, 0, -100),
    "nll_loss gradient": lambda: aten.nll_loss_backward(
        *(_x(), _x(4, 5), torch.ones(4, dtype=INT), None, 1, -100, _x())
    ),
    "mse_loss": lambda: F.mse_loss(_x(4, 3), _x(4, 3)),
    "mse_loss, not reduced": lambda: F.mse_loss(_x(4, 3), _x(4, 3), reduction="none"),
    "mse_loss gradient": lambda: aten.mse_loss_backward(_x(), _x(4, 3), _x(4, 3), 1),
    "binary cross entropy": lambda: F.binary_cross_entropy(_x(4, 3), _x(4, 3), reduction="none"),
    "binary cross entropy gradient": lambda: aten.binary_cross_entropy_backward(_x(), _x(4), _x(4)),
    "layer_norm": lambda: aten.native_layer_norm(_x(4, 6, 8), [6, 8], _x(6, 8), _x(6, 8), 1e-5),
    "layer_norm gradient": lambda: aten.native_layer_norm_backward(
        *(_x(4, 8), _x(4, 8), [8], _x(4, 1), _x(4, 1), _x(8), _x(8), [True, True, True])
    ),
    "group_norm": lambda: aten.native_group_norm(_x(2, 6, 5), _x(6), _x(6), 2, 6, 5, 3, 1e-5),
    "group_norm gradient": lambda: aten.native_group_norm_backward(
        *(_x(2, 6, 5), _x(2, 6, 5), _x(2, 3), _x(2, 3), _x(6), 2, 6, 5, 3, [True, True, True])
    ),
    "batch_norm gradient": lambda: aten.native_batch_norm_backward(
        *(_x(2, 6, 5), _x(2, 6, 5), _x(6), _x(6), _x(6), _x(6), _x(6), True, 1e-5, [True, True, True])
    ),
    "batch_norm gradient, masked": lambda: aten.native_batch_norm_backward(
        *(_x(2, 6, 5), _x(2, 6, 5), _x(6), _x(6), _x(6), _x(6), _x(6), True, 1e-5, [True, False, False])
    ),
    "embedding": lambda: F.embedding(INDEX, _half(10, 4)),
    "embedding gradient": lambda: aten.embedding_dense_backward(_x(3, 4), INDEX, 10, -1, False),
    "index_select": lambda: _half(5, 4).index_select(0, INDEX),
    "gather": lambda: _half(5, 4).gather(0, torch.zeros((3, 4), dtype=INT)),
    "index": lambda: _half(5, 4)[INDEX],
    "scatter": lambda: _x(5, 4).scatter_add(0, torch.zeros((3, 4), dtype=INT), _x(3, 4)),
    "bucketize": lambda: torch.bucketize(_x(4), _x(10)),
    "searchsorted": lambda: torch.searchsorted(_x(10), _x(4)),
    "max_pool2d": lambda: F.max_pool2d_with_indices(_x(2, 3, 11, 9), 3, 2, 1),
    "max_pool2d, ceiling": lambda: F.max_pool2d_with_indices(_x(2, 3, 10, 10), 3, 2, 1, ceil_mode=True),
    "max_pool2d, dilated": lambda: F.max_pool2d_with_indices(_x(2, 3, 11, 9), 2, 1, 0, 3),
    "avg_pool2d": lambda: F.avg_pool2d(_x(2, 3, 11, 9), 2),
    "avg_pool3d": lambda: aten.avg_pool3d(_x(2, 3, 8, 11, 9), [2, 3, 2]),
    "avg_pool2d gradient": lambda: aten.avg_pool2d_backward(
        *(_x(2, 3, 5, 4), _x(2, 3, 10, 8), [2, 2], [2, 2], [0, 0], False, True, None)
    ),
    "adaptive_avg_pool2d": lambda: aten._adaptive_avg_pool2d(_x(2, 3, 11, 9), [5, 3]),
    "upsample_nearest2d": lambda: aten.upsample_nearest2d(_x(2, 3, 5, 4), [10, 8]),
    "upsample_nearest2d, scaled": lambda: aten.upsample_nearest2d.vec(_x(2, 3, 5, 4), None, [2.0, 2.0]),
    "upsample_bilinear2d": lambda: aten.upsample_bilinear2d(_x(2, 3, 5, 4), [10, 8], False),
    "upsample_bicubic2d": lambda: aten.upsample_bicubic2d(_x(2, 3, 5, 4), [10, 8], False),
    "upsample gradient": lambda: aten.upsample_bilinear2d_backward(
        _x(2, 3, 10, 8), [10, 8], [2, 3, 5, 4], False
    ),
    "reflection_pad2d": lambda: F.pad(_x(2, 3, 5, 4), (1, 2, 0, 1), mode="reflect"),
    "constant_pad_nd": lambda: aten.constant_pad_nd(_half(3, 5), [0, 3]),
    "grid_sampler_2d": lambda: aten.grid_sampler_2d(_x(2, 3, 5, 4), _x(2, 6, 7, 2), 0, 0, False),
    "im2col": lambda: aten.im2col(_x(2, 3, 8, 8), [3, 3], [1, 1], [1, 1], [2, 2]),
    "clone": lambda: _half(4, 3).clone(),
    "copy": lambda: _x(4, 3).copy_(_half(3)),
    "zero": lambda: _x(4, 3).zero_(),
    "fill": lambda: _half(4, 3).fill_(1),
    "normal": lambda: _x(4, 3).normal_(),
    "repeat": lambda: aten.repeat(_x(4, 3), [2, 1, 5]),
    "flip": lambda: _x(4, 3).flip(0),
    "roll": lambda: _x(4, 3).roll(1, 0),
    "tril": lambda: _x(4, 3).tril(),
    "arange": lambda: torch.arange(7),
    "arange, steps": lambda: torch.arange(1.0, 3.0, 0.3),
    "arange, into": lambda: torch.arange(2, 9, 2, out=torch.empty(4, dtype=torch.int32)),
    "linspace": lambda: torch.linspace(0, 1, 9),
    "fft": lambda: torch.fft.fft2(_x(4, 6, dtype=torch.complex64)),
    "rfft": lambda: torch.fft.rfftn(_x(4, 7, 3), dim=(2, 1)),
    "irfft": lambda: torch.fft.irfft(_x(4, 5, dtype=torch.complex64), 9),
    "one in place": lambda: _half(4, 3).add_(_x(3)),
    "mm": lambda: _half(4, 3) @ _half(3, 5),
    "addmm": lambda: torch.addmm(_x(5), _x(4, 3), _x(3, 5)),
    "baddbmm": lambda: torch.baddbmm(_x(2, 4, 5), _x(2, 4, 3), _x(2, 3, 5)),
    "addbmm": lambda: aten.addbmm(_x(4, 5), _x(2, 4, 3), _x(2, 3, 5)),
    "mv": lambda: torch.mv(_x(4, 3), _x(3)),
    "addmv": lambda: torch.addmv(_x(4), _x(4, 3), _x(3)),
    "dot": lambda: torch.dot(_x(4), _x(4)),
    "addr": lambda: aten.addr(_x(4, 3), _x(4), _x(3)),
    "int8 product": lambda: torch._int_mm(_x(32, 16, dtype=torch.int8), _x(16, 8, dtype=torch.int8)),
    "convolution": lambda: aten.convolution(
        *(_x(2, 4, 9, 8), _x(6, 2, 3, 3), _x(6), [2, 1], [1, 0], [1, 2], False, [0, 0], 2)
    ),
    "transposed convolution": lambda: aten.convolution(
        *(_x(2, 4, 9, 8), _x(4, 3, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 2)
    ),
    "convolution gradient": lambda: aten.convolution_backward(
        *(_x(2, 6, 7, 6), _x(2, 4, 9, 8), _x(6, 4, 3, 3), [6]),
        *([1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3),
    ),
    "attention": lambda: aten._scaled_dot_product_flash_attention_for_cpu(
        _x(2, 3, 5, 8), _x(2, 3, 7, 8), _x(2, 3, 7, 8)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_written_bytes_are_those_of_the_results(name: str) -> None:
    with recording() as rows:
        CALLS[name]()
    modelled = [
        row
        for row in rows
        if find_model(row.name) and not row.name.startswith(("aten::lift", "aten::detach"))
    ]
    assert modelled, [row.name for row in rows]
    # What prepares the operands comes first.
    row = modelled[-1]
    cost = cost_of(row.name, *row.texts)
    assert cost.status in {"exact", "estimate"}, cost
    assert cost.bytes_written == sum(tensor.nbytes for tensor in row.results), (row.name, row.texts, cost)


@pytest.mark.slow
def test_lists_need_a_named_type() -> None:
    with recording() as rows:
        torch.cat([_half(4, 3), _half(2, 3)])
        torch._foreach_add_([_half(4, 3), _half(2)], [_half(4, 3), _half(2)])
    for row in (row for row in rows if row.name in {"aten::cat", "aten::_foreach_add_"}):
        assert cost_of(row.name, *row.texts).status == "unknown_dtype"
        cost = cost_of(row.name, *row.texts, list_dtype="c10::BFloat16")
        assert cost.status == "estimate"
        assert cost.bytes_written == {"aten::cat": 36, "aten::_foreach_add_": 28}[row.name]
