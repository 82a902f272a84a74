"""One worked figure per family, with the derivation beside it: FLOPs, bytes read, bytes written."""

from typing import Any

import pytest
import training_cases

from inputs import V, texts
from kernelscope.costs import cost_of, find_model, models

H, F, L, B = "c10::Half", "float", "long int", "bool"

A, W = ([8, 64], H), ([64, 32], H)
X = ([32, 64, 56, 56], H)
Q = ([2, 4, 10, 16], H)

GOLDENS: dict[str, tuple[str, tuple[Any, ...], tuple[int, int, int]]] = {
    # 2 * 8 * 32 * 64; (8 * 64 + 64 * 32) * 2; 8 * 32 * 2
    "mm": ("aten::mm", (A, W), (32768, 5120, 512)),
    # the bias adds 32 * 2 read bytes and no FLOPs
    "addmm": ("aten::addmm", (([32], H), A, W, V(1), V(1)), (32768, 5184, 512)),
    # with beta = 0 the bias is not read
    "addmm, beta 0": ("aten::addmm", (([32], H), A, W, V(0), V(1)), (32768, 5120, 512)),
    # 3 products; (3 * 8 * 64 + 3 * 64 * 32) * 2; 3 * 8 * 32 * 2
    # nor is the vector that is added
    "addmv, beta 0": ("aten::addmv_", (([8], H), A, ([64], H), V(0), V(1)), (1024, 1024 + 128, 16)),
    "bmm": ("aten::bmm", (([3, 8, 64], H), ([3, 64, 32], H)), (98304, 15360, 1536)),
    # one right operand for the whole batch: read once, 3072 + 4096 bytes
    "bmm, shared operand": (
        "aten::bmm",
        (([3, 8, 64], H, [512, 64, 1]), ([3, 64, 32], H, [0, 32, 1])),
        (98304, 7168, 1536),
    ),
    "matmul, broadcast": ("aten::matmul", (([3, 8, 64], H), W), (98304, 7168, 1536)),
    "matmul, vectors": ("aten::matmul", (([64], F), ([64], F)), (128, 512, 4)),
    # 4 * 8 rows; weight is (out, in)
    "linear": ("aten::linear", (([4, 8, 64], H), ([32, 64], H), ([32], H)), (131072, 8256, 2048)),
    # each row in one group: 2 * 8 * 32 * 64; 5 groups of weights
    "grouped_mm": (
        "aten::_grouped_mm",
        (A, ([5, 64, 32], H), ([5], "int"), None, None),
        (32768, 1024 + 20480 + 20, 512),
    ),
    # out 28 x 28: 2 * (128 * 64 * 9) * 32 * 784; (6422528 + 73728) * 2; 32 * 128 * 784 * 2
    "convolution": (
        "aten::convolution",
        (X, ([128, 64, 3, 3], H), None, V([2, 2]), V([1, 1]), V([1, 1]), V(False), V([0, 0]), V(1)),
        (3699376128, 12992512, 6422528),
    ),
    # both gradients of 2 * 36864 * 32 * 3136; grad + weight + x; x + weight + 64 biases
    "convolution_backward": (
        "aten::convolution_backward",
        (
            *(X, X, ([64, 64, 3, 3], H), V([64]), V([1, 1]), V([1, 1]), V([1, 1]), V(False), V([0, 0]), V(1)),
            V([True, True, True]),
        ),
        (14797504512, 2 * 6422528 * 2 + 73728, 6422528 * 2 + 73728 + 128),
    ),
    # 2 * 2 * 4 * (10 * 10) * (16 + 16); 3 * 1280 * 2; out 1280 * 2 and 80 sums of 4
    "attention": (
        "aten::_scaled_dot_product_flash_attention",
        (Q, Q, Q, V(0.0), V(False), V(False), None),
        (51200, 7680, 2880),
    ),
    # causal: 55 of 100 pairs
    "attention, causal": (
        "aten::_scaled_dot_product_flash_attention",
        (Q, Q, Q, V(0.0), V(True), V(False), None),
        (28160, 7680, 2880),
    ),
    # five products instead of two; reads grad and out, q, k, v and the sums; writes three gradients
    "attention_backward": (
        "aten::_scaled_dot_product_flash_attention_backward",
        (Q, Q, Q, Q, Q, ([2, 4, 10], F), None, None, V(10), V(10), V(0.0), V(False), None, None),
        (128000, 5 * 2560 + 320, 7680),
    ),
    # 15 sequences, 1024 queries, 1041 keys, bottom right: 1024 * 17 + 1024 * 1025 / 2 = 542208 pairs each
    "aiter::mha_batch_prefill": (
        "aiter::mha_batch_prefill",
        (
            *(([15360, 32, 128], H), *[([835874, 8, 128], H)] * 2, *[([16], "int")] * 2, ([15616], "int")),
            *(V(1024), V(1024), V(0.0), V(0.08), V(0.0), V(False), V(True), V(-1), V(-1)),
        ),
        (4 * 15 * 542208 * 32 * 128, 15360 * 4096 * 2 + 15 * 1041 * 1024 * 4, 15360 * 4096 * 2),
    ),
    # 6 per element and weight, bias 1 each; x and 2 * 64 * 2; out and 2 float32 a row
    "layer_norm": (
        "aten::native_layer_norm",
        (A, V([64]), ([64], H), ([64], H), V(1e-5)),
        (8 * 512, 1024 + 256, 1024 + 8 * 8),
    ),
    # 13 per element; grad, x, weight, statistics; gradients of x, weight, bias
    "layer_norm_backward": (
        "aten::native_layer_norm_backward",
        (A, A, V([64]), ([8, 1], F), ([8, 1], F), ([64], H), ([64], H), V([True, True, True])),
        (13 * 512, 2048 + 128 + 64, 1024 + 256),
    ),
    # training: 8 per element, 3 per running number; x, 4 * 64 * 2; out, running ones, kept float32 ones
    "batch_norm": (
        "aten::native_batch_norm",
        (X, *[([64], H)] * 4, V(True), V(0.1), V(1e-5)),
        (8 * 6422528 + 6 * 64, 12845056 + 512, 12845056 + 512 + 256),
    ),
    "batch_norm, evaluation": (
        "aten::native_batch_norm",
        (X, *[([64], H)] * 4, V(False), V(0.1), V(1e-5)),
        (4 * 6422528, 12845056 + 512, 12845056),
    ),
    # 5 per element (residual); input, residual, weight; both written
    "rms_norm": ("_C::fused_add_rms_norm", (A, A, ([64], H), V(1e-6)), (5 * 512, 2048 + 128, 2048)),
    # one row of the result per row of the left, the right broadcasts: 512 + 64 numbers
    "add": ("aten::add", (A, ([64], H), V(1)), (512, 1152, 1024)),
    # an expanded right operand of the same shape costs as much
    "add, expanded": ("aten::add", (([8, 64], H, [64, 1]), ([8, 64], H, [0, 1]), V(1)), (512, 1152, 1024)),
    "lt": ("aten::lt", (A, A), (512, 2048, 512)),
    "sigmoid": ("aten::sigmoid", (A,), (4 * 512, 1024, 1024)),
    "threshold_backward": ("aten::threshold_backward", (A, A, V(0)), (512, 2048, 1024)),
    "where": ("aten::where", (([8, 64], B), A, A), (0, 512 + 2048, 1024)),
    "dropout": ("aten::native_dropout", (A, V(0.5), V(True)), (1024, 1024, 1024 + 512)),
    "silu_and_mul": ("_C::silu_and_mul", (([8, 32], H), A), (6 * 256, 1024, 512)),
    # query 8 heads, key 2 heads of 64, all rotated: 3 * 5 * 10 * 64; that much, 5 rows and 5 positions
    "rotary_embedding": (
        "_C::rotary_embedding",
        (([5], L), ([5, 512], H), ([5, 128], H), V(64), ([4096, 64], H), V(True)),
        (9600, 6400 + 640 + 40, 6400),
    ),
    "sum": ("aten::sum", (([5, 128], F), V([0]), V(True), None), (640, 2560, 512)),
    # types by their numbers: float64 is 7, float8_e4m3fn 24
    "sum, widened": ("aten::sum", (([5, 128], F), V([0]), V(True), V(7)), (640, 2560, 1024)),
    "mean": ("aten::mean", (A, None), (513, 1024, 2)),
    "argmax": ("aten::argmax", (A, V(1), V(False)), (512, 1024, 64)),
    # rows of 64: 6 steps of merging
    "sort": ("aten::sort", (A, V(-1), V(False)), (512 * 6, 1024, 1024 + 4096)),
    "topk": ("aten::topk", (A, V(3), V(-1), V(True), V(True)), (512, 1024, 24 * 10)),
    "softmax": ("aten::_softmax", (A, V(-1), V(False)), (2560, 1024, 1024)),
    "softmax, widened": ("aten::_softmax", (A, V(-1), V(True)), (2560, 1024, 2048)),
    "softmax_backward": ("aten::_softmax_backward_data", (A, A, V(-1), V(5)), (2048, 2048, 1024)),
    # 32 targets: their numbers and themselves; loss and weight
    "nll_loss": (
        "aten::nll_loss_forward",
        (([32, 1000], F), ([32], L), None, V(1), V(-100)),
        (64, 32 * 8 + 32 * 4, 8),
    ),
    "mse_loss": ("aten::mse_loss", (([8, 64], F), ([8, 64], F), V(1)), (3 * 512, 4096, 4)),
    # 888 rows of 2880
    "embedding": (
        "aten::embedding",
        (([25136, 2880], H), ([888], L), V(-1), V(False), V(False)),
        (0, 888 * 8 + 888 * 5760, 888 * 5760),
    ),
    # more indices than rows: the table is read once
    "embedding, small table": (
        "aten::embedding",
        (([10, 4], H), ([888], L), V(-1), V(False), V(False)),
        (0, 888 * 8 + 80, 888 * 8),
    ),
    "embedding_backward": (
        "aten::embedding_dense_backward",
        (([4, 16, 64], F), ([4, 16], L), V(1000), V(-1), V(False)),
        (4096, 16384 + 512, 256000),
    ),
    # 4 + 3 + 2 + 1 kept of 4 x 5 with the second diagonal above; what is kept is read
    "triu": ("aten::triu", (([3, 4, 5], F), V(2)), (0, 3 * (3 + 2 + 1) * 4, 240)),
    "tril": ("aten::tril", (([4, 4], F), V(0)), (0, 40, 64)),
    # above the diagonal below: 4 x 3 less 0 + 1 + 2 + 3; nothing is read
    "tril, in place": ("aten::tril_", (([4, 3], H), V(-1)), (0, 0, 2 * (12 - 6))),
    # 0, 3, 6, 9; the result has no size yet
    "arange into": ("aten::arange", (V(0), V(10), V(3), ([0], L)), (0, 0, 32)),
    "arange": ("aten::arange", (V(10), V(5), None, None, V(False)), (0, 0, 20)),
    "arange, downwards": ("aten::arange", (V(1.0), V(0), V(-0.25), *[None] * 4), (0, 0, 16)),
    "linspace": ("aten::linspace", (V(0), V(1), V(7), ([0], H)), (0, 0, 14)),
    # 5 * 32 * log2(8) FLOP, half of it where one side is real; 8 real numbers give 5 complex ones
    "fft": ("aten::_fft_c2c", (([4, 8], "c10::complex<float>"), V([1]), V(0), V(True)), (480, 256, 256)),
    "rfft": ("aten::_fft_r2c", (([4, 8], F), V([1]), V(0), V(True)), (240, 128, 4 * 5 * 8)),
    "irfft": ("aten::_fft_c2r", (([4, 5], "c10::complex<float>"), V([1]), V(2), V(8)), (240, 4 * 5 * 8, 128)),
    "index_select": ("aten::index_select", (A, V(0), ([3], L)), (0, 24 + 384, 384)),
    "scatter_add": (
        "aten::scatter_add_",
        (A, V(0), ([2, 64], L), ([2, 64], H)),
        (128, 1024 + 256 + 256, 256),
    ),
    # 56 x 56 results of 9 comparisons; values and indices
    "max_pool2d": (
        "aten::max_pool2d_with_indices",
        (([10, 64, 112, 112], H), V([3, 3]), V([2, 2]), V([1, 1]), V([1, 1]), V(False)),
        (9 * 2007040, 8028160 * 2, 2007040 * 10),
    ),
    "adaptive_avg_pool2d": (
        "aten::_adaptive_avg_pool2d",
        (([10, 512, 7, 7], H), V([1, 1])),
        (250880 + 5120, 501760, 10240),
    ),
    "upsample_bilinear2d": (
        "aten::upsample_bilinear2d",
        (([1, 2, 4, 4], F), V([8, 8]), V(False), None, None),
        (9 * 128, 128, 512),
    ),
    "copy": ("aten::copy_", (([8, 64], F), A, V(False)), (0, 1024, 2048)),
    "to": ("aten::to", (A, V(6), V(False), V(False)), (0, 1024, 2048)),
    "to, without a type": ("aten::to", (A, V(False), V(False)), (0, 1024, 1024)),
    "view": ("aten::view", (A, V([512])), (0, 0, 0)),
    "constant_pad_nd": ("aten::constant_pad_nd", (A, V([0, 64]), V(0.0)), (0, 1024, 2048)),
    "zero": ("aten::zero_", (A,), (0, 0, 1024)),
    # 1 layer, 1 direction, 7 * 2 tokens: 2 * 14 * 96 * (16 + 24); x, weights, states; output, states
    "lstm": (
        "aten::_cudnn_rnn",
        (
            *(([7, 2, 16], F), [[96, 16]], V(4), ([4032], F), *[([1, 2, 24], F)] * 2, V(2), V(24), V(0)),
            *(V(1), V(False), V(0.0), V(True), V(False), V([]), None),
        ),
        (107520, 896 + 16128 + 384, 7 * 2 * 24 * 4 + 384),
    ),
    "lstm_cell": (
        "aten::_thnn_fused_lstm_cell",
        (([16, 1024], F), ([16, 1024], F), ([16, 256], F), ([1024], F), ([1024], F)),
        (30 * 4096, 65536 * 2 + 16384 + 8192, 2 * 16384 + 65536),
    ),
    # fp8: 2 * 16 * 64 * 128; a byte a number and two scales; bfloat16 out
    "scaled_mm": (
        "aten::_scaled_mm",
        (
            *(([16, 128], "c10::Float8_e4m3fn"), ([128, 64], "c10::Float8_e4m3fn"), ([], F), ([], F)),
            *(None, None, V(15), V(True)),
        ),
        (262144, 2048 + 8192 + 8, 2048),
    ),
    # fp4, two in a byte: the inner size is 256
    "scaled_mm, fp4": (
        "aten::_scaled_mm",
        (
            *(([16, 128], "c10::Float4_e2m1fn_x2"), ([128, 64], "c10::Float4_e2m1fn_x2"), ([], F), ([], F)),
            *(None, None, V(15), V(True)),
        ),
        (524288, 2048 + 8192 + 8, 2048),
    ),
    "scaled_mm to fp8": (
        "aten::_scaled_mm",
        (
            *(([16, 128], "c10::Float8_e4m3fn"), ([128, 64], "c10::Float8_e4m3fn"), ([], F), ([], F)),
            *(None, None, V(24), V(True)),
        ),
        (262144, 2048 + 8192 + 8, 1024),
    ),
    "fp8_quant": (
        "_C::static_scaled_fp8_quant",
        (([888, 512], "c10::Float8_e4m3fn"), ([888, 512], H, [640, 1]), ([], F)),
        (454656, 909312 + 4, 454656),
    ),
    # 4 tokens, top 2 of 8 experts, gated inner size 32: 2 * 8 * 64 * 32 * 3; all 8 experts may be used
    # 4 bits a weight: (128, 8) words of 4 bytes; tests/costs/test_packed_weights.py has the others
    "awq_gemm": (
        "_C::awq_gemm",
        (([16, 128], H), ([128, 8], "int"), ([4, 64], H), ([4, 8], "int"), V(8)),
        (262144, 4096 + 4096 + 512 + 128, 2048),
    ),
    "fused_experts": (
        "vllm::inplace_fused_experts",
        (([4, 64], H), ([8, 64, 64], H), ([8, 64, 32], H), ([4, 2], F), ([4, 2], "int")),
        (98304, 512 + (32768 + 16384) * 2 + 32, 512),
    ),
    "selective_scan": (
        "mamba_ssm::selective_scan_fwd",
        (
            *(([1, 2048, 1024], H), ([1, 2048, 1024], H), ([2048, 16], F), ([1, 16, 1024], H)),
            *(([1, 16, 1024], H), ([2048], F), ([1, 2048, 1024], H), None),
        ),
        (316669952, 3 * 4194304 + 131072 + 2 * 32768 + 8192, 4194304),
    ),
    "all_reduce": ("nccl:all_reduce", (([2873320], "c10::BFloat16"),), (0, 5746640, 5746640)),
    "all_gather": (
        "c10d::_allgather_base_",
        (([8, 25136], H), ([1, 25136], H), None, V(False), V(-1)),
        (0, 50272, 402176),
    ),
    # add, cos and sin over 100 numbers, two read and one written
    "triton": (
        "triton_poi_fused_add_cos_sin_0",
        (([10, 10], F), ([10, 10], F), ([10, 10], F), V(100)),
        (300, 800, 400),
    ),
}

