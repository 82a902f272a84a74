"""Pointwise operators: a fixed count per output element; operands are read and the result is written once.

The following count as 1: an addition, subtraction, multiplication, division, comparison, negation, rounding,
logical or bitwise operation, and one elementary function (exp, log, sqrt, sin, tanh, erf, pow). Selecting and
copying count as 0. The tables below contain the counts.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.gemm import broadcast
from kernelscope.costs.registry import operator
from kernelscope.costs.types import BOOL, FLOAT32, Cost, DType, Tensor, promote

_UNARY_FLOAT = {
    1: "reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc erfinv lgamma digamma deg2rad rad2deg",
    3: "sinc logit log_sigmoid_forward",
    4: "sigmoid",
}
_UNARY = {
    1: "neg negative abs absolute sign sgn ceil floor round trunc fix square relu positive "
    "bitwise_not threshold "
    "clamp_min clamp_max",
    2: "frac relu6 leaky_relu clamp clip hardtanh softshrink hardshrink softplus",
    3: "nan_to_num",
    4: "elu selu celu hardsigmoid mish",
    5: "silu hardswish",
}
_UNARY_BOOL = {1: "logical_not isnan isinf isfinite isposinf isneginf signbit"}
_BINARY = {
    1: "add sub subtract rsub mul multiply maximum minimum fmax fmin remainder fmod floor_divide pow atan2 "
    "copysign bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift "
    "__and__ __or__ __xor__ "
    "__lshift__ __rshift__ gcd lcm nextafter heaviside ldexp complex polar",
    2: "_prelu_kernel prelu xlogy float_power logaddexp2",
    3: "logaddexp hypot",
}
_BINARY_TRUE_DIVISION = {1: "div divide true_divide"}
_BINARY_BOOL = {
    1: "eq ne lt le gt ge not_equal less less_equal greater greater_equal logical_and logical_or "
    "logical_xor isclose"
}
_GRADIENTS = {
    1: "threshold_backward",
    2: "leaky_relu_backward hardtanh_backward hardsigmoid_backward softshrink_backward hardshrink_backward",
    3: "sigmoid_backward tanh_backward logit_backward elu_backward",
    4: "hardswish_backward softplus_backward log_sigmoid_backward",
    9: "silu_backward",
    11: "gelu_backward",
    12: "mish_backward",
}
_TERNARY = {3: "addcmul addcdiv lerp"}


def count_by_name(table: dict[int, str]) -> dict[str, int]:
    """Returns FLOPs per element by operator, from the names of each count."""
    return {f"aten::{name}": count for count, names in table.items() for name in names.split()}


_TABLES = (
    *(_UNARY_FLOAT, _UNARY, _UNARY_BOOL, _GRADIENTS),
    *(_BINARY, _BINARY_TRUE_DIVISION, _BINARY_BOOL, _TERNARY),
)
# FLOPs per output element, by operator.
PER_ELEMENT = {name: count for table in _TABLES for name, count in count_by_name(table).items()}


def elementwise(per_element: int, inputs: Sequence[Tensor], shape: tuple[int, ...], out: DType) -> Cost:
    """Cost of one pass that computes ``per_element`` FLOPs for each element of ``shape``.

    Formula: flops = per_element * elements; reads the distinct elements of every input, writes shape.
    Example: (8, 64) + (64,) in float16: 512 FLOP, reads 1024 + 128, writes 1024.
    """
    size = prod(shape)
    dtype = next((t.dtype for t in inputs if t.shape), inputs[0].dtype if inputs else out)
    return Cost(per_element * size, sum(t.read for t in inputs), size * out.bytes, dtype)


def result_dtype(inputs: Sequence[Tensor], *, scalars: Sequence[object] = ()) -> DType:
    """Returns the element type of a pointwise result, by torch's promotion rules.

    Tensors with dimensions decide. Tensors without dimensions and plain numbers decide only if their kind is
    higher.
    """
    sized = [t.dtype for t in inputs if t.shape] or [t.dtype for t in inputs]
    best = promote(sized)
    single = [t.dtype for t in inputs if not t.shape]
    if best.kind in {"bool", "integer"}:
        higher = [dtype for dtype in single if dtype.kind in {"float", "complex"}]
        if higher:
            return promote(higher)
        if any(isinstance(value, float) for value in scalars):
            return FLOAT32
    return best


def _operands(call: Call, arity: int) -> list[Tensor]:
    found = call.present(*range(arity))
    if not found:
        call.fail("no tensor was recorded")
    return found


def pointwise(call: Call, arity: int, *, out: DType | None = None, count: int | None = None) -> Cost:
    """Cost of a pointwise operator with operands in its first ``arity`` inputs.

    The result has the type ``out``, otherwise that of an ``out=`` tensor after the operands, otherwise the
    promoted type.
    """
    inputs = _operands(call, arity)
    per_element = PER_ELEMENT[_plain(call.name)] if count is None else count
    if call.inplace and inputs:
        return elementwise(per_element, inputs, inputs[0].shape, inputs[0].dtype)
    shape = broadcast(call, *(t.shape for t in inputs))
    given = call.last_tensor(arity)
    if given is not None:
        out = given.dtype
    return elementwise(per_element, inputs, shape, out or result_dtype(inputs, scalars=call.args[:arity]))


def _plain(name: str) -> str:
    """The operator without overload and without the mark of in-place and out forms."""
    namespace, _, rest = name.rpartition("::")
    base = rest.partition(".")[0].removesuffix("_out")
    known = f"{namespace}::{base}"
    return known if known in PER_ELEMENT else known.removesuffix("_")


@operator(*count_by_name(_UNARY_FLOAT))
def _unary_float(call: Call) -> Cost:
    """Functions whose result is floating-point also for whole numbers."""
    kind = call.tensor(0).dtype.kind
    return pointwise(call, 1, out=FLOAT32 if kind in {"bool", "integer"} else None)


@operator(*count_by_name(_UNARY))
def _unary(call: Call) -> Cost:
    """Functions that keep the element type; further inputs (bounds, slopes) are numbers or broadcast."""
    return pointwise(call, 3 if _plain(call.name) in {"aten::clamp", "aten::clip"} else 1)


@operator("aten::gelu")
def _gelu(call: Call) -> Cost:
    """``gelu(self, *, approximate)``: x * 0.5 * (1 + erf(x / sqrt(2))), 5 FLOPs.

    The text that chooses the tanh form (9 FLOPs) is not recorded.
    """
    cost = pointwise(call, 1, count=5)
    note = "the erf form is counted; the form that ran was not recorded"
    return replace(cost, status="estimate", note=note)


@operator(*count_by_name(_UNARY_BOOL))
def _unary_bool(call: Call) -> Cost:
    """Tests whose result is bool."""
    return pointwise(call, 1, out=BOOL)


@operator(*count_by_name(_BINARY))
def _binary(call: Call) -> Cost:
    """``add(self, other, *, alpha)`` and its like: operands broadcast; alpha is not counted."""
    return pointwise(call, 2)


@operator(*count_by_name(_BINARY_TRUE_DIVISION))
def _divide(call: Call) -> Cost:
    """``div(self, other)``: whole numbers give float32; a rounding mode, the third input, keeps them."""
    kinds = {t.dtype.kind for t in _operands(call, 2)}
    rounded = len(call.args) > 2 and not isinstance(call.arg(2), Tensor)
    return pointwise(call, 2, out=FLOAT32 if kinds <= {"bool", "integer"} and not rounded else None)


@operator(*count_by_name(_BINARY_BOOL))
def _compare(call: Call) -> Cost:
    """Comparisons and logic, whose result is bool."""
    return pointwise(call, 2, out=BOOL)


@operator(*count_by_name(_GRADIENTS))
def _gradient(call: Call) -> Cost:
    """``sigmoid_backward(grad_output, output)`` and its like: reads both, writes one gradient."""
    return pointwise(call, 2, out=call.tensor(0).dtype)


@operator(*count_by_name(_TERNARY))
def _ternary(call: Call) -> Cost:
    """``addcmul(self, tensor1, tensor2, *, value)``, ``lerp(self, end, weight)``."""
    return pointwise(call, 3)


@operator("aten::where", "aten::_s_where")
def _where(call: Call) -> Cost:
    """``where(condition, self, other)``: a selection, 0 FLOPs; the result has the type of the values."""
    if len(call.args) < 3:
        call.fail("the form with one input returns indices, whose number was not recorded")
    values = call.present(1, 2)
    out = result_dtype(values, scalars=call.args[1:3]) if values else FLOAT32
    return pointwise(call, 3, out=out, count=0)


@operator("aten::masked_fill")
def _masked_fill(call: Call) -> Cost:
    """``masked_fill(self, mask, value)``: 0 FLOPs; in place, only the mask must be read.

    How much in place is written depends on the mask; the whole is counted.
    """
    x, mask = call.tensor(0), call.tensor(1)
    if not call.inplace:
        return elementwise(0, [x, mask], broadcast(call, x.shape, mask.shape), x.dtype)
    note = "the share of masked elements was not recorded; all are counted as written"
    return Cost(0, mask.read, x.nbytes, x.dtype, "estimate", note)


@operator("aten::native_dropout", "aten::_fused_dropout")
def _dropout(call: Call) -> Cost:
    """``native_dropout(input, p, train)``: a comparison and a scaling per element; writes result and mask.

    Drawing the random numbers is not counted.
    """
    x = call.tensor(0)
    return Cost(2 * x.numel, x.read, x.nbytes + x.numel, x.dtype)


@operator("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", composite=True)
def _dropout_wrapper(call: Call) -> Cost:
    """``dropout(input, p, train)``: in evaluation it returns its input."""
    x = call.tensor(0)
    return _dropout(call) if call.flag(2) else Cost(0, 0, 0, x.dtype)


@operator("aten::native_dropout_backward", "aten::_masked_scale")
def _dropout_backward(call: Call) -> Cost:
    """``native_dropout_backward(grad_output, mask, scale)``: two multiplications per element."""
    return pointwise(call, 2, out=call.tensor(0).dtype, count=2)


@operator("aten::glu")
def _glu(call: Call) -> Cost:
    """``glu(self, dim)``: first half times sigmoid of the second, 5 FLOPs per result; halves ``dim``."""
    x = call.tensor(0)
    half = x.numel // 2
    return Cost(5 * half, x.read, half * x.dtype.bytes, x.dtype)


@operator("aten::glu_backward")
def _glu_backward(call: Call) -> Cost:
    """``glu_backward(grad_output, self, dim)``: sigmoid (4), both products and s * (1 - s): 9 per half
    element.
    """
    grad, x = call.tensor(0), call.tensor(1)
    return Cost(9 * grad.numel, grad.read + x.read, x.nbytes, x.dtype)
