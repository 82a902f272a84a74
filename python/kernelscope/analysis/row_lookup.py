"""Finds rows of a table by their numbers."""

import polars as pl


def positions(rows: pl.Series, table: pl.DataFrame) -> pl.Series:
    """Where the rows of these numbers are in ``table``; null for null and for one that is not there.

    Columns: of ``table``, needs ``row``, in which no number is there twice.
    """
    own = table["row"]
    low, high = own.min(), own.max()
    if not isinstance(low, int) or not isinstance(high, int):
        return pl.repeat(None, rows.len(), dtype=pl.UInt32, eager=True)
    inside = pl.select(pl.when(rows.is_between(low, high)).then(rows - low)).to_series()
    if high - low + 1 == own.len() and own.is_sorted():
        return inside
    places = pl.int_range(1, own.len() + 1, dtype=pl.UInt32, eager=True)
    at = pl.zeros(high - low + 1, dtype=pl.UInt32, eager=True).scatter(own - low, places)
    found = at.gather(inside)
    return pl.select(pl.when(found > 0).then(found - 1)).to_series()


def looked_up(rows: pl.Series, table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The ``columns`` of the rows of these numbers; null where there is none.

    Columns: of ``table``, needs ``row`` and ``columns``; gives ``columns``, one row for each of ``rows``.
    """
    return table.select(pl.col(columns).gather(positions(rows, table)))
