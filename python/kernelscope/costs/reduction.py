"""Reductions, scans and sorts: every input element is visited once."""

from dataclasses import replace
from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.elementwise import elementwise
from kernelscope.costs.registry import operator
from kernelscope.costs.types import BOOL, INT64, Cost, DType, Tensor

_NOT_RECORDED = "the reduced dimensions were not recorded; the result is assumed to be one element"


def reduced_shape(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """Returns ``shape`` reduced over ``dims`` (all, if empty), with size 1 for reduced dimensions.

    Raises: IndexError: there is no such dimension.
    Example: ``reduced_shape((5, 128), (0,))`` is (1, 128).
    """
    reduced = {range(len(shape))[dim] for dim in dims} if dims and shape else set(range(len(shape)))
    return tuple(1 if index in reduced else size for index, size in enumerate(shape))


def _dims(call: Call, index: int) -> tuple[int, ...] | None:
    """The dimensions given at ``index``: () for all, None where they were not recorded."""
    if index >= len(call.args) or (call.arg(index) is None and call.values_recorded):
        return ()
    if not call.is_recorded(index):
        return None
    arg = call.arg(index)
    if isinstance(arg, Tensor) or arg is None:
        return None
    return call.integers(index)


def reduce(call: Call, dim: int, *, per_element: int, out: DType | None = None, per_result: int = 0) -> Cost:
    """Cost of reducing the first input over the dimensions given at input ``dim``.

    Formula: per_element * elements + per_result * results; reads the input, writes the results.
    Example: sum of (5, 128) over dimension 0 in float32: 640 FLOP, reads 2560, writes 512.
    """
    x = call.tensor(0)
    dims = _dims(call, dim)
    results = 1 if dims is None else prod(reduced_shape(x.shape, dims))
    written = results * (out or x.dtype).bytes
    flops = per_element * x.numel + per_result * results
    if dims is None:
        return Cost(flops, x.read, written, x.dtype, "estimate", _NOT_RECORDED)
    return Cost(flops, x.read, written, x.dtype)


def _has_dims(call: Call) -> int:
    """Where the dimensions are: overloads without them have a dtype, or nothing, at their place."""
    second = call.arg(1)
    if second is None and call.values_recorded:
        return len(call.args)
    # `sum(self, dtype)` records a number where `sum(self, dim, ...)` records a list.
    return len(call.args) if isinstance(second, int) and len(call.args) == 2 else 1


def _result_dtype(call: Call, x: Tensor, dtype: int) -> DType:
    """A tensor behind the options is the ``out=``; else whole numbers are summed as int64."""
    out = call.last_tensor(1)
    summed = INT64 if x.dtype.kind in {"bool", "integer"} else x.dtype
    return out.dtype if out else call.scalar_type(dtype) or summed


@operator("aten::sum", "aten::nansum", "aten::count_nonzero")
def _sum(call: Call) -> Cost:
    """``sum(self, dim, keepdim, dtype)``: an addition per element."""
    x = call.tensor(0)
    out = INT64 if "count_nonzero" in call.name else _result_dtype(call, x, 3)
    return reduce(call, _has_dims(call), per_element=1, out=out)


@operator("aten::prod")
def _prod(call: Call) -> Cost:
    """``prod(self, dim, keepdim, dtype)``: a multiplication per element."""
    x = call.tensor(0)
    return reduce(call, _has_dims(call), per_element=1, out=_result_dtype(call, x, 3))


@operator("aten::mean", "aten::nanmean")
def _mean(call: Call) -> Cost:
    """``mean(self, dim, keepdim, dtype)``: an addition per element and a division per result."""
    out = call.last_tensor(1) or call.tensor(0)
    return reduce(call, _has_dims(call), per_element=1, per_result=1, out=out.dtype)


@operator("aten::amax", "aten::amin")
def _extremes(call: Call) -> Cost:
    """``amax(self, dim, keepdim)``: a comparison per element."""
    return reduce(call, 1, per_element=1)


@operator("aten::max", "aten::min")
def _max(call: Call) -> Cost:
    """``max(self)``, ``max(self, dim, keepdim)`` (values and indices) or ``max(self, other)`` (pointwise)."""
    other = call.optional(1)
    if other is not None:
        x = call.tensor(0)
        shape = x.shape if x.numel >= other.numel else other.shape
        return elementwise(1, [x, other], shape, x.dtype)
    if len(call.args) < 2:
        return reduce(call, 1, per_element=1)
    return _with_indices(reduce(call, 1, per_element=1), call)


@operator("aten::mode", "aten::median", "aten::nanmedian", "aten::kthvalue")
def _order_statistic(call: Call) -> Cost:
    """``median(self, dim, keepdim)``: how it selects is the library's choice; a comparison per element."""
    dim = 2 if "kthvalue" in call.name else 1
    cost = reduce(call, dim, per_element=1)
    if len(call.args) > dim:
        cost = _with_indices(cost, call)
    note = "one comparison per element is counted"
    return replace(cost, status="estimate", note=note)


def _with_indices(cost: Cost, call: Call) -> Cost:
    """The cost with an int64 index written beside every result."""
    size = call.tensor(0).dtype.bytes
    results = (cost.bytes_written or 0) // size if size else 0
    written = (cost.bytes_written or 0) + results * INT64.bytes
    return replace(cost, bytes_written=written)


@operator("aten::aminmax", "aten::_aminmax")
def _aminmax(call: Call) -> Cost:
    """``aminmax(self, *, dim, keepdim)``: two comparisons per element, two results."""
    cost = reduce(call, 1, per_element=2)
    return replace(cost, bytes_written=2 * (cost.bytes_written or 0))


@operator("aten::argmax", "aten::argmin")
def _argmax(call: Call) -> Cost:
    """``argmax(self, dim, keepdim)``: a comparison per element, int64 results."""
    return reduce(call, 1, per_element=1, out=INT64)


@operator("aten::any", "aten::all")
def _any(call: Call) -> Cost:
    """``any(self, dim, keepdim)``: a logical operation per element, bool results."""
    return reduce(call, 1, per_element=1, out=BOOL)


@operator("aten::linalg_vector_norm")
def _vector_norm(call: Call) -> Cost:
    """``linalg_vector_norm(self, ord, dim, keepdim, dtype)``: a multiplication and an addition per element,
    a root per result.
    """
    return reduce(call, 2, per_element=2, per_result=1)


@operator("aten::norm", "aten::linalg_norm", composite=True)
def _norm(call: Call) -> Cost:
    """``norm(self, p, dim, keepdim)``: a multiplication and an addition per element, a root per result."""
    return reduce(call, 2, per_element=2, per_result=1)


@operator("aten::var", "aten::std")
def _variance(call: Call) -> Cost:
    """``var(self, dim, *, correction, keepdim)``: sum, then difference, square and sum: 4 per element.

    Per result two divisions, and a root for ``std``.
    """
    return reduce(call, 1, per_element=4, per_result=3 if "::std" in call.name else 2)


@operator("aten::var_mean", "aten::std_mean")
def _variance_and_mean(call: Call) -> Cost:
    """``var_mean(self, dim, *, correction, keepdim)``: as ``var``, and the mean is written too."""
    cost = reduce(call, 1, per_element=4, per_result=3 if "::std" in call.name else 2)
    return replace(cost, bytes_written=2 * (cost.bytes_written or 0))


@operator("aten::logsumexp")
def _logsumexp(call: Call) -> Cost:
    """``logsumexp(self, dim, keepdim)``: maximum, difference, exponential, sum: 4 per element; 2 per
    result.
    """
    return reduce(call, 1, per_element=4, per_result=2)


@operator("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", "aten::_cumsum", "aten::_cumprod")
def _scan(call: Call) -> Cost:
    """``cumsum(self, dim, *, dtype)``: an operation per element (3 for logcumsumexp), all results written."""
    x = call.tensor(0)
    out = x.dtype if call.inplace else _result_dtype(call, x, 2)
    return elementwise(3 if "logcumsumexp" in call.name else 1, [x], x.shape, out)


@operator("aten::cummax", "aten::cummin")
def _scan_with_indices(call: Call) -> Cost:
    """``cummax(self, dim)``: a comparison per element; writes values and int64 indices."""
    x = call.tensor(0)
    return Cost(x.numel, x.read, x.nbytes + x.numel * INT64.bytes, x.dtype)


@operator("aten::sort", "aten::argsort", "aten::msort")
def _sort(call: Call) -> Cost:
    """``sort(self, dim, descending)``: n * ceil(log2(n)) comparisons a row; writes values and int64 indices.

    The dimension is the last unless it was recorded.
    """
    x = call.tensor(0)
    index = 2 if call.name.endswith(".stable") or len(call.args) >= 4 else 1
    dim = call.integer(index, -1) if call.is_recorded(index) else -1
    length = x.shape[dim] if x.shape else 1
    values = 0 if "argsort" in call.name else x.nbytes
    flops = x.numel * max(length - 1, 0).bit_length()
    note = "the comparisons of a merge sort are counted"
    return Cost(flops, x.read, values + x.numel * INT64.bytes, x.dtype, "estimate", note)


@operator("aten::topk")
def _topk(call: Call) -> Cost:
    """``topk(self, k, dim, largest, sorted)``: at least a comparison per element; writes k values and
    indices.
    """
    x, k = call.tensor(0), call.integer(1)
    dim = call.integer(2, -1)
    length = x.shape[dim] if x.shape else 1
    if not 0 <= k <= length:
        call.fail(f"cannot take {k} of {length}")
    results = x.numel // length * k if length else 0
    note = "one comparison per element is counted"
    return Cost(x.numel, x.read, results * (x.dtype.bytes + INT64.bytes), x.dtype, "estimate", note)


@operator("aten::value_selecting_reduction_backward", composite=True)
def _selecting_backward(call: Call) -> Cost:
    """``value_selecting_reduction_backward(grad, dim, indices, sizes, keepdim)``: zeros and a scatter."""
    grad, indices, sizes = call.tensor(0), call.tensor(2), call.integers(3)
    return Cost(0, grad.read + indices.read, prod(sizes) * grad.dtype.bytes, grad.dtype)
