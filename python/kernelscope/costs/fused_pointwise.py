"""Pointwise operators of inference libraries: gated activations and rotary embeddings."""

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, Tensor

_LIBRARIES = ("_C", "sgl_kernel", "aiter", "vllm")
# FLOPs per result: the activation (see elementwise) and the product with the gate.
_GATED = {"silu_and_mul": 6, "gelu_and_mul": 6, "gelu_tanh_and_mul": 10, "mul_and_silu": 6}


def gated_activation(per_element: int, x: Tensor, out: Tensor) -> Cost:
    """Cost of ``activation(first half) * second half``.

    Shapes: x ``(..., 2 * d)``; out ``(..., d)``.
    Example: silu_and_mul on (4, 8) in float16: 6 * 16 = 96 FLOP, reads 64, writes 32.
    """
    return Cost(per_element * out.numel, x.read, out.nbytes, x.dtype)


@operator(*(f"{library}::{name}" for library in _LIBRARIES for name in _GATED))
def _gated(call: Call) -> Cost:
    """``silu_and_mul(out, input)``; some libraries pass the input first: the wider of the two is the
    input.
    """
    first, second = call.tensor(0), call.tensor(1)
    x, out = (first, second) if first.numel > second.numel else (second, first)
    if x.numel != 2 * out.numel:
        call.fail(f"no gated activation leads from {x.shape} to {out.shape}")
    return gated_activation(_GATED[call.name.rpartition("::")[2]], x, out)


def rotary(tokens: int, heads: int, rotated: int) -> int:
    """FLOPs of rotating ``rotated`` numbers of each head of each token.

    Formula: 4 multiplications and 2 additions per pair: 3 * tokens * heads * rotated.
    Source: Su et al. 2021 (RoFormer), equation 34.
    Example: ``rotary(888, 9, 64)`` is 1534464.
    """
    return 3 * tokens * heads * rotated


@operator("_C::rotary_embedding", "sgl_kernel::rotary_embedding", "aiter::rotary_embedding")
def _rotary_embedding(call: Call) -> Cost:
    """``rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox)``, in place.

    Shapes: query and key ``(tokens, heads * head_size)`` or ``(tokens, heads, head_size)``; the cache
    ``(positions, rotated)``. Formula: reads and writes the rotated part; one row of the cache per token.
    """
    positions, query, key, cache = call.tensor(0), call.tensor(1), call.optional(2), call.tensor(4, rank=2)
    size, tokens, width = call.integer(3), positions.numel, cache.shape[1]
    moved = query.numel + (key.numel if key else 0)
    if size < 1 or tokens < 1 or moved % (tokens * size):
        call.fail(f"{query.shape} is not divisible into heads of {size}")
    heads = moved // (tokens * size)
    traffic = tokens * heads * width * query.dtype.bytes
    rows = min(tokens, cache.shape[0]) * width * cache.dtype.bytes
    note = "the positions are assumed to be distinct"
    read = traffic + rows + positions.read
    return Cost(rotary(tokens, heads, width), read, traffic, query.dtype, "estimate", note)


# A gated activation's gradient: of the activation (see elementwise), two products, and the activation again.
_GATED_FUNCTIONS = {"LigerSiLUMulFunction": (6, 9 + 5 + 2), "LigerGELUMulFunction": (10, 11 + 9 + 2)}


@operator(*_GATED_FUNCTIONS, composite=True)
def _gated_function(call: Call) -> Cost:
    """``LigerSiLUMulFunction(a, b)``: ``activation(a) * b``."""
    a, b = call.tensor(0), call.tensor(1)
    return Cost(_GATED_FUNCTIONS[call.name][0] * a.numel, a.read + b.read, a.nbytes, a.dtype)


@operator(*(f"{name}Backward" for name in _GATED_FUNCTIONS), composite=True)
def _gated_function_backward(call: Call) -> Cost:
    """The gradient; reads a and b of its size again, and writes the gradients of both."""
    grad = call.tensor(0)
    per_element = _GATED_FUNCTIONS[call.name.removesuffix("Backward")][1]
    note = "the inputs are assumed to be as the gradient"
    return Cost(per_element * grad.numel, 3 * grad.read, 2 * grad.nbytes, grad.dtype, "estimate", note)


@operator("FusedRoPEFunc", composite=True)
def _rope_function(call: Call) -> Cost:
    """Transformer Engine's ``FusedRoPEFunc(t, freqs, ...)``: rotates the part that the table has.

    Shapes: t ``(length, batch, heads, size)``, freqs ``(length, 1, 1, rotated)``. Sines are not counted.
    """
    t, table = call.tensor(0), call.tensor(1)
    size, rotated = (tensor.shape[-1] if tensor.shape else 0 for tensor in (t, table))
    if not 0 < rotated <= size:
        call.fail(f"a table {table.shape} for {t.shape}")
    return Cost(rotary(t.numel // size, 1, rotated), t.read + table.read, t.nbytes, t.dtype)


@operator("LigerRopeFunction", composite=True)
def _liger_rope(call: Call) -> Cost:
    """``LigerRopeFunction(q, k, cos, sin, ...)``: rotates queries and keys."""
    q, k, cos, sin = (call.tensor(index) for index in range(4))
    moved = q.numel + k.numel
    return Cost(rotary(moved, 1, 1), q.read + k.read + cos.read + sin.read, q.nbytes + k.nbytes, q.dtype)


@operator("FusedRoPEFuncBackward", "LigerRopeFunctionBackward", composite=True)
def _rope_backward(call: Call) -> Cost:
    """The gradients, rotated back; the table is not among the inputs."""
    grads = call.tensors()
    if not grads:
        call.fail("the gradient was not recorded")
    moved, read, written = (sum(x) for x in zip(*((t.numel, t.read, t.nbytes) for t in grads), strict=True))
    note = "the whole gradient is assumed to be rotated, without reading the table"
    return Cost(rotary(moved, 1, 1), read, written, grads[0].dtype, "estimate", note)
