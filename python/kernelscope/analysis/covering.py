"""What intervals cover: their union, and how much of others it hides."""

import polars as pl


def merged(frame: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """The union of the intervals of each group, as disjoint parts that do not touch, in order.

    Columns: of ``frame``, needs ``start_ns``, ``end_ns`` and ``by``; gives these. Empty intervals, and
        those that end before they start, cover nothing.
    """
    ordered = (
        frame.select(*by, "start_ns", "end_ns")
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort(*by, "start_ns")
    )
    reached = pl.col("end_ns").cum_max().shift(1)
    opens = pl.col("start_ns") > (reached.over(by) if by else reached)
    return (
        ordered.with_columns(opens.fill_null(value=True).cum_sum().alias("_part"))
        .group_by(*by, "_part", maintain_order=True)
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .drop("_part")
    )


def hidden_ns(frame: pl.DataFrame, cover: pl.DataFrame, *, by: list[str]) -> pl.Series:
    """How much of each interval of ``frame`` lies in ``cover``, in the order of ``frame``.

    Columns: both need ``start_ns``, ``end_ns`` and ``by``; ``cover`` is as ``merged`` gives it.
    Units: ns.
    """
    until = "_covered"
    parts = cover.select(
        *by,
        _at=pl.col("start_ns"),
        _end=pl.col("end_ns"),
        _before=_running(pl.col("end_ns") - pl.col("start_ns"), by),
    ).sort("_at")
    asked = frame.select(*by, "start_ns", "end_ns").with_row_index("_order")
    for column in ("start_ns", "end_ns"):
        found = asked.select("_order", *by, _at=pl.col(column)).sort("_at")
        found = found.join_asof(
            parts, on="_at", by=by or None, strategy="backward", coalesce=False, check_sortedness=False
        )
        into = pl.min_horizontal("_at", "_end") - pl.col("_at_right")
        covered = (pl.col("_before") + into).fill_null(0)
        found = found.select("_order", covered.alias(f"{until}_{column}"))
        asked = asked.join(found, on="_order", how="left", maintain_order="left")
    difference = pl.col(f"{until}_end_ns") - pl.col(f"{until}_start_ns")
    return asked.select(difference.clip(lower_bound=0).alias("hidden_ns")).to_series()


def _running(length: pl.Expr, by: list[str]) -> pl.Expr:
    """The sum of the lengths of the parts in front of each."""
    before = length.cum_sum() - length
    return before.over(by) if by else before
