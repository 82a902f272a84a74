"""The only memo: answers about a trace that several questions need are computed once."""

from collections.abc import Callable, Hashable
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

_Options = ParamSpec("_Options")
_Answer = TypeVar("_Answer")


class Memo:
    """Answers about one trace. A copy, even a modified one, starts without any."""

    __slots__ = ("_answers", "_locks")

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, RLock] = {}

    def __reduce__(self) -> "tuple[type[Memo], tuple[()]]":
        return Memo, ()

    def find(self, key: Hashable, answer: Callable[[], _Answer]) -> _Answer:
        """Returns the value of ``key``, computing it if needed. Other threads that request it wait."""
        if key not in self._answers:
            # A dictionary gives every thread the same lock.
            with self._locks.setdefault(key, RLock()):
                if key not in self._answers:
                    self._answers[key] = answer()
        return self._answers[key]


class _Remembering(Protocol):
    @property
    def memo(self) -> Memo: ...


_Trace = TypeVar("_Trace", bound=_Remembering)


def per_trace(
    question: Callable[Concatenate[_Trace, _Options], _Answer],
) -> Callable[Concatenate[_Trace, _Options], _Answer]:
    """Computes ``question(trace, ...)`` once per trace and options, which must be hashable.

    An omitted option equals its default, so options with defaults are keyword-only.

    Answers are kept as long as the trace, so this is only for results that several questions need.
    """
    defaults: dict[str, Hashable] = getattr(question, "__kwdefaults__", None) or {}

    @wraps(question)
    def answered(trace: _Trace, /, *args: _Options.args, **options: _Options.kwargs) -> _Answer:
        key = (question, args, tuple(sorted({**defaults, **options}.items())))
        return trace.memo.find(key, lambda: question(trace, *args, **options))

    return answered
