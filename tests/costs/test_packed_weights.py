"""Products with packed weights and fused all-reduces: each with its derivation, laws, and what is unknown.

Of the products the activations are 16 rows of 128 numbers of 2 bytes (4096 bytes), the weight has 64 columns:
2 * 16 * 128 * 64 = 262144 FLOP, and the result 16 * 64 * 2 = 2048 bytes. The weight of 4 bits is 4096 bytes.
"""

import random
from typing import Any

import polars as pl
import pytest
from test_goldens import F, H

from inputs import V, texts
from kernelscope.analysis.costs.peaks import with_peaks
from kernelscope.costs import Cost, cost_of, find_model

BF, FP8, BYTE, INT, CHAR, LONG = (
    "c10::BFloat16", "c10::Float8_e4m3fn", "unsigned char", "int", "signed char", "long int",
)  # fmt: skip
A, SCALES, NONE, LOCKS = ([16, 128], H), ([4, 64], H), ([0], INT), ([32], INT)
FLOPS, WRITTEN = 262144, 2048
READ = 4096 + 4096 + 4 * 64 * 2
SIZES = (V(16), V(64), V(128), V(True))

PRODUCTS: dict[str, tuple[str, tuple[Any, ...], tuple[int, int, int], str]] = {
    # words 128 / 16 = 8 rows of 64 * 2; the order of the rows is read, the locks are not
    "Marlin of 2024": (
        "_C::gptq_marlin_gemm",
        (A, ([8, 128], INT), SCALES, ([128], INT), ([128], INT), LOCKS, V(4), *SIZES),
        (FLOPS, READ + 1024, WRITTEN),
        "float16",
    ),
    # a result in front, zeros of 4 x 8 words behind
    "Marlin with a result": (
        "_C::gptq_marlin_gemm",
        (A, ([16, 64], H), ([8, 128], INT), SCALES, None, ([4, 8], INT), NONE, NONE, LOCKS, V(9), *SIZES),
        (FLOPS, READ + 128, WRITTEN),
        "float16",
    ),
    # 8 bits: words of 64 * 4; a bias in front of the scales, and one scale for all of them
    "Marlin of 2025": (
        "_C::marlin_gemm",
        (A, None, ([8, 256], INT), ([64], H), SCALES, None, ([1], H), None, None, None, LOCKS, V(9), *SIZES),
        (FLOPS, 4096 + 8192 + 128 + 512 + 2, WRITTEN),
        "float16",
    ),
    # int8 activations: 2048 bytes, their 16 scales of 4; the result has the type of the scales
    "Marlin of narrow activations": (
        "_C::marlin_gemm",
        (([16, 128], CHAR), None, ([8, 128], INT), None, SCALES, ([16, 1], F), None, None, None, None, LOCKS),
        (FLOPS, 2048 + 4096 + 512 + 64, WRITTEN),
        "int8",
    ),
    "GPTQ": (
        "_C::gptq_gemm",
        (A, ([16, 64], INT), ([4, 8], INT), SCALES, ([128], INT), V(True), V(4)),
        (FLOPS, READ + 128 + 512, WRITTEN),
        "float16",
    ),
    # 128 * 3 / 32 = 12 rows of words
    "GPTQ of 3 bits": (
        "_C::gptq_gemm",
        (A, ([12, 64], INT), ([4, 6], INT), SCALES, NONE, V(True), V(3)),
        (FLOPS, 4096 + 3072 + 96 + 512, WRITTEN),
        "float16",
    ),
    "AWQ": (
        "_C::awq_gemm",
        (A, ([128, 8], INT), SCALES, ([4, 8], INT), V(8)),
        (FLOPS, READ + 128, WRITTEN),
        "float16",
    ),
    # a difference and a product for each of 128 * 64 numbers
    "AWQ, unpacked": (
        "sgl_kernel::awq_dequantize",
        (([128, 8], INT), SCALES, ([4, 8], INT)),
        (16384, 4096 + 512 + 128, 16384),
        "float16",
    ),
    # bfloat16 as a number is 15
    "Machete": (
        "_C::machete_mm",
        (A, ([16, 64], INT), V(9), V(15), SCALES, None, V(32), None, None, None),
        (FLOPS, READ, WRITTEN),
        "float16",
    ),
    # fp8: 2048 bytes of activations; scales of groups 256, of columns 256, of rows 64
    "4 bits by 8": (
        "_C::cutlass_w4a8_mm",
        (([16, 128], FP8), ([16, 64], INT), ([4, 64], FP8), V(32), ([64], F), ([16], F), None, None),
        (FLOPS, 2048 + 4096 + 256 + 256 + 64, WRITTEN),
        "float8_e4m3fn",
    ),
    "AllSpark": (
        "_C::allspark_w8a16_gemm",
        (A, ([64, 128], BYTE), ([1, 64], H), None, V(64), V(-1), V(80), V(80), V(512), V(False), V(True)),
        (FLOPS, 4096 + 8192 + 128, WRITTEN),
        "float16",
    ),
    # a row of 128: 2 * 128 * 64; blocks of 64 numbers have 128 scales of 4, the code has 16 numbers
    "bitsandbytes": (
        "bitsandbytes::gemv_4bit",
        (([1, 1, 128], BF), ([4096, 1], BYTE), V([64, 128]), ([128], F), ([16], F), V(64)),
        (16384, 256 + 4096 + 512 + 64, 128),
        "bfloat16",
    ),
    # the bytes may have the name of another type
    "bitsandbytes, many rows": (
        "bitsandbytes::gemm_4bit",
        (A, ([2048, 1], BF), V([64, 128]), ([128], F), V(64), None, ([64], H)),
        (FLOPS, 4096 + 4096 + 512 + 128, WRITTEN),
        "float16",
    ),
    "bitsandbytes of int8": (
        "bitsandbytes::int8_linear_matmul",
        (([2, 8, 128], CHAR), ([64, 128], CHAR)),
        (FLOPS, 2048 + 8192, 4096),
        "int8",
    ),
    # three products by scales
    "bitsandbytes from int32": (
        "bitsandbytes::int8_mm_dequant",
        (([16, 64], INT), ([16], F), ([64], F), V(5), None),
        (3 * 1024, 4096 + 64 + 256, 2048),
        "float16",
    ),
    "int8": (
        "aten::_weight_int8pack_mm",
        (A, ([64, 128], CHAR), ([64], H)),
        (FLOPS, 12416, WRITTEN),
        "float16",
    ),
    # 64 / 8 by 128 / (2 * 16) tiles of 32 threads
    "int4 of CUDA": (
        "aten::_weight_int4pack_mm",
        (A, ([8, 4, 32, 1], INT), V(32), ([4, 64, 2], H)),
        (FLOPS, READ + 512, WRITTEN),
        "float16",
    ),
    # 64 / 16 tiles of 64 threads
    "int4 of ROCm": (
        "aten::_weight_int4pack_mm",
        (A, ([4, 4, 64, 1], INT), V(32), ([4, 64, 2], H)),
        (FLOPS, READ + 512, WRITTEN),
        "float16",
    ),
    "int4 of processors": (
        "aten::_weight_int4pack_mm_for_cpu",
        (A, ([64, 64], BYTE), V(32), ([4, 64, 2], H)),
        (FLOPS, READ + 512, WRITTEN),
        "float16",
    ),
    "int8 by int8": (
        "aten::_int_mm",
        (([16, 128], CHAR), ([128, 64], CHAR)),
        (FLOPS, 2048 + 8192, 4096),
        "int8",
    ),
    "SGLang": (
        "sgl_kernel::int8_scaled_mm",
        (([16, 128], CHAR), ([128, 64], CHAR), ([16, 1], F), ([64, 1], F), V(15), ([64], BF)),
        (FLOPS, 2048 + 8192 + 64 + 256 + 128, WRITTEN),
        "int8",
    ),
    # 16 tokens, 2 of 4 experts each: 32 rows, twice the FLOPs; 4 experts of words and scales
    "experts of bytes": (
        "_moe_C::moe_wna16_gemm",
        (A, ([16, 2, 64], H), ([4, 64, 64], BYTE), ([4, 64, 4], H), None, None, *[LOCKS] * 3, V(2)),
        (2 * FLOPS, 4096 + 4 * (4096 + 512), 4096),
        "float16",
    ),
    "experts of Marlin": (
        "_moe_C::moe_wna16_marlin_gemm",
        (
            A,
            ([32, 64], H),
            ([4, 8, 128], INT),
            ([4, 4, 64], H),
            *[None] * 3,
            *[LOCKS] * 4,
            ([16, 2], F),
            V(16),
        ),
        (2 * FLOPS, 4096 + 4 * (4096 + 512), 4096),
        "float16",
    ),
    # a token and 2 of 8 experts: a quarter of the words and scales; the second product has a row for each
    "the second product of Marlin": (
        "sgl_kernel::moe_wna16_marlin_gemm",
        (([2, 128], H), None, ([8, 8, 128], INT), ([8, 4, 64], H), None, *[LOCKS] * 4, ([1, 2], F), V(16)),
        (2 * 2 * 128 * 64, 512 + 2 * (4096 + 512), 256),
        "float16",
    ),
    # gated: 3 products of 128 by 64 for 2 experts of each of 16 tokens; 4 experts of 8192 + 4096 bytes,
    # scales of 4 * (4 * 128 + 2 * 128) * 2; weights and places of the chosen are 32 numbers of 4 each
    "both products of Marlin": (
        "vllm::fused_marlin_moe",
        (
            *(A, ([4, 8, 256], INT), ([4, 4, 256], INT), None, None, ([4, 4, 128], H), ([4, 2, 128], H)),
            *(([16, 4], F), ([16, 2], F), ([16, 2], INT), V(9)),
        ),
        (6 * FLOPS, 4096 + 4 * (8192 + 4096) + 6144 + 256, 4096),
        "float16",
    ),
    # 128 numbers in 64 bytes: as above without scales, ids only
    "experts of 4 bits": (
        "vllm::inplace_fused_experts",
        (A, ([4, 128, 64], BYTE), ([4, 128, 32], BYTE), ([16, 2], F), ([16, 2], INT)),
        (6 * FLOPS, 4096 + 4 * (8192 + 4096) + 128, 4096),
        "float16",
    ),
    "experts of 8 bits": (
        "vllm::outplace_fused_experts",
        (A, ([4, 128, 128], BYTE), ([4, 128, 64], BYTE), ([16, 2], F), ([16, 2], INT)),
        (6 * FLOPS, 4096 + 4 * (16384 + 8192) + 128, 4096),
        "float16",
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name: str) -> None:
    operator, inputs, figures, dtype = PRODUCTS[name]
    cost = cost_of(operator, *texts(*inputs))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == figures
    assert cost.dtype is not None
    assert cost.dtype.name == dtype


def test_int8_experts_name_no_type() -> None:
    """int8 weights are multiplied as int8, or as the activations: the inputs do not say."""
    inputs = (A, ([4, 128, 128], CHAR), ([4, 128, 64], CHAR), ([16, 2], F), ([16, 2], INT))
    assert cost_of("vllm::inplace_fused_experts", *texts(*inputs)).dtype is None


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        # words of another model: 7 bits a number
        ("_C::gptq_marlin_gemm", (A, ([8, 224], INT), SCALES, LOCKS)),
        # 8 bits fit as well, but not in Marlin's tiles
        ("_C::gptq_marlin_gemm", (A, ([16, 128], INT), SCALES, LOCKS)),
        ("_C::gptq_marlin_gemm", (A, ([8, 128], H), SCALES, LOCKS)),
        ("_C::gptq_marlin_gemm", (A, ([8, 128], INT), ([64], H), LOCKS)),
        ("_C::gptq_marlin_gemm", (([16, 0], H), ([0, 128], INT), SCALES, LOCKS)),
        ("_C::gptq_gemm", (A, ([8, 128], INT), ([4, 8], INT), SCALES, NONE)),
        ("_C::awq_gemm", (A, ([16, 64], INT), SCALES, ([4, 8], INT), V(8))),
        ("_C::machete_mm", (A, ([16, 60], LONG), V(9), V(15))[:1]),
        ("_C::allspark_w8a16_gemm", (A, ([64, 100], BYTE), ([1, 64], H), None, V(64))),
        ("_C::allspark_w8a16_gemm", (A, ([64, 128], BYTE), ([1, 64], H), None, None)),
        ("bitsandbytes::gemv_4bit", (([1, 100], H), ([4096, 1], BYTE), V([64, 128]), ([128], F))),
        ("aten::_weight_int4pack_mm", (A, ([8, 4, 32, 1], INT), V(32), ([4, 32, 2], H))),
        ("_moe_C::moe_wna16_gemm", (A, ([16, 2, 60], H), ([4, 64, 64], BYTE), ([4, 64, 4], H))),
        ("_moe_C::moe_wna16_gemm", (A, ([16, 2, 64], H), ([0, 64, 64], BYTE), ([0, 64, 4], H))),
        (
            "_moe_C::moe_wna16_marlin_gemm",
            (A, ([16, 64], H), ([4, 8, 128], INT), ([4, 4, 64], H), LOCKS, ([16, 2], F)),
        ),
        # nobody says how many experts a token has
        ("vllm::fused_marlin_moe", (A, ([4, 8, 256], INT), ([4, 4, 256], INT), ([4, 4, 128], H))),
        ("vllm::fused_marlin_moe", (A, ([4, 7, 256], INT), ([4, 4, 256], INT), ([16, 2], F), ([16, 2], INT))),
        ("flashinfer::trtllm_allreduce_fusion", (A,)),
        ("vllm::flashinfer_trtllm_fused_allreduce_norm", (A, ([16, 64], H), ([128], H))),
        ("sglang::flashinfer_allreduce_residual_rmsnorm", (A, A, ([64], H))),
    ],
)
def test_what_shapes_do_not_decide_is_unknown(operator: str, inputs: tuple[Any, ...]) -> None:
    cost = cost_of(operator, *texts(*inputs))
    assert (cost.status, cost.flops, cost.bytes_read) == ("missing_shape", None, None)


