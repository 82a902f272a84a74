"""Host time per phase of training in each step, for ranks without a GPU."""

from collections.abc import Iterable

import polars as pl

from kernelscope.analysis.intervals import Intervals
from kernelscope.analysis.ranks.host_calls import computing_on_host, host_calls
from kernelscope.analysis.ranks.rank_tables import RankTables

PHASE_SCHEMA: dict[str, pl.DataType] = {
    "rank": pl.Int64(),
    "step": pl.Int32(),
    "phase": pl.String(),
    "phase_ns": pl.Int64(),
}

ON_GPU = ("kernel_ns", "memcpy_ns", "memset_ns", "communication_ns")
"""Parts of a step with GPU activity."""


def host_ranks(steps: pl.DataFrame) -> pl.Series:
    """Returns the ranks without GPU activity in their ``steps``, which have ``rank`` and ``ON_GPU``."""
    is_idle = pl.sum_horizontal(pl.col(ON_GPU).sum()) == 0
    return steps.group_by("rank", maintain_order=True).agg(is_idle.alias("is_idle")).filter("is_idle")["rank"]


def host_phases(tables: RankTables, ranks: Iterable[int]) -> pl.DataFrame:
    """Returns the host time of each phase of each step of ``ranks``, which have no GPU operations.

    The thread that marks the steps is the host. Between two operators it counts for the phase of the first,
    or if that has none, of the second; before the first operator of a step for none. It is waiting while a
    collective runs and no operator computes.

    Columns: ``PHASE_SCHEMA``.
    Units: ns.
    """
    found = [_phases(_of_rank(tables, rank)) for rank in ranks]
    return pl.concat([pl.DataFrame(schema=PHASE_SCHEMA), *found])


def _of_rank(tables: RankTables, rank: int) -> RankTables:
    names = ("ops", "steps", "collectives", "process_groups")
    return {name: tables[name].filter(pl.col("rank") == rank) for name in names}


def _phases(tables: RankTables) -> pl.DataFrame:
    parts = _parts(tables)
    if parts.is_empty():
        return pl.DataFrame(schema=PHASE_SCHEMA)
    calls = host_calls(tables).select("start_ns", "dur_ns")
    computing = computing_on_host(tables, parts["rank"].unique()).select("start_ns", "dur_ns")
    # What lies in either less what lies in computing lies in calls alone.
    either = Intervals(pl.concat([calls, computing]), by=[]).hidden_ns(parts)
    waiting = either - Intervals(computing, by=[]).hidden_ns(parts)
    works = parts.with_columns(phase_ns=pl.col("end_ns") - pl.col("start_ns") - waiting)
    sums = works.group_by("rank", "step", "phase").agg(pl.col("phase_ns").sum())
    return sums.select(pl.col(name).cast(dtype) for name, dtype in PHASE_SCHEMA.items())


def _parts(tables: RankTables) -> pl.DataFrame:
    """Operators and what lies between them, on the thread that marks the steps.

    Columns: ``rank``, ``step``, ``phase``, ``start_ns``, ``end_ns``.
    """
    end = (pl.col("start_ns") + pl.col("dur_ns").fill_null(0)).alias("end_ns")
    marks = tables["steps"].filter(~pl.col("is_partial")).drop_nulls("row")
    marks = marks.join(tables["ops"].select("row", "track"), on="row", how="inner")
    until = pl.col("host_start_ns") + pl.col("host_dur_ns")
    windows = marks.select("rank", "step", "track", begin_ns="host_start_ns", until_ns=until)
    windows = windows.sort("begin_ns").collect()
    ops = tables["ops"].select("track", "is_annotation", pl.col("phase").cast(pl.String), "start_ns", end)
    # The step of an optimizer is an annotation.
    ops = ops.filter(~pl.col("is_annotation") | (pl.col("phase") != "other")).collect()
    ops = ops.filter(pl.col("track").is_in(windows["track"].implode())).sort("start_ns", "end_ns")
    # Those that no earlier one encloses.
    reached = pl.col("end_ns").cum_max().shift(1).over("track")
    ops = ops.filter(reached.is_null() | (pl.col("start_ns") >= reached))
    placed = ops.join_asof(
        windows, left_on="start_ns", right_on="begin_ns", by="track", coalesce=False, check_sortedness=False
    )
    placed = placed.filter(pl.col("start_ns") < pl.col("until_ns"))
    placed = placed.with_columns(pl.min_horizontal("end_ns", "until_ns").alias("end_ns"))
    of_step = ["track", "begin_ns"]
    before, phase = pl.col("phase").shift(1).over(of_step), pl.col("phase")
    between = placed.select(
        "rank", "step",
        phase=pl.when(before == "other").then(phase).otherwise(before).fill_null("other"),
        start_ns=pl.col("end_ns").shift(1).over(of_step).fill_null(pl.col("begin_ns")),
        end_ns="start_ns",
    )  # fmt: skip
    last = placed.group_by(of_step, maintain_order=True).last()
    after = last.select("rank", "step", "phase", start_ns="end_ns", end_ns="until_ns")
    own = placed.select("rank", "step", "phase", "start_ns", "end_ns")
    return pl.concat([own, between, after])
