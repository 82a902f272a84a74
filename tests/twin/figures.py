"""What the slow twins share: rows by key, what works cover, sums, shares and quantiles, in plain Python.

Nothing in these files is shared with the package: dictionaries, sorted lists and loops over the rows of
:mod:`slow_reader`. A twin gives what the analysis of its name does, as a dictionary from the key of a row to
its figures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import floor
from typing import Any

import polars as pl
import pytest

from slow_reader import Interval, Row, end, union

Rows = dict[str, list[Row]]
Figures = dict[Any, dict[str, Any]]


def duration(row: Row) -> int:
    """How long an event lasts; nothing where that is not known."""
    return row["dur_ns"] or 0


def spans(works: Iterable[Row]) -> list[Interval]:
    """What the works cover."""
    return union([(work["start_ns"], end(work)) for work in works])


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    found: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def kind_of(work: Row) -> str:
    """What a moment of a GPU counts as while the work runs."""
    if work["is_communication"]:
        return "communication"
    return "memory" if work["kind"] in ("memcpy", "memset") else "compute"


def whole_span(rows: Iterable[Row]) -> Interval | None:
    """From the first start to the last end."""
    events = list(rows)
    if not events:
        return None
    return min(row["start_ns"] for row in events), max(end(row) for row in events)


def mean(values: Sequence[int]) -> float | None:
    """The exact mean, then as a float."""
    return float(Fraction(sum(values), len(values))) if values else None


def deviation(values: Sequence[int]) -> float | None:
    """The standard deviation of a sample; None for one value."""
    if len(values) < 2:
        return None
    middle = Fraction(sum(values), len(values))
    return float(sum((value - middle) ** 2 for value in values) / (len(values) - 1)) ** 0.5


def quantile(values: Sequence[int], at: float) -> float | None:
    """Between the two values around a place, in proportion."""
    if not values:
        return None
    ordered = sorted(values)
    place = at * (len(ordered) - 1)
    low = floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def share(part: float, whole: float | None) -> float | None:
    """A share; None of nothing."""
    return part / whole if whole else None


def equal(value: Any) -> Any:
    """What a figure must be: floats may be rounded."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-9, abs=1e-9)
    return value


def _is_key(key: object) -> bool:
    return isinstance(key, tuple)


def compare(found: pl.DataFrame, twin: Figures, *keys: str) -> None:
    """Every figure of the twin is that of the row with its key, and there are no other rows."""
    rows = {tuple(row[key] for key in keys): row for row in found.to_dicts()}
    assert len(rows) == found.height
    named: Figures = {key if len(keys) > 1 or _is_key(key) else (key,): row for key, row in twin.items()}
    assert set(rows) == set(named), sorted(set(rows) ^ set(named), key=str)
    for key, figures in named.items():
        for name, value in figures.items():
            assert rows[key][name] == equal(value), (key, name, rows[key][name], value)
