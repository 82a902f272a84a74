"""Matrix products of narrow types with scales, and the conversions to and from them."""

from dataclasses import replace
from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.gemm import gemm_flops
from kernelscope.costs.registry import operator
from kernelscope.costs.types import BFLOAT16, FLOAT4, FLOAT16, FLOAT32, INT32, UINT8, Cost, DType, Tensor


def scaled_product(
    a: Tensor, b: Tensor, m: int, n: int, k: int, *, out: DType, extra: int = 0, batch: int = 1
) -> Cost:
    """Cost of ``(m, k) @ (k, n)`` of narrow operands: the multiply-adds; scaling is not counted.

    ``k`` counts numbers, even if two share a byte. ``extra`` are the bytes of scales and bias.
    Source: torch/utils/flop_counter.py (_scaled_mm_flop).
    Example: (16, 128) @ (128, 64) of fp8 to bfloat16: 262144 FLOP, reads 2048 + 8192, writes 2048.
    """
    flops = gemm_flops(m, n, k, batch=batch)
    return Cost(flops, a.read + b.read + extra, batch * m * n * out.bytes, a.dtype)


def _inner(call: Call, a: Tensor, b: Tensor, b_axis: int) -> int:
    """The inner size in numbers. Raises: ShapeError: the operands do not fit."""
    if a.shape[-1] * a.dtype.packed != b.shape[b_axis] * b.dtype.packed:
        call.fail(f"cannot multiply {a.shape} by {b.shape}")
    return a.shape[-1] * a.dtype.packed


@operator("aten::_scaled_mm")
def _scaled_mm(call: Call) -> Cost:
    """``_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)``.

    Without a recorded output type, that of an ``out=`` tensor or bias holds, else bfloat16 is assumed.
    """
    a, b = call.tensor(0, rank=2), call.tensor(1, rank=2)
    k = _inner(call, a, b, 0)
    rest = call.present(*range(2, 6))
    bias = call.optional(4)
    out = call.last_tensor(8)
    known = out.dtype if out else call.scalar_type(6) or (bias.dtype if bias else None)
    extra = sum(t.read for t in rest)
    cost = scaled_product(a, b, a.shape[0], b.shape[1], k, out=known or BFLOAT16, extra=extra)
    return cost if known else replace(cost, status="estimate", note="bfloat16 results are assumed")


@operator("sgl_kernel::int8_scaled_mm", "sgl_kernel::fp8_scaled_mm", "sgl_kernel::fp8_blockwise_scaled_mm")
def _sglang_scaled_mm(call: Call) -> Cost:
    """``int8_scaled_mm(mat_a, mat_b, scales_a, scales_b, out_dtype, bias)``; mat_b is ``(k, n)``."""
    a, b = call.tensor(0, rank=2), call.tensor(1, rank=2)
    extra = sum(t.read for t in call.present(2, 3, 5))
    known = call.scalar_type(4)
    k = _inner(call, a, b, 0)
    cost = scaled_product(a, b, a.shape[0], b.shape[1], k, out=known or BFLOAT16, extra=extra)
    return cost if known else replace(cost, status="estimate", note="bfloat16 results are assumed")


@operator("bitsandbytes::int8_linear_matmul")
def _bitsandbytes_int8(call: Call) -> Cost:
    """``int8_linear_matmul(A, B)``; A ``(..., k)``, B ``(n, k)``: int32 results."""
    a, b = call.tensor(0), call.tensor(1, rank=2)
    if not a.shape or a.shape[-1] != b.shape[1]:
        call.fail(f"cannot multiply {a.shape} by {b.shape}")
    return scaled_product(a, b, prod(a.shape[:-1]), b.shape[0], b.shape[1], out=INT32)


@operator("bitsandbytes::int8_scaled_mm", composite=True)
def _bitsandbytes_scaled(call: Call) -> Cost:
    """``int8_scaled_mm(A, B, row_stats, col_stats, bias, dtype)``: the product, scaled."""
    cost = _bitsandbytes_int8(call)
    out = call.scalar_type(5) or FLOAT16
    extra = sum(t.read for t in call.present(2, 3, 4))
    written = (cost.bytes_written or 0) // INT32.bytes * out.bytes
    return replace(cost, bytes_read=(cost.bytes_read or 0) + extra, bytes_written=written)


