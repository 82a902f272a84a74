"""Determines whether a GPU or the host delays a step at each moment."""

from functools import cached_property

import polars as pl

from kernelscope.analysis.advice.waits import Gaps
from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.intervals import Intervals, merged

_BUSY = ("device", "start_ns", "end_ns")


class Critical:
    """Estimates how much step time would be saved without some operations.

    A GPU that becomes idle before the host launches its next operation would only have waited longer if it
    had been faster, unless the host waited for it. Until that launch, the host delays the step. All other GPU
    operations delay it themselves, and the host does while no GPU runs anything. Not launching an operation
    at all saves the host at least its duration, if the GPU waits for launches.
    """

    def __init__(self, work: GpuWork, gaps: Gaps, spans: pl.DataFrame) -> None:
        self._work = work
        self._spans = spans
        self._hurried = gaps.late.filter(pl.col("sync_row").is_null())

    @cached_property
    def _slowed(self) -> pl.DataFrame:
        """When slower work of each GPU would hold up steps: ``device``, ``start_ns``, ``end_ns``."""
        return self._held(self._hurried)

    @cached_property
    def _launched(self) -> pl.DataFrame:
        """The same of more work."""
        return self._held(self._hurried.filter(pl.col("cause") != "launch"))

    def _held(self, gaps: pl.DataFrame) -> pl.DataFrame:
        busy = self._work.on_devices.union().select(*_BUSY)
        ends = gaps.select("device", end_ns="start_ns")
        busy = busy.join(ends, on=["device", "end_ns"], how="anti", nulls_equal=True, maintain_order="left")
        return common(busy, self._spans)

    def alone_ns(self, marks: pl.Series, *, launched: bool) -> int:
        """Returns the reduction of step time if the marked operations of a GPU took no time.

        This is the part of the time in which the GPU delays steps that is covered by them and by no other
        operation.
        ``launched``: whether the host would still launch them, with a duration of 0.

        Units: ns.
        """
        parts = self._slowed if launched else self._launched
        busy = self._work.on_devices.hidden_ns(parts)
        rest = self._work.on_devices.part(~marks).hidden_ns(parts)
        return int((busy - rest).sum())

    def host_ns(self, calls: pl.DataFrame) -> int:
        """Returns the reduction of step time without ``calls`` of the host, during which no GPU runs
        anything.

        Columns: ``calls`` needs ``start_ns``, and ``end_ns`` or ``dur_ns``.
        Units: ns.
        """
        parts = common(merged(calls, by=[]), self._spans)
        busy = Intervals(self._work.on_devices.union(), by=[])
        return int((parts["end_ns"] - parts["start_ns"] - busy.hidden_ns(parts)).sum())


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
