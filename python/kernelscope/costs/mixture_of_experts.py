"""Mixture of experts: routing, and the matrix products of the experts over their tokens."""

from itertools import pairwise
from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.gemm import gemm_flops
from kernelscope.costs.packed_weights import MARLIN_TILE, WORD, bits_stored, marlin_words
from kernelscope.costs.registry import operator
from kernelscope.costs.types import BFLOAT16, FLOAT4, INT8, UINT8, Cost, ShapeError, Tensor

_SPREAD = "as many experts as the tokens allow are assumed to be used"


def experts_flops(tokens: int, hidden: int, inner: int, *, top_k: int, gated: bool = True) -> int:
    """FLOPs of the experts' two (gated: three) products for every token and selected expert.

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
    """Upper bound of the number of experts whose weights are read: at most all, or all selected ones."""
    return min(experts, tokens * top_k)


@operator("vllm::inplace_fused_experts", "vllm::outplace_fused_experts", "sglang::inplace_fused_experts")
@operator("sglang::outplace_fused_experts")
def _fused_experts(call: Call) -> Cost:
    """``inplace_fused_experts(hidden_states, w1, w2, topk_weights, topk_ids, ...)``.

    Shapes: hidden ``(tokens, hidden)``; w1 ``(experts, 2 * inner, hidden)`` gated, else ``inner``;
    w2 ``(experts, hidden, inner)``; ids ``(tokens, top_k)``. Bytes of two numbers are half as many. Packed
    weights, and those of uint8, are multiplied in the type of the activations. Of int8 the inputs do not say
    whether the activations are made int8 first: no type is named.
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
    tokens, hidden = x.shape
    halved = w1.dtype in {INT8, UINT8} and 2 * w1.shape[2] == hidden
    inner = w2.shape[2] * (2 if halved else w2.dtype.packed)
    if w1.shape[1] not in {inner, 2 * inner} or w1.shape[0] != w2.shape[0] or w2.shape[1] != hidden:
        call.fail(f"experts {w1.shape} and {w2.shape} for {x.shape}")
    top_k = ids.shape[1]
    flops = experts_flops(tokens, hidden, inner, top_k=top_k, gated=w1.shape[1] == 2 * inner)
    share = experts_used(tokens, w1.shape[0], top_k)
    weights = (w1.read + w2.read) * share // max(w1.shape[0], 1)
    read = x.read + weights + ids.read
    dtype = x.dtype if halved or w1.dtype is UINT8 else None if w1.dtype is INT8 else w1.dtype
    return Cost(flops, read, x.nbytes, dtype, "estimate", _SPREAD)


