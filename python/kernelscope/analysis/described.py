"""What the numbers of each group of rows come to.

Groups are numbered from 0 on; rows whose group is null do not count.
"""

from collections.abc import Sequence

import polars as pl

from kernelscope import _traceparse


def described(
    groups: pl.Series, values: pl.Series, count: int, *, quantiles: Sequence[float] = ()
) -> pl.DataFrame:
    """A description of the whole numbers of each of ``count`` groups.

    Columns: ``rows`` (of the group), ``sum``, ``mean``, ``min``, ``max``, ``std`` (of a sample; null for one
        number), and ``q0`` ... (``quantiles``, interpolated between two numbers).
    """
    frame = pl.DataFrame({"group": groups, "value": values})
    return pl.DataFrame(_traceparse.describe_groups(frame, count, list(quantiles)))


def totals(groups: pl.Series, values: pl.Series, count: int) -> pl.DataFrame:
    """How many rows each of ``count`` groups has, and what its whole numbers sum to: ``rows``, ``sum``."""
    frame = pl.DataFrame({"group": groups, "value": values})
    return pl.DataFrame(_traceparse.sum_groups(frame, count))


def weighted_means(groups: pl.Series, weights: pl.Series, values: pl.Series, count: int) -> pl.Series:
    """The mean of the values of each of ``count`` groups, weighted by whole numbers.

    Where the weights of the rows that have a value sum to nothing, all weigh the same. Null without values.
    """
    frame = pl.DataFrame({"group": groups, "weight": weights, "value": values})
    return pl.DataFrame(_traceparse.weigh_groups(frame, count)).to_series()
