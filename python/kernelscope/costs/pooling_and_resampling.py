"""Pooling, padding, interpolation: a count per output element that depends on the window or the taps."""

from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.convolution import Geometry, conv_output
from kernelscope.costs.copy_and_layout import pad
from kernelscope.costs.registry import operator
from kernelscope.costs.types import INT64, Cost, ShapeError, Tensor


def pool_output(
    size: int, window: int, *, stride: int, padding: int, dilation: int = 1, ceil_mode: bool = False
) -> int:
    """Size of a pooled dimension.

    Formula: (size + 2 * padding - dilation * (window - 1) - 1) / stride + 1, rounded down; rounded up with
    ``ceil_mode``, but a window must begin inside the input or its left padding.
    Raises: ShapeError: the window does not fit.
    Source: torch.nn.MaxPool2d (documentation).
    Example: 112 with window 3, stride 2, padding 1: 56.
    """
    if stride < 1 or window < 1 or dilation < 1:
        raise ShapeError(f"a window of {window} with stride {stride} and dilation {dilation}")
    room = size + 2 * padding - dilation * (window - 1) - 1
    if room < 0:
        raise ShapeError(f"a window of {window} does not fit {size}")
    out = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (out - 1) * stride >= size + padding:
        out -= 1
    return out


def _pooled(call: Call, x: Tensor, first: int, rank: int, *, dilated: bool) -> tuple[tuple[int, ...], int]:
    """Output shape and window size from ``kernel_size, stride, padding[, dilation], ceil_mode`` at
    ``first``.
    """

    def spread(index: int, default: tuple[int, ...]) -> tuple[int, ...]:
        values = call.integers(index, default) or default
        return values * rank if len(values) == 1 else values

    window = spread(first, ())
    stride = spread(first + 1, window)
    padding = spread(first + 2, (0,))
    dilation = spread(first + 3, (1,)) if dilated else (1,) * rank
    ceil_mode = call.flag(first + (4 if dilated else 3), default=False)
    if not len(window) == len(stride) == len(padding) == len(dilation) == rank or len(x.shape) < rank:
        call.fail(f"a window {window} over {x.shape}")
    spatial = tuple(
        pool_output(n, w, stride=s, padding=p, dilation=d, ceil_mode=ceil_mode)
        for n, w, s, p, d in zip(x.shape[-rank:], window, stride, padding, dilation, strict=True)
    )
    return (*x.shape[:-rank], *spatial), prod(window)


def _rank(name: str) -> int:
    """The spatial dimensions that are in a name such as ``avg_pool2d``."""
    return next(rank for rank in (3, 2, 1) if f"{rank}d" in name)


@operator("aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d", composite=True)
@operator("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", "aten::max_pool1d_with_indices")
def _max_pool(call: Call) -> Cost:
    """``max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)``.

    Formula: a comparison per window element; writes the result and, with indices, an int64 for each.
    """
    x = call.tensor(0)
    out, window = _pooled(call, x, 1, _rank(call.name), dilated=True)
    width = x.dtype.bytes + (INT64.bytes if "indices" in call.name else 0)
    return Cost(window * prod(out), x.read, prod(out) * width, x.dtype)


@operator("aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward")
def _max_pool_backward(call: Call) -> Cost:
    """``(grad_output, self, kernel_size, ..., indices)``: an addition per gradient; writes self's shape."""
    grad, x = call.tensor(0), call.tensor(1)
    return Cost(grad.numel, grad.read + grad.numel * INT64.bytes, x.nbytes, grad.dtype)


@operator("aten::avg_pool1d", composite=True)
@operator("aten::avg_pool2d", "aten::avg_pool3d")
def _avg_pool(call: Call) -> Cost:
    """``avg_pool2d(self, kernel_size, stride, padding, ceil_mode, ...)``: an addition per window element and
    a division per result.
    """
    x = call.tensor(0)
    out, window = _pooled(call, x, 1, _rank(call.name), dilated=False)
    return Cost((window + 1) * prod(out), x.read, prod(out) * x.dtype.bytes, x.dtype)


@operator("aten::avg_pool2d_backward", "aten::avg_pool3d_backward")
def _avg_pool_backward(call: Call) -> Cost:
    """``(grad_output, self, kernel_size, ...)``: a division per gradient, an addition per window element."""
    grad, x = call.tensor(0), call.tensor(1)
    window = call.integers(2)
    size = prod(window * _rank(call.name) if len(window) == 1 else window)
    return Cost((size + 1) * grad.numel, grad.read, x.nbytes, grad.dtype)


@operator(
    "aten::adaptive_avg_pool1d", "aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d", composite=True
)
@operator("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d")
def _adaptive_avg_pool(call: Call) -> Cost:
    """``adaptive_avg_pool2d(self, output_size)``: every element is added at least once, a division a result.

    Windows that overlap (sizes that do not divide) are counted once.
    """
    x, out, note = _adaptive(call)
    results = prod(out)
    status = "estimate" if note else "exact"
    return Cost(x.numel + results, x.read, results * x.dtype.bytes, x.dtype, status, note)


@operator("aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d")
def _adaptive_max_pool(call: Call) -> Cost:
    """``adaptive_max_pool2d(self, output_size)``: a comparison per element; writes results and indices."""
    x, out, note = _adaptive(call)
    written = prod(out) * (x.dtype.bytes + INT64.bytes)
    return Cost(x.numel, x.read, written, x.dtype, "estimate" if note else "exact", note)


