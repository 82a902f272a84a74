"""Filters of columns as people write them: ``> 1 ms``, ``10..20``, or a text to search for."""

import re
from collections.abc import Mapping

import polars as pl

from kernelscope.errors import InvalidArgumentError, KernelscopeError
from kernelscope.units import parse_bytes

_COMPARISON = re.compile(r"\s*(>=|<=|>|<|=|!=)\s*(.+?)\s*")
_BETWEEN = re.compile(r"\s*(.+?)\s*\.\.\s*(.+?)\s*")
_NUMBER = re.compile(r"(-?\d[\d,]*(?:\.\d+)?)\s*([A-Za-zµ%/]*)")
_TIMES = {"": 1.0, "ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10}
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_TEXTS = ("text", "sentence")


def condition(column: str, unit: str, written: str) -> pl.Expr:
    """Returns the rows that a filter of a column in ``unit`` keeps, without rows that have no value.

    Raises: InvalidArgumentError: the filter cannot be read.
    """
    values = pl.col(column)
    if unit in _TEXTS:
        return values.cast(pl.String).str.to_lowercase().str.contains(written.strip().lower(), literal=True)
    if unit == "flag":
        return values == (written.strip().lower() in ("yes", "true", "1"))
    between = _BETWEEN.fullmatch(written)
    if between:
        return values.is_between(_value(unit, between[1]), _value(unit, between[2]))
    compared = _COMPARISON.fullmatch(written)
    sign, number = (compared[1], _value(unit, compared[2])) if compared else ("=", _value(unit, written))
    tests: Mapping[str, pl.Expr] = {
        ">=": values >= number,
        "<=": values <= number,
        ">": values > number,
        "<": values < number,
        "=": values == number,
        "!=": values != number,
    }
    return tests[sign]


def _value(unit: str, text: str) -> float:
    """The number of a text, in the unit in which the column is kept."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise _unreadable(text)
    number, suffix = float(match[1].replace(",", "")), match[2]
    if unit == "bytes" and suffix:
        try:
            return parse_bytes(text.replace(",", ""))
        except KernelscopeError:
            raise _unreadable(text) from None
    if unit == "ns":
        factors = _TIMES
    elif unit == "share":
        # As it is shown: 12 % is a share of 0.12.
        factors = {"": 1.0, "%": 0.01}
    elif unit == "percent":
        factors = {"": 1.0, "%": 1.0}
    else:
        factors = {f"{prefix}{end}": size for prefix, size in _PREFIXES.items() for end in ("", unit)}
    if suffix not in factors:
        raise _unreadable(text)
    return number * factors[suffix]


def _unreadable(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{text.strip()[:40]!r} is not a number of this column: write for example > 1 ms, 10..20 or < 4 MiB"
    )
