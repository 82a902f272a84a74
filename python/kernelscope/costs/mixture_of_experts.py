"""Mixture of experts: routing, and the experts' products over the tokens that are sent to them."""

from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.gemm import gemm_flops
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, ShapeError, Tensor

_SPREAD = "as many experts are taken to be used as tokens allow"


def experts_flops(tokens: int, hidden: int, inner: int, *, top_k: int, gated: bool = True) -> int:
    """FLOPs of the experts' two (gated: three) products for every token and chosen expert.

    Formula: 2 * tokens * top_k * hidden * inner * (3 if gated else 2). Activation and the weighted sum are
    not counted.
    Raises: ShapeError: a size is negative.
    Source: Shazeer et al. 2017; Jiang et al. 2024 (Mixtral).
    Example: 888 tokens of 2880, inner size 2880, 4 experts each, gated:
    2 * 3552 * 2880 * 2880 * 3 = 176770252800.
    """
    if min(tokens, hidden, inner, top_k) < 0:
        raise ShapeError("experts with a negative size")
    return gemm_flops(tokens * top_k, inner, hidden) * (3 if gated else 2)


def experts_used(tokens: int, experts: int, top_k: int) -> int:
    """How many experts' weights are read at most: no more than exist or are chosen."""
    return min(experts, tokens * top_k)


@operator("vllm::inplace_fused_experts", "vllm::outplace_fused_experts", "sglang::inplace_fused_experts")
@operator("sglang::outplace_fused_experts")
def _fused_experts(call: Call) -> Cost:
    """``inplace_fused_experts(hidden_states, w1, w2, topk_weights, topk_ids, ...)``.

    Shapes: hidden ``(tokens, hidden)``; w1 ``(experts, 2 * inner, hidden)`` gated, else ``inner``;
    w2 ``(experts, hidden, inner)``; ids ``(tokens, top_k)``.
    """
    x, w1, w2, ids = (
        call.tensor(0, rank=2),
        call.tensor(1, rank=3),
        call.tensor(2, rank=3),
        call.tensor(4, rank=2),
    )
    return _experts(call, x, w1, w2, ids)


@operator("aiter::fused_moe_", "aiter::fused_moe")
def _aiter_fused_moe(call: Call) -> Cost:
    """``fused_moe(hidden_states, w1, w2, topk_weight, topk_ids, ...)``: shapes as vLLM's."""
    return _fused_experts(call)


def _experts(call: Call, x: Tensor, w1: Tensor, w2: Tensor, ids: Tensor) -> Cost:
    inner = w2.shape[2] * w2.dtype.packed
    tokens, hidden = x.shape
    if w1.shape[1] not in {inner, 2 * inner} or w1.shape[0] != w2.shape[0] or w2.shape[1] != hidden:
        call.fail(f"experts {w1.shape} and {w2.shape} for {x.shape}")
    top_k = ids.shape[1]
    flops = experts_flops(tokens, hidden, inner, top_k=top_k, gated=w1.shape[1] == 2 * inner)
    share = experts_used(tokens, w1.shape[0], top_k)
    weights = (w1.read + w2.read) * share // max(w1.shape[0], 1)
    read = x.read + weights + ids.read
    return Cost(flops, read, x.nbytes, w1.dtype, "estimate", _SPREAD)


@operator("vllm::moe_forward", "vllm::moe_forward_shared")
def _moe_forward(call: Call) -> Cost:
    """``moe_forward(hidden_states, router_logits, layer_name)``: the weights are not among the inputs.

    The caller gives ``inner_size``, ``top_k`` and, if other than the router's width, ``experts`` as hints,
    and may give ``gated`` (0 or 1), ``weight_bits`` and ``scale_block`` (weights that share a scale of one
    byte); they follow from the launched kernels.
    """
    x, logits = call.tensor(0), call.tensor(1)
    inner, top_k = call.hints.get("inner_size"), call.hints.get("top_k")
    if inner is None or top_k is None:
        call.fail("the experts' sizes are not among the inputs")
    tokens, hidden = prod(x.shape[:-1]), x.shape[-1] if x.shape else 0
    experts = call.hints.get("experts", logits.shape[-1] if logits.shape else 0)
    gated = bool(call.hints.get("gated", 1))
    bits = call.hints.get("weight_bits", 8 * x.dtype.bytes)
    count = experts_used(tokens, experts, top_k) * (3 if gated else 2) * hidden * inner
    block = call.hints.get("scale_block", 0)
    weights = count * bits // 8 + (count // block if block > 0 else 0)
    flops = experts_flops(tokens, hidden, inner, top_k=top_k, gated=gated)
    note = f"sizes from outside the operator; {_SPREAD}"
    return Cost(flops, x.read + logits.read + weights, x.nbytes, x.dtype, "estimate", note)


@operator("_moe_C::topk_softmax", "sgl_kernel::topk_softmax")
def _topk_softmax(call: Call) -> Cost:
    """``topk_softmax(topk_weights, topk_ids, token_expert_indices, gating_output, ...)``: a softmax (5 per
    logit) and a comparison per logit and chosen expert. SGLang's has no third input.
    """
    weights, ids = call.tensor(0), call.tensor(1)
    logits = call.tensor(2 if "sgl_kernel" in call.name else 3)
    top_k = weights.shape[-1] if weights.shape else 1
    written = weights.nbytes + ids.nbytes * (1 if "sgl_kernel" in call.name else 2)
    return Cost((5 + top_k) * logits.numel, logits.read, written, logits.dtype)
