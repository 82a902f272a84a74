"""Normalisations, forward and backward. Counts per element follow the rule of ``elementwise``.

Statistics: sum (1), difference, square, sum (3). Applying them: difference and product (2); weight and bias 1
each. Counts that do not grow with the elements (roots per row) are left out. Each tensor is read once,
because the second pass over the input is assumed to hit the cache.
"""

from dataclasses import replace
from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, Tensor

_STATISTICS, _APPLY = 4, 2
# Gradient by the input: x-hat (2), dy * w (1), two sums (3), the three terms and their product (4).
_BY_INPUT, _BY_WEIGHT, _BY_BIAS = 10, 2, 1
# Half precision keeps its statistics in float32.
_STATISTIC_BYTES = 4


def norm_forward(x: Tensor, affine: list[Tensor], *, statistics: bool = True, groups: int = 0) -> Cost:
    """Cost of normalising ``x``, with a weight and a bias if ``affine`` has them.

    Formula: elements * (2 + len(affine) + (4 if statistics are computed)); reads x and affine, writes the
    result and, for each of ``groups``, mean and reciprocal deviation.
    Source: Ioffe and Szegedy 2015, algorithm 1; Ba et al. 2016.
    Example: layer_norm of (2, 1024) with both: 2048 * 8 = 16384 FLOP.
    """
    per_element = _APPLY + len(affine) + (_STATISTICS if statistics else 0)
    size = max(x.dtype.bytes, _STATISTIC_BYTES)
    read = x.read + sum(t.read for t in affine)
    return Cost(per_element * x.numel, read, x.nbytes + 2 * groups * size, x.dtype)


def norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mask: tuple[bool, bool, bool],
    *,
    groups: int,
    channels: int,
) -> Cost:
    """Cost of the requested gradients: by input, weight and bias, according to ``mask``.

    Formula: elements * (10 by input + 2 by weight + 1 by bias); reads both tensors, the weight and the
    statistics, writes the gradients.
    """
    per_element = mask[0] * _BY_INPUT + mask[1] * _BY_WEIGHT + mask[2] * _BY_BIAS
    size = max(x.dtype.bytes, _STATISTIC_BYTES)
    read = grad.read + x.read + (weight.read if weight else 0) + 2 * groups * size
    entry = weight.dtype.bytes if weight else x.dtype.bytes
    written = mask[0] * x.nbytes + (mask[1] + mask[2]) * channels * entry
    return Cost(per_element * x.numel, read, written, grad.dtype)


def _mask(call: Call, index: int, weight: Tensor | None) -> tuple[bool, bool, bool]:
    """The output mask; where it was not recorded, all that the inputs allow."""
    if not call.is_recorded(index) or not isinstance(call.arg(index), tuple):
        return (True, weight is not None, weight is not None)
    flags = tuple(bool(flag) for flag in call.integers(index))
    if len(flags) != 3:
        call.fail("the output mask does not have three entries")
    return (flags[0], flags[1], flags[2])


def _channels(x: Tensor) -> int:
    return x.shape[1] if len(x.shape) > 1 else 1


@operator("aten::layer_norm", composite=True)
@operator("aten::native_layer_norm")
def _layer_norm(call: Call) -> Cost:
    """``native_layer_norm(input, normalized_shape, weight, bias, eps)``; the wrapper keeps no statistics."""
    x = call.tensor(0)
    affine = call.present(2, 3)
    if call.is_recorded(1) and call.arg(1) is not None:
        width = prod(call.integers(1))
    elif affine:
        width = affine[0].numel
    else:
        call.fail("the normalised shape was not recorded")
    rows = x.numel // width if width else 0
    return norm_forward(x, affine, groups=rows if "native" in call.name else 0)


@operator("aten::native_layer_norm_backward")
def _layer_norm_backward(call: Call) -> Cost:
    """``(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)``."""
    grad, x, weight = call.tensor(0), call.tensor(1), call.optional(5)
    rows = call.tensor(3).numel
    width = weight.numel if weight else x.numel // max(rows, 1)
    return norm_backward(grad, x, weight, _mask(call, 7, weight), groups=rows, channels=width)