@operator("bitsandbytes::int8_mm_dequant")
def _bitsandbytes_dequantize(call: Call) -> Cost:
    """``int8_mm_dequant(A, row_stats, col_stats, dtype, bias)``: three products by scales, and the bias."""
    x, bias = call.tensor(0), call.optional(4)
    out = call.scalar_type(3) or FLOAT16
    read = sum(t.read for t in call.present(0, 1, 2, 4))
    return Cost((3 + (bias is not None)) * x.numel, read, x.numel * out.bytes, out)


@operator("aten::_int_mm")
def _int_mm(call: Call) -> Cost:
    """``_int_mm(self, mat2)``: int8 operands, int32 results."""
    a, b = call.tensor(0, rank=2), call.tensor(1, rank=2)
    return scaled_product(a, b, a.shape[0], b.shape[1], _inner(call, a, b, 0), out=INT32)


@operator("aten::_scaled_grouped_mm")
def _scaled_grouped_mm(call: Call) -> Cost:
    """``_scaled_grouped_mm(self, mat2, scale_a, scale_b, offs, ...)``: rows belong to one group each.

    Shapes: ``(m, k) @ (g, k, n)``: 2 * m * n * k whatever the group sizes. bfloat16 results.
    """
    a, b = call.tensor(0, rank=2), call.tensor(1, rank=3)
    rest = call.present(2, 3, 4)
    extra = sum(t.read for t in rest)
    return scaled_product(a, b, a.shape[0], b.shape[2], _inner(call, a, b, 1), out=BFLOAT16, extra=extra)


@operator("_C::cutlass_scaled_mm", "_C::cutlass_scaled_fp4_mm", "trtllm::cublas_scaled_mm")
def _cutlass_scaled_mm(call: Call) -> Cost:
    """``cutlass_scaled_mm(out, a, b, a_scales, b_scales, bias)``; b is ``(k, n)``, for fp4 ``(n, k)``.

    TensorRT-LLM's ``cublas_scaled_mm(a, b, a_scale, b_scale, bias, out_dtype)`` has no ``out``.
    """
    shift = -1 if "trtllm" in call.name else 0
    a, b = call.tensor(1 + shift, rank=2), call.tensor(2 + shift, rank=2)
    transposed = "fp4" in call.name
    # Two 4-bit numbers share a byte, whatever name the bytes have.
    packed = 2 if transposed and a.dtype.packed == 1 else a.dtype.packed
    if a.shape[1] != b.shape[1 if transposed else 0]:
        call.fail(f"cannot multiply {a.shape} by {b.shape}")
    rest = call.present(3 + shift, 4 + shift, 5 + shift)
    n = b.shape[0 if transposed else 1]
    out = call.tensor(0).dtype if shift == 0 else BFLOAT16
    extra = sum(t.read for t in rest)
    return scaled_product(a, b, a.shape[0], n, a.shape[1] * packed, out=out, extra=extra)


_AITER = "gemm_a8w8 gemm_a8w8_CK gemm_a8w8_blockscale gemm_a8w8_bpreshuffle gemm_a8w8_blockscale_ck"


@operator(*(f"aiter::{name}" for name in _AITER.split()))
def _aiter_a8w8(call: Call) -> Cost:
    """``gemm_a8w8(XQ, WQ, x_scale, w_scale, Out, ...)``; XQ ``(m, k)``, WQ ``(n, k)``."""
    a, b = call.tensor(0, rank=2), call.tensor(1, rank=2)
    k = _inner(call, a, b, 1)
    scales = call.present(2, 3)
    out = call.optional(4)
    dtype = out.dtype if out and len(out.shape) == 2 else BFLOAT16
    return scaled_product(a, b, a.shape[0], b.shape[0], k, out=dtype, extra=sum(t.read for t in scales))


