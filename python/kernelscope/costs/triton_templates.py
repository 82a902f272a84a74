"""Matrix products that Inductor generates from templates: their sizes are derived from the tensors alone.

The tensors are recorded as stored in memory, in the order of the kernel's arguments. Other inputs may precede
or follow the two factors, and views and transposes are not visible.
"""

import re
from itertools import pairwise
from math import isqrt

from kernelscope.costs.bind import Call
from kernelscope.costs.gemm import gemm_flops
from kernelscope.costs.registry import operator_prefix
from kernelscope.costs.types import Cost, DType, Tensor

_PRODUCT = re.compile(r"_(?:add|baddb|b|_scaled_|_int_)?mm(?=_|$)")
_BATCHED = re.compile(r"_(?:baddb|b)mm(?=_|$)")
_CONVOLUTION = re.compile(r"_convolution(?=_(?!backward)|$)")


def inner_size(a: Tensor, b: Tensor, out: Tensor, *, batch: int) -> int | None:
    """Returns the size k over which ``(m, k) @ (k, n) -> (m, n)`` sums.

    It is None if the tensors do not form such a product.

    Formula: elements of a * b / out = m * k * k * n / (m * n) = k * k, for each of the batch.
    Example: (4, 8, 64), (32, 64) and (32, 32): 2048 * 2048 / 1024 = 64 * 64.
    """
    if not out.numel or not a.numel or any(tensor.numel % batch for tensor in (a, b, out)):
        return None
    square, rest = divmod(a.numel * b.numel, out.numel * batch)
    size = isqrt(square)
    fits = size in a.shape and size in b.shape and b.numel // batch % size == 0 if size else False
    return size if fits and not rest and size * size == square else None


def template_product(call: Call, tensors: list[Tensor]) -> tuple[int, DType]:
    """Returns FLOPs and type of the product in the kernel's name, whose result is the last tensor.

    Formula: for matrices 2 * m * n * k; for a convolution 2 * elements of the result * elements of a filter.
    Raises: ShapeError: no two neighbouring tensors form a product of that size.
    """
    *inputs, out = tensors
    if _CONVOLUTION.search(call.name):
        for x, weight in pairwise(inputs):
            if len(weight.shape) == len(out.shape) > 2 and weight.shape[0] == out.shape[1] > 0:
                return 2 * out.numel * (weight.numel // weight.shape[0]), x.dtype
    else:
        batch = out.shape[0] if _BATCHED.search(call.name) and len(out.shape) == 3 else 1
        for a, b in pairwise(inputs):
            if len(a.shape) > 1 and len(b.shape) > 1 and (k := inner_size(a, b, out, batch=batch)):
                return gemm_flops(out.numel // batch, 1, k, batch=batch, dtype=a.dtype), a.dtype
    return call.fail("the tensors do not form a matrix product")


@operator_prefix("triton_tem_fused_")
def _template(call: Call) -> Cost:
    """A product with what was fused into it, recorded with its tensors; the one written comes last.

    Formula: FLOPs of the product; every tensor is touched once.
    Source: torch/_inductor/select_algorithm.py (def_kernel), torch/_inductor/kernel/{mm,bmm,conv}.py.
    Example: mm of (8, 64) and (64, 32) in float16: 32768 FLOP, reads 5120, writes 512.
    """
    tensors = [arg for arg in call.args if isinstance(arg, Tensor)]
    if len(tensors) < 3:
        call.fail("three tensors were not recorded")
    *inputs, out = tensors
    read = sum(tensor.read for tensor in inputs)
    if not _PRODUCT.search(call.name) and not _CONVOLUTION.search(call.name):
        note = "no model counts kernels generated from this template"
        return Cost(None, read, out.nbytes, inputs[0].dtype, "estimate", note)
    flops, dtype = template_product(call, tensors)
    note = "the multiplied tensors follow from their sizes; fused operators are not counted"
    return Cost(flops, read, out.nbytes, dtype, "estimate", note)
