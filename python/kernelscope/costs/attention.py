"""Scaled dot-product attention: FLOPs of the matrix products for scores inside the mask.

Softmax, scaling and dropout are not counted (they are far below the products). Bytes are those of a fused
kernel: queries, keys, values and output once, no score matrix.
"""

from math import prod
from typing import NamedTuple

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, ShapeError, Tensor


class Mask(NamedTuple):
    """Keys visible to a query: all, those up to its own position, or a window around it.

    ``bottom_right`` aligns the last query with the last key (flash-attn, decoding with a cache). Otherwise
    the first query is aligned with the first key. A negative window is unbounded.
    """

    causal: bool = False
    left: int = -1
    right: int = -1
    bottom_right: bool = False


def clamped_sum(first: int, count: int, top: int) -> int:
    """Returns the sum of min(max(j, 0), top) for j = first ... first + count - 1."""

    def below(n: int) -> int:
        n = max(n, 0)
        if n <= top + 1:
            return n * (n - 1) // 2
        return top * (top + 1) // 2 + (n - 1 - top) * top

    return below(first + count) - below(first)


def attended_pairs(queries: int, keys: int, mask: Mask) -> int:
    """Number of (query, key) pairs inside the mask, for one head and one sequence.

    Formula: queries * keys without a mask; for a causal mask, the sum over queries of the keys up to each.
    Raises: ShapeError: a length is negative.
    Example: 4 queries and 4 keys, causal: 1 + 2 + 3 + 4 = 10.
    """
    if queries < 0 or keys < 0:
        raise ShapeError(f"{queries} queries and {keys} keys")
    right = 0 if mask.causal else mask.right
    shift = keys - queries if mask.bottom_right else 0
    upper = queries * keys if right < 0 else clamped_sum(shift + right + 1, queries, keys)
    lower = 0 if mask.left < 0 else clamped_sum(shift - mask.left, queries, keys)
    return max(upper - lower, 0)


def attention_flops(pairs: int, heads: int, d_qk: int, d_v: int, *, batch: int = 1) -> int:
    """FLOPs of the forward: scores ``q @ k`` and ``scores @ v`` over the pairs inside the mask.

    Formula: 2 * batch * heads * pairs * (d_qk + d_v).
    Source: torch/utils/flop_counter.py (sdpa_flop_count), which counts every pair.
    Example: 16 x 16 heads, 559 x 559, head size 64: 2 * 256 * 312481 * 128 = 20478754816.
    """
    return 2 * batch * heads * pairs * (d_qk + d_v)


def attention_backward_flops(pairs: int, heads: int, d_qk: int, d_v: int, *, batch: int = 1) -> int:
    """FLOPs of a fused backward: scores again, and the gradients by scores, v, q and k.

    Formula: 2 * batch * heads * pairs * (3 * d_qk + 2 * d_v).
    Source: torch/utils/flop_counter.py (sdpa_backward_flop_count); Dao 2023, FlashAttention-2.
    """
    return 2 * batch * heads * pairs * (3 * d_qk + 2 * d_v)


