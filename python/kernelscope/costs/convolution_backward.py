"""Gradients of convolutions, by input, weight and bias."""

from dataclasses import replace

from kernelscope.costs.bind import Call
from kernelscope.costs.convolution import conv_flops, with_batch
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, Tensor


def convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mask: tuple[bool, bool, bool], *, transposed: bool = False
) -> Cost:
    """Cost of the requested gradients of a convolution: by input, weight and bias, according to ``mask``.

    Formula: each of the gradients by input and by weight has the FLOPs of the forward convolution. The
    gradient by bias, one addition per element of ``grad``, is not counted, as in the forward. Reads the
    inputs of each gradient once, writes the gradients.
    Source: torch/utils/flop_counter.py (conv_backward_flop), with groups counted once.
    Example: grad and x (32, 64, 56, 56), weight (64, 64, 3, 3): 2 * 2 * 36864 * 32 * 3136 = 14797504512.
    """
    forward = conv_flops(x.shape, weight.shape, grad.shape, transposed=transposed)
    by_input, by_weight, by_bias = mask
    read = grad.read if any(mask) else 0
    read += (weight.read if by_input else 0) + (x.read if by_weight else 0)
    channels = grad.shape[1] if len(grad.shape) > 1 else 0
    written = (x.nbytes if by_input else 0) + (weight.nbytes if by_weight else 0)
    written += channels * weight.dtype.bytes if by_bias else 0
    return Cost(forward * (by_input + by_weight), read, written, grad.dtype)


@operator("aten::convolution_backward", "aten::convolution_backward_overrideable")
def _convolution_backward(call: Call) -> Cost:
    """``convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed,
    output_padding, groups, output_mask)``; the overrideable form has no ``bias_sizes``.
    """
    shift = -1 if "overrideable" in call.name else 0
    weight = call.tensor(2)
    grad, x = with_batch(call.tensor(0), weight), with_batch(call.tensor(1), weight)
    if len({len(t.shape) for t in (grad, x, weight)}) != 1 or len(weight.shape) < 3:
        call.fail(f"the gradient of a convolution of {x.shape} with {weight.shape}")
    mask = tuple(bool(flag) for flag in call.integers(10 + shift))
    if len(mask) != 3:
        call.fail("the output mask does not have three entries")
    return convolution_backward(grad, x, weight, mask, transposed=call.flag(7 + shift))


_BACKWARDS = (
    "cudnn_convolution",
    "cudnn_convolution_transpose",
    "miopen_convolution",
    "miopen_depthwise_convolution",
)


@operator(*(f"aten::{name}_backward" for name in _BACKWARDS), composite=True)
def _library_backward(call: Call) -> Cost:
    """``cudnn_convolution_backward(input, grad, weight, ..., output_mask)``: torch before 1.11.

    The mask is the last input; where it was not recorded, both gradients are assumed.
    """
    x, grad, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    transposed = "_transpose" in call.name
    if call.values_recorded:
        mask = tuple(bool(flag) for flag in call.integers(len(call.args) - 1))
        return convolution_backward(grad, x, weight, (mask[0], mask[1], False), transposed=transposed)
    cost = convolution_backward(grad, x, weight, (True, True, False), transposed=transposed)
    note = "the requested gradients were not recorded; both are counted"
    return replace(cost, status="estimate", note=note)


@operator(*(f"aten::{name}_backward_input" for name in _BACKWARDS))
def _library_backward_input(call: Call) -> Cost:
    """``cudnn_convolution_backward_input(self_size, grad_output, weight, ...)``: FLOPs of the forward.

    The input's size is read where it was recorded, and otherwise only its bytes are missing.
    """
    grad, weight = call.tensor(1), call.tensor(2)
    transposed = "_transpose" in call.name
    sizes = call.integers(0) if call.values_recorded else call.output_dims
    if sizes is None:
        if transposed:
            call.fail("the shape of the input gradient was not recorded")
        flops = conv_flops(grad.shape, weight.shape, grad.shape)
        note = (
            "the shape of the input gradient was not recorded; its bytes are assumed equal to those "
            "of the output"
        )
        return Cost(flops, grad.read + weight.read, grad.nbytes, grad.dtype, "estimate", note)
    x = Tensor(sizes, grad.dtype)
    return convolution_backward(grad, x, weight, (True, False, False), transposed=transposed)


@operator(*(f"aten::{name}_backward_weight" for name in _BACKWARDS))
def _library_backward_weight(call: Call) -> Cost:
    """``cudnn_convolution_backward_weight(weight_size, grad_output, self, ...)``.

    The window is among the values of ``weight_size``; without them the FLOPs cannot be known.
    """
    grad, x = call.tensor(1), call.tensor(2)
    sizes = call.integers(0) if call.values_recorded else call.output_dims
    if sizes is None:
        call.fail("the shape of the weight was not recorded")
    weight = Tensor(sizes, grad.dtype)
    transposed = "_transpose" in call.name
    return convolution_backward(grad, x, weight, (False, True, False), transposed=transposed)
