"""Matrix products with packed weights of a few bits, which the kernel unpacks.

The sizes follow from the words, the scales and the activations, whose type is the multiplied type.
"""

from dataclasses import replace
from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.gemm import gemm_flops
from kernelscope.costs.registry import operator
from kernelscope.costs.types import BFLOAT16, Cost, DType, Tensor

# Bits of a word.
WORD = 32
# Rows of a weight that a row of Marlin's words holds, by any number of bits.
MARLIN_TILE = 16
_ASSUMED = "bfloat16 results are assumed"


def packed_product(a: Tensor, n: int, *, read: int, out: DType) -> Cost:
    """Cost of ``(..., k) @ (k, n)`` with packed weights: the multiply-adds; unpacking is not counted.

    ``read`` are the bytes of all inputs: packed words, scales and zero points as stored in memory.
    Example: (16, 128) @ (128, 64) of float16 by int4 with 1 scale for 128: 262144 FLOP, reads
    4096 + 4096 + 128, writes 2048.
    """
    k = a.shape[-1]
    rows = prod(a.shape[:-1])
    return Cost(gemm_flops(rows, n, k), read, rows * n * out.bytes, a.dtype)


def bits_stored(call: Call, bits_in_all: int, *sizes: int) -> int:
    """Returns the number of bits per weight of these sizes in ``bits_in_all``.

    Raises: ShapeError: the number of bits is not one that packing uses.
    """
    count = prod(sizes)
    if count == 0 or bits_in_all % count or bits_in_all // count not in {2, 3, 4, 8}:
        call.fail(f"{bits_in_all} bits cannot contain a weight of {' x '.join(map(str, sizes))}")
    return bits_in_all // count


def _width(call: Call, a: Tensor) -> int:
    """The inner size. Raises: ShapeError: the activations have no dimension."""
    return a.shape[-1] if a.shape else call.fail("the activations are a single number")


def marlin_words(call: Call, rank: int) -> tuple[int, Tensor, Tensor]:
    """Returns the position of the words in a call of Marlin, the words, and their scales.

    Versions differ in the other inputs: a result may come before, a bias of one dimension between them.
    Raises: ShapeError: they are not among the inputs.
    """
    at = next((at for at in (1, 2) if (t := call.optional(at)) and t.dtype.kind == "integer"), None)
    if at is None:
        call.fail("the packed words are not among the inputs")
    words = call.tensor(at, rank=rank)
    for scales in call.present(*range(at + 1, at + 4)):
        if len(scales.shape) == rank and scales.dtype.kind == "float":
            return at, words, scales
    return call.fail("the scales are not among the inputs")


_MARLIN = "gptq_marlin_gemm marlin_gemm fp8_marlin_gemm"


@operator(*(f"{library}::{name}" for library in ("_C", "sgl_kernel") for name in _MARLIN.split()))
def _marlin(call: Call) -> Cost:
    """``gptq_marlin_gemm(a, c, b_q_weight, b_bias, b_scales, ..., workspace, b_q_type, ...)``; older versions
    have neither result nor bias.

    Shapes: a ``(m, k)``; words ``(k / 16, n * bits / 2)`` int32; scales ``(groups, n)``. The workspace, the
    last tensor, holds locks and is not counted.
    """
    a = call.tensor(0, rank=2)
    at, words, scales = marlin_words(call, 2)
    k, n = a.shape[1], scales.shape[1]
    bits_stored(call, words.numel * WORD, k, n)
    if words.shape[0] * MARLIN_TILE != k:
        call.fail(f"{words.shape[0]} rows of words for {k} numbers")
    result = call.optional(1) if at == 2 else None
    read = sum(t.read for t in call.tensors()[:-1]) - (result.read if result else 0)
    known = next((t.dtype for t in (result, a, scales) if t and t.dtype.bytes == 2), None)
    cost = packed_product(a, n, read=read, out=known or BFLOAT16)
    return cost if known else replace(cost, status="estimate", note=_ASSUMED)


@operator("_C::gptq_gemm", "sgl_kernel::gptq_gemm")
def _gptq(call: Call) -> Cost:
    """``gptq_gemm(a, b_q_weight, b_gptq_qzeros, b_gptq_scales, b_g_idx, ...)``.

    Shapes: a ``(m, k)``; words ``(k * bits / 32, n)`` int32; zeros ``(groups, n * bits / 32)``; scales
    ``(groups, n)``.
    """
    a, words, scales = call.tensor(0, rank=2), call.tensor(1, rank=2), call.tensor(3, rank=2)
    n = scales.shape[1]
    bits_stored(call, words.numel * WORD, a.shape[1], n)
    if words.shape[1] != n:
        call.fail(f"words {words.shape} for scales {scales.shape}")
    return packed_product(a, n, read=sum(t.read for t in call.present(*range(5))), out=a.dtype)


@operator("_C::awq_gemm", "sgl_kernel::awq_gemm")
def _awq(call: Call) -> Cost:
    """``awq_gemm(in_feats, kernel, scaling_factors, zeros, split_k_iters)``.

    Shapes: in_feats ``(m, k)``; words ``(k, n / 8)`` int32; scales ``(groups, n)``; zeros as the words. The
    partial sums of a split are not counted.
    """
    a, words, scales = call.tensor(0, rank=2), call.tensor(1, rank=2), call.tensor(2, rank=2)
    n = scales.shape[1]
    if bits_stored(call, words.numel * WORD, a.shape[1], n) != 4 or words.shape[0] != a.shape[1]:
        call.fail(f"words {words.shape} for {a.shape} and scales {scales.shape}")
    return packed_product(a, n, read=sum(t.read for t in call.present(*range(4))), out=a.dtype)


