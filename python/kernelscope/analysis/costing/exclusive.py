"""How the time in which a GPU is busy is shared by the work that runs in it."""

import polars as pl


def exclusive_ns(work: pl.DataFrame) -> pl.Series:
    """The part of each piece of work in the time its GPU is busy: moments are shared by what runs in them.

    So the sum over a GPU is the time in which it does anything, whatever overlaps.

    Columns: of ``work``, needs ``device``, ``start_ns`` and ``dur_ns``. One value per row, in order; null
        where the duration is.
    Units: ns, as float64.
    """
    work = work.select("device", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0))
    if not _overlaps(work):
        return (work["end_ns"] - work["start_ns"]).cast(pl.Float64)
    starts = work.select("device", time="start_ns", change=pl.lit(1))
    ends = work.select("device", time="end_ns", change=pl.lit(-1))
    moments = (
        pl.concat([starts, ends])
        .group_by("device", "time")
        .agg(pl.col("change").sum())
        .sort("device", "time")
        .with_columns(running=pl.col("change").cum_sum().over("device"))
    )
    length = (pl.col("time").shift(-1) - pl.col("time")).over("device").fill_null(0)
    share = pl.when(pl.col("running") > 0).then(length / pl.col("running")).otherwise(0.0)
    until = moments.with_columns(done=(share.cum_sum() - share).over("device")).select(
        "device", "time", "done"
    )
    first = work.join(
        until, left_on=["device", "start_ns"], right_on=["device", "time"],
        how="left", nulls_equal=True, maintain_order="left",
    )["done"]  # fmt: skip
    last = work.join(
        until, left_on=["device", "end_ns"], right_on=["device", "time"],
        how="left", nulls_equal=True, maintain_order="left",
    )["done"]  # fmt: skip
    return last - first


def _overlaps(work: pl.DataFrame) -> bool:
    ordered = work.sort("device", "start_ns")
    before = ordered["end_ns"].shift(1)
    same = ordered["device"].eq_missing(ordered["device"].shift(1))
    latest = ordered.select(pl.col("end_ns").cum_max().over("device")).to_series().shift(1)
    return bool(
        ((ordered["start_ns"] < pl.select(pl.max_horizontal(before, latest)).to_series()) & same).any()
    )
