"""Parameters of a request, checked and bounded."""

from collections.abc import Mapping

from kernelscope.errors import InvalidArgumentError

_MOST_TEXT = 4_096
_MOST_NUMBERS = 2_000
_LARGEST = 2**62


class Parameters:
    """The parameters of a request by name.

    Raises: InvalidArgumentError: from each method, if a parameter is missing or invalid.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str, default: str | None = None) -> str:
        """Returns a text of up to 4,096 characters."""
        value = self._given.get(name, default)
        if value is None:
            raise InvalidArgumentError(f"the request lacks {name}=")
        if len(value) > _MOST_TEXT:
            raise InvalidArgumentError(f"{name}= has at most {_MOST_TEXT:,} characters, not {len(value):,}")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """Returns an integer, clamped to 63 bits."""
        given = self._given.get(name)
        if given is None and default is not None:
            return default
        return min(max(_number(name, self.text(name)), -_LARGEST), _LARGEST)

    def between(self, name: str, least: int, most: int, default: int | None = None) -> int:
        """Returns an integer clamped to the range ``least`` to ``most``."""
        return min(max(self.whole(name, default), least), most)

    def flag(self, name: str) -> bool:
        """Returns whether a parameter is present and not 0."""
        return self._given.get(name, "0") not in ("", "0")

    def numbers(self, name: str) -> list[int]:
        """Returns up to 2,000 comma-separated numbers from 0."""
        given = self._given.get(name, "")
        texts = given.split(",", _MOST_NUMBERS) if given else []
        if len(texts) > _MOST_NUMBERS:
            raise InvalidArgumentError(f"{name}= has at most {_MOST_NUMBERS:,} numbers")
        found = [_number(name, text) for text in texts]
        if any(not 0 <= number < 2**32 for number in found):
            raise InvalidArgumentError(f"{name}= must be numbers from 0 to 4,294,967,295")
        return found


def _number(name: str, text: str) -> int:
    # int() would take underscores, blanks and other alphabets, and any length.
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 30):
        raise InvalidArgumentError(f"{name}= must be a whole number, not {text[:40]!r}")
    return int(text)
