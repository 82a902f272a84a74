"""Choosing experts and moving tokens to them: bytes, and a few comparisons per logit."""

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost

# A sigmoid takes 4 per element, a softmax 5.
_SIGMOID, _SOFTMAX = 4, 5


@operator("MoEDispatch", "MoECombine", "FusedDispatch", "FusedCombine")
@operator("MoEDispatchBackward", "MoECombineBackward", "FusedDispatchBackward", "FusedCombineBackward")
def _exchange(call: Call) -> Cost:
    """``MoEDispatch(tokens, ...)`` and ``MoECombine(tokens, ...)``: every token leaves and arrives once.

    How many tokens arrive is not recorded. As many as leave are counted.
    Shapes: tokens ``(tokens, width)``.
    """
    x = call.tensor(0, rank=2)
    return Cost(0, x.read, x.nbytes, x.dtype, "estimate", "as many tokens arrive as leave")


@operator("TokenPermuteMaskMap", "_moe_permute_mask_map", composite=True)
def _permute(call: Call) -> Cost:
    """``TokenPermuteMaskMap(tokens, routing_map, num_out_tokens, probs)``: copies each token to its experts.

    Shapes: tokens ``(tokens, width)``, routing_map ``(tokens, experts)``.
    """
    x, routes = call.tensor(0, rank=2), call.tensor(1, rank=2)
    rows = call.integer(2)
    if rows < 1:
        call.fail("the number of copies was not recorded")
    weights = call.optional(3)
    read = min(x.read, rows * x.shape[1] * x.dtype.bytes) + routes.read + (weights.read if weights else 0)
    return Cost(0, read, rows * x.shape[1] * x.dtype.bytes, x.dtype)


@operator("TokenPermuteMaskMapBackward", "_moe_permute_mask_mapBackward", composite=True)
def _permute_backward(call: Call) -> Cost:
    """The gradient ``(copies, width)``, whose rows are summed by token: at most an addition per number.

    How many tokens there are is not among the inputs: as many as copies is an upper bound.
    """
    grad = call.tensor(0, rank=2)
    return Cost(grad.numel, grad.read, grad.nbytes, grad.dtype, "estimate", "each copy may be a token")


@operator("_moe_C::moe_align_block_size", "sgl_kernel::moe_align_block_size")
@operator("aiter::moe_align_block_size")
def _align(call: Call) -> Cost:
    """``moe_align_block_size(topk_ids, num_experts, block_size, sorted_ids, expert_ids, num_tokens_post_pad,
    ...)``: sorts by expert, which is not counted.
    """
    ids = call.tensor(0)
    written = sum(t.nbytes for t in call.present(3, 4, 5))
    return Cost(0, ids.read, written, ids.dtype)


@operator("aiter::moe_sorting_fwd", "aiter::moe_sorting_opus_fwd")
def _sorting(call: Call) -> Cost:
    """``moe_sorting_fwd(topk_ids, topk_weights, sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids,
    moe_buf, ...)``: sorts by expert, which is not counted, and clears the buffer of the result.
    """
    ids, weights = call.tensor(0), call.tensor(1)
    written = sum(t.nbytes for t in call.present(2, 3, 4, 5, 6))
    return Cost(0, ids.read + weights.read, written, weights.dtype)


@operator("aiter::moe_sum", "_moe_C::moe_sum", "sgl_kernel::moe_sum")
def _sum(call: Call) -> Cost:
    """``moe_sum(input, output)``: input ``(tokens, top_k, width)``, output ``(tokens, width)``."""
    x, out = call.tensor(0, rank=3), call.tensor(1)
    return Cost(max(x.numel - out.numel, 0), x.read, out.nbytes, x.dtype)


@operator("aiter::topk_sigmoid", "sgl_kernel::topk_sigmoid")
def _topk_sigmoid(call: Call) -> Cost:
    """``topk_sigmoid(topk_weights, topk_ids, gating_output, ...)``: a sigmoid, and a comparison per logit and
    chosen expert.
    """
    weights, ids, logits = call.tensor(0), call.tensor(1), call.tensor(2)
    top_k = weights.shape[-1] if weights.shape else 1
    return Cost((_SIGMOID + top_k) * logits.numel, logits.read, weights.nbytes + ids.nbytes, logits.dtype)


@operator("aiter::grouped_topk", "aiter::biased_grouped_topk", "aiter::moe_fused_gate")
def _grouped_topk(call: Call) -> Cost:
    """``grouped_topk(logits, topk_weights, topk_ids, ...)``, ``biased_grouped_topk(logits, bias,
    topk_weights, topk_ids, ...)``: a softmax, and a comparison per logit and chosen expert.
    """
    logits = call.tensor(0, rank=2)
    first = 1 if "::grouped" in call.name else 2
    bias = call.optional(1) if first == 2 else None
    weights, ids = call.tensor(first, rank=2), call.tensor(first + 1, rank=2)
    flops = (_SOFTMAX + weights.shape[1] + (bias is not None)) * logits.numel
    return Cost(flops, logits.read + (bias.read if bias else 0), weights.nbytes + ids.nbytes, logits.dtype)


@operator("sgl_kernel::moe_fused_gate", "_moe_C::grouped_topk")
def _fused_gate(call: Call) -> Cost:
    """``moe_fused_gate(logits, bias, num_expert_group, topk_group, topk, ...)``,
    ``grouped_topk(logits, n_group, topk_group, topk, renormalize, routed_scaling_factor, bias, ...)``.

    Gives a float32 and an int32 for each chosen expert.
    """
    logits = call.tensor(0, rank=2)
    gate = "gate" in call.name
    bias, top_k = call.optional(1 if gate else 6), call.integer(4 if gate else 3)
    flops = (_SIGMOID + top_k + (bias is not None)) * logits.numel
    read = logits.read + (bias.read if bias else 0)
    return Cost(flops, read, logits.shape[0] * top_k * (4 + 4), logits.dtype)
