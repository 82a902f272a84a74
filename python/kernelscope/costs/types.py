"""Inputs and results of cost models: element types by every name, tensors and costs."""

from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

from kernelscope.errors import KernelscopeError

Status = Literal["exact", "estimate", "unknown_op", "unknown_dtype", "missing_shape"]
Kind = Literal["float", "integer", "bool", "complex"]

# Frames hold int64; a tensor or a count beyond that is damage, not work.
LARGEST = 2**63 - 1


class ShapeError(KernelscopeError, ValueError):
    """A model did not get the required shapes or values, or they contradict each other."""


class DType(NamedTuple):
    """An element type.

    ``bytes`` is the size of one element of the recorded shape; ``packed`` is how many numbers it contains (2
    for two 4-bit floats in a byte). ``peak`` names the type in ``kernelscope.hardware`` whose peak applies.
    """

    name: str
    bytes: int
    kind: Kind
    peak: str | None
    packed: int = 1


# Stands in for a type that the trace does not name, so that FLOPs are still counted.
UNKNOWN_DTYPE = DType("unknown", 0, "float", None)

# Each with the names that traces, markers and kernels use for it beside its own.
_NAMED = (
    (DType("float64", 8, "float", "fp64"), "double|f64|fp64|c10::double"),
    (DType("float32", 4, "float", "fp32"), "float|f32|fp32|single|c10::float"),
    (DType("float16", 2, "float", "fp16"), "half|f16|fp16|c10::half|at::half|__half|half_t|cutlass::half_t"),
    (
        DType("bfloat16", 2, "float", "bf16"),
        "bf16|c10::bfloat16|at::bfloat16|__nv_bfloat16|bfloat16_t|hip_bfloat16",
    ),
    (
        DType("float8_e4m3fn", 1, "float", "fp8"),
        "c10::float8_e4m3fn|fp8e4nv|f8e4m3|f8_e4m3|fp8e4m3|fp8_e4m3|fp8|__nv_fp8_e4m3",
    ),
    (DType("float8_e4m3fnuz", 1, "float", "fp8"), "c10::float8_e4m3fnuz|fp8e4b8"),
    (
        DType("float8_e5m2", 1, "float", "fp8"),
        "c10::float8_e5m2|fp8e5|f8e5m2|f8_e5m2|fp8e5m2|fp8_e5m2|__nv_fp8_e5m2",
    ),
    (DType("float8_e5m2fnuz", 1, "float", "fp8"), "c10::float8_e5m2fnuz|fp8e5b16"),
    (DType("float8_e8m0fnu", 1, "float", "fp8"), "c10::float8_e8m0fnu|e8m0"),
    (DType("float4_e2m1fn_x2", 1, "float", "fp4", packed=2), "c10::float4_e2m1fn_x2"),
    (DType("int64", 8, "integer", None), "long|long int|long long|long long int|int64_t|i64|c10::long"),
    (DType("int32", 4, "integer", None), "int|int32_t|i32|c10::int|c10::qint32|qint32"),
    (DType("int16", 2, "integer", None), "short|short int|int16_t|i16|c10::short"),
    (DType("int8", 1, "integer", "int8"), "signed char|char|int8_t|c10::char|c10::qint8|qint8"),
    (DType("uint64", 8, "integer", None), "unsigned long|unsigned long int|unsigned long long|uint64_t|u64"),
    (DType("uint32", 4, "integer", None), "unsigned int|unsigned|uint32_t|u32"),
    (DType("uint16", 2, "integer", None), "unsigned short|unsigned short int|uint16_t|u16"),
    (
        DType("uint8", 1, "integer", "int8"),
        "unsigned char|byte|uint8_t|c10::byte|c10::quint8|quint8|c10::bits8",
    ),
    (DType("complex128", 16, "complex", "fp64"), "c10::complex<double>|complexdouble|cdouble"),
    (DType("complex64", 8, "complex", "fp32"), "c10::complex<float>|complexfloat|cfloat"),
    (DType("complex32", 4, "complex", "fp16"), "c10::complex<c10::half>|complexhalf|chalf"),
    (DType("bool", 1, "bool", None), "bool_|bool8"),
)
_BY_NAME = {name: dtype for dtype, names in _NAMED for name in (dtype.name, *names.split("|"))}

