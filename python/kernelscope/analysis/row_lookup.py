"""Finds rows of a table by their numbers."""

import polars as pl

from kernelscope import _traceparse


def positions(rows: pl.Series, wanted: pl.Series) -> pl.Series:
    """Where each of ``wanted`` stands in ``rows``, of which none is there twice; null for null and for none.

    Fast where ``rows`` ascend, and ``wanted`` nearly do.
    """
    found = _traceparse.find_rows(rows.to_frame("row"), wanted.to_frame("row"))
    return pl.DataFrame(found).to_series()


def looked_up(rows: pl.Series, table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The ``columns`` of the rows of these numbers; null where there is none.

    Columns: of ``table``, needs ``row`` and ``columns``; gives ``columns``, one row for each of ``rows``.
    """
    return table[list(columns)][positions(table["row"], rows)]