def _marlin(rows: int, k: int, n: int, bits: int) -> Cost:
    inputs = (([rows, k], H), ([k // 16, n * bits // 2], INT), ([k // 32, n], H), NONE, NONE, LOCKS)
    return cost_of("_C::gptq_marlin_gemm", *texts(*inputs))


def _awq(rows: int, k: int, n: int, _: int) -> Cost:
    inputs = (([rows, k], H), ([k, n // 8], INT), ([k // 32, n], H), ([k // 32, n // 8], INT), V(8))
    return cost_of("_C::awq_gemm", *texts(*inputs))


def _gptq(rows: int, k: int, n: int, bits: int) -> Cost:
    inputs = (([rows, k], H), ([k * bits // 32, n], INT), ([k // 32, n * bits // 32], INT), ([k // 32, n], H))
    return cost_of("_C::gptq_gemm", *texts(*inputs, NONE))


@pytest.mark.parametrize("call", [_marlin, _awq, _gptq])
def test_laws_of_packed_products(call: Any) -> None:
    """Linear in the rows, the FLOPs of the product of 16 bits, at least the bytes of what is stored."""
    rng = random.Random(5)
    for _ in range(50):
        rows, k, n, bits = (
            rng.randint(1, 99), 32 * rng.randint(1, 50), 32 * rng.randint(1, 50), rng.choice([4, 8]),
        )  # fmt: skip
        one, three = call(rows, k, n, bits), call(3 * rows, k, n, bits)
        whole = cost_of("aten::mm", *texts(([rows, k], H), ([k, n], H)))
        assert one.flops == whole.flops
        assert (three.flops, three.bytes_written) == (3 * one.flops, 3 * one.bytes_written)
        assert three.bytes_read - one.bytes_read == 2 * rows * k * 2
        assert one.bytes_written == whole.bytes_written
        assert 2 * rows * k + k * n * 4 // 8 <= one.bytes_read
        if bits == 4 and k > 32:
            assert one.bytes_read < whole.bytes_read


WEIGHT = ([128], H)
# 16 x 128 numbers of 2 bytes; the norm with a residual is 5 for each.
EACH, BYTES = 2048, 4096
_PATTERN = V(1)


def _fusion(*results: Any, pattern: Any = _PATTERN, factor: Any = None, newer: bool = False) -> Cost:
    options = (V(True), pattern, V(True)) if newer else (V(True), V(False), pattern)
    values = (V(8), V(0), V(16), V(128), ([27], LONG), V(True), V(True), *options)
    inputs = (A, *values, *results, WEIGHT, V(1e-5), factor, V(0))
    return cost_of("flashinfer::trtllm_allreduce_fusion", *texts(*inputs))


def test_flashinfer_fuses_what_is_passed() -> None:
    cost = _fusion(None, A, A, A, None, None)
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (5 * EACH, 2 * BYTES + 256, 2 * BYTES)
    assert cost.status == "exact"
    # the sum is a result, too
    assert _fusion(A, A, A, A, None, None).bytes_written == 3 * BYTES
    narrow, scale = ([16, 128], FP8), ([1], F)
    # fp8: one more for each, half the bytes; the norm is passed and by this pattern not written
    for newer in (False, True):
        cost = _fusion(None, A, A, A, narrow, None, pattern=V(2), factor=scale, newer=newer)
        assert (cost.flops, cost.bytes_read) == (6 * EACH, 2 * BYTES + 256 + 4)
        assert (cost.bytes_written, cost.status) == (BYTES + EACH, "exact")
        cost = _fusion(None, A, A, A, narrow, None, pattern=V(4), factor=scale, newer=newer)
        assert (cost.bytes_written, cost.status) == (2 * BYTES + EACH, "exact")
    assert _fusion(None, A, A, A, narrow, None, pattern=None, factor=scale).status == "estimate"
    # fp4: two for each, half a byte, and a scale for 16
    cost = _fusion(None, A, A, None, ([16, 64], BYTE), ([16, 8], FP8), pattern=V(3), factor=scale)
    assert (cost.flops, cost.bytes_written) == (7 * EACH, BYTES + 1024 + 128)


def test_flashinfer_without_a_weight_is_an_all_reduce() -> None:
    values = (V(8), V(0), V(16), V(128), ([27], LONG), *[V(True)] * 4, V(0))
    cost = cost_of("flashinfer::trtllm_allreduce_fusion", *texts(A, *values, A, *[None] * 10))
    plain = cost_of("vllm::all_reduce", *texts(A))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (0, BYTES, BYTES)
    assert (plain.flops, plain.bytes_read, plain.bytes_written) == (0, BYTES, BYTES)


@pytest.mark.parametrize(
    ("operator", "inputs", "figures"),
    [
        (
            "vllm::flashinfer_trtllm_fused_allreduce_norm",
            (A, A, WEIGHT, V(1e-5), V(8), V(True), V(True), V(99), V(1), None, None, None, None),
            (5 * EACH, 2 * BYTES + 256, 2 * BYTES),
        ),
        (
            "vllm::flashinfer_trtllm_fused_allreduce_norm",
            (
                A,
                A,
                WEIGHT,
                V(1e-5),
                V(8),
                V(True),
                V(True),
                V(99),
                V(2),
                None,
                ([16, 128], FP8),
                None,
                ([1], F),
            ),
            (6 * EACH, 2 * BYTES + 256 + 4, BYTES + EACH),
        ),
        (
            "sglang::flashinfer_allreduce_residual_rmsnorm",
            (A, A, WEIGHT, V(1e-5), V(2048), None, V(False), V(False)),
            (5 * EACH, 2 * BYTES + 256, 2 * BYTES),
        ),
        (
            "aiter::fused_allreduce_rmsnorm",
            (V(94), A, A, A, A, WEIGHT, V(1e-5), V(0), V(0), V(True)),
            (5 * EACH, 2 * BYTES + 256, 2 * BYTES),
        ),
        (
            "vllm::rocm_aiter_fused_allreduce_rmsnorm_no_residual",
            (A, WEIGHT, V(1e-5)),
            (4 * EACH, BYTES + 256, BYTES),
        ),
    ],
)
def test_all_reduce_with_norm(operator: str, inputs: tuple[Any, ...], figures: tuple[int, int, int]) -> None:
    cost = cost_of(operator, *texts(*inputs))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == figures


@pytest.mark.parametrize("operator", sorted({operator for operator, *_ in PRODUCTS.values()}))
def test_only_what_multiplies_is_held_against_tensor_cores(operator: str) -> None:
    rows = ["device", "family", "model", "peak", "math", "tensor_cores"]
    model = find_model(operator)
    assert model is not None
    work = pl.DataFrame([[0, model.family, model.name, "fp16", None, None]], schema=rows, orient="row")
    assert with_peaks(work, [])["product"].item() == ("dequant" not in operator)
