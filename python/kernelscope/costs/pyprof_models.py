"""PyProf's count for a kernel, by the kind of function that launched it.

Source: the formulas of PyProf at 218dcc1, restated.
"""

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, cast

from kernelscope.costs.types import FLOAT32, INT32, DType, ShapeError, Tensor, find_dtype

# Types with a size to it; bfloat16, float8 and complex abort its report.
_SIZED = frozenset("uint8 int8 bool float16 int16 float32 int32 int64 float64".split())


class PyProfCost(NamedTuple):
    """PyProf's output for a kernel. ``modelled`` is False if its 0 means that it has no model."""

    flops: int
    bytes: int
    modelled: bool = True


class Kernel(NamedTuple):
    """Inputs of PyProf in addition to the marker."""

    name: str
    backward: bool = False
    sub: int = 0
    grid_x: int = 1


class Inputs:
    """Arguments of a marker by position and by name."""

    def __init__(self, op: str, args: Sequence[Mapping[str, Any]]) -> None:
        self.op = op
        self.args = args
        self.unnamed = [arg for arg in args if not arg.get("name")]
        self.tensors = [_tensor(arg) for arg in args if arg.get("type") == "tensor"]

    def option(self, name: str, place: int, default: int) -> tuple[int, ...]:
        """Returns an integer or tuple given by name or at its position, as a tuple."""
        named = [arg for arg in self.args if arg.get("name") == name]
        found = named or self.unnamed[place : place + 1]
        return _whole(found[0].get("value")) if found else (default,)

    def operands(self) -> list[Tensor]:
        """Returns tensors, and numbers as tensors of 4 bytes without dimensions."""
        kinds = {"int": INT32, "float": FLOAT32}
        return [
            _tensor(arg) if arg["type"] == "tensor" else Tensor((), kinds[arg["type"]])
            for arg in self.unnamed
        ]

    def shape(self) -> tuple[int, ...]:
        """Returns the shape in ``zeros((3, 4))`` or ``zeros(3, 4)``."""
        first = _whole(self.args[0]["value"])
        rest = [_whole(arg["value"]) for arg in self.unnamed[1:]] if self.op != "full" else []
        return (*first, *(size for sizes in rest for size in sizes))


def _whole(value: object) -> tuple[int, ...]:
    """A whole number, or several, as a tuple. Raises: TypeError: it is neither."""
    values = cast("Sequence[object]", value) if isinstance(value, (tuple, list)) else (value,)
    if not all(isinstance(item, int) for item in values):
        raise TypeError(f"{value!r} is not a whole number")
    return tuple(int(cast("int", item)) for item in values)


def _tensor(arg: Mapping[str, Any]) -> Tensor:
    dtype = find_dtype(arg["dtype"])
    if dtype is None or dtype.name not in _SIZED:
        raise ShapeError(f"PyProf does not know {arg['dtype']}")
    return Tensor(tuple(arg["shape"]), dtype)


def _broadcast(tensors: Sequence[Tensor]) -> int:
    rank = max(len(t.shape) for t in tensors)
    sizes = [(1,) * (rank - len(t.shape)) + t.shape for t in tensors]
    return prod(max(column) for column in zip(*sizes, strict=True))


def _gemm_bytes(m: int, n: int, k: int, dtype: DType) -> int:
    return (m * n + m * k + n * k) * dtype.bytes


_LINEAR_GEMMS = ("gemm", "gemv", "dot_kernel", "splitKreduce_kernel", "reduce_1Block_kernel", "cutlass")


def linear(x: Inputs, kernel: Kernel) -> PyProfCost:
    """Only the last term of the bytes is scaled by the element size; other kernels add the bias."""
    a, w = x.tensors[0], x.tensors[1]
    m, n, k = w.shape[0], prod(a.shape[:-1]), w.shape[1]
    if kernel.backward:
        if kernel.sub >= 2:
            return PyProfCost(0, 0)
        m, n, k = (k, n, m) if kernel.sub == 0 else (k, m, n)
    elif not any(name in kernel.name for name in _LINEAR_GEMMS):
        return PyProfCost(m * n, 2 * m * n * a.dtype.bytes)
    return PyProfCost(2 * m * n * k, m * n + m * k + n * k * a.dtype.bytes)


def mm(x: Inputs, kernel: Kernel) -> PyProfCost:
    """Counts ``mm``, ``bmm`` and, after the added matrix, ``addmm``: every kernel gets the whole product."""
    del kernel
    a, b = x.tensors[-2:]
    batch, (m, k), n = prod(a.shape[:-2]), a.shape[-2:], b.shape[-1]
    return PyProfCost(2 * batch * m * n * k, batch * _gemm_bytes(m, n, k, a.dtype))


_NO_PRODUCTS = ("kernelPointwiseApply2", "reduce_1Block_kernel", "elementwise_kernel")
_MATMULS = (*_NO_PRODUCTS, "dot_kernel", "gemm", "gemv")


