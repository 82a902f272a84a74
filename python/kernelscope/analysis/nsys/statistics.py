"""The columns that every summary of nsys has."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.nsys.report import Field, Figure

PREFIX = (
    ("Avg", "mean", Figure.TENTHS),
    ("Med", "median", Figure.TENTHS),
    ("Min", "min", Figure.PLAIN),
    ("Max", "max", Figure.PLAIN),
    ("StdDev", "std", Figure.TENTHS),
)


def summary_fields(count: str) -> tuple[Field, ...]:
    """Share, total, count and distribution of durations; ``count`` is the heading of the count."""
    return (
        Field("Time (%)", "time_pct", Figure.TENTHS),
        Field("Total Time (ns)", "total_ns"),
        Field(count, "instances"),
        *(Field(f"{heading} (ns)", f"{name}_ns", figure) for heading, name, figure in PREFIX),
    )


def distribution(value: pl.Expr, suffix: str) -> list[pl.Expr]:
    """Mean, median, least, greatest and standard deviation of a sample, which of one value is 0.

    Values that are null are no part of the sample; of an empty one all but the deviation is null.
    """
    count = value.count()
    return [
        pl.when(count > 0).then(value.sum() / count).alias(f"mean_{suffix}"),
        value.median().alias(f"median_{suffix}"),
        value.min().alias(f"min_{suffix}"),
        value.max().alias(f"max_{suffix}"),
        pl.when(count <= 1).then(0.0).otherwise(value.std()).alias(f"std_{suffix}"),
    ]


def summary(frame: pl.DataFrame, keys: Sequence[str], *, value: str = "dur_ns") -> pl.DataFrame:
    """Share, total, count and distribution of ``value`` by ``keys``; rows without a value do not count.

    Columns: ``keys``, ``time_pct`` (of the total of all), ``total_ns``, ``instances``, ``mean_ns``,
        ``median_ns``, ``min_ns``, ``max_ns``, ``std_ns``.
    """
    duration = pl.col(value)
    table = (
        frame.filter(duration.is_not_null())
        .group_by(keys)
        .agg(
            duration.sum().alias("total_ns"),
            pl.len().cast(pl.Int64).alias("instances"),
            *distribution(duration, "ns"),
        )
    )
    return table.with_columns(time_pct=share("total_ns"))


def share(column: str) -> pl.Expr:
    """Percentage of the total; null where that is 0."""
    total = pl.col(column).sum()
    return pl.when(total != 0).then(100.0 * pl.col(column) / total)


def in_order(frame: pl.DataFrame, *keys: str, ascending: Sequence[str] = ()) -> pl.DataFrame:
    """Sorted by ``keys``, greatest first, then by ``ascending``, nulls first."""
    return frame.sort(
        [*keys, *ascending],
        descending=[*(True for _ in keys), *(False for _ in ascending)],
        nulls_last=[*(True for _ in keys), *(False for _ in ascending)],
        maintain_order=True,
    )
