"""Records operators that torch runs as Kineto would, without a GPU."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# What Kineto writes for an element type.
KINETO_NAMES = {
    torch.float64: "double",
    torch.float32: "float",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float8_e4m3fn: "c10::Float8_e4m3fn",
    torch.int64: "long int",
    torch.int32: "int",
    torch.int16: "short int",
    torch.int8: "signed char",
    torch.uint8: "unsigned char",
    torch.bool: "bool",
    torch.complex64: "c10::complex<float>",
}

# Types as options are recorded by number.
SCALAR_TYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.bool: 11,
    torch.bfloat16: 15,
}


class Recorded(NamedTuple):
    """An operator as the ops table would have it, and what it gave."""

    name: str
    texts: tuple[str, str, str, str]
    results: list[torch.Tensor]


def _entry(value: Any) -> tuple[Any, str, Any, str]:
    """Dims, type, strides and concrete value of one input."""
    if isinstance(value, torch.Tensor):
        return list(value.shape), KINETO_NAMES[value.dtype], list(value.stride()), ""
    if isinstance(value, (list, tuple)) and value and any(isinstance(item, torch.Tensor) for item in value):
        tensors = [item for item in value if item is not None]
        return [list(t.shape) for t in tensors], "TensorList", [list(t.stride()) for t in tensors], ""
    if isinstance(value, (list, tuple)):
        return [], "ScalarList", [], str(list(value))
    if isinstance(value, torch.dtype):
        return [], "Scalar", [], str(SCALAR_TYPES[value])
    if isinstance(value, (bool, int, float)):
        return [], "Scalar", [], str(value)
    return [], "", [], ""


def texts_of(values: list[Any]) -> tuple[str, str, str, str]:
    """The four texts of the ops table for these inputs."""
    rows = [_entry(value) for value in values]
    dims, types, strides, concrete = (json.dumps([row[index] for row in rows]) for index in range(4))
    return dims, types, strides, concrete


def _inputs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Every argument of the schema in order, defaults filled in, as the profiler sees them."""
    rest = func._schema.arguments[len(args) :]
    return [*args, *(kwargs.get(argument.name, argument.default_value) for argument in rest)]


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Recorded] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        texts = texts_of(_inputs(func, args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        tensors = [item for item in results if isinstance(item, torch.Tensor)]
        self.rows.append(Recorded(func._schema.name, texts, tensors))
        return result


@contextmanager
def recording() -> Iterator[list[Recorded]]:
    """The operators that run inside, in order."""
    recorder = _Recorder()
    with recorder:
        yield recorder.rows
