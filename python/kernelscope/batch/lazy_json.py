"""JSON that is parsed when it is first looked into: of 100,000 ranks in a lake most are not."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kernelscope.errors import InvalidArgumentError


class LazyJson(Mapping[str, Any]):
    """What ``read`` makes of a text, which is taken for whole until somebody looks into it.

    Raises: InvalidArgumentError: when it is looked into, and makes no sense.
    """

    __slots__ = ("_read", "_text", "_value")

    def __init__(self, text: str, read: Callable[[str], Mapping[str, Any]]) -> None:
        self._text = text
        self._read = read
        self._value: Mapping[str, Any] | None = None

    @property
    def value(self) -> Mapping[str, Any]:
        """What is in it, which is kept."""
        if self._value is None:
            self._value = self.glance()
        return self._value

    def glance(self) -> Mapping[str, Any]:
        """What is in it, which is not kept: of 100,000 ranks that takes hundreds of megabytes."""
        if self._value is not None:
            return self._value
        try:
            return self._read(self._text)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InvalidArgumentError(
                f"the manifest of a lake has {self._text[:60]!r} where a batch writes something else:"
                " remove manifest.parquet and manifest.jsonl, and run the batch again"
            ) from None

    def __getitem__(self, name: str) -> Any:
        return self.value[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazyJson) and self._text == other._text:
            return True
        return isinstance(other, Mapping) and self.value == (
            other.value if isinstance(other, LazyJson) else other
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __str__(self) -> str:
        """The text."""
        return self._text


def glance(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same to look into once; what is parsed for that is not kept."""
    return value.glance() if isinstance(value, LazyJson) else value


def read_object(text: str) -> Mapping[str, Any]:
    """The object that a text is.

    Raises: ValueError, TypeError: it is none.
    """
    value: Mapping[str, Any] = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value
