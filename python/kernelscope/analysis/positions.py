"""Where rows stand in a table."""

import polars as pl


def positions(rows: pl.Series, wanted: pl.Series) -> pl.Series:
    """Where each of ``wanted`` stands in ``rows``, which ascend; null where it is null or not there."""
    if rows.is_empty():
        return pl.repeat(None, len(wanted), dtype=pl.UInt32, eager=True)
    found = rows.search_sorted(wanted.fill_null(0)).clip(upper_bound=len(rows) - 1)
    is_there = (rows.gather(found) == wanted).fill_null(value=False)
    return pl.select(pl.when(is_there).then(found.cast(pl.UInt32)))[found.name]
