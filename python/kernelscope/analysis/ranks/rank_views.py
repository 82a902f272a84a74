"""Views over ranks and steps: heat map, pace, exact quantiles, groups of similar ranks, and two runs."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.grouping import check_by
from kernelscope.analysis.ranks.clocks import shifts
from kernelscope.analysis.ranks.cluster import Cluster, Source, cluster_of, rank_places, tables_in
from kernelscope.analysis.ranks.stragglers import rank_steps
from kernelscope.meta import PLACES
from kernelscope.schema import TABLES

_PARTS = ("compute_ns", "launch_ns", "data_ns", "network_ns", "wait_ns")
_VALUES = ("total_ns", "own_ns", *_PARTS)
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def rank_heatmap(source: "Source | Cluster", *, value: str = "own_ns") -> pl.DataFrame:
    """One value of each rank in each step: one row per rank, one column per step.

    ``value`` is ``total_ns``, ``own_ns`` or a part of ``rank_steps``.

    Columns: ``rank``, then one per step, named by its number; null if the rank has no such step.
    Units: ns.
    Raises: InvalidArgumentError: ``value`` has another value.
    """
    check_by(value, _VALUES)
    steps = rank_steps(source).select("rank", "step", value).sort("step", "rank")
    return (
        steps.with_columns(pl.col("step").cast(pl.String))
        .pivot("step", index="rank", values=value)
        .sort("rank")
    )


def rank_cells(steps: pl.DataFrame, *, value: str, most_ranks: int, most_steps: int) -> pl.DataFrame:
    """Returns one value of each rank in each step, in a limited number of rows and columns of cells.

    If there are more ranks or steps, neighbours share a cell, which has their maximum: outliers must not
    vanish in a mean. Steps without a number have no cell.

    Columns: ``steps`` needs ``rank``, ``step`` and ``value``, as in ``rank_steps``. The result has ``row``
        and ``column`` of the cell, from 0; ``rank`` and ``step`` of the largest value; the value as
        ``value_ns``; ``median_ns`` (of the step, over its ranks).
    Units: ns.
    Order: by row, then by column.
    """
    known = steps.select("rank", "step", pl.col(value).alias("value_ns")).drop_nulls("step")
    down = sharing(known["rank"].n_unique(), most_ranks)
    across = sharing(known["step"].n_unique(), most_steps)
    cells = known.with_columns(
        row=(pl.col("rank").rank("dense").cast(pl.Int64) - 1) // down,
        column=(pl.col("step").rank("dense").cast(pl.Int64) - 1) // across,
        median_ns=pl.col("value_ns").median().over("step"),
    )
    order = cells.drop_nulls("value_ns").sort("value_ns", "rank", "step", descending=[True, False, False])
    largest = order.unique(["row", "column"], keep="first", maintain_order=True)
    return largest.select("row", "column", "rank", "step", "value_ns", "median_ns").sort("row", "column")


def sharing(count: int, most: int) -> int:
    """Returns how many of ``count`` neighbours share a cell of ``rank_cells``.

    There are at most ``most`` cells.
    """
    return max(-(-count // most), 1)


def rank_quantiles(
    source: "Source | Cluster",
    by: str | Sequence[str] = ("step",),
    *,
    quantiles: Sequence[float] = _QUANTILES,
) -> pl.DataFrame:
    """Exact quantiles of step times over all ranks, not medians of the ranks' medians.

    ``by`` is ``step`` for each step over the ranks, ``rank`` for each rank over its steps, or a place in
    parallelism if labels contain it: ``dp``, ``ep``, ``pp``, ``cp``, ``tp``.

    Columns: the columns of ``by``; ``part`` (``total_ns``, ``own_ns`` or a part of ``rank_steps``);
        ``count``; ``mean_ns``; and ``q0`` to ``q100``, one per quantile, interpolated linearly.
    Units: ns. Order: by ``by``, then by part as in ``rank_steps``.
    """
    columns = check_by(by, ("step", "rank", *PLACES))
    cluster = cluster_of(source)
    steps = rank_steps(cluster).join(cluster.ranks.select("rank", *PLACES), on="rank", how="left")
    long = steps.unpivot(_VALUES, index=columns, variable_name="part", value_name="ns")
    value = pl.col("ns")
    order = pl.col("part").replace_strict({name: place for place, name in enumerate(_VALUES)})
    return (
        long.group_by(*columns, "part")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            value.mean().alias("mean_ns"),
            *(value.quantile(q, interpolation="linear").alias(f"q{q * 100:g}") for q in quantiles),
        )
        .sort(*columns, order, nulls_last=True)
    )


def table_quantiles(
    source: Source,
    table: str = "gpu_ops",
    by: str | Sequence[str] = ("name",),
    *,
    column: str = "dur_ns",
    quantiles: Sequence[float] = _QUANTILES,
) -> pl.DataFrame:
    """Exact quantiles of a table column over the rows of all ranks, not medians of the ranks' medians.

    ``source`` is a list of traces, or a lake of many ranks; only the required columns are read. ``by``
    accepts any columns of the table, ``rank``, and places in parallelism if labels contain them: ``dp``,
    ``ep``, ``pp``, ``cp``, ``tp``.

    Columns: the columns of ``by``; ``count`` (of values), ``sum``, ``mean``, and ``q0`` to ``q100``, one per
        quantile, interpolated linearly.
    Order: by ``sum``, largest first.
    Raises: InvalidArgumentError: there is no such table, or ``by`` or ``column`` is not one of its columns.

    Example: ``table_quantiles(ks.scan("lake"), by=("rank",), column="dur_ns")``
    Example: ``table_quantiles(ks.read("merged-server.trace.json.gz"), by=("tp", "name"))``
    """
    check_by(table, TABLES)
    frames = tables_in(source, table)
    names = frames[0].collect_schema().names()
    columns, _ = check_by(by, [*names, *PLACES]), check_by(column, names)
    if not set(PLACES).isdisjoint(columns):
        places = rank_places(source).lazy()
        frames = [frame.join(places, on="rank", how="left") for frame in frames]
    value = pl.col(column)
    text = [
        pl.col(name).cast(pl.String) for name in columns if frames[0].collect_schema()[name] == pl.Categorical
    ]
    return (
        pl.concat([frame.select({*columns, column}).with_columns(text) for frame in frames])
        .group_by(columns)
        .agg(
            value.count().cast(pl.Int64).alias("count"),
            value.sum().alias("sum"),
            value.mean().alias("mean"),
            *(value.quantile(q, interpolation="linear").alias(f"q{q * 100:g}") for q in quantiles),
        )
        .sort(["sum", *columns], descending=[True, *(False for _ in columns)], nulls_last=True)
        .collect(engine="streaming")
    )


def step_pace(source: "Source | Cluster") -> pl.DataFrame:
    """Start of each step on each rank, and the lag behind the other ranks.

    Columns: ``rank``, ``step``, ``start_ns`` (on the common clock of ``clock_offsets``), ``period_ns`` (to
        the rank's next step; null for its last), ``behind_ns`` (relative to the median rank).
    Units: ns from the earliest base time.
    """
    cluster = cluster_of(source)
    steps = cluster.steps.select("rank", "step", "start_ns").join(shifts(cluster), on="rank")
    steps = steps.with_columns(pl.col("start_ns") - pl.col("shift_ns")).sort("rank", "start_ns")
    # A median is a float64, which holds the time since a step began, but not epoch times.
    steps = steps.with_columns(after=pl.col("start_ns") - pl.col("start_ns").min().over("step"))
    return steps.select(
        "rank",
        "step",
        "start_ns",
        period_ns=pl.col("start_ns").shift(-1).over("rank") - pl.col("start_ns"),
        behind_ns=pl.col("after") - pl.col("after").median().over("step"),
    ).sort("rank", "start_ns")


def rank_groups(source: "Source | Cluster", *, tolerance: float = 0.05) -> pl.DataFrame:
    """Groups of ranks that behave alike.

    For each part of a step, the ranks' medians are sorted and cut between neighbours that differ by more than
    ``tolerance`` of the median step. Ranks between the same cuts in every part form one group.

    Columns: ``rank_group`` (the largest is 0), ``ranks`` (list), ``count``, and the median over the group of
        ``own_ns`` and each part of ``rank_steps``.
    Units: ns.
    Order: by size, largest first.
    """
    values = ("own_ns", *_PARTS)
    steps = rank_steps(source)
    typical = steps.group_by("rank").agg(pl.col(values).median()).sort("rank")
    limit = tolerance * pl.lit(steps["total_ns"].median(), pl.Float64)
    cuts: list[str] = []
    for name in values:
        cut = (pl.col(name).diff() > limit).fill_null(value=False).cum_sum().alias(f"_{name}")
        typical = typical.sort(name, "rank").with_columns(cut)
        cuts.append(f"_{name}")
    return (
        typical.sort("rank")
        .group_by(cuts, maintain_order=True)
        .agg(pl.col("rank").alias("ranks"), pl.len().cast(pl.Int64).alias("count"), pl.col(values).median())
        .with_columns(_first=pl.col("ranks").list.first())
        .sort("count", "_first", descending=[True, False])
        .with_row_index("rank_group")
        .drop("_first", *cuts)
    )


def run_difference(before: "Source | Cluster", after: "Source | Cluster") -> pl.DataFrame:
    """Changes from one run to another, rank by rank.

    Columns: ``rank``, ``part`` (``total_ns``, ``own_ns`` or a part of ``rank_steps``), ``before_ns`` and
        ``after_ns`` (median over the rank's steps; null if the run does not have the rank), ``change_ns``,
        ``change`` (share of the rank's median step before).
    Units: ns.
    Order: by the size of the change, largest first.
    """
    medians = [
        rank_steps(source)
        .group_by("rank")
        .agg(pl.col(_VALUES).median())
        .unpivot(_VALUES, index="rank", variable_name="part", value_name=name)
        for source, name in ((before, "before_ns"), (after, "after_ns"))
    ]
    both = medians[0].join(medians[1], on=["rank", "part"], how="full", coalesce=True)
    step = pl.col("before_ns").filter(pl.col("part") == "total_ns").first().over("rank")
    change = pl.col("after_ns") - pl.col("before_ns")
    return (
        both.with_columns(change_ns=change, change=pl.when(step > 0).then(change / step))
        .with_columns(_size=pl.col("change_ns").abs())
        .sort("_size", "rank", "part", descending=[True, False, False], nulls_last=True)
        .drop("_size")
    )
