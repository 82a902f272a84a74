"""Attention operators outside torch: flash-attn, aiter, vLLM and SGLang with paged caches."""

from kernelscope.costs.attention import (
    Mask,
    attended_pairs,
    attention_flops,
    backward,
    forward,
    packed,
    packed_backward,
)
from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, Tensor

_OUTSIDE = "the sequence lengths come from outside the operator"


@operator("flash_attn::_flash_attn_forward", "flash_attn::_flash_attn_forward_v2")
@operator("aiter::_flash_attn_forward", "aiter::mha_fwd", "aiter::fmha_v3_fwd")
def _flash_attn(call: Call) -> Cost:
    """``(q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, ...)``,
    ``(batch, length, heads, size)``.
    """
    mask = Mask(call.flag(5), call.integer(6, -1), call.integer(7, -1), bottom_right=True)
    return forward(call, mask, heads_first=False)


@operator("flash_attn::_flash_attn_varlen_forward")
def _flash_attn_varlen(call: Call) -> Cost:
    """``(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
    window_size_left, window_size_right, ...)``, ``(tokens, heads, size)``.
    """
    mask = Mask(call.flag(9), call.integer(10, -1), call.integer(11, -1), bottom_right=True)
    return packed(call, 0, 3, mask)


@operator("flash_attn::_flash_attn_backward")
def _flash_attn_backward(call: Call) -> Cost:
    """``(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal, window_size_left,
    window_size_right, ...)``.
    """
    mask = Mask(call.flag(11), call.integer(12, -1), call.integer(13, -1), bottom_right=True)
    return backward(call, mask, heads_first=False)


@operator("flash_attn::_flash_attn_varlen_backward")
def _flash_attn_varlen_backward(call: Call) -> Cost:
    """``(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    dropout_p, softmax_scale, causal, window_size_left, window_size_right, ...)``.
    """
    mask = Mask(call.flag(15), call.integer(16, -1), call.integer(17, -1), bottom_right=True)
    return packed_backward(call, 9, mask)


@operator("flash_attn_3::fwd", "sgl_kernel::fwd", "vllm_fa3_C::fwd", "_vllm_fa3_C::fwd")
def _flash_attn_3(call: Call) -> Cost:
    """``(q, k, v, k_new, v_new, q_v, out, cu_seqlens_q, cu_seqlens_k, cu_seqlens_k_new, seqused_q, seqused_k,
    max_seqlen_q, max_seqlen_k, page_table, ..., softmax_scale, is_causal, window_left, window_right)``.
    """
    mask = Mask(call.flag(24), call.integer(25, -1), call.integer(26, -1), bottom_right=True)
    pages = call.optional(14)
    if pages is not None:
        return _paged(call, mask, sequences=pages.shape[0], longest=call.integer(13, 0))
    if call.optional(7) is not None:
        return packed(call, 0, 7, mask)
    return forward(call, mask, heads_first=False)


@operator("_vllm_fa2_C::varlen_fwd", "vllm_fa2_C::varlen_fwd")
def _vllm_flash(call: Call) -> Cost:
    """``(q, k, v, out, cu_seqlens_q, cu_seqlens_k, seqused_k, leftpad_k, block_table, alibi_slopes,
    max_seqlen_q, max_seqlen_k, p_dropout, softmax_scale, zero_tensors, is_causal, window_left,
    window_right)``.
    """
    mask = Mask(call.flag(15), call.integer(16, -1), call.integer(17, -1), bottom_right=True)
    pages = call.optional(8)
    if pages is None:
        return packed(call, 0, 4, mask)
    return _paged(call, mask, sequences=pages.shape[0], longest=call.integer(11))


