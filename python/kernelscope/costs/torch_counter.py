"""The convention of ``torch.utils.flop_counter``: dense products only, no bytes.

:data:`COUNTED` are the operators in its registry. :data:`OWN` are those whose count differs from
kernelscope's, for the reason in their docstrings.
Source: torch/utils/flop_counter.py of torch 2.15.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import prod

from kernelscope.costs.attention import attention_backward_flops, attention_flops
from kernelscope.costs.bind import Call
from kernelscope.costs.convolution import Geometry, conv_flops, conv_output
from kernelscope.costs.registry import Function
from kernelscope.costs.types import Cost, Tensor

_BACKENDS = ("efficient_attention", "flash_attention", "cudnn_attention", "flash_attention_for_cpu")
_SDPA = tuple(f"aten::_scaled_dot_product_{backend}" for backend in _BACKENDS)

COUNTED = frozenset(
    {
        *("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm"),
        *("aten::convolution", "aten::_convolution", "aten::cudnn_convolution", "aten::_slow_conv2d_forward"),
        *("aten::convolution_overrideable", "aten::convolution_backward"),
        *_SDPA,
        *(f"{name}_backward" for name in _SDPA),
        *("aten::_flash_attention_forward", "aten::_flash_attention_backward"),
        *("aten::_efficient_attention_forward", "aten::_efficient_attention_backward"),
    }
)


def _cudnn_convolution(call: Call) -> Cost:
    """The counter takes the sixth option for ``transposed``; here that is ``benchmark``.

    With benchmarking on, it multiplies by the input's positions instead of the output's.
    """
    x, weight = call.tensor(0), call.tensor(1)
    geometry = Geometry(call.integers(3), call.integers(2), call.integers(4), groups=call.integer(5))
    out = conv_output(x.shape, weight.shape, geometry)
    return Cost(conv_flops(x.shape, weight.shape, out, transposed=call.flag(6)), None, None, x.dtype)


def _convolution_backward(call: Call) -> Cost:
    """The counter takes the gradient by the weight as if groups were one: ``groups`` times the products."""
    grad, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    transposed, mask = call.flag(7), call.integers(10)
    flops = 0
    if mask[0]:
        flops += conv_flops(grad.shape, weight.shape, x.shape, transposed=not transposed)
    if mask[1]:
        moved, window = (grad, x) if transposed else (x, grad)
        channels = moved.shape[1] * window.shape[1]
        flops += 2 * channels * window.shape[0] * prod(weight.shape[2:]) * prod(window.shape[2:])
    return Cost(flops, None, None, grad.dtype)


def _packed(call: Call, flops: Callable[..., int], q: Tensor, v: Tensor, offsets: int) -> Cost:
    """Packed sequences count as if all were as long as the longest.

    The counter reads the offsets' values where it has them; a trace has not.
    """
    count = call.tensor(offsets).numel - 1
    pairs = count * call.integer(offsets + 2) * call.integer(offsets + 3)
    return Cost(flops(pairs, q.shape[-2], q.shape[-1], v.shape[-1]), None, None, q.dtype, "estimate")


def _flash(call: Call) -> Cost:
    q, k, v = call.tensor(0), call.tensor(1), call.tensor(2)
    if call.optional(3) is not None:
        return _packed(call, attention_flops, q, v, 3)
    if k.shape[-2] > q.shape[-2]:
        call.fail("more key heads than query heads")
    return _dense_flash(attention_flops, q, k, v)


def _flash_backward(call: Call) -> Cost:
    q, k, v = call.tensor(1), call.tensor(2), call.tensor(3)
    if len(q.shape) == 3:
        return _packed(call, attention_backward_flops, q, v, 6)
    return _dense_flash(attention_backward_flops, q, k, v)


def _dense_flash(flops: Callable[..., int], q: Tensor, k: Tensor, v: Tensor) -> Cost:
    pairs, batch = q.shape[-3] * k.shape[-3], prod(q.shape[:-3])
    return Cost(flops(pairs, q.shape[-2], q.shape[-1], v.shape[-1], batch=batch), None, None, q.dtype)


def _efficient(call: Call, *, first: int, offsets: int, flops: Callable[..., int]) -> Cost:
    """The counter reads ``(batch, length, heads, size)`` as if the heads came first."""
    q, k, v = (call.tensor(first + place) for place in range(3))
    if call.optional(offsets) is not None:
        return _packed(call, flops, q, v, offsets)
    batch, heads, queries, size = q.shape
    return Cost(flops(queries * k.shape[2], heads, size, v.shape[-1], batch=batch), None, None, q.dtype)


OWN: Mapping[str, Function] = {
    "aten::cudnn_convolution": _cudnn_convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::_flash_attention_forward": _flash,
    "aten::_flash_attention_backward": _flash_backward,
    "aten::_efficient_attention_forward": partial(_efficient, first=0, offsets=4, flops=attention_flops),
    "aten::_efficient_attention_backward": partial(
        _efficient, first=1, offsets=6, flops=attention_backward_flops
    ),
}