def _adaptive(call: Call) -> tuple[Tensor, tuple[int, ...], str]:
    """Input, output shape, and what is not exact."""
    x, size = call.tensor(0), call.integers(1)
    rank = _rank(call.name)
    size = size * rank if len(size) == 1 else size
    if len(x.shape) < rank or len(size) != rank or min(size) < 1:
        call.fail(f"an adaptive pool from {x.shape} to {size}")
    even = all(n % out == 0 for n, out in zip(x.shape[-rank:], size, strict=True))
    return x, (*x.shape[:-rank], *size), "" if even else "overlapping windows are counted once"


@operator("aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward")
def _adaptive_avg_pool_backward(call: Call) -> Cost:
    """``(grad_output, self)``: a division per gradient, an addition per element of self."""
    grad, x = call.tensor(0), call.tensor(1)
    return Cost(grad.numel + x.numel, grad.read, x.nbytes, grad.dtype)


# FLOPs per output element: the taps' products and sums; 2 further multiplications blend each axis's weights.
_INTERPOLATION = {
    **{f"{form}{rank}d": 0 for form in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)},
    "upsample_linear1d": 3,
    "upsample_bilinear2d": 9,
    "_upsample_bilinear2d_aa": 9,
    "upsample_trilinear3d": 21,
    "upsample_bicubic2d": 35,
    "_upsample_bicubic2d_aa": 35,
}


@operator(*(f"aten::{name}" for name in _INTERPOLATION))
def _upsample(call: Call) -> Cost:
    """``upsample_bilinear2d(self, output_size, ...)``: linear blends of 2, 4 or 8 taps (3 FLOPs each blend),
    cubic of 16 taps (7 each of 5 blends); deriving the weights is not counted.

    Without an output size, the scales give it.
    """
    base = call.name.rpartition("::")[2].partition(".")[0]
    x, rank = call.tensor(0), _rank(base)
    size = call.integers(1) if call.arg(1) is not None else _scaled(call, x, rank)
    if len(size) != rank or len(x.shape) != rank + 2:
        call.fail(f"cannot resample {x.shape} to {size}")
    results = prod(x.shape[:2]) * prod(size)
    # The antialiasing forms take as many taps as the scale needs.
    note = "the antialiasing taps are not counted" if base.endswith("_aa") else ""
    read = x.read if _INTERPOLATION[base] else min(x.read, results * x.dtype.bytes)
    status = "estimate" if note else "exact"
    return Cost(_INTERPOLATION[base] * results, read, results * x.dtype.bytes, x.dtype, status, note)


def _scaled(call: Call, x: Tensor, rank: int) -> tuple[int, ...]:
    """The size that scale factors, the last input of the ``vec`` overloads, give."""
    scales = call.args[-1]
    if not isinstance(scales, tuple) or len(scales) != rank:
        call.fail("neither size nor scales were recorded")
    return tuple(
        int(n * scale) if isinstance(scale, (int, float)) else call.fail("a scale is not a number")
        for n, scale in zip(x.shape[-rank:], scales, strict=True)
    )


@operator(*(f"aten::{name}_backward" for name in _INTERPOLATION))
def _upsample_backward(call: Call) -> Cost:
    """``(grad_output, output_size, input_size, ...)``: each gradient goes to every tap: a product and a
    sum.
    """
    base = call.name.rpartition("::")[2].partition(".")[0].removesuffix("_backward")
    grad, size = call.tensor(0), call.integers(2)
    taps = {0: 1, 3: 2, 9: 4, 21: 8, 35: 16}[_INTERPOLATION[base]]
    per_element = 1 if taps == 1 else 2 * taps
    return Cost(per_element * grad.numel, grad.read, prod(size) * grad.dtype.bytes, grad.dtype)


@operator("aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d")
@operator("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d")
def _pad(call: Call) -> Cost:
    """``reflection_pad2d(self, padding)``: pairs from the last dimension backwards; copies."""
    return pad(call)


@operator("aten::grid_sampler_2d", "aten::cudnn_grid_sampler")
def _grid_sampler(call: Call) -> Cost:
    """``grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners)``.

    Formula: a bilinear blend (9) per result; per grid point 8 to place it and derive the weights.
    Shapes: input ``(batch, channels, h, w)``; grid ``(batch, out_h, out_w, 2)``.
    """
    x, grid = call.tensor(0, rank=4), call.tensor(1, rank=4)
    points = prod(grid.shape[:3])
    results = points * x.shape[1]
    flops, note = 9 * results + 8 * points, "the interpolation is assumed to be bilinear"
    return Cost(flops, x.read + grid.read, results * x.dtype.bytes, x.dtype, "estimate", note)


@operator("aten::im2col")
def _im2col(call: Call) -> Cost:
    """``im2col(self, kernel_size, dilation, padding, stride)``: a copy per window element and place."""
    x, window = call.tensor(0), call.integers(1)
    if len(x.shape) != 4 or len(window) != 2:
        call.fail(f"columns of {x.shape} with a window {window}")
    geometry = Geometry(call.integers(4), call.integers(3), call.integers(2))
    places = prod(conv_output(x.shape, (1, x.shape[1], *window), geometry)[2:])
    return Cost(0, x.read, x.shape[0] * x.shape[1] * prod(window) * places * x.dtype.bytes, x.dtype)
