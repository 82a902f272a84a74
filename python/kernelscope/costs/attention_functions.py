"""Attention of training: autograd Functions of libraries, their gradients, and windows of neighbours.

A Function is a wrapper: where the library registers the operator inside it, that one counts.
"""

from contextlib import suppress
from dataclasses import replace
from math import prod

from kernelscope.costs.attention import (
    Mask,
    attention_backward_flops,
    attention_flops,
    backward,
    forward,
    packed,
    packed_backward,
)
from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator, operator_prefix
from kernelscope.costs.types import BFLOAT16, Cost, ShapeError, Tensor

_NO_MASK = "an upper bound: the mask is not among the inputs, so every pair is counted"


def _window(call: Call, causal: int, window: int) -> Mask:
    """The mask of flash-attn's Functions, whose window is a pair."""
    sizes = call.arg(window)
    pair = sizes if isinstance(sizes, tuple) and len(sizes) == 2 else (-1, -1)
    left, right = (size if isinstance(size, int) else -1 for size in pair)
    return Mask(call.flag(causal), left, right, bottom_right=True)


@operator("FlashAttnFunc", composite=True)
def _flash(call: Call) -> Cost:
    """``(q, k, v, dropout_p, softmax_scale, causal, window_size, ...)``, ``(batch, length, heads, size)``."""
    return forward(call, _window(call, 5, 6), heads_first=False)


@operator("FlashAttnVarlenFunc", composite=True)
def _flash_varlen(call: Call) -> Cost:
    """``(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
    window_size, ...)``, ``(tokens, heads, size)``.
    """
    return packed(call, 0, 3, _window(call, 9, 10))


def _unpacked(call: Call, joint: Tensor, axis: int) -> list[Tensor]:
    """Tensors that are one along an axis."""
    shape = joint.shape[:axis] + joint.shape[axis + 1 :]
    strides = joint.strides and joint.strides[:axis] + joint.strides[axis + 1 :]
    if len(joint.shape) <= -axis or not joint.shape[axis]:
        call.fail(f"queries, keys and values in {joint.shape}")
    return [Tensor(shape, joint.dtype, strides)] * joint.shape[axis]


@operator("FlashAttnQKVPackedFunc", composite=True)
def _flash_packed(call: Call) -> Cost:
    """``(qkv, dropout_p, softmax_scale, causal, ...)``, qkv ``(batch, length, 3, heads, size)``."""
    qkv = call.tensor(0, rank=5)
    call = replace(call, args=[*_unpacked(call, qkv, 2), *call.args[1:]])
    return forward(call, _window(call, 5, 6), heads_first=False)


@operator("FlashAttnKVPackedFunc", composite=True)
def _flash_keys_packed(call: Call) -> Cost:
    """``(q, kv, dropout_p, softmax_scale, causal, window_size, ...)``, kv ``(batch, length, 2, heads,
    size)``.
    """
    q, kv = call.tensor(0, rank=4), call.tensor(1, rank=5)
    call = replace(call, args=[q, *_unpacked(call, kv, 2), *call.args[2:]])
    return forward(call, _window(call, 5, 6), heads_first=False)


@operator("FusedAttnFunc", composite=True)
def _fused(call: Call) -> Cost:
    """Transformer Engine's ``(is_training, max_seqlen_q, max_seqlen_kv, cu_seqlens_q, cu_seqlens_kv, ..., q,
    k, v, ...)``.

    Queries, keys and values are the first tensors with at least three dimensions. The order of their
    dimensions follows from the number of sequences, which the offsets have.
    """
    found = [tensor for tensor in call.tensors() if len(tensor.shape) > 2][:3]
    offsets = next((t for t in call.tensors() if len(t.shape) == 1 and t.dtype.kind == "integer"), None)
    if len(found) < 3 or offsets is None:
        call.fail("queries, keys, values and offsets are not among the inputs")
    q, k, v = found
    call = replace(call, args=[q, k, v, offsets])
    if len(q.shape) == 3:
        cost = packed(call, 0, 3, Mask())
    else:
        if q.shape[0] != offsets.numel - 1:
            call = replace(call, args=[_batch_first(tensor) for tensor in found])
        cost = forward(call, Mask(), heads_first=False)
    return replace(cost, status="estimate", note=_NO_MASK)


def _batch_first(tensor: Tensor) -> Tensor:
    """``(length, batch, heads, size)`` as ``(batch, length, heads, size)``."""
    order = (1, 0, *range(2, len(tensor.shape)))
    strides = tensor.strides and tuple(tensor.strides[axis] for axis in order)
    return Tensor(tuple(tensor.shape[axis] for axis in order), tensor.dtype, strides)


_BACKWARD = {
    "aiter::_flash_attn_backward": 12,
    "aiter::mha_bwd": 8,
    "aiter::fmha_v3_bwd": 8,
    "aiter::wrapper_fmha_v3_bwd": 9,
}


@operator(*_BACKWARD)
def _aiter_backward(call: Call) -> Cost:
    """``(dout, q, k, v, out, softmax_lse, ..., causal, window_size_left, window_size_right, ...)``,
    ``(batch, length, heads, size)``.
    """
    at = _BACKWARD[call.name]
    mask = Mask(call.flag(at), call.integer(at + 1, -1), call.integer(at + 2, -1), bottom_right=True)
    return backward(call, mask, heads_first=False)


