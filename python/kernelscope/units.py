"""Formats nanoseconds, bytes and counts as text for people, and parses sizes."""

import re
from decimal import Decimal

from kernelscope.errors import InvalidArgumentError

_TIME = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_TIME_UNITS = {"": 1, "ns": 1, **dict(_TIME)}
_MOMENT = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(ns|us|ms|s)?\s*")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", re.IGNORECASE)
_UNKNOWN = "-"


def format_ns(ns: float | None) -> str:
    """A duration with four significant digits and a suitable unit.

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
    """An integer with thousands separators; null is shown as ``-``."""
    return _UNKNOWN if count is None else f"{count:,}"


def format_percent(share: float | None) -> str:
    """A share between 0 and 1 as a percentage; null is shown as ``-``.

    Example: ``format_percent(0.123)`` is ``12.3 %``.
    """
    return _UNKNOWN if share is None else f"{share * 100:.1f} %"


def parse_bytes(text: str) -> int:
    """Parses a number of bytes: ``100MB`` is decimal, ``100MiB`` binary.

    Raises: InvalidArgumentError: the text is not a size.

    Example: ``parse_bytes("1.5GB")`` is ``1500000000``.
    """
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise InvalidArgumentError(f"{text!r} is not a size; write for example 100MB, 1.5GB or 64MiB")
    factor = _DECIMAL[match[2].upper()]
    if match[3]:
        factor = 1024 ** (len(str(factor)) // 3)
    return round(float(match[1]) * factor)


def parse_time_range(text: str) -> tuple[int | None, int | None]:
    """Parses the first and the last moment of a time range, in ns; either may be omitted.

    Raises: InvalidArgumentError: the text is not a time range, or ends before it starts.

    Example: ``parse_time_range("1s/2500ms")`` is ``(1000000000, 2500000000)``.
    """
    first, separator, last = text.partition("/")
    start, end = _parse_moment(first, text), _parse_moment(last, text)
    if not separator or (start is None and end is None):
        raise InvalidArgumentError(_no_time_range(text))
    if start is not None and end is not None and end < start:
        raise InvalidArgumentError(f"the time {text!r} ends before it starts")
    return start, end


def _parse_moment(text: str, whole: str) -> int | None:
    if not text.strip():
        return None
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(_no_time_range(whole))
    moment = round(Decimal(match[1]) * _TIME_UNITS[match[2] or ""])
    if not -(2**63) <= moment < 2**63:
        raise InvalidArgumentError(f"{whole!r} is outside the range of a trace clock")
    return moment


def _no_time_range(text: str) -> str:
    return f"{text!r} is not a time; write START/END in ns or with a unit, for example 1s/2s, 500ms/ or /1000"


def _four_digits(value: float) -> str:
    size = abs(value)
    if size < 9.9995:
        return f"{value:.3f}"
    if size < 99.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < 999.95 else f"{value:,.0f}"