def matmul(x: Inputs, kernel: Kernel) -> PyProfCost:
    """The bytes lack the batch. A kernel with an unknown name aborts the report."""
    a, b = x.tensors
    if not any(name in kernel.name for name in _MATMULS):
        raise ShapeError("PyProf does not know the kernel")
    if kernel.name in _NO_PRODUCTS:
        return PyProfCost(0, 2 * a.numel * a.dtype.bytes)
    m, k = (1, a.shape[0]) if len(a.shape) == 1 else a.shape[-2:]
    n = 1 if len(b.shape) == 1 else b.shape[-1]
    batch = _broadcast([Tensor(a.shape[:-2], a.dtype), Tensor(b.shape[:-2], b.dtype)])
    return PyProfCost(2 * batch * m * n * k, _gemm_bytes(m, n, k, a.dtype))


_CONVOLUTIONS = (
    "_s884cudnn_ _s1688cudnn_ _scudnn_ 2d_grouped_direct_kernel cudnn::detail::implicit_convolve_sgemm "
    "cudnn::detail::dgrad2d_alg1_1 cudnn::detail::wgrad_alg0_engine cudnn::detail::dgrad_engine "
    "dgrad_1x1_stride_2x2 spatialDepthwiseConvolutionUpdateOutput winograd3x3Kernel _sgemm_ "
    "fermiPlusCgemmLDS128_batched _gcgemm_"
).split()
_WHOLE_GROUPS = ("2d_grouped_direct_kernel", "spatialDepthwiseConvolutionUpdateOutput")