@operator("aten::batch_norm", "aten::_batch_norm_impl_index", composite=True)
@operator("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm")
@operator("aten::_native_batch_norm_legit", "aten::_batch_norm_with_update")
def _batch_norm(call: Call) -> Cost:
    """``native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)``.

    Training computes statistics, updates the running ones (4 per channel) and keeps those of the batch;
    evaluation reads the running ones. Where ``training`` was not recorded, it is assumed.
    """
    x, affine, running = call.tensor(0), call.present(1, 2), call.present(3, 4)
    with_update = "_with_update" in call.name
    known = with_update or call.is_recorded(5)
    training = True if with_update or not known else call.flag(5)
    cost = norm_forward(x, affine, statistics=training, groups=_channels(x) if training else 0)
    flops, read, written = cost.flops or 0, cost.bytes_read or 0, cost.bytes_written or 0
    read += sum(t.read for t in running)
    if training:
        flops += sum(3 * t.numel for t in running)
        written += sum(t.nbytes for t in running)
    note = "" if known else "training is assumed; the mode was not recorded"
    return Cost(flops, read, written, x.dtype, "estimate" if note else "exact", note)


@operator("aten::native_batch_norm_backward")
def _batch_norm_backward(call: Call) -> Cost:
    """``(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps,
    output_mask)``.

    In evaluation the statistics are constants: the gradient by the input is 2 per element.
    """
    grad, x, weight = call.tensor(0), call.tensor(1), call.optional(2)
    mask = _mask(call, 9, weight)
    cost = norm_backward(grad, x, weight, mask, groups=_channels(x), channels=_channels(x))
    if call.is_recorded(7) and not call.flag(7):
        return replace(cost, flops=(cost.flops or 0) - mask[0] * (_BY_INPUT - 2) * x.numel)
    return cost


@operator("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward", "aten::batch_norm_backward")
def _library_batch_norm_backward(call: Call) -> Cost:
    """``cudnn_batch_norm_backward(input, grad_output, weight, running_mean, ...)``: input first."""
    first, second, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    grad, x = (first, second) if "::batch_norm" in call.name else (second, first)
    channels = _channels(x)
    return norm_backward(grad, x, weight, (True, True, True), groups=channels, channels=channels)


@operator("aten::batch_norm_stats")
def _batch_norm_stats(call: Call) -> Cost:
    """``batch_norm_stats(input, eps)``: statistics only, 4 per element."""
    x = call.tensor(0)
    return Cost(_STATISTICS * x.numel, x.read, 2 * _channels(x) * max(x.dtype.bytes, 4), x.dtype)


@operator("aten::batch_norm_elemt")
def _batch_norm_elemt(call: Call) -> Cost:
    """``batch_norm_elemt(input, weight, bias, mean, invstd, eps)``: applies given statistics."""
    x = call.tensor(0)
    cost = norm_forward(x, call.present(1, 2), statistics=False)
    return replace(cost, bytes_read=(cost.bytes_read or 0) + sum(t.read for t in call.present(3, 4)))


@operator("aten::native_group_norm")
def _group_norm(call: Call) -> Cost:
    """``native_group_norm(input, weight, bias, N, C, HxW, group, eps)``: statistics per sample and group."""
    x = call.tensor(0)
    groups = call.integer(3) * call.integer(6)
    return norm_forward(x, call.present(1, 2), groups=groups)


@operator("aten::native_group_norm_backward")
def _group_norm_backward(call: Call) -> Cost:
    """``(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)``."""
    grad, x, weight = call.tensor(0), call.tensor(1), call.optional(4)
    groups = call.tensor(2).numel
    return norm_backward(grad, x, weight, _mask(call, 9, weight), groups=groups, channels=_channels(x))


@operator("aten::group_norm", "aten::instance_norm", composite=True)
def _norm_wrapper(call: Call) -> Cost:
    """``instance_norm(input, weight, bias, ...)`` and ``group_norm(input, num_groups, weight, bias,
    eps)``.
    """
    first = 2 if "group_norm" in call.name else 1
    return norm_forward(call.tensor(0), call.present(first, first + 1))


def rms_norm(x: Tensor, weight: Tensor | None, *, rows: int = 0, residual: bool = False) -> Cost:
    """Cost of x / root of the mean square, times a weight.

    Formula: elements * (2 square and sum + 1 product + 1 weight + 1 residual addition). With a residual, it
    is also read, and the sum is also written. ``rows`` reciprocal roots are kept.
    Source: Zhang and Sennrich 2019.
    Example: (888, 2880) with weight and residual: 5 * 2557440 = 12787200 FLOP.
    """
    per_element = 3 + (weight is not None) + residual
    read = x.read * (2 if residual else 1) + (weight.read if weight else 0)
    return Cost(per_element * x.numel, read, x.nbytes * (2 if residual else 1) + rows * 4, x.dtype)


