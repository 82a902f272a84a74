"""Convolutions: FLOPs of the direct convolution, independent of the library's algorithm."""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from kernelscope.costs.bind import Call
from kernelscope.costs.registry import operator
from kernelscope.costs.types import Cost, ShapeError, Tensor


class Geometry(NamedTuple):
    """Movement of the window. A list of one value applies to every spatial dimension."""

    stride: tuple[int, ...] = (1,)
    padding: tuple[int, ...] = (0,)
    dilation: tuple[int, ...] = (1,)
    transposed: bool = False
    output_padding: tuple[int, ...] = (0,)
    groups: int = 1


def _spread(values: tuple[int, ...], rank: int) -> tuple[int, ...]:
    spread = values * rank if len(values) == 1 else values
    if len(spread) != rank:
        raise ShapeError(f"{values} does not fit {rank} spatial dimensions")
    return spread


def conv_output(x: tuple[int, ...], weight: tuple[int, ...], geometry: Geometry) -> tuple[int, ...]:
    """Shape of a convolution's output.

    Formula: (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1 per spatial dimension;
    transposed: (size - 1) * stride - 2 * padding + dilation * (window - 1) + output_padding + 1.
    Shapes: x ``(batch, c_in, *size)``; weight ``(c_out, c_in / groups, *window)``, transposed
    ``(c_in, c_out / groups, *window)``.
    Raises: ShapeError: the sizes contradict each other.
    Source: torch.nn.Conv2d, torch.nn.ConvTranspose2d (documentation).
    Example: (32, 64, 56, 56) by (128, 64, 3, 3), stride 2, padding 1: (32, 128, 28, 28).
    """
    rank = len(x) - 2
    groups = geometry.groups
    if rank < 1 or len(weight) != len(x) or groups < 1:
        raise ShapeError(f"cannot convolve {x} with {weight} in {groups} groups")
    c_in = weight[0] if geometry.transposed else weight[1] * groups
    if x[1] != c_in:
        raise ShapeError(f"{x} does not have the {c_in} channels that {weight} needs")
    out: list[int] = []
    moves = (geometry.stride, geometry.padding, geometry.dilation, geometry.output_padding)
    rows = zip(x[2:], weight[2:], *(_spread(values, rank) for values in moves), strict=True)
    for size, window, stride, padding, dilation, extra in rows:
        if stride < 1 or dilation < 1 or window < 1:
            raise ShapeError(f"a window of {window} with stride {stride} and dilation {dilation}")
        reach = dilation * (window - 1)
        if geometry.transposed:
            out.append((size - 1) * stride - 2 * padding + reach + extra + 1)
        else:
            out.append((size + 2 * padding - reach - 1) // stride + 1)
        if out[-1] < 0:
            raise ShapeError(f"a window of {window} does not fit {size}")
    return (x[0], weight[1] * groups if geometry.transposed else weight[0], *out)


def conv_flops(
    x: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...], *, transposed: bool = False
) -> int:
    """FLOPs of a convolution, forward, or of its gradient by the input.

    Formula: 2 * prod(weight) * batch * prod(spatial sizes of the output; of the input if transposed).
    Bias and skipped padding are not counted; groups are in the weight's second size.
    Source: torch/utils/flop_counter.py (conv_flop_count).
    Example: x (32, 64, 56, 56), weight (128, 64, 3, 3), stride 2, padding 1:
    2 * 73728 * 32 * 784 = 3699376128.
    """
    return 2 * prod(weight) * x[0] * prod((x if transposed else out)[2:])


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: tuple[int, ...], *, transposed: bool
) -> Cost:
    """Cost of a forward convolution with a known output shape: reads x, weight and bias, writes out."""
    flops = conv_flops(x.shape, weight.shape, out, transposed=transposed)
    read = x.read + weight.read + (bias.read if bias else 0)
    return Cost(flops, read, prod(out) * x.dtype.bytes, x.dtype)


def with_batch(x: Tensor, weight: Tensor) -> Tensor:
    """Returns the input ``x`` of a ``weight``, with a batch dimension of size 1 if it has none."""
    if len(x.shape) == len(weight.shape) - 1:
        return Tensor((1, *x.shape), x.dtype, (0, *x.strides) if x.strides else None)
    return x


def _forward(call: Call, bias: int | None, read_geometry: Callable[[], Geometry]) -> Cost:
    """Cost of a call whose output's shape follows from the geometry; without values it must be given."""
    geometry = read_geometry() if call.values_recorded else None
    weight = call.tensor(1)
    x = with_batch(call.tensor(0), weight)
    if geometry is not None:
        out = conv_output(x.shape, weight.shape, geometry)
    elif call.output_dims is not None:
        out = call.output_dims
    else:
        call.fail("neither the stride nor the output shape was recorded")
    if len(out) != len(weight.shape):
        call.fail(f"an output {out} for a weight {weight.shape}")
    transposed = geometry.transposed if geometry else "transpose" in call.name
    return convolution(x, weight, call.optional(bias) if bias else None, out, transposed=transposed)