@operator("aiter::wrapper_fmha_v3_fwd")
def _aiter_wrapper(call: Call) -> Cost:
    """``(..., q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, ...)``: behind
    one other input.
    """
    mask = Mask(call.flag(6), call.integer(7, -1), call.integer(8, -1), bottom_right=True)
    return forward(replace(call, args=call.args[1:]), mask, heads_first=False)


@operator("flash_attn_3::bwd")
def _flash_3_backward(call: Call) -> Cost:
    """``(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k,
    max_seqlen_q, max_seqlen_k, softmax_scale, is_causal, window_left, window_right, ...)``.
    """
    mask = Mask(call.flag(16), call.integer(17, -1), call.integer(18, -1), bottom_right=True)
    if call.optional(9) is not None:
        return packed_backward(call, 9, mask)
    return backward(call, mask, heads_first=False)


@operator("xformers::efficient_attention_backward_cutlass")
def _xformers_backward(call: Call) -> Cost:
    """``(grad_out, query, key, value, bias, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    logsumexp, output, dropout_p, rng_seed, rng_offset, custom_mask_type, ...)``; the types of the mask are
    those of ``aten::_efficient_attention_backward``.
    """
    kind = call.integer(14)
    mask = Mask(causal=kind in {1, 2}, bottom_right=kind == 2)
    if call.optional(5) is not None:
        return packed_backward(call, 5, mask)
    return backward(call, mask, heads_first=False, bias=4)


@operator("EvoformerAttention", "EvoformerFusedAttention", composite=True)
def _evoformer(call: Call) -> Cost:
    """``(Q, K, V, mask, pair_bias)`` over residues: ``(batch, sequences, residues, heads, size)``."""
    cost = forward(call, Mask(), heads_first=False)
    added = sum(t.read for t in call.present(3, 4))
    return replace(cost, bytes_read=(cost.bytes_read or 0) + added)


@operator_prefix("sage_fwd_")
def _sage(call: Call) -> Cost:
    """SageAttention ``(q, k, v, ...)``, narrowed. The longer of the middle dimensions is the length."""
    q, k, v = call.tensor(0, rank=4), call.tensor(1, rank=4), call.tensor(2, rank=4)
    written = prod(q.shape[:-1]) * v.shape[-1] * BFLOAT16.bytes
    cost = forward(call, Mask(), heads_first=max(q.shape[2], k.shape[2]) >= max(q.shape[1], k.shape[1]))
    return replace(cost, bytes_written=written, status="estimate", note=_NO_MASK)


@operator_prefix("sage_quant_kernel_")
def _sage_quantize(call: Call) -> Cost:
    """Narrows its first input to a byte per number: a search for the maximum and a scaling."""
    x = call.tensor(0)
    return Cost(2 * x.numel, x.read, x.numel, x.dtype, "estimate", "the scales are not counted")


@operator_prefix("natten::na")
def _neighbours(call: Call) -> Cost:
    """``na2d_forward(query, key, value, ..., kernel_size, ...)`` and ``na2d_backward(grad, query, key, value,
    ...)``: each token attends to a window of tokens.

    Shapes: ``(batch, *sizes, heads, size)``; the window has a number for each of the sizes.
    """
    gradient = "backward" in call.name
    first = 1 if gradient else 0
    q, k, v = (call.tensor(first + index) for index in range(3))
    rank = len(q.shape) - 3
    window = _window_of(call, first + 3, rank)
    sizes = zip(window, q.shape[1:-2], strict=True)
    seen = prod(min(width, size) for width, size in sizes)
    pairs = prod(q.shape[1:-2]) * seen
    count = attention_backward_flops if gradient else attention_flops
    flops = count(pairs, q.shape[-2], q.shape[-1], v.shape[-1], batch=q.shape[0])
    read = q.read + k.read + v.read + (2 * call.tensor(0).read if gradient else 0)
    result = prod(q.shape[:-1]) * v.shape[-1] * q.dtype.bytes
    written = q.nbytes + k.nbytes + v.nbytes if gradient else result
    return Cost(flops, read, written, q.dtype)


def _window_of(call: Call, first: int, rank: int) -> tuple[int, ...]:
    """The first list of whole numbers behind the tensors; versions differ in what stands between.

    Raises: ShapeError: there is none.
    """
    for index in range(first, len(call.args)):
        with suppress(ShapeError):
            sizes = call.integers(index)
            if len(sizes) == rank:
                return sizes
    return call.fail("the window was not recorded")


@operator("AttnFuncWithCPAndKVP2P", "AttnFuncWithCPAndKVAllGather", composite=True)
@operator("AttnFuncWithCPAndQKVOA2A", "RingFlashAttnFunc", composite=True)
@operator("ZigZagRingFlashAttnFunc", "StripeFlashAttnFunc", composite=True)
def _ring(call: Call) -> Cost:
    """Wrappers of context parallelism. The number of ranks is not among the inputs: what they call counts."""
    return call.fail("the number of ranks that share the sequence is not among the inputs")
