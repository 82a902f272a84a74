"""Matrix products: FLOPs of the multiply-adds; bytes of the operands and the result once each."""

from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, DType, ShapeError, Tensor


def gemm_flops(m: int, n: int, k: int, *, batch: int = 1, dtype: DType | None = None) -> int:
    """FLOPs of ``batch`` products ``(m, k) @ (k, n)``.

    Formula: 2 * batch * m * n * k; four times that for complex elements (4 real multiply-adds each).
    Raises: ShapeError: a size is negative.
    Source: torch/utils/flop_counter.py (mm_flop, bmm_flop).
    Example: ``gemm_flops(8, 32, 64)`` is 2 * 8 * 32 * 64 = 32768.
    """
    if min(m, n, k, batch) < 0:
        raise ShapeError(f"the sizes of a product must not be negative: {batch}, {m}, {n}, {k}")
    return 2 * batch * m * n * k * (4 if dtype is not None and dtype.kind == "complex" else 1)


def gemm(m: int, n: int, k: int, *, batch: int = 1, a: DType, b: DType, out: DType) -> Cost:
    """Cost of ``batch`` independent products ``(m, k) @ (k, n) -> (m, n)``.

    One multiply-add counts as 2 FLOPs; alpha/beta scaling is not counted.

    Shapes: a ``(batch, m, k)``; b ``(batch, k, n)``; out ``(batch, m, n)``.
    Units: ``flops`` in FLOP; ``bytes_*`` in bytes of compulsory DRAM traffic.
    Raises: ShapeError: a size is negative.
    Source: Williams et al. 2009 (roofline); torch/utils/flop_counter.py.
    Example: (8, 64) @ (64, 32) in float16: 32768 FLOP, reads (512 + 2048) * 2 = 5120, writes 512.
    """
    flops = gemm_flops(m, n, k, batch=batch, dtype=a)
    read = batch * (m * k * a.bytes + k * n * b.bytes)
    return Cost(flops, read, batch * m * n * out.bytes, a)


def product(
    call: Call, a: Tensor, b: Tensor, *, added: Tensor | None = None, out: DType | None = None
) -> Cost:
    """Cost of ``a @ b``, plus ``added`` (a bias, or the C of ``beta * C``), for recorded tensors.

    The last two dimensions are multiplied. Leading dimensions are the batch and must be equal.
    Raises: ShapeError: the inner sizes or the batches differ.
    """
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        call.fail(f"cannot multiply {a.shape} by {b.shape}")
    batch = prod(a.shape[:-2])
    flops = gemm_flops(
        a.shape[-2], b.shape[-1], a.shape[-1], batch=batch, dtype=None if call.dense else a.dtype
    )
    read = a.read + b.read + (added.read if added else 0)
    return Cost(flops, read, batch * a.shape[-2] * b.shape[-1] * (out or a.dtype).bytes, a.dtype)


@operator("aten::mm", "aten::bmm")
def _mm(call: Call) -> Cost:
    """``mm(self, mat2)`` and ``bmm(self, mat2)``."""
    a = call.tensor(0)
    rank = 3 if "::bmm" in call.name else 2
    return product(call, call.tensor(0, rank=rank), call.tensor(1, rank=rank), out=a.dtype)


def _added(call: Call) -> Tensor | None:
    """The first input, to which ``beta * self + alpha * product`` adds; None where beta, the fourth, is 0.

    The library must not read it then: it may hold nan.
    """
    beta = call.arg(3)
    is_unread = call.is_recorded(3) and beta == 0 and not isinstance(beta, (bool, tuple))
    added = call.tensor(0)
    return None if is_unread else added


@operator("aten::addmm", "aten::baddbmm", "aten::_addmm_activation")
def _addmm(call: Call) -> Cost:
    """``addmm(self, mat1, mat2, *, beta, alpha)``: self is read as far as it is recorded (a bias is a
    row).
    """
    rank = 3 if "::baddbmm" in call.name else 2
    return product(call, call.tensor(1, rank=rank), call.tensor(2, rank=rank), added=_added(call))


@operator("aten::addbmm")
def _addbmm(call: Call) -> Cost:
    """``addbmm(self, batch1, batch2)``: the products of the batch are summed into one matrix.

    Formula: 2 * b * m * n * k.
    """
    a, b = call.tensor(1, rank=3), call.tensor(2, rank=3)
    cost = product(call, a, b, added=_added(call))
    return Cost(cost.flops, cost.bytes_read, a.shape[1] * b.shape[2] * a.dtype.bytes, a.dtype)


