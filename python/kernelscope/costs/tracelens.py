"""The convention of AMD's TraceLens, including its known errors, for comparison with its reports.

Differences from kernelscope: biases are counted in ``addmm``; copies and every pointwise operator count 1 per
element; a scalar operand is read as one element of its type; strides are ignored; every reduction has one
result; every normalisation is training; attention always has 2-byte elements. The tables name the modelled
operators.
Source: the formulas of TraceLens at 171dd747, restated.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import prod

from kernelscope.costs.attention import attention_flops
from kernelscope.costs.bind import Call
from kernelscope.costs.convolution import conv_flops, conv_output, generic_geometry
from kernelscope.costs.gemm import broadcast, gemm_flops
from kernelscope.costs.registry import Function
from kernelscope.costs.types import Cost, DType, ShapeError, Tensor

# Element sizes that TraceLens knows; a type that is not here makes its bytes unknown.
_SIZED = frozenset(
    "float64 int64 float32 float16 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
    "float8_e8m0fnu uint8 int8 "
    "float4_e2m1fn_x2 int32".split()
)
# Plain numbers count as an element of 4 bytes.
_SCALAR_BYTES = 4


class _UnsizedError(ShapeError):
    """TraceLens does not know the size of an element type."""


def _size(dtype: DType) -> int:
    if dtype.name not in _SIZED:
        raise _UnsizedError(f"TraceLens does not know the size of {dtype.name}")
    return dtype.bytes


def _cost(flops: int, dtype: DType, moved: Callable[[], int]) -> Cost:
    """One figure for the traffic: TraceLens does not separate reading from writing."""
    try:
        total = moved()
    except _UnsizedError as error:
        return Cost(flops, None, None, dtype, "unknown_dtype", str(error))
    return Cost(flops, total, 0, dtype)


def _gemm(call: Call, *, first: int, biased: bool, out_bytes: int | None = None) -> Cost:
    """Formula: 2 M N K (+ M N with a bias) a batch; bytes M K + K N + M N, and N for a bias."""
    a, b = call.tensor(first), call.tensor(first + 1)
    batch = prod(a.shape[:-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    flops = gemm_flops(m, n, k, batch=batch) + (batch * m * n if biased else 0)

    def moved() -> int:
        size = _size(a.dtype)
        return batch * ((m * k + k * n + (n if biased else 0)) * size + m * n * (out_bytes or size))

    return _cost(flops, a.dtype, moved)


def _conv(call: Call) -> Cost:
    """The bias is never noticed."""
    x, weight = call.tensor(0), call.tensor(1)
    if not call.values_recorded:
        call.fail("the stride was not recorded")
    geometry = generic_geometry(call, 3)
    out = conv_output(x.shape, weight.shape, geometry)
    flops = conv_flops(x.shape, weight.shape, out, transposed=geometry.transposed)
    return _cost(flops, x.dtype, lambda: (x.numel + weight.numel + prod(out)) * _size(x.dtype))


def _conv_backward(call: Call) -> Cost:
    """Both gradients, whatever the output mask says; every tensor passes twice."""
    grad, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    flops = 2 * conv_flops(x.shape, weight.shape, grad.shape, transposed=call.flag(7))
    return _cost(flops, x.dtype, lambda: 2 * (grad.numel + x.numel + weight.numel) * _size(x.dtype))


def _sdpa(call: Call, *, causal: int) -> Cost:
    """A causal mask halves the products; elements have 2 bytes."""
    q, k, v = call.tensor(0, rank=4), call.tensor(1, rank=4), call.tensor(2, rank=4)
    batch, heads, queries, size = q.shape
    flops = attention_flops(queries * k.shape[2], heads, size, v.shape[3], batch=batch)
    if call.flag(causal, default=False):
        if queries != k.shape[2]:
            call.fail("TraceLens accepts a causal mask only for square attention")
        flops //= 2
    moved = 2 * (q.numel + k.numel + v.numel + batch * heads * queries * v.shape[3])
    return Cost(flops, moved, 0, q.dtype)


def _unary(call: Call) -> Cost:
    """The result has the type of the second input if that has a shape (the source, for copies)."""
    x, second = call.tensor(0), call.optional(1)
    out = second.dtype if second and second.shape else x.dtype
    return _cost(x.numel, x.dtype, lambda: x.numel * (_size(x.dtype) + _size(out)))


def _binary(call: Call) -> Cost:
    """A number is an operand of one element; of two tensors, the larger type is the result's."""
    x, other = call.tensor(0), call.optional(1)
    shape = broadcast(call, x.shape, other.shape) if other else x.shape

    def moved() -> int:
        first = _size(x.dtype)
        second = _size(other.dtype) if other else _SCALAR_BYTES
        out = max(first, second) if other and other.shape else first
        return x.numel * first + (other.numel if other else 1) * second + prod(shape) * out

    return _cost(prod(shape), x.dtype, moved)


