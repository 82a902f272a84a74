"""Turns nanoseconds, bytes and counts into text for people, and sizes back into bytes."""

import re

from kernelscope.errors import InvalidArgumentError

_TIME = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", re.IGNORECASE)
_UNKNOWN = "-"


def format_ns(ns: float | None) -> str:
    """A duration with four significant digits and the unit that suits it.

    Units: ``ns`` in nanoseconds; null is shown as ``-``.

    Example: ``format_ns(1_234_567)`` is ``1.235 ms``.
    """
    if ns is None:
        return _UNKNOWN
    for unit, size in _TIME:
        # Compared after rounding, so that 999,999.9 ns reads 1.000 ms and not 1000 us.
        if abs(ns) >= size * 0.99995:
            return f"{_four_digits(ns / size)} {unit}"
    return f"{_four_digits(ns)} ns" if isinstance(ns, float) and not ns.is_integer() else f"{int(ns)} ns"


def format_bytes(size: float | None) -> str:
    """A number of bytes in binary units.

    Units: ``size`` in bytes; null is shown as ``-``.

    Example: ``format_bytes(80 * 2**30)`` is ``80.00 GiB``.
    """
    if size is None:
        return _UNKNOWN
    for unit, factor in _BINARY:
        if abs(size) >= factor * 0.99995:
            return f"{_four_digits(size / factor)} {unit}"
    return f"{int(size)} B"


def format_count(count: int | None) -> str:
    """A whole number with separators between thousands; null is shown as ``-``."""
    return _UNKNOWN if count is None else f"{count:,}"


def format_percent(share: float | None) -> str:
    """A share between 0 and 1 as a percentage; null is shown as ``-``.

    Example: ``format_percent(0.123)`` is ``12.3 %``.
    """
    return _UNKNOWN if share is None else f"{share * 100:.1f} %"


def parse_bytes(text: str) -> int:
    """The number of bytes that ``text`` names: ``100MB`` is decimal, ``100MiB`` binary.

    Raises: InvalidArgumentError: the text is no size.

    Example: ``parse_bytes("1.5GB")`` is ``1500000000``.
    """
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise InvalidArgumentError(f"{text!r} is no size; write for example 100MB, 1.5GB or 64MiB")
    factor = _DECIMAL[match[2].upper()]
    if match[3]:
        factor = 1024 ** (len(str(factor)) // 3)
    return round(float(match[1]) * factor)


def _four_digits(value: float) -> str:
    size = abs(value)
    if size < 9.9995:
        return f"{value:.3f}"
    if size < 99.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < 999.95 else f"{value:,.0f}"
