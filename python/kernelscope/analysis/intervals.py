"""Coverage of intervals: their union, its length, its gaps, and the part of other intervals that it hides.

Groups are in the order of the values of their columns, with null first.
"""

from collections.abc import Sequence
from copy import copy

import polars as pl

from kernelscope import _traceparse

_MOST_CODES = 2**32


class Intervals:
    """Intervals of groups, sorted once for all questions about them.

    Columns: ``frame`` needs ``start_ns``, ``end_ns`` or ``dur_ns``, and ``by``, which define the groups.
        Intervals without an end or a duration are empty.
    """

    def __init__(self, frame: pl.DataFrame, *, by: list[str]) -> None:
        self._values = frame.select(by)
        self._sorted = _traceparse.Intervals(grouped(frame, group_codes(frame, by)))

    def union(self) -> pl.DataFrame:
        """Returns the union of each group as disjoint, separate intervals in order.

        Columns: ``by``, ``start_ns``, ``end_ns``. Empty intervals, and those that end before they start, are
            ignored.
        """
        return self._of_groups(self._sorted.union())

    def covered_ns(
        self, levels: pl.Series, *, of: pl.Series | None = None, window: tuple[int, int] | None = None
    ) -> pl.DataFrame:
        """Returns the time with an open interval of each level or a lower one, up to the largest level of a
        group.

        ``levels`` has a small number for each interval, or for each class if ``of`` gives the class of each
        interval. Time outside ``window`` does not count.

        Columns: ``by``, ``level`` and ``covered_ns``. Intervals that end before they start are ignored.
        """
        frame = levels.cast(pl.UInt8).alias("level").to_frame()
        return self._of_groups(self._sorted.covered(frame, _of_class(of), window))

    def gaps(self, launches: pl.Series, calls: pl.DataFrame) -> pl.DataFrame:
        """Returns the gaps between the intervals of each group, and whether the next interval was launched in
        its gap.

        ``launches`` has the position in ``calls`` of the call that launched each interval, if it is known.

        Columns: ``calls`` needs ``start_ns``. The result has ``at``, the position of the interval that ends a
            gap; ``dur_ns`` of the gap; ``is_late``, null without a call.
        Order: by group, then time.
        """
        launched = launches.alias("launch").to_frame()
        return pl.DataFrame(self._sorted.gaps(launched, calls.select("start_ns")))

    def queues(self, launches: pl.Series, calls: pl.DataFrame) -> pl.DataFrame:
        """Returns every change of the number of calls whose first interval of a group has not started.

        See :meth:`gaps` for the arguments.

        Columns: ``at``, the position of the interval; ``enters``, whether its call enters or leaves the
            queue; ``length`` from then on; ``lasts_ns``, until the next change, 0 after the last.
        Order: by group, then time; at one instant calls enter before others leave.
        """
        launched = launches.alias("launch").to_frame()
        return pl.DataFrame(self._sorted.queues(launched, calls.select("start_ns")))

    def filled_ns(
        self, shares: pl.Series, *, of: pl.Series | None = None, window: tuple[int, int] | None = None
    ) -> pl.DataFrame:
        """Returns the integral over the summed share, capped at 1, of the open intervals of each group.

        Time outside ``window``, and intervals without a positive share, do not count. ``shares`` belong to
        intervals, or to classes; see :meth:`covered_ns`.

        Columns: ``by`` and ``filled_ns``. Groups without counted intervals are left out.
        """
        frame = shares.cast(pl.Float64).alias("share").to_frame()
        return self._of_groups(self._sorted.filled(frame, _of_class(of), window))

    def runs(self, marks: pl.Series, labels: pl.Series) -> pl.DataFrame:
        """Returns runs of two or more consecutive marked intervals of a group with equal labels.

        ``labels`` are integers below 2^32 - 1; null is a label, too.

        Columns: ``at`` (the position of an interval) and ``run`` (a number from 0). Order: by group, then
        time.
        """
        frame = pl.DataFrame({"marked": marks, "label": labels.cast(pl.UInt32)})
        return pl.DataFrame(self._sorted.runs(frame))

    def shared_ns(self) -> pl.Series:
        """Returns the part of each interval in the covered time of its group, with fractions.

        The open intervals share each moment equally. Intervals that end before they start have no part.
        """
        return pl.DataFrame(self._sorted.shared()).to_series()

    def regrouped(self, values: pl.DataFrame, groups: "pl.Series | None") -> "Intervals":
        """Returns the same intervals grouped by the columns of ``values``, with the result of
        :func:`group_codes` for them.

        No sorting is needed if each of the new groups is part of one old group.
        """
        regrouped = copy(self)
        frame = None if groups is None else groups.alias("group").to_frame()
        regrouped._values, regrouped._sorted = values, self._sorted.regrouped(frame)  # noqa: SLF001 - one of these
        return regrouped

    def part(self, marks: pl.Series, *, of: pl.Series | None = None) -> "Intervals":
        """Returns the marked intervals in the same order. Their positions refer to all intervals.

        ``marks`` belong to intervals, or to classes; see :meth:`covered_ns`.
        """
        part = copy(self)
        marked = marks.alias("marked").to_frame()
        part._sorted = self._sorted.part(marked, _of_class(of))  # noqa: SLF001 - it is one of these
        return part

    def hidden_ns(self, frame: pl.DataFrame) -> pl.Series:
        """Returns the part of each interval of ``frame`` that these intervals cover, in the order of
        ``frame``.

        Columns: ``frame`` needs ``start_ns``, ``end_ns`` and ``by``.
        Units: ns.
        """
        groups = pl.DataFrame(self._sorted.groups())
        by = self._values.columns
        if by:
            known = self._values[groups["at"]].with_columns(groups["group"].alias("_group"))
            asked = frame.select(pl.col(name).cast(known.schema[name]) for name in by)
            number = asked.join(known, on=by, how="left", nulls_equal=True, maintain_order="left")["_group"]
        else:
            number = None
        hidden = _traceparse.Intervals(grouped(frame, number)).hidden_by(self._sorted)
        return pl.DataFrame(hidden).to_series()

    def _of_groups(self, found: _traceparse.ArrowTable) -> pl.DataFrame:
        """What was found, with the values of its groups in place of the positions of intervals of theirs."""
        table = pl.DataFrame(found)
        return table.select(*(values[table["at"]] for values in self._values), pl.exclude("at"))