def quantize(x: Tensor, out: Tensor, *, per_element: int, read: int = 0, written: int = 0) -> Cost:
    """Cost of converting ``x`` to a narrow type.

    Formula: one scaling per element (2 with the search for the maximum). Reads x, writes the result. The
    bytes of the scales are ``read``, or ``written`` if they are computed in the same pass.
    Example: static fp8 of (888, 512) bfloat16: 454656 FLOP, reads 909312, writes 454656 bytes.
    """
    return Cost(per_element * x.numel, x.read + read, out.nbytes + written, x.dtype)


@operator(
    "_C::static_scaled_fp8_quant", "_C::static_scaled_int8_quant", "sgl_kernel::sgl_per_tensor_quant_fp8"
)
def _static_quant(call: Call) -> Cost:
    """``static_scaled_fp8_quant(out, input, scale)``; SGLang's takes ``(input, output, scale,
    is_static)``.
    """
    first, second, scale = call.tensor(0), call.tensor(1), call.tensor(2)
    out, x = (second, first) if "sgl_" in call.name else (first, second)
    return quantize(x, out, per_element=1, read=scale.read)


@operator(
    "_C::dynamic_scaled_fp8_quant", "_C::dynamic_per_token_scaled_fp8_quant", "_C::dynamic_scaled_int8_quant"
)
def _dynamic_quant(call: Call) -> Cost:
    """``dynamic_scaled_fp8_quant(out, input, scale)``: the scales are found and written."""
    out, x, scale = call.tensor(0), call.tensor(1), call.tensor(2)
    return quantize(x, out, per_element=2, written=scale.nbytes)


@operator("_C::scaled_fp4_quant", "sgl_kernel::scaled_fp4_quant")
def _fp4_quant(call: Call) -> Cost:
    """``scaled_fp4_quant(output, input, output_scale, input_scale)``: a byte for two, a scale per block."""
    out, x, scale, over_all = (call.tensor(index) for index in range(4))
    return quantize(x, out, per_element=2, read=over_all.read, written=scale.nbytes)


@operator("sgl_kernel::sgl_per_token_quant_fp8", "sgl_kernel::sgl_per_token_group_quant_fp8")
@operator("sgl_kernel::sgl_per_token_group_quant_8bit", "sgl_kernel::sgl_per_token_group_quant_int8")
@operator("_C::per_token_group_fp8_quant", "_C::per_token_group_quant_int8")
def _input_first_quant(call: Call) -> Cost:
    """``sgl_per_token_quant_fp8(input, output_q, output_s, ...)``: a scale per row, or per group of it."""
    x, out, scale = call.tensor(0), call.tensor(1), call.tensor(2)
    return quantize(x, out, per_element=2, written=scale.nbytes)