@operator("aten::mv", "aten::addmv")
def _mv(call: Call) -> Cost:
    """``mv(self, vec)`` and ``addmv(self, mat, vec, *, beta, alpha)``: 2 * m * k."""
    first = 1 if "::addmv" in call.name else 0
    a, x = call.tensor(first, rank=2), call.tensor(first + 1, rank=1)
    column = Tensor((*x.shape, 1), x.dtype, (*x.strides, 1) if x.strides else None)
    return product(call, a, column, added=_added(call) if first else None)


@operator("aten::dot", "aten::vdot")
def _dot(call: Call) -> Cost:
    """``dot(self, tensor)``: 2 * n."""
    a, b = call.tensor(0, rank=1), call.tensor(1, rank=1)
    if a.shape != b.shape:
        call.fail(f"cannot take the dot product of {a.shape} and {b.shape}")
    flops = gemm_flops(1, 1, a.shape[0], dtype=a.dtype)
    return Cost(flops, a.read + b.read, a.dtype.bytes, a.dtype)


@operator("aten::addr", "aten::ger", "aten::outer")
def _outer(call: Call) -> Cost:
    """``ger(self, vec2)`` (m * n multiplications) and ``addr(self, vec1, vec2)`` (2 * m * n)."""
    first = 1 if "::addr" in call.name else 0
    a, b = call.tensor(first, rank=1), call.tensor(first + 1, rank=1)
    size = a.shape[0] * b.shape[0]
    added = call.tensor(0).read if first else 0
    return Cost((1 + first) * size, a.read + b.read + added, size * a.dtype.bytes, a.dtype)


@operator("aten::linear", composite=True)
@operator("vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16")
def _linear(call: Call) -> Cost:
    """``linear(input, weight, bias)``: weight is ``(out_features, in_features)``."""
    x, weight, bias = call.tensor(0), call.tensor(1, rank=2), call.optional(2)
    if not x.shape or x.shape[-1] != weight.shape[1]:
        call.fail(f"cannot apply a weight {weight.shape} to {x.shape}")
    rows = prod(x.shape[:-1])
    flops = gemm_flops(rows, weight.shape[0], weight.shape[1], dtype=x.dtype)
    read = x.read + weight.read + (bias.read if bias else 0)
    return Cost(flops, read, rows * weight.shape[0] * x.dtype.bytes, x.dtype)


@operator("aten::matmul", composite=True)
def _matmul(call: Call) -> Cost:
    """``matmul(self, other)`` with NumPy's rules: vectors, matrices, broadcast batches.

    Formula: 2 * prod(broadcast batch) * m * n * k.
    Example: (3, 8, 64) @ (64, 32) is 2 * 3 * 8 * 32 * 64 = 98304 FLOP.
    """
    a, b = call.tensor(0), call.tensor(1)
    if not a.shape or not b.shape:
        call.fail("matmul does not accept scalars")
    m, k = (1, a.shape[0]) if len(a.shape) == 1 else a.shape[-2:]
    inner, n = (b.shape[0], 1) if len(b.shape) == 1 else b.shape[-2:]
    batch = broadcast(call, a.shape[:-2], b.shape[:-2])
    if k != inner:
        call.fail(f"cannot multiply {a.shape} by {b.shape}")
    flops = gemm_flops(m, n, k, batch=prod(batch), dtype=a.dtype)
    return Cost(flops, a.read + b.read, prod(batch) * m * n * a.dtype.bytes, a.dtype)


@operator("aten::_grouped_mm")
def _grouped_mm(call: Call) -> Cost:
    """``_grouped_mm(self, mat2, offs)``: each row (or each slice of k) belongs to one group.

    Formula: 2 * m * n * k with the grouped dimension taken once, whatever the group sizes.
    Shapes: ``(m, k) @ (g, k, n)``, ``(g, m, k) @ (k, n)``, ``(m, k) @ (k, n)`` with k grouped, or
    ``(g, m, k) @ (g, k, n)``.
    """
    a, b = call.tensor(0), call.tensor(1)
    offsets = call.optional(2)
    if {len(a.shape), len(b.shape)} - {2, 3} or a.shape[-1] != b.shape[-2]:
        call.fail(f"cannot multiply groups {a.shape} by {b.shape}")
    both = len(a.shape) == 3 and len(b.shape) == 3
    groups = a.shape[0] if both else offsets.shape[0] if offsets and len(a.shape) == len(b.shape) else 1
    flops = gemm_flops(a.shape[-2], b.shape[-1], a.shape[-1], batch=groups if both else 1, dtype=a.dtype)
    read = a.read + b.read + (offsets.read if offsets else 0)
    return Cost(flops, read, groups * a.shape[-2] * b.shape[-1] * a.dtype.bytes, a.dtype)


def broadcast(call: Call, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape to which ``shapes`` broadcast, by NumPy's rules.

    Raises: ShapeError: they do not fit.
    """
    rank = max(map(len, shapes))
    result: list[int] = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            call.fail(f"the shapes {shapes} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)
