"""SQL over the tables of the trace: available names, and the result of a statement."""

from typing import Any

import polars as pl

from kernelscope import schema
from kernelscope.queries import sql
from kernelscope.report.answers import flat
from kernelscope.report.parts.cells import EXACT, texts, written
from kernelscope.trace import Trace
from kernelscope.view.parameters import Parameters
from kernelscope.view.tables import leads

_MOST_ROWS = 500
_SECONDS = 10.0
_MEMORY_BYTES = 1 << 30
_MOMENTS = frozenset(
    column.name for table in schema.TABLES.values() for column in table.columns if column.role == "time"
)
"""Columns with moments, which are shown exactly and not as durations."""

_UNITS = {"_ns": "ns", "bytes": "bytes", "_pct": "percent"}


def names(trace: Trace, _asked: Parameters) -> dict[str, Any]:
    """Returns the ``tables`` with rows, each with its columns and their meaning."""
    return {
        "tables": [
            {
                "name": name,
                "what": schema.TABLES[name].doc,
                "rows": frame.height,
                "columns": [[column.name, column.doc] for column in schema.TABLES[name].columns],
            }
            for name, frame in trace.tables.items()
            if frame.height
        ]
    }


def answer(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the first 500 rows of ``statement``, and whether there are ``more``.

    ``leads`` has for each row the reference to its events in the timeline.
    """
    found = sql(
        trace, asked.text("statement"), rows=_MOST_ROWS + 1, seconds=_SECONDS, memory_bytes=_MEMORY_BYTES
    )
    shown = flat(found.head(_MOST_ROWS))
    cells = [_exact(column) for column in shown.get_columns()]
    return {
        "columns": [{"key": c.name, "title": c.name, "unit": _unit(c), "what": ""} for c in cells],
        "data": [texts(c) if c.dtype == pl.String else c.to_list() for c in cells],
        "rows": shown.height,
        "more": found.height > shown.height,
        "leads": leads(shown),
    }


def _exact(column: pl.Series) -> pl.Series:
    """A column that JSON and JavaScript hold, as text where their numbers are too small for it."""
    if column.dtype.is_integer():
        ends = column.min(), column.max()
        is_exact = all(isinstance(end, int) and abs(end) < EXACT for end in ends if end is not None)
        return column if is_exact else column.cast(pl.String)
    kept = column.dtype.is_float() or isinstance(column.dtype, (pl.Boolean, pl.String))
    whole = column if kept else column.cast(pl.String)
    return whole.to_frame().select(written(whole.name, whole.dtype)).to_series()


def _unit(column: pl.Series) -> str:
    if column.dtype == pl.String:
        return "text"
    if column.dtype == pl.Boolean:
        return "flag"
    if column.name in _MOMENTS:
        return "plain"
    return next((unit for end, unit in _UNITS.items() if column.name.endswith(end)), "plain")
