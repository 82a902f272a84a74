"""Where more seems to be achieved than a GPU can do, and why."""

import polars as pl

TOLERANCE = 1.05
"""How far above a peak a figure may lie: clocks above the stated one, and rounding."""

# Algorithms that need fewer multiply-adds than the direct product that is counted.
_FEWER = r"(?i)winograd|fft|gcgemm|cgemm|strassen"
# The coarsest unit of recorders.
_TICK_NS = 1_000


def with_flags(work: pl.DataFrame) -> pl.DataFrame:
    """Adds ``flag``: why a piece of work seems to reach more than 1.05 of a peak; null where it does not.

    Reasons, the first that explains it: the GPU's L2 holds part of what is read and written (at most its size
    each way never passes through memory); the kernel's algorithm needs fewer operations than the direct one;
    the duration is recorded in whole microseconds; the cost is an estimate; or none of them.

    Columns: of ``work``, needs ``op_row``, ``kernel``, ``dur_ns``, ``op_ns``, ``kernels``, ``status``,
        ``attainable_ns``, ``compute_ns``, ``memory_ns``, ``bandwidth``, ``l2_bytes``, ``op_bytes_read`` and
        ``op_bytes_written``.
    """
    duration = pl.col("op_ns").cast(pl.Float64)
    computing = pl.col("compute_ns") / pl.col("share")
    moving = pl.col("memory_ns") / pl.col("share")
    over_compute = (computing > TOLERANCE * duration).fill_null(value=False)
    over_memory = (moving > TOLERANCE * duration).fill_null(value=False)
    cached = pl.col("l2_bytes")
    through = (pl.col("op_bytes_read") - cached).clip(0) + (pl.col("op_bytes_written") - cached).clip(0)
    fits = through / pl.col("bandwidth") * 1e9 <= TOLERANCE * duration
    coarse = (pl.col("op_ns") % _TICK_NS == 0) & (
        pl.max_horizontal(computing, moving) <= TOLERANCE * (duration + _TICK_NS * pl.col("kernels"))
    )
    fewer = pl.col("kernel").cast(pl.String).str.contains(_FEWER).any().over("op_row")
    reason = (
        pl.when(over_memory & ~over_compute & fits)
        .then(pl.lit("part of what it reads and writes stays in L2"))
        .when(over_compute & fewer)
        .then(pl.lit("its algorithm needs fewer operations than the direct product, which is counted"))
        .when(coarse)
        .then(pl.lit("its time is recorded in whole microseconds"))
        .when(pl.col("status") == "estimate")
        .then(pl.lit("its cost is an estimate"))
        .otherwise(
            pl.lit("more than the GPU can do: the recorded shapes or times are not those of this work")
        )
    )
    limited = pl.col("attainable_ns").is_not_null()
    return work.with_columns(flag=pl.when(limited & (over_compute | over_memory)).then(reason))