def merged(frame: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """Returns the union of the intervals of each group; see :class:`Intervals`."""
    return Intervals(frame, by=by).union()


def common(parts: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Returns the intersection of ``parts`` and ``spans``.

    Columns: ``spans`` has ``start_ns`` and ``end_ns`` of separate intervals in order. The result has the
        columns of ``parts``.
    """
    first = spans["end_ns"].search_sorted(parts["start_ns"], side="right")
    last = spans["start_ns"].search_sorted(parts["end_ns"], side="left")
    pairs = parts.with_columns(span=pl.int_ranges(first, pl.max_horizontal(first, last))).explode("span")
    pairs = pairs.drop_nulls("span")
    found = spans[pairs["span"]]
    return pairs.drop("span").with_columns(
        start_ns=pl.max_horizontal(pairs["start_ns"], found["start_ns"]),
        end_ns=pl.min_horizontal(pairs["end_ns"], found["end_ns"]),
    )


def covered_ns(frame: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """Returns the time with at least one open interval of a group.

    Columns: ``frame`` needs ``start_ns``, ``end_ns`` and ``by``. The result has ``by`` and ``covered_ns``.
        Intervals that end before they start are ignored.
    """
    every = pl.repeat(0, frame.height, dtype=pl.UInt8, eager=True)
    found = Intervals(frame, by=by).covered_ns(every)
    return found.drop("level") if by else found.select(pl.col("covered_ns").sum())


def grouped(frame: pl.DataFrame, groups: pl.Series | None) -> pl.DataFrame:
    """Returns the intervals of a frame with their group numbers, for the questions above.

    An interval without an end is empty.

    Columns: ``start_ns``; ``end_ns``, or ``dur_ns`` if the frame has no ends; and ``group``, unless there is
        only one.
    """
    if "end_ns" in frame.columns:
        start, end = (pl.col(name).cast(pl.Int64) for name in ("start_ns", "end_ns"))
        end = pl.coalesce(end, start) if frame["end_ns"].null_count() else end
        columns = frame.select(start, end_ns=end)
    else:
        columns = frame.select("start_ns", "dur_ns")
    return columns if groups is None else columns.with_columns(groups.alias("group"))


def group_codes(frame: pl.DataFrame, by: Sequence[str]) -> pl.Series | None:
    """Returns a number for each row, equal for rows that agree in ``by``, in the order of their values.

    Returns None if all rows agree.
    """
    codes, count = None, 1
    for name in by:
        own, different = _numbers(frame[name])
        if different == 1:
            continue
        if codes is None:
            codes, count = own, different
            continue
        codes, count = codes.cast(pl.Int64) * different + own, count * different
        if count > _MOST_CODES:
            codes, count = _numbers(codes.rank("dense"))
    return None if codes is None else codes.cast(pl.UInt32)


def _of_class(of: pl.Series | None) -> pl.DataFrame | None:
    return None if of is None else of.alias("class").to_frame()


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
