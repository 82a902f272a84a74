"""What intervals cover: their union, its length, the gaps in it, and how much of others it hides.

Groups come in the order of the values of their columns, with null first.
"""

from copy import copy

import polars as pl

from kernelscope import _traceparse

_MOST_CODES = 2**32


class Intervals:
    """Intervals of groups, put into order once for all that is asked of them.

    Columns: of ``frame``, needs ``start_ns``, ``end_ns`` or ``dur_ns``, and ``by``, which say what belongs to
        a group. Those without an end or a duration are empty.
    """

    def __init__(self, frame: pl.DataFrame, *, by: list[str]) -> None:
        self._values = frame.select(by)
        if "end_ns" in frame.columns:
            columns = grouped(frame, by)
        else:
            columns = frame.select(_codes(frame, by).alias("group"), "start_ns", "dur_ns")
        self._sorted = _traceparse.Intervals(columns)

    def union(self) -> pl.DataFrame:
        """The union of each group, as disjoint parts that do not touch, in order.

        Columns: ``by``, ``start_ns``, ``end_ns``. Empty intervals, and those that end before they start,
            cover nothing.
        """
        return self._of_groups(self._sorted.union())

    def extents(self) -> pl.DataFrame:
        """The first start and the last end of each group: ``by``, ``start_ns``, ``end_ns``."""
        return self._of_groups(self._sorted.extents())

    def covered_ns(self, levels: pl.Series, *, window: tuple[int, int] | None = None) -> pl.DataFrame:
        """Time during which an interval of each level, or of a lower one, is open, up to a group's largest.

        ``levels`` has a small number for each interval; what lies outside of ``window`` counts nothing.

        Columns: ``by``, ``level`` and ``covered_ns``. Intervals that end before they start count nothing.
        """
        frame = levels.cast(pl.UInt8).alias("level").to_frame()
        return self._of_groups(self._sorted.covered(frame, window))

    def gaps(self, launch_rows: pl.Series, calls: pl.DataFrame) -> pl.DataFrame:
        """The gaps between the intervals of each group, and the call that launched the one after each.

        ``launch_rows`` names the call of each interval, if it is known.

        Columns: of ``calls``, needs ``row``, ``start_ns`` and ``track``. Gives ``at``, the position of the
            interval that ends a gap; ``start_ns`` and ``dur_ns`` of the gap; ``launch_ns`` and ``track`` of
            the call, null where there is none.
        Order: by group, then time.
        """
        launched = launch_rows.alias("launch_row").to_frame()
        return pl.DataFrame(self._sorted.gaps(launched, calls.select("row", "start_ns", "track")))

    def filled_ns(self, shares: pl.Series, *, window: tuple[int, int] | None = None) -> pl.DataFrame:
        """The integral of the summed share of the intervals of each group that are open, at most 1.

        What lies outside of ``window`` counts nothing, and intervals without a share above 0 do not either.

        Columns: ``by`` and ``filled_ns``; groups in which none counts are left out.
        """
        frame = shares.cast(pl.Float64).alias("share").to_frame()
        return self._of_groups(self._sorted.filled(frame, window))

    def runs(self, labels: pl.Series) -> pl.Series:
        """A number for each interval, which those of a group share that follow one another with one label.

        ``labels`` are whole numbers below 2^32.
        """
        frame = labels.cast(pl.UInt32).alias("label").to_frame()
        return pl.DataFrame(self._sorted.runs(frame)).to_series()

    def part(self, marks: pl.Series) -> "Intervals":
        """Those that are marked, in the same order; their positions are still those in all."""
        part = copy(self)
        part._sorted = self._sorted.part(marks.alias("marked").to_frame())  # noqa: SLF001 - it is one of these
        return part

    def hidden_ns(self, frame: pl.DataFrame) -> pl.Series:
        """How much of each interval of ``frame`` lies in these, in the order of ``frame``.

        Columns: of ``frame``, needs ``start_ns``, ``end_ns`` and ``by``.
        Units: ns.
        """
        groups = pl.DataFrame(self._sorted.groups())
        by = self._values.columns
        if by:
            known = self._values[groups["at"]].with_columns(groups["group"].alias("_group"))
            asked = frame.select(pl.col(name).cast(known.schema[name]) for name in by)
            number = asked.join(known, on=by, how="left", nulls_equal=True, maintain_order="left")["_group"]
        else:
            number = _zeros(frame.height, pl.UInt32)
        asked = grouped(frame, []).with_columns(number.alias("group"))
        hidden = _traceparse.Intervals(asked).hidden_by(self._sorted)
        return pl.DataFrame(hidden).to_series()

    def _of_groups(self, found: _traceparse.ArrowTable) -> pl.DataFrame:
        """What was found, with the values of its groups in place of the positions of intervals of theirs."""
        table = pl.DataFrame(found)
        return table.select(*(values[table["at"]] for values in self._values), pl.exclude("at"))


def merged(frame: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """The union of the intervals of each group: see :class:`Intervals`."""
    return Intervals(frame, by=by).union()


def covered_ns(frame: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """Time during which at least one interval of a group is open.

    Columns: of ``frame``, needs ``start_ns``, ``end_ns`` and ``by``; gives ``by`` and ``covered_ns``.
        Intervals that end before they start count nothing.
    """
    found = Intervals(frame, by=by).covered_ns(_zeros(frame.height, pl.UInt8))
    return found.drop("level") if by else found.select(pl.col("covered_ns").sum())


def hidden_ns(frame: pl.DataFrame, cover: pl.DataFrame, *, by: list[str]) -> pl.Series:
    """How much of each interval of ``frame`` lies in those of ``cover``: see :class:`Intervals`."""
    return Intervals(cover, by=by).hidden_ns(frame)


def grouped(frame: pl.DataFrame, by: list[str], **more: pl.Expr) -> pl.DataFrame:
    """The intervals of a frame with a number for each group, for the questions above.

    An interval without an end is empty.

    Columns: ``group``, ``start_ns``, ``end_ns`` and ``more``.
    """
    start = pl.col("start_ns").cast(pl.Int64)
    end = pl.col("end_ns").cast(pl.Int64)
    end = pl.coalesce(end, start) if frame["end_ns"].null_count() else end
    return frame.select(_codes(frame, by).alias("group"), start_ns=start, end_ns=end, **more)


def _codes(frame: pl.DataFrame, by: list[str]) -> pl.Series:
    """A number for each row that rows share which agree in ``by``, in the order of their values."""
    codes, count = _zeros(frame.height, pl.UInt32), 1
    for name in by:
        own, different = _numbers(frame[name])
        if different == 1:
            continue
        if count * different > _MOST_CODES:
            codes, count = _numbers(codes.rank("dense"))
        codes, count = (own if count == 1 else codes * different + own), count * different
    return codes if codes.dtype == pl.UInt32 else codes.cast(pl.UInt32)


def _zeros(count: int, dtype: type[pl.DataType]) -> pl.Series:
    return pl.Series([0], dtype=dtype).new_from_index(0, count)


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
    numbers = values.cast(pl.Int64) - (low - 1)
    return numbers.fill_null(0) if numbers.null_count() else numbers, high - low + 2