def _paged(call: Call, mask: Mask, *, sequences: int, longest: int) -> Cost:
    """Attention over a paged cache, every sequence taken to be as long as the longest: an upper bound.

    Shapes: q ``(tokens, heads, size)`` or ``(batch, length, heads, size)``; caches end in
    ``(page, kv_heads, size)``.
    """
    q, k, v = call.tensor(0), call.tensor(1), call.tensor(2)
    if len(q.shape) < 3 or len(k.shape) < 3 or sequences < 1 or longest < 1:
        call.fail(f"paged attention of {q.shape} over {k.shape}, at most {longest} long")
    tokens = q.numel // max(q.shape[-1] * q.shape[-2], 1)
    queries = -(-tokens // sequences)
    pairs = sequences * attended_pairs(queries, longest, mask)
    flops = attention_flops(pairs, q.shape[-2], q.shape[-1], v.shape[-1])
    cached = sequences * longest * k.shape[-2] * (k.shape[-1] * k.dtype.bytes + v.shape[-1] * v.dtype.bytes)
    read = q.read + min(cached, k.nbytes + v.nbytes)
    written = tokens * q.shape[-2] * v.shape[-1] * q.dtype.bytes
    note = f"an upper bound: every sequence is assumed to have {longest} keys"
    return Cost(flops, read, written, q.dtype, "estimate", note)


@operator("_C::paged_attention_v1", "_C::paged_attention_v2")
def _paged_attention(call: Call) -> Cost:
    """vLLM's decoding kernels: one query per sequence over its cache.

    v1 ``(out, query, key_cache, value_cache, num_kv_heads, scale, block_tables, seq_lens, block_size,
    max_seq_len, ...)``; v2 has three buffers behind ``out``.
    Formula: 4 * sequences * heads * longest * size, an upper bound.
    """
    first = 3 if call.name.endswith("_v2") else 0
    q = call.tensor(first + 1, rank=3)
    kv_heads, longest = call.integer(first + 4), call.integer(first + 9)
    cache = call.tensor(first + 2)
    sequences, heads, size = q.shape
    flops = attention_flops(sequences * longest, heads, size, size)
    read = q.read + 2 * sequences * longest * kv_heads * size * cache.dtype.bytes
    note = f"an upper bound: every sequence is assumed to have {longest} keys"
    return Cost(flops, read, q.nbytes, q.dtype, "estimate", note)


@operator("aiter::mha_batch_prefill")
def _batch_prefill(call: Call) -> Cost:
    """``(q, k, v, cu_seqlens_q, kv_indptr, kv_page_indices, max_seqlen_q, max_seqlen_k, dropout_p,
    softmax_scale, logits_soft_cap, zero_tensors, is_causal, window_size_left, window_size_right, ...)``.

    The page table's length is the number of cached keys (pages of one key); sequences are taken as equally
    long.
    """
    q, k, v = call.tensor(0, rank=3), call.tensor(1, rank=3), call.tensor(2, rank=3)
    mask = Mask(call.flag(12), call.integer(13, -1), call.integer(14, -1), bottom_right=True)
    count = max(call.tensor(3).numel - 1, 1)
    keys = max(call.tensor(5).numel // count, -(-q.shape[0] // count))
    pairs = count * attended_pairs(q.shape[0] // count, keys, mask)
    heads, size = q.shape[1:]
    read = q.read + count * keys * k.shape[1] * (size * k.dtype.bytes + v.shape[2] * v.dtype.bytes)
    flops = attention_flops(pairs, heads, size, v.shape[2])
    note = f"{count} sequences are assumed to have equal lengths"
    return Cost(flops, read, q.shape[0] * heads * v.shape[2] * q.dtype.bytes, q.dtype, "estimate", note)


@operator("vllm::unified_attention_with_output", "vllm::unified_attention")
def _unified(call: Call) -> Cost:
    """vLLM's layer: ``(query, key, value, output, layer_name)``, new tokens of all sequences packed.

    The lengths of the sequences are not among the inputs: the caller gives ``attended_pairs`` (summed over
    sequences, of one head) and ``kv_tokens`` (keys read) as hints, from the step's annotation.
    """
    q, k, v = call.tensor(0), call.tensor(1), call.tensor(2)
    pairs, keys = _lengths(call)
    if len(q.shape) != 3 or len(k.shape) != 3 or len(v.shape) != 3:
        call.fail(f"attention of {q.shape}, {k.shape}, {v.shape}")
    flops = attention_flops(pairs, q.shape[1], q.shape[2], v.shape[2])
    cached = max(keys - k.shape[0], 0)
    read = q.read + k.read + v.read + cached * _row(k) + cached * _row(v)
    out = call.optional(3)
    written = out.nbytes if out else q.shape[0] * q.shape[1] * v.shape[2] * v.dtype.bytes
    return Cost(flops, read, written, q.dtype, "estimate", _OUTSIDE)


@operator("aiter::paged_attention_ragged", "sglang_profiler::attention_paged_attention_ragged")
def _ragged(call: Call) -> Cost:
    """``paged_attention_ragged(out, workspace, query, key_cache, value_cache, ...)``: decoding over pages.

    Shapes: query ``(tokens, heads, size)``; caches ``(pages, page, kv_heads, size)``. The lengths come as for
    :func:`_unified`.
    """
    q, k, v = call.tensor(2, rank=3), call.tensor(3, rank=4), call.tensor(4, rank=4)
    pairs, keys = _lengths(call)
    cached = keys * k.shape[2] * (k.shape[3] * k.dtype.bytes + v.shape[3] * v.dtype.bytes)
    flops = attention_flops(pairs, q.shape[1], q.shape[2], v.shape[3])
    written = q.shape[0] * q.shape[1] * v.shape[3] * q.dtype.bytes
    return Cost(flops, q.read + cached, written, q.dtype, "estimate", _OUTSIDE)


@operator("vllm::unified_mla_attention", "vllm::unified_mla_attention_with_output")
def _unified_mla(call: Call) -> Cost:
    """Latent attention ``(query, latent, rotary_key, ...)`` of vLLM's layer.

    Prompts expand the latent to keys and values of every head; decoding reads the latent itself as the one
    key and value of all heads. The caller also gives ``decode_pairs``, which are part of ``attended_pairs``.
    Shapes: query ``(tokens, heads, size + rotated)``; latent ``(tokens, rank)``; values have ``size``.
    Source: DeepSeek-AI 2024 (DeepSeek-V2), section 2.1.
    """
    q, latent, rotary = call.tensor(0, rank=3), call.tensor(1, rank=2), call.tensor(2)
    pairs, keys = _lengths(call)
    decoded = call.hints.get("decode_pairs", 0)
    rank, rotated = latent.shape[1], rotary.shape[-1] if rotary.shape else 0
    heads, size = q.shape[1], q.shape[2]
    flops = attention_flops(pairs - decoded, heads, size, size - rotated)
    flops += attention_flops(decoded, heads, rank + rotated, rank)
    read = q.read + keys * (rank + rotated) * latent.dtype.bytes
    written = q.shape[0] * heads * (size - rotated) * q.dtype.bytes
    return Cost(flops, read, written, q.dtype, "estimate", _OUTSIDE)


@operator("aiter::mla_decode_fwd", "aiter::mla_decode_stage1_asm_fwd")
def _mla_decode(call: Call) -> Cost:
    """``mla_decode_fwd(query, cache, out, ...)``: query ``(tokens, heads, rank + rotated)``, cache
    ``(pages, page, 1, rank + rotated)``, out ``(tokens, heads, rank)``.
    """
    q, cache, out = call.tensor(0, rank=3), call.tensor(1), call.tensor(2)
    pairs, keys = _lengths(call)
    size = q.shape[2]
    flops = attention_flops(pairs, q.shape[1], size, out.shape[-1])
    read = q.read + keys * size * cache.dtype.bytes
    written = q.shape[0] * q.shape[1] * out.shape[-1] * q.dtype.bytes
    return Cost(flops, read, written, q.dtype, "estimate", _OUTSIDE)


def _lengths(call: Call) -> tuple[int, int]:
    """Pairs of query and key of one head, and keys read, which the caller found outside the inputs."""
    pairs, keys = call.hints.get("attended_pairs"), call.hints.get("kv_tokens")
    if pairs is None or keys is None:
        call.fail("the sequence lengths are not among the inputs")
    return pairs, keys


def _row(tensor: Tensor) -> int:
    """Bytes of one token's keys or values."""
    return tensor.shape[1] * tensor.shape[2] * tensor.dtype.bytes