def convolution(x: Inputs, kernel: Kernel) -> PyProfCost:
    """Cost of a convolution; kernels with other names get 0.

    With groups, every kernel except the grouped ones counts as one group's.
    """
    a, w = x.tensors[0], x.tensors[1]
    rank = len(a.shape) - 2
    stride, padding, dilation = (
        (values * rank if len(values) == 1 else values)
        for values in (x.option("stride", 3, 1), x.option("padding", 4, 0), x.option("dilation", 5, 1))
    )
    groups = x.option("groups", 6, 1)[0]
    places = prod(
        int(1 + (size + 2 * p - ((r - 1) * d + 1)) / s)
        for size, r, s, p, d in zip(a.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)
    )
    size, results = a.dtype.bytes, a.shape[0] * w.shape[0] * places
    if kernel.name.startswith("calc_bias_diff"):
        return PyProfCost(results, 2 * results * size)
    if not any(name in kernel.name for name in _CONVOLUTIONS):
        return PyProfCost(0, 0)
    weights = w.shape[0] * a.shape[1] * prod(w.shape[2:]) // groups
    flops = 2 * a.shape[0] * places * weights
    moved = (a.numel + weights + results) * size
    share = 1 if any(name in kernel.name for name in _WHOLE_GROUPS) else groups
    return PyProfCost(flops // share, moved // share)


_BACKWARD_COPIES = frozenset("add __add__ sub __sub__ __isub__".split())
_BACKWARD_PRODUCTS = frozenset("__mul__ __imul__ __rmul__ div __truediv__".split())


def binary(x: Inputs, kernel: Kernel, *, per_element: int, bool_out: bool = False) -> PyProfCost:
    """The result has the first operand's type. Few gradients are known; the others abort the report."""
    operands = x.operands()
    size = _broadcast(operands)
    out = size * (1 if bool_out else operands[0].dtype.bytes)
    if kernel.backward:
        if x.op in _BACKWARD_COPIES:
            return PyProfCost(0, 2 * out)
        if x.op in _BACKWARD_PRODUCTS:
            return PyProfCost(size, 3 * out)
        raise ShapeError("PyProf does not know the gradient")
    return PyProfCost(per_element * size, sum(t.nbytes for t in operands) + out)


def unary(x: Inputs, kernel: Kernel, *, per_element: int, passes: int = 2, back: int = 2) -> PyProfCost:
    """A count per element, with ``passes`` over the tensor forward and ``back`` passes backward."""
    t = x.tensors[0]
    return PyProfCost(per_element * t.numel, (back if kernel.backward else passes) * t.nbytes)


def reduction(x: Inputs, kernel: Kernel) -> PyProfCost:
    """Only the first kernel of the function moves bytes. Only ``sum`` counts FLOPs for the others, too."""
    t, first = x.tensors[0], kernel.sub == 0
    if x.op == "sum":
        return PyProfCost(t.numel, t.nbytes if first else 0)
    flops = (2 if x.op == "norm" else 1) * t.numel + 1
    return (
        PyProfCost(flops, t.nbytes + (t.dtype.bytes if x.op == "mean" else 0)) if first else PyProfCost(0, 0)
    )


def batch_norm(x: Inputs, kernel: Kernel) -> PyProfCost:
    """Every kernel of the function counts 8 per element. The first moves the bytes."""
    t = x.tensors[0]
    return PyProfCost(8 * t.numel, (5 if kernel.backward else 4) * t.nbytes if kernel.sub == 0 else 0)


def mse_loss(x: Inputs, kernel: Kernel) -> PyProfCost:
    """Counts moved elements: the operands, the result if not reduced, one more backward."""
    t = x.tensors[0]
    reduction = [arg["value"] for arg in x.args if arg.get("name") == "reduction"]
    moved = (3 if reduction == ["none"] else 2) + kernel.backward
    return PyProfCost(2 * moved * t.numel + 1, moved * t.nbytes)


def embedding(x: Inputs, kernel: Kernel) -> PyProfCost:
    """Counts the indices read, and a row read and written for each; backward three rows."""
    index, table = x.tensors[0], x.tensors[1]
    rows = index.numel * table.shape[1] * table.dtype.bytes
    if kernel.backward:
        return PyProfCost(0, 3 * rows if kernel.sub == 0 else 0)
    return PyProfCost(0, index.nbytes + 2 * rows)


def moves(x: Inputs, kernel: Kernel) -> PyProfCost:
    """Bytes without FLOPs, by function."""
    first, t = kernel.sub == 0, x.tensors[0] if x.tensors else Tensor((), FLOAT32)
    if x.op == "cat":
        return PyProfCost(0, 2 * sum(part.nbytes for part in x.tensors) if first else 0)
    if x.op == "index_select":
        index = x.tensors[1]
        row = t.numel // t.shape[int(x.unnamed[1]["value"])]
        return PyProfCost(0, 2 * index.numel * row * t.dtype.bytes + index.numel * 8)
    if x.op in {"masked_select", "masked_scatter_"}:
        if x.tensors[1].dtype.name != "uint8":
            raise ShapeError("PyProf takes masks of uint8 only")
        return PyProfCost(0, 2 * t.nbytes + t.numel if first or x.op == "masked_select" else 0)
    if x.op == "nonzero":
        return PyProfCost(0, t.nbytes + t.numel * len(t.shape) * 8 if first else 0)
    if x.op == "copy_":
        return PyProfCost(0, t.nbytes + x.tensors[1].nbytes)
    if x.op in {"zeros", "ones", "full"}:
        return PyProfCost(0, prod(x.shape()) * FLOAT32.bytes)
    passes = {"reshape": 0, "any": 1, "zero_": 1, "zeros_like": 1, "ones_like": 1, "fill_": 1}.get(x.op, 2)
    return PyProfCost(0, passes * t.nbytes)


_CONVERTED = {"byte": 1, "char": 1, "half": 2, "short": 2, "float": 4, "int": 4, "double": 8, "long": 8}


def convert(x: Inputs, kernel: Kernel) -> PyProfCost:
    """``to`` is assumed to keep the size."""
    del kernel
    t = x.tensors[0]
    return PyProfCost(0, t.nbytes + t.numel * _CONVERTED.get(x.op, t.dtype.bytes))


def adam(x: Inputs, kernel: Kernel) -> PyProfCost:
    """Counts the bytes of the float32 state six times, and of the gradients, twice unless float32."""
    weights, gradients = x.tensors[0], x.tensors[4]
    moved = 24 * weights.numel + gradients.nbytes * (1 if gradients.dtype == FLOAT32 else 2)
    return PyProfCost(0, moved if kernel.sub == 0 else 0)


def cell(x: Inputs, kernel: Kernel, *, gates: int) -> PyProfCost:
    """Forward by the index: input product, recurrent product, gates; backward by the kernel's name."""
    inputs, state = x.tensors[0], x.tensors[1]
    (batch, size), hidden, width = inputs.shape, state.shape[1], inputs.dtype.bytes
    if not kernel.backward:
        if kernel.sub % 3 == 2:
            return PyProfCost(0, (2 * gates + 3) * hidden * batch * width)
        inner = (size, hidden)[kernel.sub % 3]
        return _product(gates * hidden, batch, inner, inputs.dtype)
    tile = re.search(r"(\d+)x\d+", kernel.name)
    if "gemm" not in kernel.name or tile is None:
        return PyProfCost(0, 0)
    m = int(tile[1]) * kernel.grid_x
    if m not in {hidden, size} or not kernel.name.endswith(("_nn", "_nt")):
        return PyProfCost(0, 0)
    n, k = (batch, gates * hidden) if kernel.name.endswith("_nn") else (gates * hidden, batch)
    return _product(m, n, k, inputs.dtype)


def _product(m: int, n: int, k: int, dtype: DType) -> PyProfCost:
    return PyProfCost(2 * m * n * k, _gemm_bytes(m, n, k, dtype))


def randperm(x: Inputs, kernel: Kernel) -> PyProfCost:
    """Three operations and 8 bytes per number."""
    del kernel
    n = int(x.args[0]["value"])
    return PyProfCost(3 * n, 8 * n)
