"""Matrix products: FLOPs of the multiply-adds; bytes of the operands and the result once each."""

from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import FLOAT32, Cost, DType, ShapeError, Tensor


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


_FROM_OTHERS = "rows that the layer gathers from other ranks are not among the inputs"


def _matrices(call: Call, count: int) -> list[Tensor]:
    """The first inputs with at least two dimensions, whose last dimension is the same.

    Raises: ShapeError: there are fewer.
    """
    found = [tensor for tensor in call.tensors() if len(tensor.shape) > 1][:count]
    if len(found) < count or not found[0].shape[-1]:
        call.fail(f"fewer than {count} matrices are among the inputs")
    return found


def _vectors(call: Call, *sizes: int) -> int:
    """Bytes of weights and biases of one dimension."""
    vectors = (tensor for tensor in call.tensors() if tensor.dtype.kind == "float")
    return sum(tensor.read for tensor in vectors if len(tensor.shape) == 1 and tensor.shape[0] in sizes)


@operator("_Linear", "_LayerNormLinear", composite=True)
@operator("LinearWithGradAccumulationAndAsyncCommunication", composite=True)
@operator("LinearFunctionForZeroStage3", composite=True)
def _linear_function(call: Call) -> Cost:
    """Autograd Functions of Transformer Engine 2 (weight before or behind the input), Megatron and DeepSpeed.

    Shapes: input ``(..., k)`` and weight ``(n, k)``, the first matrices. A norm before it is not counted.
    Formula: 2 * rows * n * k.
    """
    a, b = _matrices(call, 2)
    k = a.shape[-1]
    if b.shape[-1] != k:
        call.fail(f"cannot apply a weight to {a.shape} and {b.shape}")
    m, n = a.numel // k, b.numel // k
    read = a.read + b.read + _vectors(call, *{k, m, n})
    written = m * n * max(a.dtype.bytes, b.dtype.bytes)
    flops = gemm_flops(m, n, k, dtype=a.dtype)
    return Cost(flops, read, written, a.dtype, "estimate", _FROM_OTHERS)


@operator("LinearWithFrozenWeight", composite=True)
def _linear_with_frozen_weight(call: Call) -> Cost:
    """Megatron's Function for a weight without a gradient: as :func:`_linear_function`."""
    return _linear_function(call)


@operator("_LayerNormMLP", composite=True)
def _mlp_function(call: Call) -> Cost:
    """Transformer Engine 2's norm and two layers, the first of which may be gated.

    Shapes: input ``(..., k)``; weights ``(inner or 2 * inner, k)`` and ``(k, inner)``. Norm and activation
    are not counted. Formula: 2 * rows * k * (first rows + inner).
    """
    x, first, second = _matrices(call, 3)
    k, inner = x.shape[-1], second.shape[-1]
    if first.shape[-1] != k or second.shape[0] != k or first.shape[0] not in {inner, 2 * inner}:
        call.fail(f"layers {first.shape} and {second.shape} for {x.shape}")
    rows = x.numel // k
    read = x.read + first.read + second.read + _vectors(call, *{k, first.shape[0]})
    flops = gemm_flops(rows, first.shape[0], k) + gemm_flops(rows, k, inner)
    return Cost(flops, read, rows * k * x.dtype.bytes, x.dtype, "estimate", _FROM_OTHERS)


@operator("_GroupedLinear", composite=True)
def _grouped_function(call: Call) -> Cost:
    """Transformer Engine 2's experts: input ``(rows, k)`` of all groups, then a weight ``(n, k)`` of each.

    Formula: 2 * rows * n * k, whatever the sizes of the groups.
    """
    x, weight = _matrices(call, 2)
    k = x.shape[-1]
    weights = [t for t in call.tensors() if t.shape == weight.shape and t is not x]
    if len(weight.shape) != 2 or weight.shape[1] != k:
        call.fail(f"groups {weight.shape} for {x.shape}")
    rows, n = x.numel // k, weight.shape[0]
    read = x.read + sum(t.read for t in weights) + _vectors(call, n)
    return Cost(gemm_flops(rows, n, k), read, rows * n * x.dtype.bytes, x.dtype)


@operator("tex_ts::te_gemm_ts")
def _te_gemm(call: Call) -> Cost:
    """Transformer Engine 1: ``te_gemm_ts(A, A_scale_inverse, A_tensor, A_type, transa, B, B_scale_inverse,
    B_tensor, B_type, transb, D, D_scale, D_type, D_amax, bias, ...)``, by the rules of columns first.

    Shapes: A ``(m, k)`` if transposed, else ``(k, m)``; B ``(k, n)`` if transposed, else ``(n, k)``; D
    ``(n, m)``.
    """
    a, b, out = call.tensor(0, rank=2), call.tensor(5, rank=2), call.tensor(10)
    m, k = a.shape if call.flag(4) else a.shape[::-1]
    inner, n = b.shape if call.flag(9) else b.shape[::-1]
    if k != inner:
        call.fail(f"cannot multiply {a.shape} by {b.shape}")
    read = a.read + b.read + sum(t.read for t in call.present(1, 6, 14))
    return Cost(gemm_flops(m, n, k), read, m * n * out.dtype.bytes, a.dtype)


_QUACK = {"gemm": (), "gemm_out": (2,), "gemm_act_out": (2, 3), "gemm_gated_out": (2, 3)}


@operator(*(f"quack::{name}" for name in _QUACK))
def _quack(call: Call) -> Cost:
    """``gemm(A, B, ...)``, ``gemm_out(A, B, out, ...)``, ``gemm_act_out(A, B, preact_out, postact_out, C,
    bias, ...)``.

    Shapes: A ``(m, k)`` (all groups in one) or ``(batch, m, k)``; B ``(k, n)`` or ``(batch, k, n)``.
    """
    a, b = call.tensor(0), call.tensor(1)
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        call.fail(f"cannot multiply {a.shape} by {b.shape}")
    k, n = b.shape[-2:]
    rows = prod(a.shape[:-1])
    results = _QUACK[call.name.rpartition("::")[2]]
    added = call.present(4, 5) if len(results) > 1 else []
    read = a.read + b.read + sum(t.read for t in added)
    written = sum(t.nbytes for t in call.present(*results)) or rows * n * a.dtype.bytes
    return Cost(gemm_flops(rows, n, k), read, written, a.dtype)


@operator("LigerFusedLinearCrossEntropyFunction", composite=True)
def _linear_cross_entropy(call: Call) -> Cost:
    """``LigerFusedLinearCrossEntropyFunction(input, weight, target, bias, ...)``: the last layer by parts,
    the loss, and the gradients of input and weight.

    Formula: three products of 2 * rows * vocabulary * width, and 5 per logit. The logits are not stored.
    Shapes: input ``(rows, width)``, weight ``(vocabulary, width)``.
    Source: Hsu et al. 2024 (Liger Kernel), section 3.2.
    """
    x, weight, target = call.tensor(0, rank=2), call.tensor(1, rank=2), call.tensor(2)
    if x.shape[1] != weight.shape[1]:
        call.fail(f"cannot apply a weight {weight.shape} to {x.shape}")
    rows, width, vocabulary = *x.shape, weight.shape[0]
    flops = 3 * gemm_flops(rows, vocabulary, width) + 5 * rows * vocabulary
    read = x.read + weight.read + target.read
    return Cost(flops, read, x.nbytes + weight.nbytes + FLOAT32.bytes, x.dtype)