@operator("aten::convolution", "aten::_convolution", composite=True)
@operator("aten::convolution_overrideable")
def _convolution(call: Call) -> Cost:
    """``convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)``."""
    return _forward(call, 2, lambda: generic_geometry(call, 3))


def generic_geometry(call: Call, first: int) -> Geometry:
    """Returns the geometry from six inputs starting at ``first``."""
    return Geometry(
        call.integers(first),
        call.integers(first + 1),
        call.integers(first + 2),
        call.flag(first + 3),
        call.integers(first + 4),
        call.integer(first + 5),
    )


@operator("aten::conv1d", "aten::conv2d", "aten::conv3d", composite=True)
def _conv_nd(call: Call) -> Cost:
    """``conv2d(input, weight, bias, stride, padding, dilation, groups)``."""
    return _forward(
        call,
        2,
        lambda: Geometry(
            call.integers(3, (1,)), call.integers(4, (0,)), call.integers(5, (1,)), groups=call.integer(6, 1)
        ),
    )


@operator("aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d", composite=True)
def _conv_transpose_nd(call: Call) -> Cost:
    """``conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation)``."""
    return _forward(
        call,
        2,
        lambda: Geometry(
            call.integers(3, (1,)),
            call.integers(4, (0,)),
            call.integers(7, (1,)),
            transposed=True,
            output_padding=call.integers(5, (0,)),
            groups=call.integer(6, 1),
        ),
    )


@operator("aten::cudnn_convolution", "aten::cudnn_convolution_transpose")
def _cudnn(call: Call) -> Cost:
    """``cudnn_convolution(self, weight, padding, stride, dilation, groups, ...)``; _transpose puts
    ``output_padding`` after ``padding``.
    """
    return _forward(call, None, lambda: _library_geometry(call, 2))


@operator("aten::miopen_convolution", "aten::miopen_depthwise_convolution", "aten::mkldnn_convolution")
@operator("aten::miopen_convolution_transpose")
def _miopen(call: Call) -> Cost:
    """``miopen_convolution(self, weight, bias, padding, stride, dilation, groups, ...)``; _transpose puts
    ``output_padding`` after ``padding``.
    """
    return _forward(call, 2, lambda: _library_geometry(call, 3))


def _library_geometry(call: Call, padding: int) -> Geometry:
    """The geometry from the inputs that begin with ``padding``."""
    extra = 1 if "_transpose" in call.name else 0
    return Geometry(
        call.integers(padding + 1 + extra),
        call.integers(padding),
        call.integers(padding + 2 + extra),
        bool(extra),
        call.integers(padding + 1) if extra else (0,),
        call.integer(padding + 3 + extra),
    )


@operator("aten::cudnn_convolution_relu", "aten::miopen_convolution_relu")
def _conv_relu(call: Call) -> Cost:
    """``cudnn_convolution_relu(self, weight, bias, stride, padding, dilation, groups)``: conv and max(0,
    x).
    """
    return _forward(
        call,
        2,
        lambda: Geometry(call.integers(3), call.integers(4), call.integers(5), groups=call.integer(6)),
    )


@operator(
    "aten::_slow_conv2d_forward", "aten::thnn_conv2d", "aten::slow_conv3d_forward", "aten::_conv_depthwise2d"
)
@operator("aten::conv_depthwise3d", "aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d")
def _slow(call: Call) -> Cost:
    """``_slow_conv2d_forward(self, weight, kernel_size, bias, stride, padding[, dilation])``."""

    def read_geometry() -> Geometry:
        weight = call.tensor(1)
        # The depthwise forms have one input channel per filter.
        groups = call.tensor(0).shape[-len(weight.shape) + 1] if "depthwise" in call.name else 1
        return Geometry(call.integers(4), call.integers(5), call.integers(6, (1,)), groups=groups)

    return _forward(call, 3, read_geometry)


@operator("ConvBias_", "ConvBiasReLU_")
def _apex_convolution(call: Call) -> Cost:
    """Apex' Functions ``(x, weight, bias, padding, stride)``, with one number for all dimensions.

    Source: apex/contrib/conv_bias_relu/conv_bias_relu.py.
    """
    x, weight = call.tensor(0), call.tensor(1)
    geometry = Geometry(stride=(call.integer(4),), padding=(call.integer(3),))
    out = conv_output(x.shape, weight.shape, geometry)
    return convolution(x, weight, call.optional(2), out, transposed=False)
