"""Worked figures of operators of training stacks, each for any size of its batch.

FLOPs, bytes read and bytes written have their derivation beside them; `b` is the batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from inputs import V

BF, F, E4, E8, I, L, U8 = (
    "c10::BFloat16", "float", "c10::Float8_e4m3fn", "c10::Float8_e8m0fnu", "int", "long int", "unsigned char"
)  # fmt: skip
X2 = "c10::Float4_e2m1fn_x2"
BF_NUMBER = V(15)


class Case(NamedTuple):
    operator: str
    inputs: Callable[[int], tuple[Any, ...]]
    flops: Callable[[int], int]
    read: Callable[[int], int]
    written: Callable[[int], int]
    listed: str | None = None


CASES: list[Case] = []


def case(
    operators: str,
    inputs: Callable[[int], tuple[Any, ...]],
    flops: Callable[[int], int],
    read: Callable[[int], int],
    written: Callable[[int], int],
    *,
    listed: str | None = None,
) -> None:
    CASES.extend(Case(name, inputs, flops, read, written, listed) for name in operators.split())


def nothing(_: int) -> int:
    return 0


# Layers: 2 b 32 64; both matrices and the bias of 32; b results of 32 in 2 bytes.
for names, order in (
    ("_Linear", lambda b: (([32, 64], BF), ([b, 64], BF), ([32], BF))),
    (
        "LinearWithGradAccumulationAndAsyncCommunication LinearWithFrozenWeight LinearFunctionForZeroStage3",
        lambda b: (([b, 1, 64], BF), ([32, 64], BF), ([32], BF), V(True)),
    ),
):
    case(names, order, lambda b: 2 * b * 32 * 64, lambda b: 2 * (b * 64 + 32 * 64 + 32), lambda b: 2 * b * 32)
# Two more vectors of 64 for the norm.
case(
    "_LayerNormLinear",
    lambda b: (([b, 64], BF), ([64], BF), ([64], BF), ([32, 64], BF), ([32], BF)),
    lambda b: 2 * b * 32 * 64,
    lambda b: 2 * (b * 64 + 32 * 64 + 32 + 128),
    lambda b: 2 * b * 32,
)
# A gated layer of 2 * 48 rows, then one from 48.
case(
    "_LayerNormMLP",
    lambda b: (([b, 64], BF), ([64], BF), None, ([96, 64], BF), None, ([64, 48], BF)),
    lambda b: 2 * b * 64 * (96 + 48),
    lambda b: 2 * (b * 64 + 64 + 96 * 64 + 64 * 48),
    lambda b: 2 * b * 64,
)
# Three experts of 32 x 64, whose rows are b in all.
case(
    "_GroupedLinear",
    lambda b: (([b, 64], BF), V([1, 2, b - 3]), *[([32, 64], BF)] * 3),
    lambda b: 2 * b * 32 * 64,
    lambda b: 2 * (b * 64 + 3 * 32 * 64),
    lambda b: 2 * b * 32,
)
# Columns first: A is transposed (m = 32, k = 64), B is not (n = b); fp8 in, bfloat16 out, scales of 4 bytes.
case(
    "tex_ts::te_gemm_ts",
    lambda b: (
        *(([32, 64], E4), ([1], F), V(0), V(4), V(1)),
        *(([b, 64], E4), ([1], F), V(0), V(4), V(0)),
        *(([b, 32], BF), ([0], F), V(6), ([0], F), ([32], BF)),
    ),
    lambda b: 2 * 32 * b * 64,
    lambda b: 32 * 64 + b * 64 + 4 + 4 + 64,
    lambda b: 32 * b * 2,
)
case(
    "quack::gemm quack::gemm_out",
    lambda b: (([b, 64], BF), ([64, 32], BF), ([b, 32], BF), V(1.0)),
    lambda b: 2 * b * 32 * 64,
    lambda b: 2 * (b * 64 + 64 * 32),
    lambda b: 2 * b * 32,
)
# The pre-activation of 64 and the activation of 32 are written.
case(
    "quack::gemm_gated_out quack::gemm_act_out",
    lambda b: (([b, 64], BF), ([64, 64], BF), ([b, 64], BF), ([b, 32], BF), None, None),
    lambda b: 2 * b * 64 * 64,
    lambda b: 2 * (b * 64 + 64 * 64),
    lambda b: 2 * b * (64 + 32),
)
# Three products of 2 b 100 16, and 5 for each of 100 b logits; gradients of both inputs, and the loss.
case(
    "LigerFusedLinearCrossEntropyFunction",
    lambda b: (([b, 16], BF), ([100, 16], BF), ([b], L), None),
    lambda b: 3 * 2 * b * 100 * 16 + 500 * b,
    lambda b: 2 * (b * 16 + 1600) + 8 * b,
    lambda b: 2 * (b * 16 + 1600) + 4,
)

# fp8: A x B^T; one byte in, two out, and two scales of 4 bytes.
case(
    "primus_turbo::hipblaslt_gemm_fp8 primus_turbo_cpp_extension::hipblaslt_gemm_fp8",
    lambda b: (
        ([b, 64], E4),
        ([1], F),
        ([32, 64], E4),
        ([1], F),
        BF_NUMBER,
        V(False),
        V(True),
        V(False),
        None,
    ),
    lambda b: 2 * b * 32 * 64,
    lambda b: b * 64 + 32 * 64 + 8,
    lambda b: 2 * b * 32,
)
# fp4: 32 bytes hold 64 numbers, with a scale for each 32 of them.
case(
    "primus_turbo_cpp_extension::hipblaslt_gemm_fp4",
    lambda b: (
        *(([b, 32], X2), ([b, 2], E8), ([16, 32], X2), ([16, 2], E8)),
        *(BF_NUMBER, V(False), V(True), V(False), None),
    ),
    lambda b: 2 * b * 16 * 64,
    lambda b: b * 32 + 16 * 32 + 2 * (b + 16),
    lambda b: 2 * b * 16,
)
case(
    "aiter::gemm_a4w4 aiter::_gemm_a4w4_asm",
    lambda b: (([b, 32], X2), ([16, 32], X2), ([b, 2], E8), ([16, 2], E8), ([b, 16], BF)),
    lambda b: 2 * b * 16 * 64,
    lambda b: b * 32 + 16 * 32 + 2 * (b + 16),
    lambda b: 2 * b * 16,
)
# Activations of 2 bytes, weights of half a byte with a scale of a byte for 32.
case(
    "vllm::gemm_with_dynamic_quant",
    lambda b: (([b, 64], BF), ([16, 32], U8), ([16, 2], U8)),
    lambda b: 2 * b * 16 * 64,
    lambda b: 2 * b * 64 + 16 * 32 + 32,
    lambda b: 2 * b * 16,
)
case(
    "torchao::mx_fp8_bf16",
    lambda b: (([b, 64], E4), ([64, 16], E4), ([b, 2], E8), ([16, 2], E8)),
    lambda b: 2 * b * 16 * 64,
    lambda b: b * 64 + 64 * 16 + 2 * (b + 16),
    lambda b: 2 * b * 16,
)
case(
    "deep_gemm::fp8_gemm_nt",
    lambda b: (([b, 64], E4), ([b, 1], F), ([16, 64], E4), ([1, 1], F), ([b, 16], BF), None),
    lambda b: 2 * b * 16 * 64,
    lambda b: b * 64 + 16 * 64 + 4 * b + 4,
    lambda b: 2 * b * 16,
)
# Rows of all groups, by the matrix of each of 3; masked, 3 groups of b rows at most.
case(
    "deep_gemm::m_grouped_fp8_gemm_nt_contiguous",
    lambda b: (([b, 64], E4), ([b, 1], F), ([3, 16, 64], E4), ([3, 1, 1], F), ([b, 16], BF), ([b], I)),
    lambda b: 2 * b * 16 * 64,
    lambda b: b * 64 + 3 * 16 * 64 + 4 * b + 12,
    lambda b: 2 * b * 16,
)
case(
    "deep_gemm::m_grouped_bf16_gemm_nt_masked",
    lambda b: (([3, b, 64], BF), ([3, 16, 64], BF), ([3, b, 16], BF), ([3], I), V(2)),
    lambda b: 2 * 3 * b * 16 * 64,
    lambda b: 2 * (3 * b * 64 + 3 * 16 * 64),
    lambda b: 2 * 3 * b * 16,
)
# bfloat16 in, one byte out and a scale of 4; the maximum and a scaling: 2.
case(
    "primus_turbo::quantize_fp8_tensorwise primus_turbo_cpp_extension::quantize_fp8_tensorwise"
    " torchao::fp8_tensorwise_quantize_2d",
    lambda b: (([b, 64], BF), V(24), None),
    lambda b: 2 * b * 64,
    lambda b: 2 * b * 64,
    lambda b: b * 64 + 4,
)
# Two copies of half a byte; a scale for 32 in each row (2) and in each column (64 of b / 32).
case(
    "primus_turbo_cpp_extension::quantize_mxfp4_dual primus::quantize_mxfp4_dual",
    lambda b: (([32 * b, 64], BF), V(0)),
    lambda b: 4 * 32 * b * 64,
    lambda b: 2 * 32 * b * 64,
    lambda b: 32 * b * 64 + 32 * b * 2 + 64 * b,
)
case(
    "torchao::mxfp8_quantize",
    lambda b: (([b, 64], BF), V(32)),
    lambda b: 2 * b * 64,
    lambda b: 2 * b * 64,
    lambda b: b * 64 + b * 2,
)
case(
    "torchao::triton_quantize_nvfp4",
    lambda b: (([b, 64], BF), None),
    lambda b: 2 * b * 64,
    lambda b: 2 * b * 64,
    lambda b: b * 32 + b * 4,
)

# Experts: 5 groups of 64 x 32, or of 32 x 64, and rows of all.
GROUPED = (
    "primus_turbo::grouped_gemm primus_turbo::grouped_gemm_impl primus_turbo_cpp_extension::ck_grouped_gemm"
)
case(
    GROUPED,
    lambda b: (([b, 64], BF), ([5, 64, 32], BF), ([5], L), ([6], L)),
    lambda b: 2 * b * 64 * 32,
    lambda b: 2 * (b * 64 + 5 * 64 * 32),
    lambda b: 2 * b * 32,
)
case(
    "primus_turbo::grouped_gemm",
    lambda b: (([b, 64], BF), ([5, 32, 64], BF), ([5], L)),
    lambda b: 2 * b * 64 * 32,
    lambda b: 2 * (b * 64 + 5 * 64 * 32),
    lambda b: 2 * b * 32,
)
case(
    "primus_turbo::grouped_gemm",
    lambda b: ([[b, 64], [3 * b, 64]], [[64, 32], [64, 32]]),
    lambda b: 2 * 4 * b * 64 * 32,
    lambda b: 2 * (4 * b * 64 + 2 * 64 * 32),
    lambda b: 2 * 4 * b * 32,
    listed=BF,
)
case(
    GROUPED.replace("grouped_gemm", "grouped_gemm_variable_k"),
    lambda b: (([b, 64], BF), ([b, 32], BF), ([5], L)),
    lambda b: 2 * b * 64 * 32,
    lambda b: 2 * (b * 64 + b * 32),
    lambda _: 2 * 5 * 64 * 32,
)
# Routing: b tokens of 64 leave and arrive.
case(
    "MoEDispatch MoECombine MoEDispatchBackward MoECombineBackward FusedDispatch FusedCombine",
    lambda b: (([b, 64], BF),),
    nothing,
    lambda b: 2 * b * 64,
    lambda b: 2 * b * 64,
)
case(
    "TokenPermuteMaskMap",
    lambda b: (([b, 64], BF), ([b, 8], "bool"), V(2 * b), ([b, 8], F)),
    nothing,
    lambda b: 2 * b * 64 + b * 8 + 4 * b * 8,
    lambda b: 2 * 2 * b * 64,
)
case(
    "TokenPermuteMaskMapBackward",
    lambda b: (([b, 64], BF),),
    lambda b: b * 64,
    lambda b: 2 * b * 64,
    lambda b: 2 * b * 64,
)
case(
    "_moe_C::moe_align_block_size aiter::moe_align_block_size",
    lambda b: (([b, 2], I), V(8), V(16), ([128 * b], I), ([8 * b], I), ([b], I)),
    nothing,
    lambda b: 4 * b * 2,
    lambda b: 4 * (128 * b + 8 * b + b),
)
case(
    "aiter::moe_sorting_fwd aiter::moe_sorting_opus_fwd",
    lambda b: (
        ([b, 2], I),
        ([b, 2], F),
        ([64 * b], I),
        ([64 * b], F),
        ([8 * b], I),
        ([2 * b], I),
        ([b, 64], BF),
    ),
    nothing,
    lambda b: 16 * b,
    lambda b: 4 * (64 * b + 64 * b + 8 * b + 2 * b) + 2 * b * 64,
)
# Two of three expert results are added to the third.
case(
    "aiter::moe_sum",
    lambda b: (([b, 3, 64], BF), ([b, 64], BF)),
    lambda b: 2 * b * 64,
    lambda b: 2 * 3 * b * 64,
    lambda b: 2 * b * 64,
)
# 8 logits: a softmax of 5, and 2 comparisons each; weights and two indices of 4 bytes.
case(
    "_moe_C::topk_softmax aiter::topk_softmax aiter::topk_softmax_asm",
    lambda b: (([b, 2], F), ([b, 2], I), ([b, 2], I), ([b, 8], F), V(True)),
    lambda b: 7 * 8 * b,
    lambda b: 4 * 8 * b,
    lambda b: 3 * 4 * 2 * b,
)
case(
    "aiter::topk_sigmoid",
    lambda b: (([b, 2], F), ([b, 2], I), ([b, 8], F)),
    lambda b: (4 + 2) * 8 * b,
    lambda b: 4 * 8 * b,
    lambda b: 2 * 4 * 2 * b,
)
case(
    "aiter::grouped_topk",
    lambda b: (([b, 8], F), ([b, 2], F), ([b, 2], I), V(4), V(2), V(True)),
    lambda b: (5 + 2) * 8 * b,
    lambda b: 4 * 8 * b,
    lambda b: 2 * 4 * 2 * b,
)
case(
    "aiter::moe_fused_gate aiter::biased_grouped_topk",
    lambda b: (([b, 8], F), ([8], F), ([b, 2], F), ([b, 2], I), V(4), V(2)),
    lambda b: (5 + 2 + 1) * 8 * b,
    lambda b: 4 * 8 * b + 32,
    lambda b: 2 * 4 * 2 * b,
)
case(
    "sgl_kernel::moe_fused_gate",
    lambda b: (([b, 8], F), ([8], F), V(4), V(2), V(2)),
    lambda b: (4 + 2 + 1) * 8 * b,
    lambda b: 4 * 8 * b + 32,
    lambda b: 2 * 4 * 2 * b,
)

# Attention: 4 heads of 16, 10 keys; causal 55 of 100 pairs, twice (q and k, then v).
Q = 10 * 4 * 16
FORWARD = lambda b: 2 * b * 4 * 55 * 32  # noqa: E731
SUMS = 4 * 4 * 10
case(
    "FlashAttnFunc",
    lambda b: (*[([b, 10, 4, 16], BF)] * 3, V(0.0), V(0.25), V(True), V([-1, -1])),
    FORWARD,
    lambda b: 2 * 3 * b * Q,
    lambda b: b * (2 * Q + SUMS),
)
case(
    "FlashAttnQKVPackedFunc",
    lambda b: (([b, 10, 3, 4, 16], BF), V(0.0), V(0.25), V(True), V([-1, -1])),
    FORWARD,
    lambda b: 2 * 3 * b * Q,
    lambda b: b * (2 * Q + SUMS),
)
case(
    "FlashAttnKVPackedFunc",
    lambda b: (([b, 10, 4, 16], BF), ([b, 10, 2, 4, 16], BF), V(0.0), V(0.25), V(True), V([-1, -1])),
    FORWARD,
    lambda b: 2 * 3 * b * Q,
    lambda b: b * (2 * Q + SUMS),
)
case(
    "FlashAttnVarlenFunc",
    lambda b: (
        *([([10 * b, 4, 16], BF)] * 3),
        *([([b + 1], I)] * 2),
        *(V(10), V(10), V(0.0), V(0.25), V(True), V([-1, -1])),
    ),
    FORWARD,
    lambda b: 2 * 3 * b * Q,
    lambda b: b * (2 * Q + SUMS),
)
# Every pair, for the mask is not recorded; length first, which the offsets of b sequences say.
case(
    "FusedAttnFunc",
    lambda b: (V(True), V(10), V(10), ([b + 1], I), ([b + 1], I), *[([10, b, 4, 16], BF)] * 3, None),
    lambda b: 2 * b * 4 * 100 * 32,
    lambda b: 2 * 3 * b * Q,
    lambda b: b * (2 * Q + SUMS),
)
BACKWARD = lambda b: 2 * b * 4 * 55 * (3 * 16 + 2 * 16)  # noqa: E731
GRADIENT = [lambda b: 2 * 5 * b * Q + b * SUMS, lambda b: 2 * 3 * b * Q]
for names, more in (
    ("aiter::_flash_attn_backward", (*[None] * 4, V(0.0), V(0.25), V(True), V(-1), V(-1))),
    ("aiter::mha_bwd aiter::fmha_v3_bwd", (V(0.0), V(0.25), V(True), V(-1), V(-1))),
    ("aiter::wrapper_fmha_v3_bwd", (None, V(0.0), V(0.25), V(True), V(-1), V(-1))),
    ("flash_attn_3::bwd", (*[None] * 7, V(10), V(10), V(0.25), V(True), V(-1), V(-1))),
):
    case(
        names, lambda b, more=more: (*[([b, 10, 4, 16], BF)] * 5, ([b, 4, 10], F), *more), BACKWARD, *GRADIENT
    )
case(
    "xformers::efficient_attention_backward_cutlass",
    lambda b: (
        *([([b, 10, 4, 16], BF)] * 4),
        *(None, None, None, V(10), V(10), ([b, 4, 10], F), ([b, 10, 4, 16], BF)),
        *(V(0.0), V(0), V(0), V(1)),
    ),
    BACKWARD,
    *GRADIENT,
)
case(
    "aiter::wrapper_fmha_v3_fwd",
    lambda b: (None, *[([b, 10, 4, 16], BF)] * 3, V(0.0), V(0.25), V(True), V(-1), V(-1)),
    FORWARD,
    lambda b: 2 * 3 * b * Q,
    lambda b: b * (2 * Q + SUMS),
)
# Over 10 residues of b x 3 sequences; both additions to the scores are read.
case(
    "EvoformerAttention",
    lambda b: (*[([b, 3, 10, 4, 16], BF)] * 3, ([b, 3, 1, 1, 10], BF), ([b, 1, 4, 10, 10], BF)),
    lambda b: 2 * 3 * b * 4 * 100 * 32,
    lambda b: 2 * (3 * 3 * b * Q + b * 30 + b * 400),
    lambda b: 3 * b * (2 * Q + SUMS),
)
# Heads first; a byte in, two out.
case(
    "sage_fwd_kernel",
    lambda b: (*[([b, 4, 10, 16], "signed char")] * 2, ([b, 4, 10, 16], "c10::Half")),
    lambda b: 2 * b * 4 * 100 * 32,
    lambda b: (1 + 1 + 2) * b * Q,
    lambda b: 2 * b * Q,
)
case(
    "sage_quant_kernel_int8",
    lambda b: (([b, 4, 10, 16], BF),),
    lambda b: 2 * b * Q,
    lambda b: 2 * b * Q,
    lambda b: b * Q,
)
# 8 x 8 tokens, each with 3 x 5 neighbours.
T = 64 * 4 * 16
case(
    "natten::na2d_forward",
    lambda b: (*[([b, 8, 8, 4, 16], BF)] * 3, None, None, V([3, 5]), V([1, 1]), V([False, False]), V(0.25)),
    lambda b: 2 * b * 4 * 64 * 15 * 32,
    lambda b: 2 * 3 * b * T,
    lambda b: 2 * b * T,
)
case(
    "natten::na2d_backward_op",
    lambda b: (*[([b, 8, 8, 4, 16], BF)] * 5, ([b, 8, 8, 4], F), V([3, 5]), V([1, 1])),
    lambda b: 2 * b * 4 * 64 * 15 * (3 * 16 + 2 * 16),
    lambda b: 2 * 5 * b * T,
    lambda b: 2 * 3 * b * T,
)

# Norms of b rows of 64: 4 for the statistics, 2 applied, 1 for the weight and 1 for the bias.
case(
    "FusedLayerNormAffineFunction LigerLayerNormFunction FastLayerNormFN",
    lambda b: (([b, 64], BF), ([64], BF), ([64], BF), V(1e-5)),
    lambda b: 8 * b * 64,
    lambda b: 2 * (b * 64 + 128),
    lambda b: 2 * b * 64 + 8 * b,
)
case(
    "FusedLayerNormAffineFunctionBackward LigerLayerNormFunctionBackward",
    lambda b: (([b, 64], BF),),
    lambda b: 13 * b * 64,
    lambda b: 2 * (2 * b * 64 + 64) + 8 * b,
    lambda b: 2 * (b * 64 + 128),
)
case(
    "FusedRMSNormAffineFunction LigerRMSNormFunction _RMSNorm",
    lambda b: (([b, 64], BF), ([64], BF), V(1e-5)),
    lambda b: 4 * b * 64,
    lambda b: 2 * (b * 64 + 64),
    lambda b: 2 * b * 64 + 4 * b,
)
case(
    "FusedRMSNormFunction",
    lambda b: (([b, 64], BF), V([64]), V(1e-5)),
    lambda b: 3 * b * 64,
    lambda b: 2 * b * 64,
    lambda b: 2 * b * 64 + 4 * b,
)
case(
    "LigerRMSNormFunctionBackward FusedRMSNormAffineFunctionBackward",
    lambda b: (([b, 64], BF),),
    lambda b: 9 * b * 64,
    lambda b: 2 * (2 * b * 64 + 64) + 4 * b,
    lambda b: 2 * (b * 64 + 64),
)
case(
    "aiter::_groupnorm_run",
    lambda b: (([b, 8, 4, 4], BF), V(2), ([8], BF), ([8], BF), V(1e-5)),
    lambda b: 8 * b * 128,
    lambda b: 2 * (b * 128 + 16),
    lambda b: 2 * b * 128,
)
# b tokens of each of 2 samples; mean and deviation of each row in float32.
case(
    "primus::fused_ln_modulate",
    lambda b: (([b, 2, 64], BF), ([2, 64], BF), ([2, 64], BF), V(1e-5)),
    lambda b: 8 * b * 128,
    lambda b: 2 * (b * 128 + 2 * 128),
    lambda b: 2 * b * 128 + 2 * 2 * b * 4,
)
case(
    "primus::fused_ln_modulate_backward",
    lambda b: (([b, 2, 64], BF), ([b, 2, 64], BF), ([2 * b], F), ([2 * b], F), ([2, 64], BF)),
    lambda b: 13 * b * 128,
    lambda b: 2 * (2 * b * 128 + 128) + 2 * 2 * b * 4,
    lambda b: 2 * (b * 128 + 2 * 128),
)

# silu 5 and the product 1; its gradient 9, silu again 5, two products. gelu (tanh) 9; its gradient 11.
case(
    "LigerSiLUMulFunction",
    lambda b: (([b, 64], BF), ([b, 64], BF)),
    lambda b: 6 * b * 64,
    lambda b: 2 * 2 * b * 64,
    lambda b: 2 * b * 64,
)
case(
    "LigerSiLUMulFunctionBackward",
    lambda b: (([b, 64], BF),),
    lambda b: 16 * b * 64,
    lambda b: 2 * 3 * b * 64,
    lambda b: 2 * 2 * b * 64,
)
case(
    "LigerGELUMulFunction",
    lambda b: (([b, 64], BF), ([b, 64], BF)),
    lambda b: 10 * b * 64,
    lambda b: 2 * 2 * b * 64,
    lambda b: 2 * b * 64,
)
# 6 for each pair of numbers; the table has half a head's width and float32.
case(
    "FusedRoPEFunc",
    lambda b: (([10, b, 4, 16], BF), ([10, 1, 1, 8], F), V(False)),
    lambda b: 3 * 10 * b * 4 * 8,
    lambda b: 2 * 10 * b * 64 + 4 * 80,
    lambda b: 2 * 10 * b * 64,
)
case(
    "FusedRoPEFuncBackward",
    lambda b: (([10, b, 4, 16], BF),),
    lambda b: 3 * 10 * b * 64,
    lambda b: 2 * 10 * b * 64,
    lambda b: 2 * 10 * b * 64,
)
case(
    "LigerRopeFunction",
    lambda b: (([b, 4, 10, 16], BF), ([b, 2, 10, 16], BF), ([1, 10, 16], BF), ([1, 10, 16], BF)),
    lambda b: 3 * b * 6 * 160,
    lambda b: 2 * (b * 6 * 160 + 2 * 160),
    lambda b: 2 * b * 6 * 160,
)
# A softmax of 100 logits; the gradient in their place, and a float32 loss for each target.
case(
    "CrossEntropyFunction LigerCrossEntropyFunction",
    lambda b: (([b, 1, 100], BF), ([b, 1], L)),
    lambda b: 500 * b,
    lambda b: 2 * b * 100 + 8 * b,
    lambda b: 2 * b * 100 + 4 * b,
)
# Padding 1 before stride 2: 56 x 56 become 28 x 28.
case(
    "ConvBias_ ConvBiasReLU_",
    lambda b: (
        ([b, 64, 56, 56], "c10::Half"),
        ([128, 64, 3, 3], "c10::Half"),
        ([128], "c10::Half"),
        V(1),
        V(2),
    ),
    lambda b: 2 * 128 * 64 * 9 * b * 784,
    lambda b: 2 * (b * 64 * 3136 + 128 * 64 * 9 + 128),
    lambda b: 2 * b * 128 * 784,
)

# 2 heads of 8 (16 inside), 1 group of 4 states, chunks of 32, a width of 4: 24 channels of 42 numbers.
case(
    "MambaSplitConv1dScanCombinedFn",
    lambda b: (
        *(([b, 64, 42], BF), ([24, 4], BF), ([24], BF), ([2], F), ([2], F), ([2], BF), V(32)),
        *([None] * 8),
        *(V(8), V(1)),
    ),
    lambda b: 2 * b * 64 * 24 * 4 + 2 * b * 64 * 32 * (4 + 16) + 4 * b * 64 * 16 * 4,
    lambda b: 2 * (b * 64 * 42 + 96 + 24 + 2) + 16,
    lambda b: 2 * b * 64 * 16,
)
case(
    "DaoAILab::_causal_conv1d_fwd_cpp",
    lambda b: (([b, 24, 64], BF), ([24, 4], BF), ([24], BF)),
    lambda b: 2 * 4 * b * 24 * 64,
    lambda b: 2 * (b * 24 * 64 + 96 + 24),
    lambda b: 2 * b * 24 * 64,
)
case(
    "DaoAILab::_causal_conv1d_bwd_cpp",
    lambda b: (([b, 24, 64], BF), ([24, 4], BF), ([24], BF), ([b, 24, 64], BF)),
    lambda b: 4 * 4 * b * 24 * 64,
    lambda b: 2 * (2 * b * 24 * 64 + 96),
    lambda b: 2 * (b * 24 * 64 + 96 + 24),
)
# Three times 9 for each of 16 states, 2 for D and 5 for the gate.
SCANNED = lambda b: 2 * (3 * b * 8 * 64 + 2 * b * 16 * 64 + 8 * 16 + 8)  # noqa: E731
case(
    "mamba_ssm::selective_scan_bwd",
    lambda b: (
        *(([b, 8, 64], BF), ([b, 8, 64], BF), ([8, 16], BF), ([b, 16, 64], BF), ([b, 16, 64], BF)),
        *(([8], BF), ([b, 8, 64], BF), None, ([b, 8, 64], BF)),
    ),
    lambda b: 3 * b * 8 * 64 * (9 * 16 + 2 + 5),
    lambda b: SCANNED(b) + 2 * b * 8 * 64,
    SCANNED,
)
# 2 C (K + V) + 4 K V, for the delta rule 2 C (2 K + V) more; C = 64, K = 8, V = 16.
case(
    "ChunkGatedDeltaRuleFunction",
    lambda b: (([b, 128, 2, 8], BF), ([b, 128, 2, 8], BF), ([b, 128, 2, 16], BF), ([b, 128, 2], F)),
    lambda b: b * 128 * 2 * (2 * 64 * 24 + 4 * 8 * 16 + 2 * 64 * 32),
    lambda b: 2 * b * 128 * 2 * 32 + 4 * b * 256,
    lambda b: 2 * b * 128 * 2 * 16,
)
case(
    "ChunkGLAFunction ChunkSimpleGLAFunction",
    lambda b: (([b, 128, 2, 8], BF), ([b, 128, 2, 8], BF), ([b, 128, 2, 16], BF)),
    lambda b: b * 128 * 2 * (2 * 64 * 24 + 4 * 8 * 16),
    lambda b: 2 * b * 128 * 2 * 32,
    lambda b: 2 * b * 128 * 2 * 16,
)

# 3 tables with 96 columns in all; 6 indices of 8 bytes for each sample, whose rows of 32 are added.
TABLES = (*[([96 * 10**4], F)] * 3, ([3], I), ([3], L), ([4], I))
case(
    "fbgemm::split_embedding_codegen_forward_unweighted_cuda",
    lambda b: (*TABLES, V(96), V(32), ([6 * b], L), ([3 * b + 1], L), V(0)),
    lambda b: 6 * b * 32,
    lambda b: 8 * 6 * b + 8 * (3 * b + 1) + 4 * 6 * b * 32,
    lambda b: 4 * b * 96,
)
# A weight for each index: a product more.
case(
    "fbgemm::split_embedding_codegen_forward_weighted_cuda",
    lambda b: (*TABLES, V(96), V(32), ([6 * b], L), ([3 * b + 1], L), V(0), ([6 * b], F)),
    lambda b: 2 * 6 * b * 32,
    lambda b: 8 * 6 * b + 8 * (3 * b + 1) + 4 * 6 * b * 32 + 4 * 6 * b,
    lambda b: 4 * b * 96,
)
case(
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function",
    lambda b: (
        *(([0], F), *TABLES, V(""), V(32), ([4], L), V(12), ([6 * b], L)),
        *(([3 * b + 1], L), V(0), ([6 * b], F), None, ([0], I), V(True), V(1.0), V(False), ([3 * 10**4], F)),
    ),
    lambda b: 2 * 6 * b * 32,
    lambda b: 8 * 6 * b + 8 * (3 * b + 1) + 4 * 6 * b * 32 + 4 * 6 * b,
    lambda b: 4 * b * 96,
)
case(
    "fbgemm::permute_pooled_embs_auto_grad fbgemm::recat_embedding_grad_output_mixed_D_batch",
    lambda b: (([b, 96], F), ([4], L), ([3], L)),
    nothing,
    lambda b: 4 * b * 96,
    lambda b: 4 * b * 96,
)
# Bucket and place of each index.
case(
    "fbgemm::block_bucketize_sparse_features",
    lambda b: (([3 * b], I), ([6 * b], I), V(False), V(False), ([3], I), V(2), None),
    lambda b: 2 * 6 * b,
    lambda b: 4 * 9 * b,
    lambda b: 4 * 6 * b,
)
case(
    "fbgemm::split_embedding_nobag_codegen_forward_unweighted_cuda",
    lambda b: (*TABLES[:5], V(32), ([6 * b], L), ([3 * b + 1], L)),
    nothing,
    lambda b: 8 * 6 * b + 4 * 6 * b * 32,
    lambda b: 4 * 6 * b * 32,
)
case(
    "fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda",
    lambda b: (([b, 96], F), *TABLES, V(32), ([4], L), V(12), ([6 * b], L), ([3 * b + 1], L)),
    lambda b: 2 * 6 * b * 32,
    lambda b: 4 * b * 96 + 8 * 6 * b + 8 * (3 * b + 1) + 4 * 6 * b * 32,
    lambda b: 4 * 6 * b * 32,
)
case(
    "fbgemm::permute_1D_sparse_data fbgemm::permute_2D_sparse_data fbgemm::permute_sparse_features",
    lambda b: (([3], I), ([3, b], L), ([6 * b], L), ([6 * b], F), None),
    nothing,
    lambda b: 12 + 8 * 3 * b + 12 * 6 * b,
    lambda b: 12 * 6 * b + 8 * 3 * b,
)
case(
    "fbgemm::bounds_check_indices",
    lambda b: (([3], L), ([6 * b], L), ([3 * b + 1], L), V(1), ([1], L)),
    lambda b: 2 * 6 * b,
    lambda b: 24 + 8 * 6 * b + 8 * (3 * b + 1),
    nothing,
)
case(
    "fbgemm::asynchronous_complete_cumsum",
    lambda b: (([3, b], L),),
    lambda b: 3 * b,
    lambda b: 8 * 3 * b,
    lambda b: 8 * 3 * (b + 1),
)
case(
    "fbgemm::asynchronous_exclusive_cumsum fbgemm::asynchronous_inclusive_cumsum",
    lambda b: (([3, b], L),),
    lambda b: 3 * b,
    lambda b: 8 * 3 * b,
    lambda b: 8 * 3 * b,
)
case(
    "fbgemm::jagged_to_padded_dense",
    lambda b: (([6 * b, 16], F), [[b + 1]], V([10]), V(0.0)),
    nothing,
    lambda b: 4 * 6 * b * 16 + 8 * (b + 1),
    lambda b: 4 * b * 10 * 16,
    listed=L,
)
case(
    "fbgemm::jagged_dense_elementwise_add_jagged_output",
    lambda b: (([6 * b, 16], F), [[b + 1]], ([b, 10, 16], F)),
    lambda b: 6 * b * 16,
    lambda b: 2 * 4 * 6 * b * 16,
    lambda b: 4 * 6 * b * 16,
    listed=L,
)
case(
    "fbgemm::jagged_index_select",
    lambda b: (([6 * b, 16], F), ([b], L)),
    nothing,
    lambda b: 4 * 6 * b * 16,
    lambda b: 4 * 6 * b * 16,
)
