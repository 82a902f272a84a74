"""What serving needs: each cost with its derivation, and sizes that only launches and steps tell."""

import random
from typing import Any

import pytest
from test_goldens import F, H

from inputs import V, texts
from kernelscope.analysis.costs.launch_sizes import attention_lengths, expert_sizes
from kernelscope.costs import cost_of

FP8, BYTE, INT = "c10::Float8_e4m3fn", "unsigned char", "int"
X, WEIGHT = ([4, 64], H), ([64], H)

GOLDENS: dict[str, tuple[str, tuple[Any, ...], tuple[int, int, int]]] = {
    # 256 numbers, 5 each with the residual: as aiter::add_rmsnorm; inputs and weight, both results
    "add and norm": (
        "aiter::rmsnorm2d_fwd_with_add_ck",
        (X, X, X, X, WEIGHT, V(1e-5), V(0)),
        (1280, 1152, 1024),
    ),
    # without a result among the inputs: 4 each
    "norm": ("aiter::rms_norm", (X, WEIGHT, V(1e-5), V(0)), (1024, 640, 512)),
    # the norm and 1 for the scaling; the scale is read, a byte a number is written
    "norm and fp8": (
        "_C::rms_norm_static_fp8_quant",
        (([4, 64], FP8), X, WEIGHT, ([1], F), V(1e-5)),
        (1280, 644, 256),
    ),
    # 2 for the search and the scaling; a scale per token is written
    "norm and fp8 per token": (
        "_C::rms_norm_dynamic_per_token_quant",
        (([4, 64], FP8), X, WEIGHT, ([4, 1], F), V(1e-5), None, None),
        (1536, 640, 272),
    ),
    # the sum is written back, too
    "add, norm and fp8": (
        "_C::fused_add_rms_norm_static_fp8_quant",
        (([4, 64], FP8), X, X, WEIGHT, ([1], F), V(1e-5)),
        (1536, 1156, 768),
    ),
    # half a byte a number and a scale for 16 of them
    "fp4": ("_C::scaled_fp4_quant", (([4, 32], BYTE), X, ([4, 4], FP8), ([1], F)), (512, 516, 144)),
    "fp8 of groups": (
        "_C::per_token_group_fp8_quant",
        (X, ([4, 64], FP8), ([4, 2], F), V(32)),
        (512, 512, 288),
    ),
    # 4 tokens of 8 + 2 numbers into a cache of bytes
    "latent cache": (
        "_C_cache_ops::concat_and_cache_mla",
        (([4, 8], H), ([4, 2], H), ([16, 4, 10], BYTE), ([4], "long int")),
        (0, 4 * 10 * 2 + 32, 40),
    ),
    # 2 * 6 rows * 32 * 64; 6 of 8 experts at most
    "experts of fp8": (
        "_C::cutlass_moe_mm",
        (([6, 32], H), ([6, 64], FP8), ([8, 64, 32], FP8), ([6], F), ([8], F)),
        (24576, 6 * 64 + 6 * 64 * 32 + 24 + 24, 384),
    ),
    # half as many bytes as numbers: 2 * 6 * 32 * 64
    "experts of fp4": (
        "_C::cutlass_fp4_group_mm",
        (([6, 32], H), ([6, 32], BYTE), ([8, 32, 32], BYTE), ([6, 4], FP8), ([8, 32, 4], FP8)),
        (24576, 6 * 32 + 6 * 32 * 32 + 24 + 6 * 32 * 4, 384),
    ),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str) -> None:
    operator, inputs, figures = GOLDENS[name]
    cost = cost_of(operator, *texts(*inputs))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == figures


def test_attention_over_pages() -> None:
    pages = ([100, 1, 2, 16], H)
    inputs = texts(([4, 8, 16], H), ([999], BYTE), ([4, 8, 16], H), pages, pages, ([5], INT))
    names = ("aiter::paged_attention_ragged", "sglang_profiler::attention_paged_attention_ragged_100")
    for name in names:
        assert cost_of(name, *inputs).status == "missing_shape"
        cost = cost_of(name, *inputs, hints={"attended_pairs": 50, "kv_tokens": 50})
        # 50 pairs, 8 heads, a product of 16 numbers twice; queries, and 50 keys and values of 2 heads
        assert cost.flops == 2 * 50 * 8 * (16 + 16)
        assert (cost.bytes_read, cost.bytes_written) == (4 * 8 * 16 * 2 + 50 * 2 * 32 * 2, 4 * 8 * 16 * 2)


def test_latent_attention() -> None:
    """Prompts attend with keys of 12 and values of 8, decoding with the latent of 32 + 4 itself."""
    inputs = texts(([6, 2, 12], H), ([6, 32], H), ([6, 1, 4], H), None)
    hints = {"attended_pairs": 30, "decode_pairs": 20, "kv_tokens": 25}
    cost = cost_of("vllm::unified_mla_attention", *inputs, hints=hints)
    assert cost.flops == 2 * 10 * 2 * (12 + 8) + 2 * 20 * 2 * (36 + 32)
    assert cost.bytes_read == 6 * 2 * 12 * 2 + 25 * 36 * 2
    decode = texts(([6, 2, 36], H), ([100, 1, 1, 36], H), ([6, 2, 32], H))
    cost = cost_of("aiter::mla_decode_fwd", *decode, hints={"attended_pairs": 20, "kv_tokens": 20})
    assert cost.flops == 2 * 20 * 2 * (36 + 32)


