"""The one memo: answers about a trace that several questions need are worked out once."""

from collections.abc import Callable, Hashable
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

_Options = ParamSpec("_Options")
_Answer = TypeVar("_Answer")


class Memo:
    """The answers about one trace. A copy, a changed one too, begins without any."""

    __slots__ = ("_answers", "_locks")

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, RLock] = {}

    def __reduce__(self) -> "tuple[type[Memo], tuple[()]]":
        return Memo, ()

    def find(self, key: Hashable, answer: Callable[[], _Answer]) -> _Answer:
        """Returns what stands under ``key``, or works it out. Other threads that ask for it wait."""
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
    """Has ``question(trace, ...)`` answered once for a trace and its options, which must be hashable.

    An option that is left out is its default, so options with one are keyword-only.

    The answers are kept as long as the trace, so this is for what several questions ask.
    """
    defaults: dict[str, Hashable] = getattr(question, "__kwdefaults__", None) or {}

    @wraps(question)
    def answered(trace: _Trace, /, *args: _Options.args, **options: _Options.kwargs) -> _Answer:
        key = (question, args, tuple(sorted({**defaults, **options}.items())))
        return trace.memo.find(key, lambda: question(trace, *args, **options))

    return answered
