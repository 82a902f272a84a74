"""Element types by every name that traces, markers and kernels use for them."""

from kernelscope.costs.types import DType

_FLOATS = {
    "float64": (8, "fp64", "double f64 fp64 c10::double"),
    "float32": (4, "fp32", "float f32 fp32 single c10::float"),
    "float16": (2, "fp16", "half f16 fp16 c10::half at::half __half half_t cutlass::half_t"),
    "bfloat16": (2, "bf16", "bf16 c10::bfloat16 at::bfloat16 __nv_bfloat16 bfloat16_t hip_bfloat16"),
    "float8_e4m3fn": (
        1,
        "fp8",
        "c10::float8_e4m3fn fp8e4nv f8e4m3 f8_e4m3 fp8e4m3 fp8_e4m3 fp8 __nv_fp8_e4m3",
    ),
    "float8_e4m3fnuz": (1, "fp8", "c10::float8_e4m3fnuz fp8e4b8"),
    "float8_e5m2": (1, "fp8", "c10::float8_e5m2 fp8e5 f8e5m2 f8_e5m2 fp8e5m2 fp8_e5m2 __nv_fp8_e5m2"),
    "float8_e5m2fnuz": (1, "fp8", "c10::float8_e5m2fnuz fp8e5b16"),
    "float8_e8m0fnu": (1, "fp8", "c10::float8_e8m0fnu e8m0"),
}
_INTEGERS = {
    "int64": (8, None, "long|long int|long long|long long int|int64_t|i64|c10::long"),
    "int32": (4, None, "int|int32_t|i32|c10::int|c10::qint32|qint32"),
    "int16": (2, None, "short|short int|int16_t|i16|c10::short"),
    "int8": (1, "int8", "signed char|char|int8_t|c10::char|c10::qint8|qint8"),
    "uint64": (8, None, "unsigned long|unsigned long int|unsigned long long|uint64_t|u64"),
    "uint32": (4, None, "unsigned int|unsigned|uint32_t|u32"),
    "uint16": (2, None, "unsigned short|unsigned short int|uint16_t|u16"),
    "uint8": (1, "int8", "unsigned char|byte|uint8_t|c10::byte|c10::quint8|quint8|c10::bits8"),
}
_COMPLEX = {
    "complex128": (16, "fp64", "c10::complex<double>|complexdouble|cdouble"),
    "complex64": (8, "fp32", "c10::complex<float>|complexfloat|cfloat"),
    "complex32": (4, "fp16", "c10::complex<c10::half>|complexhalf|chalf"),
}


def _table() -> dict[str, DType]:
    found: dict[str, DType] = {}
    for name, (size, peak, names) in _FLOATS.items():
        dtype = DType(name, size, "float", peak)
        found.update(dict.fromkeys([name, *names.split()], dtype))
    for name, (size, peak, names) in _INTEGERS.items():
        dtype = DType(name, size, "integer", peak)
        found.update(dict.fromkeys([name, *names.split("|")], dtype))
    for name, (size, peak, names) in _COMPLEX.items():
        dtype = DType(name, size, "complex", peak)
        found.update(dict.fromkeys([name, *names.split("|")], dtype))
    boolean = DType("bool", 1, "bool", None)
    found.update(dict.fromkeys(["bool", "bool_", "bool8"], boolean))
    fp4 = DType("float4_e2m1fn_x2", 1, "float", "fp4", packed=2)
    found.update(dict.fromkeys(["float4_e2m1fn_x2", "c10::float4_e2m1fn_x2"], fp4))
    return found


_BY_NAME = _table()

FLOAT32 = _BY_NAME["float32"]
FLOAT16 = _BY_NAME["float16"]
BFLOAT16 = _BY_NAME["bfloat16"]
INT64 = _BY_NAME["int64"]
INT32 = _BY_NAME["int32"]
INT8 = _BY_NAME["int8"]
UINT8 = _BY_NAME["uint8"]
BOOL = _BY_NAME["bool"]

# In the order in which torch prefers them when two 8-bit or 16-bit floats meet.
_RANK = {"bool": 0, "integer": 1, "float": 2, "complex": 3}


# A size in bytes to NumPy, in bits to Triton: only the mark in front of the name says which is meant.
_NUMPY = {
    "f2": FLOAT16,
    "f4": FLOAT32,
    "f8": _BY_NAME["float64"],
    "c8": _BY_NAME["complex64"],
    "c16": _BY_NAME["complex128"],
    "i1": INT8,
    "i2": _BY_NAME["int16"],
    "i4": INT32,
    "i8": INT64,
    "u1": UINT8,
    "u2": _BY_NAME["uint16"],
    "u4": _BY_NAME["uint32"],
    "u8": _BY_NAME["uint64"],
    "b1": BOOL,
    "?": BOOL,
}
_TRITON = {"i1": BOOL, "i8": INT8, "u1": BOOL, "u8": UINT8}


def find_dtype(name: str) -> DType | None:
    """The element type that ``name`` means, or None.

    Knows the spellings of Kineto's ``Input type`` (``c10::BFloat16``, ``long int``), torch
    (``torch.float16``, ``half``), NumPy (``<f4``, ``bool_``), NCCL (``Half``), Triton (``*fp16``) and
    PyProf (``fp16``).

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
    """The type of the result when tensors of these types meet, as torch decides it.

    A higher kind wins (bool, integer, float, complex), then the larger; float16 with bfloat16 gives
    float32. Raises: ValueError: no type given.
    """
    best = dtypes[0]
    for dtype in dtypes[1:]:
        if {dtype.name, best.name} == {"float16", "bfloat16"}:
            best = FLOAT32
        elif (_RANK[dtype.kind], dtype.bytes) > (_RANK[best.kind], best.bytes):
            best = dtype
    return best
