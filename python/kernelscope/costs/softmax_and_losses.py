"""Softmax, forward and backward, and losses. The counts per element follow the rule of ``elementwise``."""

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import FLOAT32, Cost, Tensor

# torch's Reduction enum.
_NO_REDUCTION = 0


def softmax(x: Tensor, out_bytes: int, *, log: bool = False) -> Cost:
    """Cost of a softmax over one dimension.

    Formula: 5 per element: maximum, difference, exponential, sum, division (log: a second difference instead
    of the division; the logarithm per row is not counted). Reads x once, writes the result.
    Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".
    Example: (16, 5185, 5185) in bfloat16: 5 * 430147600 = 2150738000 FLOP, 860295200 bytes each way.
    """
    del log  # the same count: a difference stands for the division
    return Cost(5 * x.numel, x.read, x.numel * out_bytes, x.dtype)


@operator("aten::softmax", "aten::log_softmax", composite=True)
@operator("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax")
def _softmax(call: Call) -> Cost:
    """``_softmax(self, dim, half_to_float)``: with the last, half precision in gives float32 out."""
    x = call.tensor(0)
    widened = "::_" in call.name and call.is_recorded(2) and call.arg(2) is True
    return softmax(x, FLOAT32.bytes if widened else x.dtype.bytes)


@operator("aten::_masked_softmax")
def _masked_softmax(call: Call) -> Cost:
    """``_masked_softmax(self, mask, dim, mask_type)``: a softmax that reads a mask as well."""
    x, mask = call.tensor(0), call.tensor(1)
    return Cost(5 * x.numel, x.read + mask.read, x.nbytes, x.dtype)


@operator(
    "aten::_softmax_backward_data", "aten::_log_softmax_backward_data", "aten::_masked_softmax_backward"
)
def _softmax_backward(call: Call) -> Cost:
    """``_softmax_backward_data(grad_output, output, dim, input_dtype)``: product, sum, difference,
    product: 4.

    The logarithm's: sum, exponential, product, difference: 4 as well.
    """
    grad, output = call.tensor(0), call.tensor(1)
    return Cost(4 * grad.numel, grad.read + output.read, grad.nbytes, grad.dtype)