class _Heads(NamedTuple):
    """The sizes of dense attention, whatever the layout of the tensors."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    d_qk: int
    d_v: int


def _sizes(call: Call, q: Tensor, k: Tensor, v: Tensor, *, heads_first: bool) -> _Heads:
    """Sizes of ``(batch, heads, length, size)`` tensors, or ``(batch, length, heads, size)``."""
    h, s = (-3, -2) if heads_first else (-2, -3)
    if not len(q.shape) == len(k.shape) == len(v.shape) or len(q.shape) < 3:
        call.fail(f"attention of {q.shape}, {k.shape}, {v.shape}")
    batch = prod(q.shape[:-3])
    found = _Heads(batch, q.shape[h], k.shape[h], q.shape[s], k.shape[s], q.shape[-1], v.shape[-1])
    same = k.shape[-1] == found.d_qk and v.shape[s] == found.keys and v.shape[h] == found.kv_heads
    shared = found.kv_heads > 0 and found.heads % found.kv_heads == 0
    if not same or (found.heads and not shared) or k.shape[:-3] != q.shape[:-3]:
        call.fail(f"attention of {q.shape}, {k.shape}, {v.shape}")
    return found


def forward(call: Call, mask: Mask, *, heads_first: bool, bias: int | None = None, lse: bool = True) -> Cost:
    """Cost of the forward over dense tensors: inputs q, k, v; ``lse`` if the sums are kept for backward.

    Shapes: ``(..., heads, length, size)`` if ``heads_first``, else ``(..., length, heads, size)``.
    """
    q, k, v = call.tensor(0), call.tensor(1), call.tensor(2)
    n = _sizes(call, q, k, v, heads_first=heads_first)
    pairs = attended_pairs(n.queries, n.keys, Mask() if call.dense else mask)
    extra = call.optional(bias) if bias is not None else None
    rows = n.batch * n.heads * n.queries
    # The logarithms of the softmax's sums are float32.
    written = rows * (n.d_v * q.dtype.bytes + (4 if lse else 0))
    flops = attention_flops(pairs, n.heads, n.d_qk, n.d_v, batch=n.batch)
    return Cost(flops, q.read + k.read + v.read + (extra.read if extra else 0), written, q.dtype)


def backward(call: Call, mask: Mask, *, heads_first: bool, first: int = 0, bias: int | None = None) -> Cost:
    """Cost of the backward over dense tensors: inputs from ``first`` are the gradient of the output, q, k, v.

    Also reads the output and the softmax sums. Writes the gradients of q, k and v.
    """
    grad, q, k, v = (call.tensor(first + i) for i in range(4))
    n = _sizes(call, q, k, v, heads_first=heads_first)
    if grad.numel != n.batch * n.heads * n.queries * n.d_v:
        call.fail(f"a gradient {grad.shape} for attention of {q.shape}, {k.shape}, {v.shape}")
    pairs = attended_pairs(n.queries, n.keys, Mask() if call.dense else mask)
    extra = call.optional(bias) if bias is not None else None
    read = 2 * grad.read + q.read + k.read + v.read + n.batch * n.heads * n.queries * 4
    flops = attention_backward_flops(pairs, n.heads, n.d_qk, n.d_v, batch=n.batch)
    return Cost(flops, read + (extra.read if extra else 0), q.nbytes + k.nbytes + v.nbytes, q.dtype)


@operator("aten::scaled_dot_product_attention", composite=True)
def _sdpa(call: Call) -> Cost:
    """``scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale,
    enable_gqa)``.
    """
    return forward(call, Mask(causal=call.flag(5, default=False)), heads_first=True, bias=3, lse=False)


@operator("aten::_scaled_dot_product_flash_attention", composite=True)
@operator("aten::_scaled_dot_product_flash_attention_for_cpu")
def _sdpa_flash(call: Call) -> Cost:
    """``_scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, return_debug_mask)``."""
    return forward(call, Mask(causal=call.flag(4, default=False)), heads_first=True)


@operator("aten::_scaled_dot_product_efficient_attention", composite=True)
@operator("aten::_scaled_dot_product_cudnn_attention")
@operator("aten::_scaled_dot_product_fused_attention_overrideable")
def _sdpa_bias(call: Call) -> Cost:
    """``_scaled_dot_product_efficient_attention(query, key, value, attn_bias, compute_log_sumexp, dropout_p,
    is_causal)``; the overrideable form has no ``compute_log_sumexp``.
    """
    short = "overrideable" in call.name
    causal = call.flag(5 if short else 6, default=False)
    lse = True if short else call.flag(4, default=True)
    return forward(call, Mask(causal=causal), heads_first=True, bias=3, lse=lse)


@operator("aten::_flash_attention_forward")
def _aten_flash(call: Call) -> Cost:
    """``_flash_attention_forward(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
    return_debug_mask, scale, window_size_left, window_size_right)``, ``(batch, length, heads, size)``.
    """
    mask = Mask(call.flag(8), call.integer(11, -1), call.integer(12, -1), bottom_right=True)
    if call.optional(3) is not None:
        return packed(call, 0, 3, mask)
    return forward(call, mask, heads_first=False)


@operator("aten::_efficient_attention_forward", "xformers::efficient_attention_forward_cutlass")
def _aten_efficient(call: Call) -> Cost:
    """``_efficient_attention_forward(query, key, value, bias, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
    max_seqlen_k, dropout_p, custom_mask_type, compute_log_sumexp)``; mask type 1 is causal from the first
    key, 2 from the last.
    """
    kind = call.integer(9)
    mask = Mask(causal=kind in {1, 2}, bottom_right=kind == 2)
    if call.optional(4) is not None:
        return packed(call, 0, 4, mask)
    return forward(call, mask, heads_first=False, bias=3, lse=call.flag(10, default=False))


@operator("aten::_scaled_dot_product_flash_attention_backward", composite=True)
@operator("aten::_flash_attention_backward")
def _flash_backward(call: Call) -> Cost:
    """``_flash_attention_backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q,
    max_k, dropout_p, is_causal, rng_state, unused, scale, window_size_left, window_size_right)``.
    """
    heads_first = "_scaled_dot_product" in call.name
    left, right = (-1, -1) if heads_first else (call.integer(15, -1), call.integer(16, -1))
    mask = Mask(call.flag(11), left, right, bottom_right=not heads_first)
    if len(call.tensor(1).shape) == 3:
        return packed_backward(call, 6, mask)
    return backward(call, mask, heads_first=heads_first)


@operator("aten::_scaled_dot_product_flash_attention_for_cpu_backward")
def _flash_cpu_backward(call: Call) -> Cost:
    """``(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal)``, ``(batch, heads, length,
    size)``.
    """
    return backward(call, Mask(causal=call.flag(7)), heads_first=True)


@operator("aten::_scaled_dot_product_efficient_attention_backward", composite=True)
def _sdpa_efficient_backward(call: Call) -> Cost:
    """``(grad_out, query, key, value, attn_bias, out, logsumexp, seed, offset, dropout_p, mask,
    is_causal)``.
    """
    return backward(call, Mask(causal=call.flag(11, default=False)), heads_first=True, bias=4)


@operator("aten::_scaled_dot_product_cudnn_attention_backward")
def _sdpa_cudnn_backward(call: Call) -> Cost:
    """``(grad_out, query, key, value, out, logsumexp, seed, offset, attn_bias, cum_seq_q, cum_seq_k, max_q,
    max_k, dropout_p, is_causal)``.
    """
    return backward(call, Mask(causal=call.flag(14)), heads_first=True, bias=8)


@operator("aten::_efficient_attention_backward")
def _efficient_backward(call: Call) -> Cost:
    """``(grad_out, query, key, value, bias, out, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    logsumexp, dropout_p, seed, offset, custom_mask_type, ...)``, ``(batch, length, heads, size)``.
    """
    kind = call.integer(14)
    mask = Mask(causal=kind in {1, 2}, bottom_right=kind == 2)
    if call.optional(6) is not None:
        return packed_backward(call, 6, mask)
    return backward(call, mask, heads_first=False, bias=4)


class _Packed(NamedTuple):
    """Sequences of unknown lengths one behind the other, taken as equally long."""

    pairs: int
    heads: int
    d_qk: int
    d_v: int
    note: str


def _equal_lengths(call: Call, first: int, offsets: int, mask: Mask) -> _Packed:
    """Sizes of ``(tokens, heads, size)`` tensors whose sequences the tensors at ``offsets`` delimit.

    Formula: with n sequences, n times the pairs of ``tokens / n`` queries and keys (rounded down; the
    remainder goes to the sequences one token each).
    """
    q, k, v = call.tensor(first), call.tensor(first + 1), call.tensor(first + 2)
    count = max(call.tensor(offsets).numel - 1, 1)
    if len({len(t.shape) for t in (q, k, v)}) != 1 or len(q.shape) < 3:
        call.fail(f"attention of packed {q.shape}, {k.shape}, {v.shape}")
    queries, more_q = divmod(q.shape[-3], count)
    keys, more_k = divmod(k.shape[-3], count)
    kept = Mask() if call.dense else mask
    both, either = min(more_q, more_k), max(more_q, more_k)
    pairs = both * attended_pairs(queries + 1, keys + 1, kept)
    pairs += (count - either) * attended_pairs(queries, keys, kept)
    pairs += (either - both) * attended_pairs(queries + (more_q > more_k), keys + (more_k > more_q), kept)
    note = "" if count == 1 else f"{count} sequences are assumed to have equal lengths"
    return _Packed(pairs, q.shape[-2], q.shape[-1], v.shape[-1], note)


def packed(call: Call, first: int, offsets: int, mask: Mask) -> Cost:
    """Cost of the forward over packed sequences: exact for one sequence, otherwise a lower bound."""
    q, k, v = call.tensor(first), call.tensor(first + 1), call.tensor(first + 2)
    n = _equal_lengths(call, first, offsets, mask)
    rows = q.numel // max(n.d_qk, 1)
    written = rows * (n.d_v * q.dtype.bytes + 4)
    flops = attention_flops(n.pairs, n.heads, n.d_qk, n.d_v)
    return Cost(flops, q.read + k.read + v.read, written, q.dtype, "estimate" if n.note else "exact", n.note)


def packed_backward(call: Call, offsets: int, mask: Mask) -> Cost:
    """Cost of the backward over packed sequences; inputs begin with the gradient, q, k, v."""
    grad, q, k, v = (call.tensor(i) for i in range(4))
    n = _equal_lengths(call, 1, offsets, mask)
    read = 2 * grad.read + q.read + k.read + v.read + q.numel // max(n.d_qk, 1) * 4
    flops = attention_backward_flops(n.pairs, n.heads, n.d_qk, n.d_v)
    written = q.nbytes + k.nbytes + v.nbytes
    return Cost(flops, read, written, q.dtype, "estimate" if n.note else "exact", n.note)