@operator("aten::rms_norm", composite=True)
@operator("aten::_fused_rms_norm")
def _rms_norm(call: Call) -> Cost:
    """``_fused_rms_norm(input, normalized_shape, weight, eps)``."""
    x, weight = call.tensor(0), call.optional(2)
    width = prod(call.integers(1))
    rows = x.numel // width if width else 0
    return rms_norm(x, weight, rows=rows if "fused" in call.name else 0)


@operator("aten::_fused_rms_norm_backward")
def _rms_norm_backward(call: Call) -> Cost:
    """``(grad_out, input, normalized_shape, rstd, weight, output_mask)``: x-hat 1, dy * w 1, sum 2, two terms
    and their product 3: 7 by input; 2 by weight.
    """
    grad, x, rstd, weight = call.tensor(0), call.tensor(1), call.tensor(3), call.optional(4)
    flops = (7 + 2 * (weight is not None)) * x.numel
    read = grad.read + x.read + rstd.read + (weight.read if weight else 0)
    return Cost(flops, read, x.nbytes + (weight.nbytes if weight else 0), grad.dtype)


@operator("_C::rms_norm", "sgl_kernel::rmsnorm", "sgl_kernel::gemma_rmsnorm")
@operator("aiter::rmsnorm", "aiter::rms_norm")
def _library_rms_norm(call: Call) -> Cost:
    """``rms_norm(out, input, weight, epsilon)``; aiter's newer ``rms_norm(input, weight, epsilon, ...)`` has
    no ``out``.
    """
    first = 0 if call.optional(2) is None else 1
    return rms_norm(call.tensor(first), call.tensor(first + 1))


@operator("_C::rms_norm_static_fp8_quant", "_C::rms_norm_dynamic_per_token_quant")
def _rms_norm_quant(call: Call) -> Cost:
    """``rms_norm_static_fp8_quant(result, input, weight, scale, epsilon)``, and with scales that are found
    ``rms_norm_dynamic_per_token_quant(result, input, weight, scales, epsilon, scale_ub, residual)``.
    """
    residual = call.optional(6) if "dynamic" in call.name else None
    cost = rms_norm(call.tensor(1), call.tensor(2), residual=residual is not None)
    return _narrowed(call, cost, call.tensor(1), call.tensor(3), residual)


@operator("_C::fused_add_rms_norm_static_fp8_quant")
def _add_rms_norm_quant(call: Call) -> Cost:
    """``fused_add_rms_norm_static_fp8_quant(result, input, residual, weight, scale, epsilon)``."""
    cost = rms_norm(call.tensor(1), call.tensor(3), residual=True)
    return _narrowed(call, cost, call.tensor(1), call.tensor(4), call.tensor(2))


def _narrowed(call: Call, cost: Cost, x: Tensor, scale: Tensor, residual: Tensor | None) -> Cost:
    """A norm whose result is scaled to a narrow type: 1 more per element, 2 where the scales are found."""
    found = "dynamic" in call.name
    written = call.tensor(0).nbytes + (residual.nbytes if residual else 0) + (scale.nbytes if found else 0)
    read = (cost.bytes_read or 0) + (0 if found else scale.read)
    return Cost((cost.flops or 0) + (2 if found else 1) * x.numel, read, written, x.dtype)