@operator("_C::awq_dequantize", "sgl_kernel::awq_dequantize")
def _awq_dequantize(call: Call) -> Cost:
    """``awq_dequantize(kernel, scaling_factors, zeros, ...)``: a difference and a product per number."""
    words, scales, zeros = call.tensor(0, rank=2), call.tensor(1, rank=2), call.tensor(2)
    k, n = words.shape[0], scales.shape[1]
    if bits_stored(call, words.numel * WORD, k, n) != 4:
        call.fail(f"words {words.shape} for scales {scales.shape}")
    read = words.read + scales.read + zeros.read
    return Cost(2 * k * n, read, k * n * scales.dtype.bytes, scales.dtype)


@operator("_C::machete_mm", "_C::cutlass_w4a8_mm")
def _machete(call: Call) -> Cost:
    """``machete_mm(A, B, b_type, out_type, group_scales, group_zeros, group_size, channel_scales,
    token_scales, schedule)`` and ``cutlass_w4a8_mm(A, B, group_scales, group_size, channel_scales,
    token_scales, out_type, schedule)``, which multiplies fp8.

    Shapes: A ``(m, k)``; words ``(k * bits / 32, n)`` int32. Without an output type it is A's of 16 bits,
    else bfloat16 is assumed.
    """
    a, words = call.tensor(0, rank=2), call.tensor(1, rank=2)
    bits_stored(call, words.numel * WORD, a.shape[1], words.shape[1])
    known = call.scalar_type(6 if "w4a8" in call.name else 3) or (a.dtype if a.dtype.bytes == 2 else None)
    read = sum(t.read for t in call.tensors())
    cost = packed_product(a, words.shape[1], read=read, out=known or BFLOAT16)
    return cost if known else replace(cost, status="estimate", note=_ASSUMED)


@operator("_C::allspark_w8a16_gemm")
def _allspark(call: Call) -> Cost:
    """``allspark_w8a16_gemm(a, b_qweight, b_scales, b_qzeros, n, ...)``: bytes, n filled up to 32."""
    a, weight, n = call.tensor(0, rank=2), call.tensor(1), call.integer(4)
    if weight.numel not in {a.shape[1] * n, a.shape[1] * -(-n // 32) * 32}:
        call.fail(f"weight {weight.shape} for {a.shape} and {n} columns")
    return packed_product(a, n, read=sum(t.read for t in call.present(*range(4))), out=a.dtype)


@operator("bitsandbytes::gemv_4bit", "bitsandbytes::gemm_4bit")
def _bitsandbytes_4bit(call: Call) -> Cost:
    """``gemv_4bit(A, B, shapeB, absmax, code, blocksize)``, ``gemm_4bit(A, B, shapeB, absmax, blocksize,
    quant_type, bias, absmax_8bit, absmax_code, absmax_offset)``.

    Shapes: A ``(..., k)``; B two numbers a byte, whatever type the bytes have; shapeB ``[n, k]``.
    """
    a, b = call.tensor(0), call.tensor(1)
    k = _width(call, a)
    n = 2 * b.nbytes // k if k else 0
    if bits_stored(call, 8 * b.nbytes, n, k) != 4:
        call.fail(f"{b.nbytes} bytes cannot contain rows of {k}")
    out = call.last_tensor(6) if ".out" in call.name else None
    read = sum(t.read for t in call.tensors()) - (out.read if out else 0)
    return packed_product(a, n, read=read, out=a.dtype)


@operator("aten::_weight_int8pack_mm")
def _weight_int8(call: Call) -> Cost:
    """``_weight_int8pack_mm(self, mat2, scales)``; mat2 is ``(n, k)`` int8."""
    a, b, scales = call.tensor(0, rank=2), call.tensor(1, rank=2), call.tensor(2)
    if a.shape[1] != b.shape[1]:
        call.fail(f"cannot multiply {a.shape} by {b.shape}")
    return packed_product(a, b.shape[0], read=a.read + b.read + scales.read, out=a.dtype)


@operator("aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_for_cpu")
@operator("aten::_weight_int4pack_mm_with_scales_and_zeros")
def _weight_int4(call: Call) -> Cost:
    """``_weight_int4pack_mm(self, mat2, qGroupSize, qScaleAndZeros)``, or scales and zeros apart.

    Shapes: self ``(m, k)``; scales and zeros ``(groups, n, 2)``; the packed weight holds n * k numbers in
    tiles of the device: ``(n / 8, k / (tiles * 16), 32, tiles / 2)`` int32 of CUDA.
    """
    a, b, scales = call.tensor(0, rank=2), call.tensor(1), call.tensor(3)
    k = a.shape[1]
    n = 2 * b.nbytes // k if k else 0
    if bits_stored(call, 8 * b.nbytes, n, k) != 4 or (len(scales.shape) == 3 and scales.shape[1] != n):
        call.fail(f"packed weight {b.shape} and scales {scales.shape} for {a.shape}")
    return packed_product(a, n, read=sum(t.read for t in call.present(0, 1, 3, 4)), out=a.dtype)
