"""A recommendation, its evidence, and the rule that finds it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.advice.savings import Change
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

MOST_ROWS = 100
"""Maximum number of rows of the trace that a recommendation refers to."""


class Cited(NamedTuple):
    """Rows of a table: the largest by number, and the total number of rows."""

    table: str | None
    rows: tuple[int, ...]
    cited: int


_NOTHING = Cited(None, (), 0)


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation of one rule about a trace.

    ``value`` exceeds the threshold of the rule. ``change`` takes away the cause, and ``saving_ns`` is the
    reduction of the time of all steps by the changes of all advice of the rule; None if unknown. ``cites``
    are the rows that ``evidence`` describes. ``cause`` names more specific rules about the same cause: if one
    of them fires about the same ranks, this recommendation becomes part of its evidence. ``ranks`` are all
    that it is about, if they are more than ``rank``.
    """

    evidence: str
    remedy: str
    value: float | None
    change: Change | None = None
    saving_ns: int | None = None
    severity: str | None = None
    device: int | None = None
    rank: int | None = None
    ranks: frozenset[int] = frozenset()
    cites: Cited = _NOTHING
    cause: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its title and severity, and the function that finds its advice and whose name is its id."""

    title: str
    threshold: float
    unit: str
    """Unit of the threshold and of the values of its advice."""
    find: Callable[..., Iterator[Advice]]
    needs_all_times: bool = False
    """Whether the advice relies on idle time or launches, so that missing timestamps invalidate it."""


def rule(
    title: str, threshold: float, unit: str = "share of step time", *, needs_all_times: bool = False
) -> Callable[[Callable[..., Iterator[Advice]]], Rule]:
    """Turns the function that finds the advice into a rule."""
    return partial(Rule, title, threshold, unit, needs_all_times=needs_all_times)


def citing(table: str, frame: pl.DataFrame, *, by: str = "dur_ns") -> Cited:
    """Returns the rows of ``frame`` that a recommendation refers to, largest ``by`` first.

    Columns: ``frame`` needs ``row`` and ``by``.
    """
    weights = frame.select("row", weight=pl.col(by).fill_null(0))
    first = weights.top_k(MOST_ROWS, by=["weight", "row"], reverse=[False, True])
    first = first.sort("weight", "row", descending=[True, False])
    return Cited(table, tuple(first["row"].to_list()), frame.height)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Returns a number of things in words: ``1 call``, ``2,000 calls``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def most_common(names: Iterable[str | None], most: int = 3) -> str:
    """Returns the first few of ``names`` as a list in words."""
    known = [name for name in names if name]
    shown = [name if len(name) <= 60 else name[:57] + "..." for name in known[:most]]
    rest = len(known) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def longest_names(works: pl.DataFrame) -> list[str | None]:
    """Returns the names of ``works``, the one with the longest total time first.

    Columns: ``works`` needs ``name`` and ``dur_ns``.
    """
    sums = works.group_by("name").agg(pl.col("dur_ns").sum())
    return sums.sort("dur_ns", "name", descending=[True, False])["name"].cast(pl.String).to_list()


@per_trace
def _distinct_names(trace: Trace, table: str) -> pl.Series:
    return trace.tables[table]["name"].unique().drop_nulls()


def matching(names: pl.Series, pattern: str) -> pl.Series:
    """Returns the distinct ``names``, a categorical column, that match ``pattern``."""
    return _of_pattern(names.unique().drop_nulls(), pattern)


def names_like(trace: Trace, table: str, pattern: str) -> pl.Series:
    """Returns the distinct names in a table that match ``pattern``."""
    return _of_pattern(_distinct_names(trace, table), pattern)


def _of_pattern(distinct: pl.Series, pattern: str) -> pl.Series:
    return distinct.filter(distinct.cast(pl.String).str.contains(pattern))


def rows_like(trace: Trace, table: str, pattern: str, *columns: str) -> pl.DataFrame:
    """Returns the ``columns`` of the rows of a table whose names match ``pattern``."""
    found, rows = names_like(trace, table, pattern), trace.tables[table].select(columns)
    return rows.filter(trace.tables[table]["name"].is_in(found.implode())) if found.len() else rows.clear()
