"""Finds rows by patterns of their names."""

import polars as pl


def matching(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """The rows of ``frame`` whose names match ``pattern``, each distinct name looked at once."""
    names = frame["name"].unique().drop_nulls()
    matches = names.filter(names.cast(pl.String).str.contains(pattern)).to_physical()
    if matches.is_empty():
        return frame.clear()
    return frame.filter(frame["name"].to_physical().is_in(matches.implode()))