@operator("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def _nll_loss(call: Call) -> Cost:
    """``nll_loss_forward(self, target, weight, reduction, ignore_index)``: one number per target is looked
    up.

    Formula: 2 per target (sign and sum); reads targets and the numbers they point to, writes the loss and
    the total weight.
    """
    x, target, weight = call.tensor(0), call.tensor(1), call.optional(2)
    none = call.is_recorded(3) and call.integer(3) == _NO_REDUCTION
    results = target.numel if none else 1
    read = target.read + target.numel * x.dtype.bytes + (weight.read if weight else 0)
    return Cost(2 * target.numel, read, (results + 1) * x.dtype.bytes, x.dtype)


@operator("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def _nll_loss_backward(call: Call) -> Cost:
    """``nll_loss_backward(grad_output, self, target, weight, ...)``: one entry per target, into zeros.

    The zeros are written by this operator too.
    """
    grad, x, target = call.tensor(0), call.tensor(1), call.tensor(2)
    return Cost(2 * target.numel, grad.read + target.read, x.nbytes, x.dtype)


@operator("aten::nll_loss", "aten::nll_loss_nd", composite=True)
def _nll_loss_wrapper(call: Call) -> Cost:
    """``nll_loss(self, target, weight, reduction, ignore_index)``: as its forward."""
    return _nll_loss(call)


@operator("aten::cross_entropy_loss", composite=True)
def _cross_entropy(call: Call) -> Cost:
    """``cross_entropy_loss(self, target, weight, reduction, ...)``: log_softmax (5 per element) and nll_loss.

    Counted as if the two were fused: the logarithms are not written and read again.
    """
    x, target = call.tensor(0), call.tensor(1)
    return Cost(5 * x.numel + 2 * target.numel, x.read + target.read, x.dtype.bytes, x.dtype)


# FLOPs per element of the loss and of its gradient: the formula of each, term by term.
_LOSSES = {
    "mse_loss": (2, 3),  # (x - y)^2; 2 * (x - y) * g
    "l1_loss": (2, 3),  # |x - y|
    "smooth_l1_loss": (5, 5),  # |d| < beta ? 0.5 * d^2 / beta : |d| - beta / 2
    "huber_loss": (5, 5),
    "binary_cross_entropy": (7, 5),  # -(y * log x + (1 - y) * log(1 - x))
    "soft_margin_loss": (4, 6),  # log(1 + exp(-y * x))
    "kl_div": (3, 2),  # y * (log y - x)
}


@operator(*(f"aten::{name}" for name in _LOSSES))
def _loss(call: Call) -> Cost:
    """``mse_loss(self, target, reduction)`` and its like: the formula per element, and a sum if reduced.

    ``binary_cross_entropy`` has a weight before the reduction.
    """
    name = call.name.rpartition("::")[2].partition(".")[0]
    x, target = call.tensor(0), call.tensor(1)
    weighted = name == "binary_cross_entropy"
    weight = call.optional(2) if weighted else None
    index = 3 if weighted else 2
    assumed = not call.is_recorded(index)
    reduced = assumed or call.integer(index, 1) != _NO_REDUCTION
    flops = (_LOSSES[name][0] + reduced + (weight is not None)) * x.numel
    read = x.read + target.read + (weight.read if weight else 0)
    cost = Cost(flops, read, x.dtype.bytes if reduced else x.nbytes, x.dtype)
    if assumed and index < len(call.args):
        note = "the reduction was not recorded; a mean or sum is assumed"
        return Cost(flops, read, cost.bytes_written, x.dtype, "estimate", note)
    return cost


@operator(*(f"aten::{name}_backward" for name in _LOSSES))
def _loss_backward(call: Call) -> Cost:
    """``mse_loss_backward(grad_output, self, target, reduction)`` and its like: one gradient per element."""
    name = call.name.rpartition("::")[2].partition(".")[0].removesuffix("_backward")
    grad, x, target = call.tensor(0), call.tensor(1), call.tensor(2)
    return Cost(_LOSSES[name][1] * x.numel, grad.read + x.read + target.read, x.nbytes, x.dtype)


@operator("aten::binary_cross_entropy_with_logits")
def _bce_with_logits(call: Call) -> Cost:
    """``binary_cross_entropy_with_logits(self, target, weight, pos_weight, reduction)``.

    Formula: (1 - y) * x + max(-x, 0) + log(1 + exp(-|x|)): 9 per element, and a sum if reduced.
    """
    x, target = call.tensor(0), call.tensor(1)
    weights = call.present(2, 3)
    reduced = not call.is_recorded(4) or call.integer(4) != _NO_REDUCTION
    flops = (9 + reduced + len(weights)) * x.numel
    read = x.read + target.read + sum(t.read for t in weights)
    note = "" if call.is_recorded(4) else "the reduction was not recorded; a mean or sum is assumed"
    written = x.dtype.bytes if reduced else x.nbytes
    return Cost(flops, read, written, x.dtype, "estimate" if note else "exact", note)


@operator("CrossEntropyFunction", "LigerCrossEntropyFunction", composite=True)
def _cross_entropy_function(call: Call) -> Cost:
    """``CrossEntropyFunction(logits, target, ...)``: the loss, and its gradient in place of the logits.

    Formula: 5 per logit, as a softmax, from which the gradient follows by one difference per target.
    Shapes: logits ``(..., vocabulary)``.
    Source: Transformer Engine, common/triton/cross_entropy.py.
    """
    x, target = call.tensor(0), call.tensor(1)
    written = x.nbytes + target.numel * FLOAT32.bytes
    return Cost(5 * x.numel, x.read + target.read, written, x.dtype)
