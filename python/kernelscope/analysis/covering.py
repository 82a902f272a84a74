"""What intervals cover: their union, its length, the gaps in it, and how much of others it hides.

Groups come in the order of the values of their columns, with null first.
"""

import polars as pl

from kernelscope import _traceparse

_MOST_CODES = 2**32


def merged(frame: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """The union of the intervals of each group, as disjoint parts that do not touch, in order.

    Columns: of ``frame``, needs ``start_ns``, ``end_ns`` and ``by``; gives these. Empty intervals, and
        those that end before they start, cover nothing.
    """
    parts = pl.DataFrame(_traceparse.unite_intervals(grouped(frame, by)))
    return _with_groups(frame, by, parts)


def covered_ns(frame: pl.DataFrame, *, by: list[str], level: str | None = None) -> pl.DataFrame:
    """Time during which at least one interval of a group is open.

    With ``level``, a column of small numbers, there is a row for each up to the group's largest: the time
    in which an interval of that level, or of a lower one, is open.

    Columns: of ``frame``, needs ``start_ns``, ``end_ns``, ``by`` and ``level``; gives ``by``, ``level`` and
        ``covered_ns``. Intervals that end before they start count nothing.
    """
    levels = pl.lit(0, pl.UInt8) if level is None else pl.col(level).cast(pl.UInt8)
    found = pl.DataFrame(_traceparse.cover_levels(grouped(frame, by, level=levels)))
    if level is None:
        if not by:
            return found.select(pl.col("covered_ns").sum())
        return _with_groups(frame, by, found.drop("level"))
    return _with_groups(frame, by, found.rename({"level": level}))


def gaps(work: pl.DataFrame, calls: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """The gaps between the works of each group, and the call that launched the work after each.

    Columns: of ``work``, needs ``start_ns``, ``dur_ns``, ``launch_row`` and ``by``; of ``calls``, ``row``,
        ``start_ns`` and ``track``. Gives ``at``, the position of the work that ends a gap; ``start_ns`` and
        ``dur_ns`` of the gap; ``launch_ns`` and ``track`` of the call, null where there is none.
    Order: by group, then time.
    """
    columns = work.select("start_ns", "dur_ns", "launch_row", _codes(work, by).alias("group"))
    return pl.DataFrame(_traceparse.find_gaps(columns, calls))


def filled_ns(frame: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """The integral of the summed ``share`` of the intervals of each group that are open, at most 1.

    Columns: of ``frame``, needs ``start_ns``, ``end_ns``, ``share`` and ``by``; gives ``by`` and
        ``filled_ns``.
    """
    shares = grouped(frame, by, share=pl.col("share").cast(pl.Float64))
    return _with_groups(frame, by, pl.DataFrame(_traceparse.filled_time(shares)))


def runs(frame: pl.DataFrame, label: pl.Expr, *, by: list[str]) -> pl.Series:
    """A number for each interval, which those of a group share that follow one another with one label.

    Columns: of ``frame``, needs ``start_ns``, ``end_ns`` and ``by``; ``label`` is a whole number below 2^32.
    """
    labelled = grouped(frame, by, label=label.cast(pl.UInt32))
    return pl.DataFrame(_traceparse.number_runs(labelled)).to_series()


def hidden_ns(frame: pl.DataFrame, cover: pl.DataFrame, *, by: list[str]) -> pl.Series:
    """How much of each interval of ``frame`` lies in those of ``cover``, in the order of ``frame``.

    Columns: both need ``start_ns``, ``end_ns`` and ``by``.
    Units: ns.
    """
    columns = [*by, "start_ns", "end_ns"]
    both = grouped(pl.concat([frame.select(columns), cover.select(columns)], how="vertical_relaxed"), by)
    asked, around = both.head(frame.height), both.slice(frame.height)
    return pl.DataFrame(_traceparse.hidden_lengths(asked, around)).to_series()


def grouped(frame: pl.DataFrame, by: list[str], **more: pl.Expr) -> pl.DataFrame:
    """The intervals of a frame with a number for each group, for the questions above.

    An interval without an end is empty.

    Columns: ``group``, ``start_ns``, ``end_ns`` and ``more``.
    """
    start = pl.col("start_ns").cast(pl.Int64)
    end = pl.col("end_ns").cast(pl.Int64)
    return frame.select(
        _codes(frame, by).alias("group"), start_ns=start, end_ns=pl.coalesce(end, start), **more
    )


def _codes(frame: pl.DataFrame, by: list[str]) -> pl.Series:
    """A number for each row that rows share which agree in ``by``, in the order of their values."""
    codes, count = pl.zeros(frame.height, dtype=pl.UInt32, eager=True), 1
    for name in by:
        own, different = _numbers(frame[name])
        if different == 1:
            continue
        if count * different > _MOST_CODES:
            codes, count = _numbers(codes.rank("dense"))
        codes, count = (own if count == 1 else codes * different + own), count * different
    return codes if codes.dtype == pl.UInt32 else codes.cast(pl.UInt32)


def _numbers(values: pl.Series) -> tuple[pl.Series, int]:
    """Values as numbers from 0 on, which is null, and how many numbers there may be.

    Where all rows have the same, there is one, and which it is does not matter.
    """
    if isinstance(values.dtype, (pl.Categorical, pl.Enum)):
        values = values.to_physical()
    if not values.dtype.is_integer():
        values = values.rank("dense")
    low, high = values.min(), values.max()
    if not isinstance(low, int) or not isinstance(high, int):
        return values, 1
    if low == high and not values.null_count():
        return values, 1
    # Addresses, such as those of streams, lie far apart.
    if high - low >= _MOST_CODES // 2:
        return _numbers(values.rank("dense"))
    return (values.cast(pl.Int64) - (low - 1)).fill_null(0), high - low + 2


def _with_groups(frame: pl.DataFrame, by: list[str], found: pl.DataFrame) -> pl.DataFrame:
    """What was found, with the values of its groups in place of the positions of intervals of theirs."""
    return found.select(*(frame[name].gather(found["at"]) for name in by), pl.exclude("at"))
