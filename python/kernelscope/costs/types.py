"""The values that cost models take and give: element types, tensors and costs."""

from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

from kernelscope.errors import KernelscopeError

Status = Literal["exact", "estimate", "unknown_op", "unknown_dtype", "missing_shape"]
Kind = Literal["float", "integer", "bool", "complex"]

# Frames hold int64; a tensor or a count beyond that is damage, not work.
LARGEST = 2**63 - 1


class ShapeError(KernelscopeError, ValueError):
    """A model does not get the shapes or values it needs, or they contradict each other."""


class DType(NamedTuple):
    """An element type.

    ``bytes`` is what one element of the recorded shape takes; ``packed`` how many numbers that is (2 for
    two 4-bit floats in a byte). ``peak`` names the column of ``kernelscope.hardware`` it computes at.
    """

    name: str
    bytes: int
    kind: Kind
    peak: str | None
    packed: int = 1


# Stands in for a type that the trace does not name, so that FLOPs are still counted.
UNKNOWN_DTYPE = DType("unknown", 0, "float", None)


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of one call of an operator.

    Units: ``flops`` in FLOP (a multiply-add is 2); ``bytes_read`` and ``bytes_written`` in bytes of
    compulsory DRAM traffic: each distinct input element read once, each output element written once.
    What is not known is None, and ``status`` says why: ``exact``, ``estimate`` (``note`` says of what),
    ``unknown_op`` (no model), ``unknown_dtype`` (FLOPs only), ``missing_shape``.
    """

    flops: int | None
    bytes_read: int | None
    bytes_written: int | None
    dtype: DType | None
    status: Status = "exact"
    note: str = ""
    model: str | None = None


class Tensor(NamedTuple):
    """A tensor as recorded: shape, element type and, where the trace has them, strides in elements."""

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...] | None = None

    @property
    def numel(self) -> int:
        """Number of elements of the shape."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a dense tensor of this shape."""
        return prod(self.shape) * self.dtype.bytes

    @property
    def touched(self) -> int:
        """Number of distinct elements in memory: a dimension of stride 0 repeats the same ones.

        Formula: min(product of the sizes with a stride, 1 + sum((size - 1) * stride)); the second bounds
        overlapping windows.
        """
        if self.strides is None or 0 in self.shape:
            return prod(self.shape)
        distinct, span = 1, 1
        for size, stride in zip(self.shape, self.strides, strict=True):
            if stride:
                distinct *= size
                span += (size - 1) * abs(stride)
        return min(distinct, span)

    @property
    def read(self) -> int:
        """Bytes that reading the whole tensor once moves."""
        return self.touched * self.dtype.bytes


def dense(shape: tuple[int, ...], dtype: DType) -> Tensor:
    """A contiguous tensor, such as an output that the trace does not record."""
    return Tensor(shape, dtype)
