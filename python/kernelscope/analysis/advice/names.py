"""Finds rows by patterns of their names."""

import polars as pl


def names_like(names: pl.Series, pattern: str) -> pl.Series:
    """Those of ``names``, which are distinct and none null, that match ``pattern``."""
    return names.filter(names.cast(pl.String).str.contains(pattern))


def matching(frame: pl.DataFrame, pattern: str, names: pl.Series | None = None) -> pl.DataFrame:
    """The rows of ``frame`` whose names match ``pattern``, each distinct name looked at once.

    ``names`` takes the distinct names of the frame, or of a larger one.
    """
    names = frame["name"].unique().drop_nulls() if names is None else names
    matches = names_like(names, pattern).to_physical()
    if matches.is_empty():
        return frame.clear()
    return frame.filter(frame["name"].to_physical().is_in(matches.implode()))
