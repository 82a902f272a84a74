"""Finds rows by patterns of their names."""

import polars as pl

from kernelscope import _traceparse


def distinct(names: pl.Series) -> pl.Series:
    """Those of ``names``, which are categories, that are not null, each once."""
    found = _traceparse.distinct_rows(names.to_physical().to_frame("code"))
    return names[pl.DataFrame(found).to_series()]


def names_like(names: pl.Series, pattern: str) -> pl.Series:
    """Those of ``names``, which are distinct and none null, that match ``pattern``."""
    return names.filter(names.cast(pl.String).str.contains(pattern))


def matching(frame: pl.DataFrame, pattern: str, names: pl.Series | None = None) -> pl.DataFrame:
    """The rows of ``frame`` whose names match ``pattern``, each distinct name looked at once.

    ``names`` takes the distinct names of the frame, or of a larger one.
    """
    names = distinct(frame["name"]) if names is None else names
    matches = names_like(names, pattern)
    if matches.is_empty():
        return frame.clear()
    return frame.filter(pl.col("name").is_in(matches.implode()))