LISTS: dict[str, tuple[str, tuple[Any, ...], tuple[int, int, int]]] = {
    "cat": ("aten::cat", ([[8, 64], [2, 64]], V(0)), (0, 1280, 1280)),
    # As cuDNN's of the same sizes; two directions double the weights that a token meets, and the output.
    "lstm": (
        "aten::lstm",
        (
            *([[7, 2, 16]], [[1, 2, 24]] * 2, [[96, 16], [96, 24], [96], [96]]),
            *(V(True), V(1), V(0.0), V(True), V(False), V(False)),
        ),
        (107520, 896 + 16128 + 384, 7 * 2 * 24 * 4 + 384),
    ),
    "gru, both directions": (
        "aten::gru",
        (
            *([[7, 2, 16]], [[2, 2, 24]], [[72, 16], [72, 24], [72, 16], [72, 24]]),
            *(V(False), V(1), V(0.0), V(True), V(True), V(False)),
        ),
        (2 * 14 * 2 * 72 * 40, 896 + 384 + 2 * 72 * 40 * 4, 7 * 2 * 48 * 4 + 384),
    ),
    "foreach_add": (
        "aten::_foreach_add_",
        ([[128, 128], [128]], [[128, 128], [128]], V(1)),
        (16512, 132096, 66048),
    ),
    # a square: the factors are one list, which is read once
    "foreach_addcmul": ("aten::_foreach_addcmul_", ([[1000]], [[1000]], [[1000]], V(1)), (3000, 8000, 4000)),
    "foreach_addcmul, other shapes": (
        "aten::_foreach_addcmul_",
        ([[1000]], [[1000]], [[1]], V(1)),
        (3000, 8004, 4000),
    ),
    # Adam with decay: 14 a parameter; four lists read, three written
    "fused_adamw": (
        "aten::_fused_adamw_",
        (
            *([[1000]], [[1000]], [[1000]], [[1000]], V([]), [[1]], V(0.001), V(0.9), V(0.999), V(0.01)),
            *(V(1e-8), V(False), V(False), None, None),
        ),
        (14000, 16000, 12000),
    ),
    "foreach_norm": ("aten::_foreach_norm", ([[1000], [24]], V(2)), (2050, 4096, 8)),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str) -> None:
    operator, inputs, figures = GOLDENS[name]
    cost = cost_of(operator, *texts(*inputs))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == figures
    assert cost.status in {"exact", "estimate"}
    assert (cost.status == "estimate") == bool(cost.note)


