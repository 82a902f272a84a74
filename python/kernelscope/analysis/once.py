"""Works out an answer once for all that ask, also from several threads."""

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, TypeVar

_Answer = TypeVar("_Answer")


class once(Generic[_Answer]):  # noqa: N801 - it is written like property
    """A property that is computed once, also where several threads ask for it.

    ``functools.cached_property`` lets each of them compute it.
    """

    def __init__(self, make: "Callable[[Any], _Answer]") -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __get__(self, owner: object, kind: type) -> _Answer:
        name = self._make.__name__
        # What stands here under the name is found first by the next that asks.
        known = vars(owner)
        # A dictionary gives every thread the same lock.
        with known.setdefault(f"lock of {name}", RLock()):
            if name not in known:
                known[name] = self._make(owner)
            return known[name]