@operator("fbgemm::FloatToFP8RowwiseQuantized")
def _fbgemm_to_fp8(call: Call) -> Cost:
    """``FloatToFP8RowwiseQuantized(input, forward)``: a byte per number, padded to 4, and 4 of scale and 4
    unused per row (rows of 256 become 264 bytes).
    """
    x = call.tensor(0)
    width = x.shape[-1] if x.shape else 1
    rows = x.numel // width if width else 0
    return Cost(2 * x.numel, x.read, rows * (-(-width // 4) * 4 + 8), x.dtype)


@operator("fbgemm::FP8RowwiseQuantizedToFloat")
def _fbgemm_from_fp8(call: Call) -> Cost:
    """``FP8RowwiseQuantizedToFloat(input, forward)``: the inverse, to float32."""
    x = call.tensor(0)
    width = max((x.shape[-1] if x.shape else 1) - 8, 0)
    elements = prod(x.shape[:-1]) * width
    return Cost(elements, x.read, elements * FLOAT32.bytes, x.dtype)


@operator("fbgemm::FloatToHFP8Quantized")
def _fbgemm_to_hfp8(call: Call) -> Cost:
    """``FloatToHFP8Quantized(input, ebits, exponent_bias, max_pos)``: a byte per number."""
    x = call.tensor(0)
    return Cost(2 * x.numel, x.read, x.numel, x.dtype)


@operator("fbgemm::HFP8QuantizedToFloat")
def _fbgemm_from_hfp8(call: Call) -> Cost:
    """``HFP8QuantizedToFloat(input, ebits, exponent_bias)``: a byte per number to float32."""
    x = call.tensor(0)
    return Cost(x.numel, x.read, x.numel * FLOAT32.bytes, x.dtype)


_PRIMUS = ("primus_turbo", "primus_turbo_cpp_extension")
# Numbers that share a scale of one byte in MXFP4 and MXFP8.
_BLOCK = 32


def _as_fp4(tensor: Tensor) -> Tensor:
    """A tensor of bytes with two numbers each, which older recorders call uint8."""
    return tensor._replace(dtype=FLOAT4) if tensor.dtype is UINT8 else tensor


@operator(*(f"{library}::hipblaslt_gemm_fp{bits}" for library in _PRIMUS for bits in (8, 4)))
def _hipblaslt(call: Call) -> Cost:
    """``hipblaslt_gemm_fp8(A, scaleA, B, scaleB, out_dtype, transA, transB, transC, granularity)``.

    ``transC`` exchanges A and B with their flags, and negates both: the result is transposed.
    """
    a, b = call.tensor(0, rank=2), call.tensor(2, rank=2)
    flags = [call.flag(index, default=False) for index in (5, 6)]
    if call.flag(7, default=False):
        a, b = b, a
        flags = [not flag for flag in reversed(flags)]
    if call.name.endswith("4"):
        a, b = _as_fp4(a), _as_fp4(b)
    m, k = a.shape[::-1] if flags[0] else a.shape
    inner, n = b.shape[::-1] if flags[1] else b.shape
    if k * a.dtype.packed != inner * b.dtype.packed:
        call.fail(f"cannot multiply {a.shape} by {b.shape}")
    out = call.scalar_type(4) or BFLOAT16
    extra = sum(t.read for t in call.present(1, 3))
    return scaled_product(a, b, m, n, k * a.dtype.packed, out=out, extra=extra)


@operator("aiter::gemm_a4w4", composite=True)
@operator("aiter::_gemm_a4w4_asm", "aiter::gemm_a4w4_asm", "aiter::gemm_a4w4_blockscale")
def _aiter_a4w4(call: Call) -> Cost:
    """``gemm_a4w4(A, B, A_scale, B_scale, out, ...)``; A ``(m, k / 2)``, B ``(n, k / 2)``, always A x B^T."""
    a, b = _as_fp4(call.tensor(0, rank=2)), _as_fp4(call.tensor(1, rank=2))
    k = _inner(call, a, b, 1)
    extra = sum(t.read for t in call.present(2, 3))
    return scaled_product(a, b, a.shape[0], b.shape[0], k, out=BFLOAT16, extra=extra)


@operator("vllm::gemm_with_dynamic_quant")
def _dynamic_product(call: Call) -> Cost:
    """``gemm_with_dynamic_quant(x, weight, weight_scale, ...)``; x ``(m, k)``, weight ``(n, k / 2)`` packed.

    x is narrowed inside, which is not counted.
    """
    x, weight = call.tensor(0, rank=2), call.tensor(1, rank=2)
    (m, k), n = x.shape, weight.shape[0]
    if k not in {weight.shape[1], 2 * weight.shape[1]}:
        call.fail(f"cannot multiply {x.shape} by {weight.shape}")
    out = x.dtype if x.dtype.bytes == 2 else BFLOAT16
    scales = call.optional(2)
    read = x.read + weight.read + (scales.read if scales else 0)
    return Cost(gemm_flops(m, n, k), read, m * n * out.bytes, FLOAT4)


@operator("torchao::mx_fp8_bf16", "torchao::mx_fp4_bf16")
def _torchao_product(call: Call) -> Cost:
    """``mx_fp8_bf16(a, b, a_scale, b_scale)``; a ``(m, k)``, b ``(k, n)``, of fp4 two numbers a byte."""
    a, b = call.tensor(0, rank=2), call.tensor(1, rank=2)
    if "fp4" in call.name:
        a, b = _as_fp4(a), _as_fp4(b)
    k = _inner(call, a, b, 0)
    extra = sum(t.read for t in call.present(2, 3))
    return scaled_product(a, b, a.shape[0], b.shape[1], k, out=BFLOAT16, extra=extra)


_DEEP = ("fp8", "bf16")


@operator(*(f"deep_gemm::{bits}_gemm_{form}" for bits in _DEEP for form in ("nt", "nn", "tn", "tt")))
@operator(*(f"deep_gemm::m_grouped_{bits}_gemm_nt_contiguous" for bits in _DEEP))
@operator(*(f"deep_gemm::m_grouped_{bits}_gemm_nt_masked" for bits in _DEEP))
def _deep_gemm(call: Call) -> Cost:
    """``fp8_gemm_nt(a, a_scale, b, b_scale, d, ...)``; of bf16 ``(a, b, d, ...)``.

    Shapes: d ``(m, n)``, or ``(groups, most rows, n)`` where a mask says how many rows of each group count:
    then all are counted. Each row of a has k numbers.
    """
    step = 2 if "fp8" in call.name else 1
    a, b, out = call.tensor(0), call.tensor(step), call.tensor(2 * step)
    n = out.shape[-1] if out.shape else 0
    rows = out.numel // n if n else 0
    if rows < 1 or a.numel % rows or b.shape[-1:] == ():
        call.fail(f"cannot multiply {a.shape} by {b.shape}, giving {out.shape}")
    k = a.numel // rows
    scales = sum(t.read for t in call.present(1, 3)) if step == 2 else 0
    cost = Cost(gemm_flops(rows, n, k), a.read + b.read + scales, out.nbytes, a.dtype)
    masked = "masked" in call.name
    note = "an upper bound: all rows of each group are counted"
    return replace(cost, status="estimate", note=note) if masked else cost


def _narrow(x: Tensor, *, copies: int, bytes_of: int) -> Cost:
    """A search for the maximum and a scaling per copy; ``bytes_of`` is the size of the results."""
    return Cost(2 * copies * x.numel, x.read, bytes_of, x.dtype)


@operator(*(f"{library}::quantize_fp8_tensorwise" for library in _PRIMUS))
@operator("torchao::fp8_tensorwise_quantize_2d")
def _tensorwise_quantize(call: Call) -> Cost:
    """``quantize_fp8_tensorwise(x, dtype, ...)``: one byte per number, and a scale."""
    x = call.tensor(0)
    return _narrow(x, copies=1, bytes_of=x.numel + FLOAT32.bytes)


@operator(*(f"{library}::quantize_mxfp4_dual" for library in (*_PRIMUS, "primus")))
def _mxfp4_quantize(call: Call) -> Cost:
    """``quantize_mxfp4_dual(x, ...)``: a copy by rows and one by columns, two numbers a byte, each with a
    scale of one byte for 32 numbers.
    """
    x = call.tensor(0, rank=2)
    m, n = x.shape
    scales = m * -(-n // _BLOCK) + n * -(-m // _BLOCK)
    return _narrow(x, copies=2, bytes_of=2 * -(-x.numel // 2) + scales)


_MX8 = "mxfp8_quantize triton_to_mxfp8_dim0 triton_to_mxfp8_dim1 cutedsl_mxfp8_quantize_rowwise"


@operator(*(f"torchao::{name}" for name in _MX8.split()))
@operator("torchao::triton_quantize_nvfp4")
def _microscaled_quantize(call: Call) -> Cost:
    """``mxfp8_quantize(x, ...)``: a byte per number and one per 32; nvfp4: two numbers a byte, one per 16."""
    x = call.tensor(0)
    fp4 = "nvfp4" in call.name
    size = x.numel // 2 + x.numel // 16 if fp4 else x.numel + x.numel // _BLOCK
    return _narrow(x, copies=1, bytes_of=size)
