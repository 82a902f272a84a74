"""A piece of advice, what it rests on, and the rule that gives it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import polars as pl

MOST_ROWS = 100
"""How many rows of the trace a piece of advice cites."""


class Cited(NamedTuple):
    """Rows of a table: the weightiest by number, and how many there are in all."""

    table: str | None
    rows: tuple[int, ...]
    cited: int


_NOTHING = Cited(None, (), 0)


@dataclass(frozen=True, slots=True)
class Advice:
    """What a rule has to say about a trace.

    ``value`` lies beyond the threshold of the rule. ``saving_ns`` is the time by which all steps would take
    less without the cause: at most the wall time of what changes; None where nobody can say. ``cites`` are
    the rows that ``evidence`` speaks of. ``cause`` names the rules that speak about the same cause and say
    more: where one of them does, this is part of its evidence.
    """

    evidence: str
    remedy: str
    value: float | None
    saving_ns: int | None = None
    severity: str | None = None
    device: int | None = None
    rank: int | None = None
    cites: Cited = _NOTHING
    cause: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: what it says in general, and the function that finds its advice and has its id as name."""

    title: str
    threshold: float
    unit: str
    """Of the threshold, and of the values of its advice."""
    find: Callable[..., Iterator[Advice]]
    needs_all_times: bool = False
    """Whether the advice rests on idle time or launches, and is void if many events have no timestamp."""


def rule(
    title: str, threshold: float, unit: str = "share of step time", *, needs_all_times: bool = False
) -> Callable[[Callable[..., Iterator[Advice]]], Rule]:
    """Makes a rule of the function that finds its advice."""
    return partial(Rule, title, threshold, unit, needs_all_times=needs_all_times)


def citing(table: str, frame: pl.DataFrame, *, by: str = "dur_ns") -> Cited:
    """What an advice cites that rests on the rows of ``frame``, largest ``by`` first.

    Columns: of ``frame``, needs ``row`` and ``by``.
    """
    weights = frame.select("row", weight=pl.col(by).fill_null(0))
    first = weights.top_k(MOST_ROWS, by=["weight", "row"], reverse=[False, True])
    first = first.sort("weight", "row", descending=[True, False])
    return Cited(table, tuple(first["row"].to_list()), frame.height)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things, in words: ``1 call``, ``2,000 calls``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def most_common(names: Iterable[str | None], most: int = 3) -> str:
    """The first few of ``names`` as a list in words."""
    known = [name for name in names if name]
    shown = [name if len(name) <= 60 else name[:57] + "..." for name in known[:most]]
    rest = len(known) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def longest_names(works: pl.DataFrame) -> list[str | None]:
    """The names of ``works``, the one that takes longest in all first.

    Columns: of ``works``, needs ``name`` and ``dur_ns``.
    """
    sums = works.group_by("name").agg(pl.col("dur_ns").sum())
    return sums.sort("dur_ns", "name", descending=[True, False])["name"].cast(pl.String).to_list()


def names_like(names: pl.Series, pattern: str) -> pl.Series:
    """The distinct ones of ``names``, which are categories, that match ``pattern``."""
    distinct = names.unique().drop_nulls()
    return distinct.filter(distinct.cast(pl.String).str.contains(pattern))


def rows_like(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """The rows of ``frame`` whose names match ``pattern``."""
    return frame.filter(pl.col("name").is_in(names_like(frame["name"], pattern).implode()))
