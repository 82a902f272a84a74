"""Optimizer steps over lists of tensors: foreach operators and fused steps.

Profilers record the shapes of a list only up to 30 tensors and never its element type. The caller may pass
the type (``list_dtype``); without it only FLOPs are known.
"""

from dataclasses import replace

from kernelscope.costs.bind import Call
from kernelscope.costs.elementwise import PER_ELEMENT
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, Tensor

_UNARY = (
    "abs neg sqrt rsqrt exp log reciprocal sign sigmoid tanh ceil floor round frac trunc erf expm1 log1p log2"
)
_BINARY = "add sub mul div pow maximum minimum clamp_min clamp_max"
_TERNARY = "addcmul addcdiv lerp"
_SQUARE = "both factors are assumed to be one list, as when optimizers square gradients"


def _shapes(tensors: tuple[Tensor, ...]) -> list[tuple[int, ...]]:
    return [t.shape for t in tensors]


def _numel(tensors: tuple[Tensor, ...]) -> int:
    return sum(t.numel for t in tensors)


def foreach(per_element: int, lists: list[tuple[Tensor, ...]], *, scalar_bytes: int = 0) -> Cost:
    """Cost of a pointwise operator over lists.

    Every list is read, and one of the size of the first is written.

    Formula: flops = per_element * elements of the first list.
    Example: ``_foreach_add_`` of two lists of 16512 float32: 16512 FLOP, reads 132096, writes 66048.
    """
    first = lists[0]
    dtype = first[0].dtype if first else None
    read = sum(t.read for tensors in lists for t in tensors) + scalar_bytes
    return Cost(per_element * _numel(first), read, sum(t.nbytes for t in first), dtype)


def _lists(call: Call, most: int) -> list[tuple[Tensor, ...]]:
    """The tensor lists among the first ``most`` inputs; the first must be there."""
    found = [call.tensor_list(0)]
    for index in range(1, most):
        arg = call.arg(index)
        if isinstance(arg, tuple) and not isinstance(arg, Tensor) and arg and isinstance(arg[0], Tensor):
            found.append(call.tensor_list(index))
    return found


@operator(*(f"aten::_foreach_{name}" for name in (*_UNARY.split(), *_BINARY.split(), *_TERNARY.split())))
def _foreach(call: Call) -> Cost:
    """``_foreach_add_(self, other, alpha)`` and its like, other a list, a tensor or a number.

    Which tensor stands in a list is not recorded. Optimizers call ``_foreach_addcmul_(averages, gradients,
    gradients, value)``: factors of equal shapes are read once.
    Source: torch/optim (adam.py, adagrad.py, rmsprop.py, adadelta.py).
    """
    base = call.name.rpartition("::_foreach_")[2].partition(".")[0].rstrip("_")
    arity = 1 if base in _UNARY.split() else 3 if base in _TERNARY.split() else 2
    single = sum(arg.read for arg in call.args[:arity] if isinstance(arg, Tensor))
    lists = _lists(call, arity)
    is_square = base == "addcmul" and len(lists) == 3 and _shapes(lists[1]) == _shapes(lists[2])
    cost = foreach(PER_ELEMENT[f"aten::{base}"], lists[:2] if is_square else lists, scalar_bytes=single)
    return replace(cost, status="estimate", note=_SQUARE) if is_square else cost


@operator("aten::_foreach_copy")
def _foreach_copy(call: Call) -> Cost:
    """``_foreach_copy_(self, src)``: reads src, writes self."""
    out, source = call.tensor_list(0), call.tensor_list(1)
    return Cost(0, sum(t.read for t in source), sum(t.nbytes for t in out), out[0].dtype if out else None)


@operator("aten::_foreach_zero")
def _foreach_zero(call: Call) -> Cost:
    """``_foreach_zero_(self)``: writes every tensor."""
    tensors = call.tensor_list(0)
    return Cost(0, 0, sum(t.nbytes for t in tensors), tensors[0].dtype if tensors else None)


@operator("aten::_foreach_norm")
def _foreach_norm(call: Call) -> Cost:
    """``_foreach_norm(self, ord)``: a product and a sum per element; a number per tensor."""
    tensors = call.tensor_list(0)
    dtype = tensors[0].dtype if tensors else None
    written = len(tensors) * (dtype.bytes if dtype else 0)
    return Cost(2 * _numel(tensors) + len(tensors), sum(t.read for t in tensors), written, dtype)


@operator("aten::_amp_foreach_non_finite_check_and_unscale")
def _unscale(call: Call) -> Cost:
    """``_amp_foreach_non_finite_check_and_unscale_(self, found_inf, inv_scale)``: a test and a product."""
    return foreach(2, [call.tensor_list(0)])


# FLOPs per parameter of one fused step, and how many lists it reads and writes beside the gradients.
# Adam: both averages 3 + 4, bias-corrected root and denominator 3, step 2: 12; weight decay 2 more.
_ADAM = 12
_DECAY = 2


@operator("aten::_fused_adam", "aten::_fused_adamw")
def _fused_adam(call: Call) -> Cost:
    """``_fused_adam_(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, beta1, beta2,
    weight_decay, eps, amsgrad, ...)``.

    Formula: 12 per parameter, 2 more for weight decay, 1 for amsgrad; reads parameters, gradients and both
    averages, writes all but the gradients.
    Source: Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019.
    Example: 1000 float32 parameters, with decay: 14000 FLOP, reads 16000, writes 12000 bytes.
    """
    params, grads, averages, squares = (call.tensor_list(index) for index in range(4))
    largest = call.arg(4)
    extra = call.tensor_list(4) if isinstance(largest, tuple) and largest else ()
    decay = call.arg(9) if len(call.args) > 9 and isinstance(call.arg(9), (int, float)) else None
    per_parameter = _ADAM + (_DECAY if decay != 0 else 0) + bool(extra)
    kept = [*params, *averages, *squares, *extra]
    read = sum(t.read for t in kept) + sum(t.read for t in grads)
    note = "" if decay is not None else "weight decay was not recorded; it is counted"
    dtype = params[0].dtype if params else None
    written = sum(t.nbytes for t in kept)
    return Cost(per_parameter * _numel(params), read, written, dtype, "estimate" if note else "exact", note)


@operator("aten::_fused_sgd")
def _fused_sgd(call: Call) -> Cost:
    """``_fused_sgd_(self, grads, momentum_buffer_list, *, weight_decay, momentum, lr, dampening, ...)``.

    Formula: step 2 per parameter, momentum 3 and weight decay 2 more where they are not 0.
    """
    params, grads = call.tensor_list(0), call.tensor_list(1)
    listed = call.arg(2)
    momentum = call.tensor_list(2) if isinstance(listed, tuple) and listed else ()
    decay = call.arg(3)
    per_parameter = 2 + (3 if momentum else 0) + (0 if decay == 0 else _DECAY)
    kept = [*params, *momentum]
    read = sum(t.read for t in kept) + sum(t.read for t in grads)
    dtype = params[0].dtype if params else None
    return Cost(per_parameter * _numel(params), read, sum(t.nbytes for t in kept), dtype)