@operator("vllm::fused_marlin_moe", "sglang::fused_marlin_moe", composite=True)
def _marlin_experts(call: Call) -> Cost:
    """``fused_marlin_moe(hidden_states, w1, w2, ..., topk_weights, topk_ids, ...)``, a wrapper of both
    products.

    Shapes: hidden ``(tokens, hidden)``; w1 ``(experts, hidden / 16, 2 * inner * bits / 2)`` int32, not gated
    ``inner``; w2 ``(experts, inner / 16, hidden * bits / 2)``. Versions differ in what is between; the chosen
    experts are whole numbers, a row for each token, and stand behind weights of the same shape.
    """
    x, w1, w2 = call.tensor(0, rank=2), call.tensor(1, rank=3), call.tensor(2, rank=3)
    tokens, hidden = x.shape
    experts, inner = w2.shape[0], w2.shape[1] * MARLIN_TILE
    bits = bits_stored(call, w2.numel * WORD, experts, inner, hidden)
    columns = 2 * w1.shape[2] // bits
    if w1.shape[:2] != (experts, -(-hidden // MARLIN_TILE)) or columns not in {inner, 2 * inner}:
        call.fail(f"experts {w1.shape} and {w2.shape} for {x.shape}")
    behind = [call.optional(index) for index in range(3, len(call.args))]
    chosen = next(
        (
            ids
            for weights, ids in pairwise(behind)
            if weights and ids and ids.dtype.kind == "integer" and weights.shape == ids.shape
            if len(ids.shape) == 2 and ids.shape[0] == tokens
        ),
        None,
    )
    if chosen is None:
        call.fail("the selected experts are not among the inputs")
    top_k = chosen.shape[1]
    used = experts_used(tokens, experts, top_k)
    scales = [t for t in behind if t and len(t.shape) == 3 and t.shape[0] == experts]
    weights = sum(t.read for t in (w1, w2, *scales)) * used // experts
    flops = experts_flops(tokens, hidden, inner, top_k=top_k, gated=columns == 2 * inner)
    return Cost(flops, x.read + weights + 2 * chosen.read, x.nbytes, x.dtype, "estimate", _SPREAD)


def _experts_product(a: Tensor, n: int, rows: int, weights: list[Tensor], experts: int, out: int) -> Cost:
    """Cost of ``rows`` rows, each by the packed ``(k, n)`` weight of its expert; ``out`` bytes are written.

    Formula: 2 * rows * n * k; the activations are read once, and of words, scales and zero points the share
    of the experts that are used.
    Example: 8 rows of 128 float16 by 64 columns of int4, one of 4 experts each: 131072 FLOP.
    """
    used = experts_used(rows, experts, 1)
    share = sum(t.read for t in weights) * used // experts
    flops = gemm_flops(rows, n, a.shape[-1])
    return Cost(flops, a.read + share, out, a.dtype, "estimate", _SPREAD)


@operator("_moe_C::moe_wna16_gemm")
def _wna16_experts(call: Call) -> Cost:
    """``moe_wna16_gemm(input, output, b_qweight, b_scales, b_qzeros, topk_weights, sorted_token_ids,
    expert_ids, num_tokens_post_pad, top_k, ...)``.

    Shapes: input ``(tokens, k)``; output ``(tokens, top_k, n)``, a row of it for every chosen expert;
    b_qweight ``(experts, n, k * bits / 8)`` uint8.
    """
    a, out, words = call.tensor(0, rank=2), call.tensor(1), call.tensor(2, rank=3)
    experts, n, width = words.shape
    bits_stored(call, 8 * width, a.shape[1])
    if n == 0 or experts == 0 or out.shape[-1:] != (n,):
        call.fail(f"experts {words.shape} for {a.shape}, giving {out.shape}")
    return _experts_product(a, n, out.numel // n, [words, *call.present(3, 4)], experts, out.nbytes)


@operator("_moe_C::moe_wna16_marlin_gemm", "sgl_kernel::moe_wna16_marlin_gemm")
def _marlin_grouped(call: Call) -> Cost:
    """``moe_wna16_marlin_gemm(a, c, b_q_weight, ..., b_scales, ..., workspace, sorted_token_ids, expert_ids,
    num_tokens_past_padded, topk_weights, ...)``; some versions have a bias and scales of a as well.

    Shapes: a ``(m, k)``; words ``(experts, k / 16, n * bits / 2)`` int32; scales ``(experts, groups, n)``.
    The last tensor, the weights of the chosen experts, has a number for each row that is computed. The
    result is of c's type, else of a's.
    """
    a = call.tensor(0, rank=2)
    at, words, scales = marlin_words(call, 3)
    experts, n, rows = words.shape[0], scales.shape[2], call.tensors()[-1].numel
    bits_stored(call, words.numel * WORD, experts, a.shape[1], n)
    if words.shape[1] * MARLIN_TILE != a.shape[1] or scales.shape[0] != experts:
        call.fail(f"experts {words.shape} with scales {scales.shape} for {a.shape}")
    result = call.optional(1) if at == 2 else None
    if result and result.numel != rows * n:
        call.fail(f"{rows} rows of {n} do not give {result.shape}")
    more = [t for t in call.present(*range(at + 1, len(call.args))) if len(t.shape) == 3 and t is not scales]
    out = rows * n * (result or a).dtype.bytes
    return _experts_product(a, n, rows, [words, scales, *more], experts, out)


@operator("_C::cutlass_moe_mm", "_C::cutlass_fp4_group_mm", "_C::cutlass_fp4_moe_mm")
def _grouped_scaled(call: Call) -> Cost:
    """``cutlass_moe_mm(out, a, b, a_scales, b_scales, ...)``: each row by the matrix of its expert.

    Shapes: out ``(rows, n)``; a ``(rows, k)``; b ``(experts, k, n)`` or ``(experts, n, k)``, of fp4 two
    numbers a byte. Formula: 2 * rows * n * k.
    """
    out, a, b = call.tensor(0, rank=2), call.tensor(1, rank=2), call.tensor(2, rank=3)
    if a.shape[1] not in b.shape[1:] or out.shape[0] != a.shape[0]:
        call.fail(f"experts {b.shape} for {a.shape}, giving {out.shape}")
    depth = a.shape[1] * (2 if "fp4" in call.name else 1)
    used = experts_used(a.shape[0], b.shape[0], 1)
    scales = call.tensor(3).read + call.tensor(4).read * used // max(b.shape[0], 1)
    read = a.read + b.read * used // max(b.shape[0], 1) + scales
    dtype = FLOAT4 if "fp4" in call.name else a.dtype
    return Cost(gemm_flops(a.shape[0], out.shape[1], depth), read, out.nbytes, dtype, "estimate", _SPREAD)


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
        call.fail("the sizes of the experts are not among the inputs")
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


_TOPK = ("_moe_C::topk_softmax", "sgl_kernel::topk_softmax", "aiter::topk_softmax", "aiter::topk_softmax_asm")


@operator(*_TOPK)
def _topk_softmax(call: Call) -> Cost:
    """``topk_softmax(topk_weights, topk_ids, token_expert_indices, gating_output, ...)``: a softmax (5 per
    logit) and a comparison per logit and chosen expert. SGLang's has no third input.
    """
    weights, ids = call.tensor(0), call.tensor(1)
    logits = call.tensor(2 if "sgl_kernel" in call.name else 3)
    top_k = weights.shape[-1] if weights.shape else 1
    written = weights.nbytes + ids.nbytes * (1 if "sgl_kernel" in call.name else 2)
    return Cost((5 + top_k) * logits.numel, logits.read, written, logits.dtype)


_PRIMUS = ("primus_turbo", "primus_turbo_cpp_extension")


def _by_group(name: str, *forms: str) -> list[str]:
    names = [f"{library}::{name}{form}" for library in _PRIMUS for form in forms]
    return [*names, f"primus_turbo_cpp_extension::ck_{name}"]


def _pairs(call: Call) -> list[tuple[Tensor, Tensor]] | None:
    """The operands of each group, if they are lists; None if they are two tensors."""
    if isinstance(call.arg(0), Tensor) and isinstance(call.arg(1), Tensor):
        return None
    left, right = call.tensor_list(0), call.tensor_list(1)
    if len(left) != len(right) or any(len(t.shape) != 2 for t in (*left, *right)):
        call.fail(f"{len(left)} groups for {len(right)}")
    return list(zip(left, right, strict=True))


def _result(x: Tensor) -> int:
    """Bytes of a number of the result: products of narrow types are bfloat16."""
    return x.dtype.bytes if x.dtype.bytes > 1 else BFLOAT16.bytes


def _of_groups(pairs: list[tuple[Tensor, Tensor]], sizes: list[tuple[int, int, int]]) -> Cost:
    """Cost of one product ``(m, k) @ (k, n)`` for each group, by its sizes m, n and k."""
    x = pairs[0][0]
    flops = sum(gemm_flops(m, n, k) for m, n, k in sizes)
    read = sum(tensor.read for pair in pairs for tensor in pair)
    return Cost(flops, read, sum(m * n for m, n, _ in sizes) * _result(x), x.dtype)


@operator(*_by_group("grouped_gemm", "", "_impl"))
def _grouped_gemm(call: Call) -> Cost:
    """``grouped_gemm(x, weights, ...)``: each row by the matrix of its group.

    Shapes: x ``(m, k)``, rows of all groups; weights ``(groups, k, n)`` or ``(groups, n, k)``; or lists of
    ``(m, k)`` and ``(k, n)``. Formula: 2 * m * n * k, whatever the sizes of the groups.
    """
    if pairs := _pairs(call):
        return _of_groups(pairs, [(x.shape[0], w.shape[1], x.shape[1]) for x, w in pairs])
    x, weights = call.tensor(0, rank=2), call.tensor(1, rank=3)
    (m, k), groups = x.shape, weights.shape[0]
    if k not in weights.shape[1:] or not k * groups:
        call.fail(f"groups {weights.shape} for {x.shape}")
    return _of_groups([(x, weights)], [(m, weights.numel // (groups * k), k)])


@operator(*_by_group("grouped_gemm_variable_k", "", "_impl"))
def _grouped_gradients(call: Call) -> Cost:
    """``grouped_gemm_variable_k(x, grad, lengths, ...)``: the gradient of each group's weights.

    Shapes: x ``(m, k)``, grad ``(m, n)``, lengths ``(groups,)``; or lists of x and grad. The results are
    ``(k, n)``. Formula: 2 * m * n * k over all groups.
    """
    if pairs := _pairs(call):
        return _of_groups(pairs, [(x.shape[1], grad.shape[1], x.shape[0]) for x, grad in pairs])
    x, grad, lengths = call.tensor(0, rank=2), call.tensor(1, rank=2), call.tensor(2, rank=1)
    if x.shape[0] != grad.shape[0]:
        call.fail(f"gradients of {x.shape} by {grad.shape}")
    (m, k), n = x.shape, grad.shape[1]
    written = lengths.shape[0] * k * n * _result(x)
    return Cost(gemm_flops(k, n, m), x.read + grad.read, written, x.dtype)
