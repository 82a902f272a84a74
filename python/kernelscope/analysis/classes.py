"""Divides rows into classes that agree in some columns.

A trace has a million calls and a few hundred kinds of them: what depends on the kind only is worked out once
for each.
"""

from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse


class Classes(NamedTuple):
    """``of`` has the class of each row, a position in ``keys``, which has a row for each class."""

    of: pl.Series
    keys: pl.DataFrame

    def spread(self, values: pl.Series) -> pl.Series:
        """The value of the class of each row."""
        return values[self.of]


def classes_of(keys: pl.DataFrame) -> Classes:
    """The classes of the rows of ``keys`` that agree in all columns, in order of their first rows."""
    of, first = _traceparse.divide_rows(pl.DataFrame([codes(column) for column in keys]))
    return Classes(taken(of, "class"), keys[taken(first, "first")])


def codes(values: pl.Series) -> pl.Series:
    """Numbers that are equal where ``values`` are, and null where these are."""
    if values.dtype == pl.String:
        values = values.cast(pl.Categorical)
    if isinstance(values.dtype, pl.Categorical | pl.Enum):
        values = values.to_physical()
    if isinstance(values.dtype, pl.Array):
        axes = [values.arr.get(axis).alias(str(axis)) for axis in range(values.dtype.size)]
        return classes_of(pl.DataFrame(axes)).of.alias(values.name)
    if isinstance(values.dtype, pl.UInt8 | pl.UInt32 | pl.Boolean | pl.Int32 | pl.Int64 | pl.Float64):
        return values
    return values.rank("dense").cast(pl.UInt32)


def taken(table: _traceparse.ArrowTable, column: str) -> pl.Series:
    """A column of what Rust gives."""
    return pl.DataFrame(table)[column]
