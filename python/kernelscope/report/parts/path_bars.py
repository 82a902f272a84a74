"""The critical path of several ranks as bars: on which rank it is when, and why."""

import polars as pl

from kernelscope.analysis.dependencies.ranks import Job

MOST_RANKS = 64
"""Maximum number of ranks whose critical path is shown: each must be read."""

TOO_MANY = f"The path needs all of each rank. For more than {MOST_RANKS}, use kernelscope critical-path."

_MOST_BARS = 1_000


def step_windows(job: Job) -> pl.DataFrame:
    """Returns when the first rank starts and the last ends each step: ``step``, ``start_ns``, ``end_ns``."""
    recorded = job.nodes["recorded_ns"]
    steps = job.steps.select(
        "step", start_ns=recorded.gather(job.steps["start"]), end_ns=recorded.gather(job.steps["end"])
    )
    return steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns")


def path_bars(path: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Returns the path in a window as at most about 1,000 bars, which follow one another.

    Of segments that share a place, the longest gives the reason and the row.

    Columns: ``rank``, ``bound_by``, ``row``, ``start_ns``, ``end_ns``.
    """
    ends = path.select("rank", "bound_by", "row", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    here = ends.filter(pl.col("end_ns") > start_ns, pl.col("start_ns") < end_ns).sort("start_ns")
    here = here.with_columns(pl.col("start_ns").clip(start_ns), pl.col("end_ns").clip(None, end_ns))
    width = max((end_ns - start_ns) // _MOST_BARS, 1)
    columns = _merged(here, pl.col("rank").rle_id(), (pl.col("start_ns") - start_ns) // width)
    return _merged(columns, pl.col("rank"), pl.col("bound_by"))


def _merged(bars: pl.DataFrame, *same: pl.Expr) -> pl.DataFrame:
    """Neighbours of which all of ``same`` are equal as one."""
    longest = (pl.col("end_ns") - pl.col("start_ns")).arg_max()
    groups = bars.group_by(pl.struct(*same).rle_id().alias("at"), maintain_order=True)
    return groups.agg(
        pl.col("rank").first(),
        pl.col("bound_by", "row").get(longest),
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
    ).drop("at")
