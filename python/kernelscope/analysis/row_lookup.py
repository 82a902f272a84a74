"""Finds rows of a table by their numbers."""

import polars as pl

from kernelscope import _traceparse


def positions(rows: pl.Series, table: pl.DataFrame) -> pl.Series:
    """Where the rows of these numbers are in ``table``; null for null and for one that is not there.

    Columns: of ``table``, needs ``row``, in which no number is there twice.
    """
    found = _traceparse.find_rows(table.select("row"), rows.alias("row").to_frame())
    return pl.DataFrame(found).to_series()


def looked_up(rows: pl.Series, table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The ``columns`` of the rows of these numbers; null where there is none.

    Columns: of ``table``, needs ``row`` and ``columns``; gives ``columns``, one row for each of ``rows``.
    """
    return table.select(pl.col(columns).gather(positions(rows, table)))
