"""Time covered by intervals that may overlap."""

import polars as pl


def covered_ns(frame: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """Time during which at least one interval of a group is open.

    Columns: of ``frame``, needs ``start_ns``, ``end_ns`` and ``by``; gives ``by`` and
        ``covered_ns``. Intervals that end before they start count nothing.
    """
    running_end = pl.col("end_ns").cum_max().shift(1).over(by) if by else pl.col("end_ns").cum_max().shift(1)
    start = pl.max_horizontal("start_ns", running_end)
    added = (pl.col("end_ns") - start).clip(lower_bound=0)
    timed = (
        frame.filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort("start_ns")
        .with_columns(added.alias("covered_ns"))
    )
    if not by:
        return timed.select(pl.col("covered_ns").sum())
    return timed.group_by(by).agg(pl.col("covered_ns").sum())


def clipped(frame: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """The parts of the intervals that lie in ``[start_ns, end_ns]``; the others are left out.

    Columns: of ``frame``, needs ``start_ns`` and ``end_ns``, and changes them.
    """
    return frame.with_columns(
        pl.col("start_ns").clip(lower_bound=start_ns), pl.col("end_ns").clip(upper_bound=end_ns)
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