def test_experts_from_the_grids_of_triton() -> None:
    """The grids that gpt-oss has at 32 tokens, and those of any other sizes."""
    name = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"
    kernels: list[tuple[str, list[int] | None]] = [(name, [912, 1, 1]), (f"{name}_swiglu", [1748, 1, 1])]
    sizes = dict(expert_sizes(kernels, tokens=(32, 3072), logits=(32, 32)) or ())
    assert sizes == {"inner_size": 2944, "top_k": 4, "gated": 1, "weight_bits": 4, "scale_block": 32}
    rng = random.Random(7)
    for _ in range(200):
        tokens, experts, top_k = rng.randint(1, 400), rng.choice([8, 32, 128]), rng.randint(1, 8)
        hidden, inner = 128 * rng.randint(1, 40), 64 * rng.randint(1, 40)
        rows = tokens * top_k
        blocks = rows if rows <= experts else -(-(rows - experts + 1) // 16) + experts - 1
        grids = [blocks * (hidden // 128), blocks * (2 * inner // 128)]
        kernels = [(name, [grids[0], 1, 1]), (f"{name}_swiglu", [grids[1], 1, 1])]
        found = expert_sizes(kernels, tokens=(tokens, hidden), logits=(tokens, experts))
        # Of few tokens several numbers of experts have as many blocks: then nothing is said.
        if found is not None:
            assert dict(found)["inner_size"] == inner
            assert dict(found)["top_k"] == top_k
    alone = [(f"{name}_swiglu", [1748, 1, 1])]
    assert expert_sizes([*alone], tokens=(32, 3072), logits=(32, 32)) is None
    assert expert_sizes([*alone, (name, [913, 1, 1])], tokens=(32, 3072), logits=(32, 32)) is None


def test_lengths_of_steps_are_pairs_counted_one_by_one() -> None:
    rng = random.Random(3)
    for _ in range(100):
        kinds: list[list[tuple[int, int]]] = [[], []]
        for requests in kinds:
            for _ in range(rng.randint(0, 3)):
                queries = rng.randint(1, 5)
                requests.append((queries, queries + rng.randint(0, 9)))
        if not any(kinds):
            continue
        sums = [
            tuple(sum(x) for x in zip(*((q, k, q * q, q * k) for q, k in requests))) or (0, 0, 0, 0)
            for requests in kinds
        ]
        (c, g), tokens = sums, sums[0][0] + sums[1][0]
        name = (
            f"execute_{tokens}_context_{len(kinds[0])}(sq{c[0]}sk{c[1]}sqsq{c[2]}sqsk{c[3]})"
            f"_generation_{len(kinds[1])}(sq{g[0]}sk{g[1]}sqsq{g[2]}sqsk{g[3]})"
        )
        pairs = [sum(k - q + 1 + at for q, k in requests for at in range(q)) for requests in kinds]
        found = dict(attention_lengths([name], (tokens, 8, 64)) or ())
        assert found == {"attended_pairs": sum(pairs), "decode_pairs": pairs[1], "kv_tokens": c[1] + g[1]}
        # A graph of the next larger size has tokens that belong to nobody; a smaller query is another step's.
        assert attention_lengths([name], (tokens + 3, 8, 64)) == tuple(found.items())
        assert attention_lengths([name], (tokens - 1, 8, 64)) is None


def test_impossible_steps_say_nothing() -> None:
    for sums in ("sq5sk4sqsq25sqsk20", "sq5sk9sqsq26sqsk45", "sq5sk9sqsq25sqsk9"):
        assert (
            attention_lengths([f"execute_5_context_1({sums})_generation_0(sq0sk0sqsq0sqsk0)"], (5, 1, 1))
            is None
        )
    step = "execute_1_context_0(sq0sk0sqsq0sqsk0)_generation_1(sq1sk9sqsq1sqsk9)"
    assert attention_lengths([step], (1, 1, 1)) is not None
    assert attention_lengths([step, step.replace("sk9", "sk8")], (1, 1, 1)) is None


@pytest.mark.parametrize("experts", [10**12, 10**18, 2**80])
def test_any_number_of_experts_is_answered_at_once(experts: int) -> None:
    name = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"
    kernels: list[tuple[str, list[int] | None]] = [(f"{name}_swiglu", [1748, 1, 1]), (name, [912, 1, 1])]
    found = expert_sizes(kernels, tokens=(1, 3072), logits=(1, experts))
    # A row of each is a block of its own: 38 blocks are 38 experts.
    assert found is not None
    assert dict(found)["top_k"] == 38
    # Tiles of no columns, and numbers that no kernel has.
    for odd in ("_16x0x256x1", f"_16x128x256x{'9' * 5_000}"):
        other = name.replace("_16x128x256x1", odd)
        assert (
            expert_sizes([(f"{other}_swiglu", [4, 1, 1]), (other, [4, 1, 1])], tokens=(1, 8), logits=(1, 8))
            is None
        )