def _reduce(call: Call, *, scan: bool = False) -> Cost:
    """One result, whatever dimensions are reduced."""
    x = call.tensor(0)
    return _cost(x.numel, x.dtype, lambda: (x.numel + (x.numel if scan else 1)) * _size(x.dtype))


def _norm(call: Call, *, channels: Callable[[Call, Tensor], int]) -> Cost:
    """Formula: 3 C + 3 C + 2 N + 3 N; bytes N in and out, and 6 C (statistics, weight, bias, running
    ones).
    """
    x = call.tensor(0)
    count = channels(call, x)
    return _cost(6 * count + 5 * x.numel, x.dtype, lambda: (2 * x.numel + 6 * count) * _size(x.dtype))


def _batch_norm_backward(call: Call) -> Cost:
    """Formula: 4 N, and 5 N for the input's gradient, else 2 N."""
    x = call.tensor(1)
    by_input = call.integers(9)[0]
    count = x.shape[1]
    flops = (4 + (5 if by_input else 2)) * x.numel
    passes = 1 + (2 if by_input else 1)
    return _cost(flops, x.dtype, lambda: (passes * x.numel + 4 * count) * _size(x.dtype))


def _second_size(call: Call, x: Tensor) -> int:
    del call
    return x.shape[1]


def _normalized(call: Call, x: Tensor) -> int:
    del x
    return prod(call.integers(1))


_BINARY = "div mul add sigmoid_backward threshold_backward"
_UNARY = "copy clamp_min clamp_max sigmoid rsqrt silu neg pow"
_REDUCE = "sum mean max min norm linalg_norm std var logsumexp amax amin"
_BATCH_NORMS = "batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm instance_norm group_norm"
_PRODUCTS: dict[str, Function] = {
    "aten::mm": partial(_gemm, first=0, biased=False),
    "aten::addmm": partial(_gemm, first=1, biased=True),
    "aten::bmm": partial(_gemm, first=0, biased=False),
    "aten::baddbmm": partial(_gemm, first=1, biased=True),
    "aten::_scaled_mm": partial(_gemm, first=0, biased=False, out_bytes=2),
    "aten::convolution": _conv,
    "aten::convolution_backward": _conv_backward,
    "aten::_scaled_dot_product_flash_attention": partial(_sdpa, causal=4),
    "aten::_scaled_dot_product_efficient_attention": partial(_sdpa, causal=6),
    "aten::_scaled_dot_product_cudnn_attention": partial(_sdpa, causal=6),
}

OWN: Mapping[str, Function] = {
    **_PRODUCTS,
    **{f"aten::{name}": _unary for name in _UNARY.split()},
    **{f"aten::{name}": _binary for name in _BINARY.split()},
    **{f"aten::{name}": _reduce for name in _REDUCE.split()},
    "aten::cumsum": partial(_reduce, scan=True),
    "aten::cumprod": partial(_reduce, scan=True),
    **{f"aten::{name}": partial(_norm, channels=_second_size) for name in _BATCH_NORMS.split()},
    "aten::layer_norm": partial(_norm, channels=_normalized),
    "aten::native_layer_norm": partial(_norm, channels=_normalized),
    "aten::native_batch_norm_backward": _batch_norm_backward,
}
