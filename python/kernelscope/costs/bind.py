"""Parses the recorded inputs of an operator. No other module does.

A trace is untrusted: invalid text becomes an unknown input, and a model that needs it gets a
:class:`~kernelscope.costs.types.ShapeError`.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite, prod
from typing import Final, NoReturn, cast

from kernelscope.costs.types import (
    LARGEST,
    SCALAR_TYPES,
    UNKNOWN_DTYPE,
    DType,
    ShapeError,
    Tensor,
    find_dtype,
)

Value = bool | int | float | str | tuple["Value", ...] | None


class _Unread:
    """What stands for an input that the trace does not record."""


# Shapes that were not recorded, or whose record is damaged: perhaps a tensor.
UNREAD: Final = _Unread()
# No tensor, but its value was not recorded.
NO_VALUE: Final = _Unread()
Arg = Tensor | tuple[Tensor, ...] | Value | _Unread

# What torch allows.
_MOST_DIMENSIONS = 64

# Names in `Input type` of what is no tensor; the capitalised ones are those of 2021.
_SCALARS = frozenset({"Scalar", "Int", "Bool", "Double", "Float", "ComplexDouble"})
_LISTS = frozenset({"ScalarList", "IntList", "BoolList", "DoubleList"})
_TENSOR_LISTS = frozenset({"TensorList", "OptionalTensorList", "GenericList"})


def parse_value(text: str) -> Value | _Unread:
    """Parses a concrete input as Kineto writes it: ``1``, ``0.``, ``False``, ``[3, 3]``, ``None``.

    Other text, including the empty text of tensors and strings, is not parsed.
    """
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        if "[" in inner:
            return UNREAD
        items = [parse_value(item) for item in inner.split(",")] if inner else []
        if any(isinstance(item, _Unread) for item in items):
            return UNREAD
        return tuple(cast("list[Value]", items))
    if text in {"True", "False"}:
        return text == "True"
    if text == "None":
        return None
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return UNREAD


# Many operators have the same types, strides or values. Nobody changes what is given.
@lru_cache(maxsize=4_096)
def _load(text: str | None) -> list[object] | None:
    """The list that ``text`` holds as JSON, or None."""
    if not text:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("list[object]", value) if isinstance(value, list) else None


def _sizes(value: object) -> tuple[int, ...] | None:
    """A shape whose element count fits what memory can hold, or None."""
    if not isinstance(value, list):
        return None
    sizes = cast("list[object]", value)
    if len(sizes) > _MOST_DIMENSIONS:
        return None
    for size in sizes:
        # bool is an int to Python, but no size.
        if type(size) is not int or not 0 <= size <= LARGEST:
            return None
    shape = tuple(cast("list[int]", sizes))
    return shape if prod(shape) <= LARGEST else None


def _strides(value: object, rank: int) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    strides = cast("list[object]", value)
    if len(strides) != rank or not all(type(stride) is int and abs(stride) <= LARGEST for stride in strides):
        return None
    return tuple(cast("list[int]", strides))


def _at(values: Sequence[object] | None, index: int) -> object:
    return values[index] if values is not None and index < len(values) else None


def _tensor(dims: object, type_name: object, strides: object) -> Tensor | _Unread:
    shape = _sizes(dims)
    if shape is None:
        return UNREAD
    dtype = find_dtype(type_name) if isinstance(type_name, str) else None
    return Tensor(shape, dtype or UNKNOWN_DTYPE, _strides(strides, len(shape)))


def _is_nested(dims: object) -> bool:
    return isinstance(dims, list) and isinstance(_at(cast("list[object]", dims), 0), list)


def _tensors(dims: list[object], strides: object, dtype: DType | None) -> tuple[Tensor, ...] | _Unread:
    found: list[Tensor] = []
    rows = cast("list[object]", strides) if isinstance(strides, list) else None
    for index, entry in enumerate(dims):
        tensor = _tensor(entry, None, _at(rows, index))
        if isinstance(tensor, _Unread):
            return UNREAD
        found.append(tensor if dtype is None else tensor._replace(dtype=dtype))
    return tuple(found)


def _arg(dims: object, type_name: object, strides: object, concrete: object, listed: DType | None) -> Arg:
    if _is_nested(dims):
        return _tensors(cast("list[object]", dims), strides, listed)
    if dims != []:
        return _tensor(dims, type_name, strides)
    kind = type_name if isinstance(type_name, str) else "Scalar"
    if kind in _TENSOR_LISTS:
        return UNREAD
    if kind and kind not in _SCALARS and kind not in _LISTS:
        return _tensor([], kind, [])
    value = parse_value(concrete) if isinstance(concrete, str) else NO_VALUE
    if isinstance(value, _Unread):
        # No type stands for an undefined tensor, a missing option, or a text.
        return NO_VALUE if kind else None
    return value


def shape_of_input(input_dims: str | None, index: int) -> tuple[int, ...] | None:
    """Returns the shape of the input at ``index`` of a recorded call.

    It is None if the input is not a tensor or not recorded.

    Example: ``shape_of_input("[[8, 64], [64, 32]]", 1)`` is ``(64, 32)``.
    """
    entry = _at(_load(input_dims), index)
    return _sizes(entry) if entry != [] and not _is_nested(entry) else None


def sizes_of_value(concrete_inputs: str | None, index: int) -> tuple[int, ...] | None:
    """Returns the shape given by the value of the input at ``index``.

    It is None if the value is not a shape or not recorded.

    Example: ``sizes_of_value('["", "[8, 64]"]', 1)`` is ``(8, 64)``.
    """
    text = _at(_load(concrete_inputs), index)
    value = parse_value(text) if isinstance(text, str) else None
    return _sizes(list(value)) if isinstance(value, tuple) else None


@dataclass(frozen=True, slots=True)
class Call:
    """The recorded inputs of one call of an operator, by position in its schema.

    ``output_dims`` is the shape of the result if known from other sources. ``hints`` are numbers found
    outside the inputs (docs/costs.md lists them). ``dense`` is true for conventions that count every product
    as dense and real, without masks and complex arithmetic.
    """

    name: str
    args: Sequence[Arg]
    values_recorded: bool = True
    output_dims: tuple[int, ...] | None = None
    hints: Mapping[str, int] = field(default_factory=dict[str, int])
    dense: bool = False

    @property
    def inplace(self) -> bool:
        """Whether it is the in-place form with a trailing ``_``, such as ``add_``."""
        base = self.name.rpartition("::")[2].partition(".")[0]
        return base.endswith("_") and not base.endswith("__")

    def fail(self, problem: str) -> NoReturn:
        """Raises ShapeError with ``problem``."""
        raise ShapeError(f"{self.name}: {problem}")

    def arg(self, index: int) -> Arg:
        """Returns the parsed input at ``index``, or None if there is none."""
        return self.args[index] if index < len(self.args) else None

    def optional(self, index: int) -> Tensor | None:
        """Returns the tensor at ``index``, or None if none was passed.

        Raises: ShapeError: its record is damaged.
        """
        arg = self.arg(index)
        if arg is UNREAD:
            self.fail(f"input {index} was not recorded")
        return arg if isinstance(arg, Tensor) else None

    def present(self, *indices: int) -> list[Tensor]:
        """Returns the tensors at ``indices`` that were passed.

        Raises: ShapeError: the record of one is damaged.
        """
        return [tensor for index in indices if (tensor := self.optional(index)) is not None]

    def tensor(self, index: int, *, rank: int | None = None) -> Tensor:
        """Returns the tensor at ``index``.

        Raises: ShapeError: there is none, or it does not have ``rank`` dimensions.
        """
        found = self.optional(index)
        if found is None:
            self.fail(f"input {index} is not a tensor")
        if rank is not None and len(found.shape) != rank:
            self.fail(f"input {index} has {len(found.shape)} dimensions, not {rank}")
        return found

    def tensor_list(self, index: int) -> tuple[Tensor, ...]:
        """Returns the tensors of the list at ``index``.

        Raises: ShapeError: it was not recorded; profilers drop lists of more than 30 tensors.
        """
        arg = self.args[index] if index < len(self.args) else UNREAD
        if isinstance(arg, tuple) and not isinstance(arg, Tensor) and all(isinstance(t, Tensor) for t in arg):
            return cast("tuple[Tensor, ...]", arg)
        return self.fail(f"the tensors of input {index} were not recorded")

    def tensors(self) -> list[Tensor]:
        """Returns every tensor among the inputs, including those in lists, in order."""
        found: list[Tensor] = []
        for arg in self.args:
            if isinstance(arg, Tensor):
                found.append(arg)
            elif isinstance(arg, tuple):
                found.extend(item for item in arg if isinstance(item, Tensor))
        return found

    def last_tensor(self, first: int) -> Tensor | None:
        """Returns the last tensor among the inputs from ``first`` on, the position of ``out=``."""
        return next((arg for arg in reversed(self.args[first:]) if isinstance(arg, Tensor)), None)

    def scalar_type(self, index: int) -> DType | None:
        """Returns the element type with the number at ``index``, or None."""
        arg = self.arg(index)
        return SCALAR_TYPES.get(arg) if type(arg) is int else None

    def _value(self, index: int, default: Value | _Unread) -> Value:
        arg = self.arg(index)
        if arg is None:
            # Without recorded values, an omitted option looks like one that was not written down.
            arg = default if self.values_recorded else UNREAD
        if isinstance(arg, (_Unread, Tensor)) or (
            isinstance(arg, tuple) and arg and isinstance(arg[0], Tensor)
        ):
            return self.fail(f"the value of input {index} was not recorded")
        return cast("Value", arg)

    def flag(self, index: int, *, default: bool | _Unread = UNREAD) -> bool:
        """Returns the boolean at ``index``, or ``default`` if the operator was called without it.

        Raises: ShapeError: it was not recorded, or is not a boolean.
        """
        value = self._value(index, default)
        if not isinstance(value, (bool, int)):
            self.fail(f"input {index} is not a boolean")
        return bool(value)

    def integer(self, index: int, default: int | _Unread = UNREAD) -> int:
        """Returns the integer at ``index``, or ``default`` if the operator was called without it.

        Raises: ShapeError: it was not recorded, or is not an integer.
        """
        value = self._value(index, default)
        if isinstance(value, float) and isfinite(value) and value.is_integer():
            value = int(value)
        if not isinstance(value, int):
            self.fail(f"input {index} is not a whole number")
        return int(value)

    def integers(self, index: int, default: tuple[int, ...] | _Unread = UNREAD) -> tuple[int, ...]:
        """Returns the integers of the list at ``index``; a single number becomes a list of one.

        Raises: ShapeError: it was not recorded, or contains something else.
        """
        value = self._value(index, default)
        values = value if isinstance(value, tuple) else (value,)
        if not all(isinstance(item, int) for item in values):
            self.fail(f"input {index} is not a list of whole numbers")
        return tuple(int(item) for item in values if isinstance(item, int))

    def is_recorded(self, index: int) -> bool:
        """Returns whether anything is known about the input at ``index``."""
        return index < len(self.args) and not isinstance(self.args[index], _Unread)


def bind(
    name: str,
    input_dims: str | None,
    input_types: str | None = None,
    input_strides: str | None = None,
    concrete_inputs: str | None = None,
    *,
    list_dtype: str | None = None,
    output_dims: tuple[int, ...] | None = None,
    hints: Mapping[str, int] | None = None,
    dense: bool = False,
) -> Call | None:
    """Parses the texts of a row of the ops table; None if no shapes were recorded.

    ``list_dtype`` is the element type of tensor lists, which profilers do not record. The other options are
    those of :class:`Call`.
    """
    dims = _load(input_dims)
    if dims is None:
        return None
    types = _load(input_types)
    strides = _load(input_strides)
    concrete = _load(concrete_inputs)
    listed = find_dtype(list_dtype) if list_dtype else None
    args = [
        _arg(entry, _at(types, index), _at(strides, index), _at(concrete, index), listed)
        for index, entry in enumerate(dims)
    ]
    return Call(name, args, bool(concrete), output_dims, hints or {}, dense)
