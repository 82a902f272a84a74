"""Joins small traces into one: a question about the whole takes little longer than about one of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from kernelscope.schema import TABLES, Column
from kernelscope.trace import Trace

PART = "part"
"""Column of each table of a joined trace: the position of the trace that a row is from."""

_ROLES = {"row": "row", "link": "row", "track": "track"}
_NAMED = ("device", "step")
_KINDS = ("row", "track", *_NAMED)


class Joined(NamedTuple):
    """Several traces as one.

    A number in the whole is the one in the trace and ``PART`` times the stride of its kind: ``row`` (also of
    links), ``track``, ``device`` or ``step``.
    """

    trace: Trace
    strides: Mapping[str, int]


def joined(traces: Sequence[Trace], tables: Collection[str]) -> Joined:
    """Joins ``traces``. Only ``tables`` have rows then, and each has the column ``PART``.

    No two of the traces have equal numbers of rows, tracks, GPUs and steps then. Numbers of the profiler,
    such as thread ids, stay as they are.
    """
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
    strides = {kind: _stride(whole, kind) for kind in _KINDS}
    for name in tables:
        whole[name] = whole[name].with_columns(
            (pl.col(column) + pl.col(PART).cast(pl.Int64) * strides[kind]).cast(whole[name].schema[column])
            for column, kind in _numbered(name).items()
        )
    return Joined(Trace(traces[0].meta, **whole), strides)


def alone(trace: Trace) -> Joined:
    """Returns a trace as the only part of a joined one, without copying it."""
    part = pl.lit(0, pl.Int32).alias(PART)
    whole = replace(trace, **{name: frame.with_columns(part) for name, frame in trace.tables.items()})
    return Joined(whole, dict.fromkeys(_KINDS, 0))


def _stride(whole: Mapping[str, pl.DataFrame], kind: str) -> int:
    """How many numbers of a kind there may be in a trace."""
    columns = [
        whole[name][column] for name in whole for column, own in _numbered(name).items() if own == kind
    ]
    known: Any = [(column.min(), column.max()) for column in columns if column.null_count() < column.len()]
    return max((most for _, most in known), default=0) - min((least for least, _ in known), default=0) + 1


def _numbered(table: str) -> dict[str, str]:
    """The columns of a table with numbers, and their kinds."""
    return {column.name: kind for column in TABLES[table].columns if (kind := _kind(column))}


def _kind(column: Column) -> str | None:
    return _ROLES.get(column.role or "") or (column.name if column.name in _NAMED else None)
