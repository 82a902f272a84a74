"""JSON that is parsed on first access, since most of 100,000 ranks in a lake are never accessed."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kernelscope.errors import InvalidArgumentError


class LazyJson(Mapping[str, Any]):
    """The result of ``read`` on a text, which is assumed valid until it is accessed.

    Raises: InvalidArgumentError: the text is invalid when it is accessed.
    """

    __slots__ = ("_read", "_text", "_value")

    def __init__(self, text: str, read: Callable[[str], Mapping[str, Any]]) -> None:
        self._text = text
        self._read = read
        self._value: Mapping[str, Any] | None = None

    @property
    def value(self) -> Mapping[str, Any]:
        """Returns the parsed value and keeps it."""
        if self._value is None:
            self._value = self.glance()
        return self._value

    def glance(self) -> Mapping[str, Any]:
        """Returns the parsed value without keeping it: for 100,000 ranks that would take hundreds of
        megabytes."""
        if self._value is not None:
            return self._value
        try:
            return self._read(self._text)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InvalidArgumentError(
                f"the manifest of a lake contains {self._text[:60]!r}, which no batch writes there. "
                "Remove manifest.parquet and manifest.jsonl, and run the batch again"
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
    """Returns an object for one access whose parsed value is not kept."""
    return value.glance() if isinstance(value, LazyJson) else value


def read_object(text: str) -> Mapping[str, Any]:
    """Parses a text into an object.

    Raises: ValueError, TypeError: it is not an object.
    """
    value: Mapping[str, Any] = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value
