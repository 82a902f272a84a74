"""Statistics of durations under the names that HolisticTraceAnalysis and pandas give them."""

import polars as pl

from kernelscope.trace import Trace


def sums() -> list[pl.Expr]:
    """Statistics of ``dur`` as HolisticTraceAnalysis names them."""
    dur = pl.col("dur")
    return [
        dur.sum().alias("sum (us)"),
        dur.max().alias("max (us)"),
        dur.min().alias("min (us)"),
        dur.std().fill_null(0.0).alias("stddev"),
        dur.mean().alias("mean (us)"),
    ]


def describe(column: str) -> list[pl.Expr]:
    """Statistics of ``column`` as ``describe`` of pandas names them."""
    value = pl.col(column)
    quartiles = [
        value.quantile(share, interpolation="linear").alias(f"{share:.0%}") for share in (0.25, 0.5, 0.75)
    ]
    return [
        value.count().cast(pl.Int64).alias("count"),
        value.mean().alias("mean"),
        value.std().alias("std"),
        value.min().alias("min"),
        *quartiles,
        value.max().alias("max"),
    ]


def rank_of(trace: Trace) -> pl.Expr:
    """Returns the column ``rank``: that of the trace, 0 if it has none."""
    return pl.lit(trace.meta.rank or 0, dtype=pl.Int64).alias("rank")
