"""Which moments hold up a step: those of a GPU that the host keeps busy, or those of the host."""

from functools import cached_property

import polars as pl

from kernelscope.analysis.advice.waits import Gaps
from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.intervals import Intervals, merged

_BUSY = ("device", "start_ns", "end_ns")


class Critical:
    """What of the time of steps would go if some work did.

    A GPU that runs empty before the host launches the next work, and that the host did not wait for, would
    only have waited longer if it had been faster: until then the host held up the step. All other work of
    the GPU holds it up itself, and the host does while no GPU works. Work that is not launched at all saves
    the host at least as long as it runs, where the GPU waits for launches.
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
        """How much sooner steps would be done without the works of a GPU that are marked.

        That is what they cover of the time in which the GPU holds up steps, less what other work covers.
        ``launched``: whether the host would still launch them, but they take no time.

        Units: ns.
        """
        parts = self._slowed if launched else self._launched
        busy = self._work.on_devices.hidden_ns(parts)
        rest = self._work.on_devices.part(~marks).hidden_ns(parts)
        return int((busy - rest).sum())

    def host_ns(self, calls: pl.DataFrame) -> int:
        """How much sooner steps would be done without ``calls`` of the host: while no GPU works.

        Columns: of ``calls``, needs ``start_ns``, and ``end_ns`` or ``dur_ns``.
        Units: ns.
        """
        parts = common(merged(calls, by=[]), self._spans)
        busy = Intervals(self._work.on_devices.union(), by=[])
        return int((parts["end_ns"] - parts["start_ns"] - busy.hidden_ns(parts)).sum())


def common(parts: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """What of ``parts`` lies in ``spans``.

    Columns: of ``spans``, ``start_ns`` and ``end_ns``, of parts that do not touch, in order; gives those of
        ``parts``.
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
