"""Sees every call of torch, and puts a range around it."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from kernelscope.capture.hooks import BackwardHooks
from kernelscope.capture.marks import Marks, Names
from kernelscope.capture.ranges import Ranges

# Functions of Python that are a whole layer: what they call gets ranges of its own.
_LAYERS = frozenset({"multi_head_attention_forward"})
_BACKWARD = frozenset({"backward", "grad"})

_torch: Any = importlib.import_module("torch")
_overrides: Any = importlib.import_module("torch.overrides")


class FunctionMode(_overrides.TorchFunctionMode):  # pyright: ignore[reportUntypedBaseClass]
    """Puts a range around every call of torch that is worth one, made by the thread it is entered in."""

    def __init__(self, ranges: Ranges, marks: Marks, backward: BackwardHooks | None) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._ranges = ranges
        self._marks = marks
        self._backward = backward
        self._names = Names()
        self._inner: dict[object, Callable[..., Any]] = {}

    def __torch_function__(
        self,
        func: Any,
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """Calls ``func`` inside a range."""
        del types
        kwargs = kwargs or {}
        if _torch.compiler.is_compiling():
            return func(*args, **kwargs)
        name = self._names.of(func)
        if name is None:
            return self._unmarked(func, args, kwargs)
        sequence = next_sequence()
        text = self._marks.text(*name, self._ranges.path, args, kwargs)
        owner = object()
        self._ranges.push(owner, text, sequence)
        try:
            if name[1] in _LAYERS:
                with self:
                    result = self._layer(func)(*args, **kwargs)
            else:
                result = func(*args, **kwargs)
        finally:
            self._ranges.pop(owner)
        if self._backward is not None and sequence is not None:
            self._backward.follow(result, sequence)
        return result

    def _unmarked(self, func: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        if self._backward is None or not _starts_backward(func):
            return func(*args, **kwargs)
        depth = self._ranges.depth
        try:
            # What a function of the user computes in the backward pass is seen, too.
            with self:
                return self._layer(func)(*args, **kwargs)
        finally:
            self._ranges.close(depth)
            self._backward.end_pass()

    def _layer(self, func: Any) -> Callable[..., Any]:
        """``func`` as it would run without anyone watching, so that what it calls is seen."""
        found = self._inner.get(func)
        if found is None:
            unwatched = {name: _never for name in func.__globals__ if name.startswith("has_torch_function")}
            found = FunctionType(
                func.__code__,
                {**func.__globals__, **unwatched},
                func.__name__,
                func.__defaults__,
                func.__closure__,
            )
            found.__kwdefaults__ = func.__kwdefaults__
            self._inner[func] = found
        return found


def _starts_backward(func: Any) -> bool:
    return isinstance(func, FunctionType) and func.__name__ in _BACKWARD


def _never(*args: object) -> bool:
    del args
    return False


def next_sequence() -> int | None:
    """The number that autograd gives the next node of this thread; null if this torch does not say."""
    return None if _PEEK is None or not _torch.is_grad_enabled() else int(_PEEK())


_PEEK: Callable[[], int] | None = getattr(importlib.import_module("torch.autograd"), "_get_sequence_nr", None)
