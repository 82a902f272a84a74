"""The columns that every summary of nsys has."""

from collections.abc import Sequence

import polars as pl

from kernelscope.compat.nsys.report import Field, Figure

DISTRIBUTION = (
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
        *distribution_fields("ns"),
    )


def distribution_fields(suffix: str, *, prefix: str = "") -> tuple[Field, ...]:
    """The columns of :func:`distribution` in ns; ``prefix`` begins their headings."""
    return tuple(
        Field(f"{prefix}{heading} (ns)", f"{name}_{suffix}", figure) for heading, name, figure in DISTRIBUTION
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


def spread(
    frame: pl.DataFrame, keys: Sequence[str], value: str, suffix: str, **also: pl.Expr
) -> pl.DataFrame:
    """Total, count and :func:`distribution` of ``value`` by ``keys``, and what ``also`` adds up.

    Columns: ``keys``, ``total_<suffix>``, ``instances``, the distribution, and those of ``also``.
    """
    number = pl.col(value)
    frame = frame.filter(number.is_not_null()) if frame[value].null_count() else frame
    return frame.group_by(keys).agg(
        number.sum().alias(f"total_{suffix}"),
        pl.len().cast(pl.Int64).alias("instances"),
        *distribution(number, suffix),
        **also,
    )


def summary(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Share, total, count and distribution of durations by ``keys``; rows without one do not count.

    Columns: ``keys``, ``time_pct`` (of the total of all), ``total_ns``, ``instances``, ``mean_ns``,
        ``median_ns``, ``min_ns``, ``max_ns``, ``std_ns``.
    """
    return spread(frame, keys, "dur_ns", "ns").with_columns(time_pct=share("total_ns"))


def share(column: str) -> pl.Expr:
    """Percentage of the total; null where that is 0."""
    total = pl.col(column).sum()
    return pl.when(total != 0).then(100.0 * pl.col(column) / total)


def in_order(frame: pl.DataFrame, *keys: str, ascending: Sequence[str] = ()) -> pl.DataFrame:
    """Sorted by ``keys``, greatest first, then by ``ascending``, nulls first; text by its characters.

    Together the columns tell every row from the others: the sort is not stable, which would cost
    several times as much.
    """
    texts = [
        pl.col(name).cast(pl.String) if frame.schema[name] == pl.Categorical else pl.col(name)
        for name in ascending
    ]
    greatest = [pl.col(name) for name in keys]
    flags = [*(True for _ in keys), *(False for _ in ascending)]
    return frame.sort([*greatest, *texts], descending=flags, nulls_last=flags)
