"""Joins small traces into one: a question about the whole takes little longer than about one of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from kernelscope.schema import TABLES
from kernelscope.trace import Trace

PART = "part"
"""Column of each table of a joined trace: the position of the trace that a row is from."""

_OF_READER = {
    kind: {name: table.of_role(*roles) for name, table in TABLES.items()}
    for kind, roles in {"row": ("row", "link"), "track": ("track",)}.items()
}
"""Columns of each table with numbers from 0, up to the size of the source."""

_RECORDED = {
    kind: {name: [c.name for c in table.columns if c.name == kind] for name, table in TABLES.items()}
    for kind in ("device", "step")
}
"""Columns of each table with numbers as recorded: any."""

_WIDTH = 2**33
"""Numbers have 32 bits, with a sign or without: they are smaller than half of it."""


class Joined(NamedTuple):
    """Several traces as one, and the number in its trace of each ``device`` and ``step`` of the whole.

    ``own`` is empty if these are the same.
    """

    trace: Trace
    own: Mapping[str, pl.Series]

    def own_numbers(self, numbers: pl.Series) -> pl.Series:
        """Returns the numbers in their traces of the GPUs or steps ``numbers``, by the name of the series."""
        if not self.own:
            return numbers
        return self.own[numbers.name].gather(numbers).cast(numbers.dtype).alias(numbers.name)


def joined(traces: Sequence[Trace], tables: Collection[str]) -> Joined:
    """Joins ``traces``. Only ``tables`` have rows then, and each has the column ``PART``.

    No two of the traces have equal numbers of rows (or links), tracks, GPUs and steps then; in one trace,
    their order is the same. Numbers of the profiler, such as thread ids, stay as they are. A single trace is
    only given the column.
    """
    if len(traces) == 1:
        return alone(traces[0])
    whole: dict[str, Any] = {}
    for name in TABLES:
        frames = (
            [getattr(trace, name) for trace in traces]
            if name in tables
            else [getattr(traces[0], name).clear()]
        )
        heights = pl.Series([frame.height for frame in frames])
        part = pl.int_range(len(frames), dtype=pl.Int32, eager=True).repeat_by(heights).explode().drop_nulls()
        whole[name] = pl.concat(frames).with_columns(part.alias(PART))
    for columns in _OF_READER.values():
        stride = 1 + max((whole[n][c].max() or 0 for n in tables for c in columns[n]), default=0)
        if stride * len(traces) > 2**32:
            _count(whole, columns)
            continue
        before = pl.col(PART).cast(pl.UInt32) * stride
        for name in tables:
            whole[name] = whole[name].with_columns(pl.col(column) + before for column in columns[name])
    own = {kind: _count(whole, columns) for kind, columns in _RECORDED.items()}
    return Joined(Trace(traces[0].meta, **whole), own)


def _count(whole: dict[str, pl.DataFrame], columns: Mapping[str, Sequence[str]]) -> pl.Series:
    """Counts numbers of one kind through all traces, and returns the number in its trace of each."""
    places = [(name, column) for name, some in columns.items() for column in some]
    key = pl.col(PART).cast(pl.Int64) * _WIDTH
    keys = [whole[name].select(key + pl.col(column)).to_series() for name, column in places]
    known = pl.concat(keys).unique().drop_nulls().sort()
    for (name, column), of_column in zip(places, keys, strict=True):
        number = known.search_sorted(of_column).cast(whole[name].schema[column])
        number = pl.when(pl.col(column).is_not_null()).then(number)
        whole[name] = whole[name].with_columns(number.alias(column))
    return known - (known + _WIDTH // 2) // _WIDTH * _WIDTH


def alone(trace: Trace) -> Joined:
    """Returns a trace as the only part of a joined one, without copying it."""
    tables = {name: frame.with_columns(part_of(frame)) for name, frame in trace.tables.items()}
    return Joined(replace(trace, **tables), {})


def part_of(frame: pl.DataFrame) -> pl.Expr:
    """Returns the column ``PART`` of a table, which is 0 if its trace is not joined."""
    return pl.col(PART) if PART in frame.columns else pl.lit(0, pl.Int32).alias(PART)
