"""Fourier transforms: the customary operation count, and both sides once."""

from math import log2, prod

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, Tensor

_NOTE = "a transform of n complex numbers counts 5 n log2 n operations, one of real numbers half of that"


def transform_flops(points: int, size: int, *, real: bool = False) -> int:
    """FLOPs of transforms of ``size`` numbers each over ``points`` numbers in total.

    Formula: 5 * points * log2(size), half of it where one side is real; rounded.
    Source: Frigo and Johnson 2005 (FFTW, benchFFT), who use this count for any algorithm.
    Example: one transform of 1024 complex numbers: 5 * 1024 * 10 = 51200.
    """
    flops = 5 * points * log2(size) if size > 1 else 0.0
    return round(flops / 2 if real else flops)


def _dims(call: Call, x: Tensor) -> list[int]:
    """The transformed dimensions, counted from the first. Raises: IndexError: there is no such dimension."""
    return [range(len(x.shape))[dim] for dim in call.integers(1)]


@operator("aten::_fft_c2c")
def _complex_to_complex(call: Call) -> Cost:
    """``_fft_c2c(self, dim, normalization, forward)``: as many numbers come out."""
    x = call.tensor(0)
    size = prod(x.shape[dim] for dim in _dims(call, x))
    return Cost(transform_flops(x.numel, size), x.read, x.nbytes, x.dtype, "estimate", _NOTE)


@operator("aten::_fft_r2c")
def _real_to_complex(call: Call) -> Cost:
    """``_fft_r2c(self, dim, normalization, onesided)``: one-sided, n // 2 + 1 numbers come out of the last of
    ``dim``.

    Example: 4 x 8 float32 over the last: 2.5 * 32 * 3 = 240 FLOP, reads 128, writes 4 * 5 * 8 = 160.
    """
    x = call.tensor(0)
    dims = _dims(call, x)
    size = prod(x.shape[dim] for dim in dims)
    shape = list(x.shape)
    if dims and call.flag(3):
        shape[dims[-1]] = shape[dims[-1]] // 2 + 1
    written = prod(shape) * 2 * x.dtype.bytes
    return Cost(transform_flops(x.numel, size, real=True), x.read, written, x.dtype, "estimate", _NOTE)


@operator("aten::_fft_c2r")
def _complex_to_real(call: Call) -> Cost:
    """``_fft_c2r(self, dim, normalization, last_dim_size)``: ``last_dim_size`` real numbers come out of the
    last of ``dim``.
    """
    x, last = call.tensor(0), call.integer(3)
    dims = _dims(call, x)
    if last < 0 or not dims:
        call.fail(f"{last} numbers over the dimensions {dims}")
    shape = list(x.shape)
    shape[dims[-1]] = last
    size = prod(shape[dim] for dim in dims)
    flops = transform_flops(prod(shape), size, real=True)
    return Cost(flops, x.read, prod(shape) * x.dtype.bytes // 2, x.dtype, "estimate", _NOTE)