@pytest.mark.parametrize("name", LISTS)
def test_golden_of_lists(name: str) -> None:
    operator, inputs, figures = LISTS[name]
    cost = cost_of(operator, *texts(*inputs), list_dtype="c10::Half" if name == "cat" else "float")
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == figures
    assert cost.status == "estimate"


def test_every_family_has_a_golden() -> None:
    families = {model.family for model in models().values()} | {"triton"}
    names = {name for name, *_ in (GOLDENS | LISTS).values()} | {one.operator for one in training_cases.CASES}
    golden = {model.family for name in names if (model := find_model(name))}
    assert families == golden


def test_hints_give_what_no_input_holds() -> None:
    attention = texts(([888, 8, 64], "c10::Float8_e4m3fn"), *[([888, 1, 64], H)] * 2, ([888, 8, 64], H), None)
    assert cost_of("vllm::unified_attention_with_output", *attention).status == "missing_shape"
    hints = {"attended_pairs": 888 * 889 // 2, "kv_tokens": 888}
    cost = cost_of("vllm::unified_attention_with_output", *attention, hints=hints)
    assert (cost.status, cost.flops) == ("estimate", 2 * 8 * hints["attended_pairs"] * 128)
    experts = texts(([888, 3072], H), ([888, 128], H), None)
    assert cost_of("vllm::moe_forward", *experts).status == "missing_shape"
    cost = cost_of("vllm::moe_forward", *experts, hints={"inner_size": 3072, "top_k": 4, "weight_bits": 4})
    assert cost.flops == 2 * 888 * 4 * 3072 * 3072 * 3
    # 128 experts of three 3072 x 3072 matrices in half a byte a number, logits and tokens
    assert cost.bytes_read == 128 * 3 * 3072 * 3072 // 2 + 888 * 128 * 2 + 888 * 3072 * 2


def test_listed_weights_of_cudnn_have_the_type_of_the_input() -> None:
    operator, inputs, figures = GOLDENS["lstm"]
    listed = texts(inputs[0], [[96, 16], [96, 24], [96]], inputs[2], None, *inputs[4:])
    cost = cost_of(operator, *listed)
    assert (cost.status, cost.flops) == ("exact", figures[0])
    assert cost.bytes_read == 896 + (96 * 16 + 96 * 24 + 96) * 4 + 384


def test_the_result_says_how_many_are_set() -> None:
    recorded = texts(([8, 64], B))
    assert cost_of("aten::nonzero", *recorded).bytes_written == 8 * 64 * 2 * 8
    cost = cost_of("aten::nonzero", *recorded, output_dims=(2, 5))
    assert (cost.flops, cost.bytes_read, cost.bytes_written, cost.status) == (512, 512, 80, "exact")


@pytest.mark.parametrize(
    "values", [(V(0), V(10), V(0)), (V(0), V(1), V(-1)), (V(0), V(1e308), V(1e-300)), (None, None, None)]
)
def test_no_size_is_made_up_of_values_that_give_none(values: tuple[Any, ...]) -> None:
    assert cost_of("aten::arange", *texts(*values, ([0], L))).status == "missing_shape"


def test_a_convolution_without_recorded_stride_takes_the_shape_of_its_result() -> None:
    recorded = texts(([32, 64, 56, 56], F), ([128, 64, 3, 3], F), *[None] * 6)[:2]
    assert cost_of("aten::cudnn_convolution", *recorded).status == "missing_shape"
    cost = cost_of("aten::cudnn_convolution", *recorded, output_dims=(32, 128, 28, 28))
    assert cost.flops == 3699376128