FLOAT32 = _BY_NAME["float32"]
FLOAT16 = _BY_NAME["float16"]
BFLOAT16 = _BY_NAME["bfloat16"]
FLOAT4 = _BY_NAME["float4_e2m1fn_x2"]
INT64 = _BY_NAME["int64"]
INT32 = _BY_NAME["int32"]
INT8 = _BY_NAME["int8"]
UINT8 = _BY_NAME["uint8"]
BOOL = _BY_NAME["bool"]

# In the order in which torch prefers them when two types meet.
_RANK = {"bool": 0, "integer": 1, "float": 2, "complex": 3}
# A size in bytes to NumPy, in bits to Triton: only the mark in front of the name says which is meant.
_NUMPY = {"?": BOOL} | {
    f"{name[0]}{_BY_NAME[name].bytes}": _BY_NAME[name]
    for name in (
        "bool float16 float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
    ).split()
}
_TRITON = {"i1": BOOL, "i8": INT8, "u1": BOOL, "u8": UINT8}

_NUMBERED = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool - - - bfloat16 "
    "- - - - - - - float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz"
)
# By the numbers of torch's ScalarType, as options such as `dtype=` are recorded.
SCALAR_TYPES = {number: _BY_NAME[name] for number, name in enumerate(_NUMBERED.split()) if name in _BY_NAME}


def find_dtype(name: str) -> DType | None:
    """Returns the element type named ``name``, or None.

    Accepts the spellings of Kineto's ``Input type`` (``c10::BFloat16``, ``long int``), torch
    (``torch.float16``, ``half``), NumPy (``<f4``, ``bool_``), NCCL (``Half``), Triton (``*fp16``) and PyProf
    (``fp16``).

    Example: ``find_dtype("c10::Half").bytes`` is 2.
    """
    found = _BY_NAME.get(name)
    if found is None:
        text = name.strip().lower().removeprefix("torch.").removeprefix("numpy.")
        if text[:1] in {"<", ">", "=", "|"}:
            return _NUMPY.get(text[1:])
        if text[:1] == "*":
            text = text[1:]
            found = _TRITON.get(text)
        found = found or _BY_NAME.get(text)
    return found


def promote(dtypes: list[DType]) -> DType:
    """Returns the result type for tensors of these types, by torch's rules.

    A higher kind wins (bool, integer, float, complex), then the larger type; float16 with bfloat16 gives
    float32. Raises: ValueError: no type given.
    """
    best = dtypes[0]
    for dtype in dtypes[1:]:
        if {dtype.name, best.name} == {"float16", "bfloat16"}:
            best = FLOAT32
        elif (_RANK[dtype.kind], dtype.bytes) > (_RANK[best.kind], best.bytes):
            best = dtype
    return best


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one call of an operator.

    Units: ``flops`` in FLOP (a multiply-add is 2); ``bytes_read`` and ``bytes_written`` in bytes of
    compulsory DRAM traffic: each distinct input element read once, each output element written once. Unknown
    values are None, and ``status`` gives the reason: ``exact``, ``estimate`` (see ``note``), ``unknown_op``
    (no model), ``unknown_dtype`` (FLOPs only), ``missing_shape``.
    """

    flops: int | None
    bytes_read: int | None
    bytes_written: int | None
    dtype: DType | None
    status: Status = "exact"
    note: str = ""
    model: str | None = None


class Tensor(NamedTuple):
    """A tensor as recorded: shape, element type and, if recorded, strides in elements."""

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
        """Number of distinct elements in memory: a dimension of stride 0 repeats the same elements.

        Formula: min(product of the sizes with a stride, 1 + sum((size - 1) * stride)). The second term bounds
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
        """Bytes moved by reading the whole tensor once."""
        return self.touched * self.dtype.bytes