@operator("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "sgl_kernel::gemma_fused_add_rmsnorm")
def _library_add_rms_norm(call: Call) -> Cost:
    """``fused_add_rms_norm(input, residual, weight, epsilon)``, both in place."""
    return rms_norm(call.tensor(0), call.tensor(2), residual=True)


@operator("aiter::add_rmsnorm", "aiter::rmsnorm2d_fwd_with_add", "aiter::rmsnorm2d_fwd_with_add_ck")
def _aiter_add_rms_norm(call: Call) -> Cost:
    """``add_rmsnorm(out, input, residual_in, residual_out, weight, epsilon)``."""
    return rms_norm(call.tensor(1), call.tensor(4), residual=True)


@operator("fb::rms_norm")
def _fb_rms_norm(call: Call) -> Cost:
    """``rms_norm(input, weight, bias, ...)``: a bias is added."""
    x, bias = call.tensor(0), call.tensor(2)
    cost = rms_norm(x, call.tensor(1))
    return Cost((cost.flops or 0) + x.numel, (cost.bytes_read or 0) + bias.read, cost.bytes_written, x.dtype)


def _last_dimension(x: Tensor) -> Tensor:
    """A weight of one number for each of the last dimension."""
    return Tensor(x.shape[-1:], x.dtype)


def _rows(x: Tensor) -> int:
    return prod(x.shape[:-1])


def _affine(call: Call) -> list[Tensor]:
    """Weights and biases: the inputs behind the first of one dimension."""
    rest = call.tensors()[1:]
    return [tensor for tensor in rest if len(tensor.shape) == 1 and tensor.dtype.kind == "float"]


_LAYER_NORMS = (
    "FusedLayerNormAffineFunction", "FusedLayerNormAffineMixedDtypesFunction", "FusedLayerNormFunction",
    "FastLayerNormFN", "LigerLayerNormFunction", "_LayerNorm",
)  # fmt: skip
_RMS_NORMS = (
    "FusedRMSNormAffineFunction", "FusedRMSNormAffineMixedDtypesFunction", "FusedRMSNormFunction",
    "LigerRMSNormFunction", "_RMSNorm",
)  # fmt: skip


@operator(*_LAYER_NORMS, composite=True)
def _layer_norm_function(call: Call) -> Cost:
    """Autograd Functions of Apex, Liger and Transformer Engine: ``(input, weight, bias, ...)``."""
    x = call.tensor(0)
    return norm_forward(x, _affine(call), groups=_rows(x))


@operator(*(f"{name}Backward" for name in _LAYER_NORMS), composite=True)
def _layer_norm_function_backward(call: Call) -> Cost:
    """The gradient, as large as the input; with a weight and a bias unless the name says otherwise."""
    grad = call.tensor(0)
    weight = None if "FusedLayerNormFunction" in call.name else _last_dimension(grad)
    mask = (True, weight is not None, weight is not None)
    cost = norm_backward(grad, grad, weight, mask, groups=_rows(grad), channels=grad.shape[-1])
    return replace(cost, status="estimate", note="the input is assumed to be as the gradient")


@operator(*_RMS_NORMS, composite=True)
def _rms_norm_function(call: Call) -> Cost:
    """Autograd Functions of Apex, Liger and Transformer Engine: ``(input, weight, ...)``."""
    x, weights = call.tensor(0), _affine(call)
    return rms_norm(x, weights[0] if weights else None, rows=_rows(x))


@operator(*(f"{name}Backward" for name in _RMS_NORMS), composite=True)
def _rms_norm_function_backward(call: Call) -> Cost:
    """As :func:`_layer_norm_function_backward`; the counts of :func:`_rms_norm_backward`."""
    grad = call.tensor(0)
    weight = None if "FusedRMSNormFunction" in call.name else _last_dimension(grad)
    size = weight.nbytes if weight else 0
    flops = (7 + 2 * (weight is not None)) * grad.numel
    read = 2 * grad.read + _rows(grad) * _STATISTIC_BYTES + size
    note = "the input is assumed to be as the gradient"
    return Cost(flops, read, grad.nbytes + size, grad.dtype, "estimate", note)


@operator("aiter::_groupnorm_run")
def _aiter_group_norm(call: Call) -> Cost:
    """``_groupnorm_run(input, num_groups, weight, bias, eps)``."""
    return norm_forward(call.tensor(0), _affine(call))


@operator("primus::fused_ln_modulate")
def _modulated(call: Call) -> Cost:
    """``fused_ln_modulate(x, scale, shift, eps)``: a norm, whose weight and bias each sample has.

    Shapes: x ``(tokens, batch, width)``; scale and shift ``(batch, width)``. Adding 1 to the scale is not
    counted.
    """
    x = call.tensor(0, rank=3)
    return norm_forward(x, [call.tensor(1), call.tensor(2)], groups=_rows(x))


@operator("primus::fused_ln_modulate_backward")
def _modulated_backward(call: Call) -> Cost:
    """``(grad_out, x_norm, mean, rstd, scale)``; writes gradients of x, scale and shift."""
    grad, x, scale = call.tensor(0, rank=3), call.tensor(1), call.tensor(4)
    return norm_backward(grad, x, scale, (True, True, True), groups=_rows(grad), channels=scale.numel)
