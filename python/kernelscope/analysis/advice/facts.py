"""What the rules look at, each worked out when the first of them asks."""

from collections.abc import Mapping
from functools import cached_property
from typing import cast

import polars as pl

from kernelscope.analysis.advice.record import names_like, rows_like
from kernelscope.analysis.advice.waits import Gaps, classified_gaps
from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import sum_by_group
from kernelscope.analysis.intervals import merged
from kernelscope.analysis.kernels.tensor_cores import is_nvidia, kernel_flags
from kernelscope.analysis.memory.records import AllocatorRecords
from kernelscope.analysis.steps.breakdown import CATEGORIES, step_breakdown
from kernelscope.trace import Trace

_OF_OPS = ("row", "parent_row", "name", "start_ns", "dur_ns", "step")


class Facts:
    """Figures about one trace. Only whole steps count, and all of a trace without steps.

    Each lasts as long as the rules look: together they may be as large as a table of the trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.work = GpuWork(trace)
        self.records = AllocatorRecords(trace)

    @cached_property
    def breakdown(self) -> pl.DataFrame:
        """The whole steps, with their parts."""
        return step_breakdown(self.trace)

    @cached_property
    def total_ns(self) -> int:
        """The time of all whole steps together."""
        return int(self.breakdown["total_ns"].sum())

    @cached_property
    def parts(self) -> Mapping[str, int]:
        """The time of each part over all whole steps."""
        return {name: int(self.breakdown[name].sum()) for name in CATEGORIES}

    @cached_property
    def marked(self) -> bool:
        """Whether the trace marks steps."""
        return self.breakdown["step"].null_count() < self.breakdown.height

    @cached_property
    def steps(self) -> int:
        """How many whole steps there are."""
        return self.breakdown.height

    def share(self, ns: int) -> float:
        """A time as part of that of all steps; 0 where there is none."""
        return ns / self.total_ns if self.total_ns > 0 else 0.0

    def inside(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of ``frame`` that belong to a whole step.

        Columns: of ``frame``, needs ``step``.
        """
        if not self.marked:
            return frame
        is_inside = frame.select(self._is_inside).to_series()
        return frame if is_inside.all(ignore_nulls=False) else frame.filter(is_inside)

    @cached_property
    def _is_inside(self) -> pl.Expr:
        steps = self.breakdown["step"].drop_nulls()
        if not self.marked:
            return pl.lit(value=True)
        low, high = cast("int | None", steps.min()), cast("int | None", steps.max())
        if low is not None and high is not None and steps.n_unique() == high - low + 1:
            return pl.col("step").is_between(low, high)
        return pl.col("step").is_in(steps.implode())

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """The classes of ``work.launches``, and the sums of those of their kernels that count.

        Those count that are in whole steps and no communication.

        Columns: ``name``, ``device``, ``tensor_cores``, ``works`` (that count) and ``dur_ns`` (of these).
        """
        of, classes = self.work.launches
        sums = self.work.totals
        if self._are_inside is not None:
            inside = pl.select(pl.when(self._are_inside).then(of)).to_series()
            sums = sum_by_group(inside, self.trace.gpu_ops["dur_ns"], classes.height)
        computes = (pl.col("kind") == "kernel") & ~pl.col("is_communication").fill_null(value=False)
        counted = classes.select(computes).to_series()
        return kernel_flags(classes.select("name", "device"), self.trace.devices).select(
            "name",
            "device",
            "tensor_cores",
            works=pl.when(counted).then(sums["rows"]).otherwise(0),
            dur_ns=pl.when(counted).then(sums["sum"]).otherwise(0),
        )

    @cached_property
    def are_kernels(self) -> pl.Series:
        """Which rows of ``gpu_ops`` count among the ``kernels``."""
        return self.marked_kernels(self.kernels["works"] > 0)

    def rows_of(self, marks: pl.Series | None = None, *columns: str) -> pl.DataFrame:
        """The rows of ``gpu_ops`` that ``are_kernels``, of those only whose class is marked.

        Columns: ``row``, ``dur_ns`` (0 where it is not known) and ``columns``.
        """
        work = self.trace.gpu_ops.select("row", pl.col("dur_ns").fill_null(0), *columns)
        is_wanted = self.are_kernels if marks is None else self.marked_kernels(marks)
        return work.filter(is_wanted)

    def marked_kernels(self, marks: pl.Series) -> pl.Series:
        """Which rows of ``gpu_ops`` ``are_kernels`` of a class that is marked."""
        counted = (self.kernels["works"] > 0) & marks.fill_null(value=False)
        found = counted.gather(self.work.launches.of)
        return found if self._are_inside is None else found & self._are_inside

    @cached_property
    def _are_inside(self) -> pl.Series | None:
        """Which rows of ``gpu_ops`` are in whole steps; None if all are."""
        if not self.marked:
            return None
        inside = self.trace.gpu_ops.select(self._is_inside.fill_null(value=False)).to_series()
        return None if inside.all() else inside

    @cached_property
    def kernel_ns(self) -> int:
        """The time of all ``kernels``, added."""
        return int(self.kernels["dur_ns"].sum())

    @cached_property
    def kernel_count(self) -> int:
        """How many ``kernels`` there are."""
        return int(self.kernels["works"].sum())

    def named(self, pattern: str) -> pl.Series:
        """Which of the ``kernels`` have names that match ``pattern``."""
        names = self.kernels["name"]
        return names.is_in(names_like(names, pattern).implode()).fill_null(value=False)

    @cached_property
    def updates(self) -> pl.Series:
        """Which rows of ``gpu_ops`` the optimizer launched, of those that count among the ``kernels``."""
        phase = self.trace.ops["phase"]
        if phase.null_count() == phase.len():
            return pl.repeat(value=False, n=self.trace.gpu_ops.height, eager=True)
        is_update = (phase.gather(self.work.callers) == "optimizer").fill_null(value=False)
        return is_update & self.are_kernels

    @cached_property
    def gaps(self) -> Gaps:
        """The gaps of GPUs in whole steps, by what they waited for: see ``classified_gaps``."""
        spans = None
        if self.marked:
            end = pl.col("start_ns") + pl.col("total_ns")
            spans = merged(self.breakdown.select("start_ns", end_ns=end), by=[])
        return classified_gaps(self.trace, self.inside, spans)

    def may_use(self, column: str, share: float) -> bool:
        """Whether some GPU's memory may exceed a share of its capacity, by a look at the totals.

        ``column`` is ``total_allocated_bytes`` or ``total_reserved_bytes``.
        """
        most, least = self.trace.memory[column].max(), self.trace.devices["total_memory_bytes"].min()
        return isinstance(most, int) and isinstance(least, int) and most > share * least

    @cached_property
    def memory(self) -> pl.DataFrame:
        """What became of the memory of each device: see ``memory_summary``."""
        from kernelscope.analysis.memory.curve import memory_summary

        return memory_summary(self.trace)

    @cached_property
    def is_nvidia(self) -> bool:
        """Whether every GPU that worked is known to be of NVIDIA's make, or not known to be another."""
        described = self.trace.devices.filter(
            pl.col("name").is_not_null() | pl.col("warp_size").is_not_null()
        )
        return described.height > 0 and is_nvidia(described).height == described.height

    def capability(self, device: int = 0) -> float | None:
        """The compute capability of a GPU, such as 7.5; None if it was not recorded."""
        rows = self.trace.devices.filter(pl.col("device") == device)
        if rows.is_empty() or rows["compute_major"][0] is None:
            return None
        return cast(int, rows["compute_major"][0]) + (rows["compute_minor"][0] or 0) / 10

    def ops_named(self, pattern: str) -> pl.DataFrame:
        """Operators and annotations in whole steps whose names match ``pattern``."""
        return self.inside(rows_like(self.trace.ops.select(_OF_OPS), pattern))

    def ops_doing(self, activity: str) -> pl.DataFrame:
        """Operators and annotations in whole steps of an ``activity``."""
        ops = self.trace.ops.select(*_OF_OPS, "activity")
        return self.inside(ops.filter(pl.col("activity") == activity))

    def launches_named(self, pattern: str) -> pl.DataFrame:
        """Runtime and driver calls in whole steps whose names match ``pattern``."""
        columns = ("row", "name", "start_ns", "dur_ns", "step", "op_row")
        return self.inside(rows_like(self.trace.launches.select(columns), pattern))

    def any_named(self, pattern: str) -> bool:
        """Whether some operator or GPU work of the whole trace has a name that matches ``pattern``."""
        return any(names_like(table["name"], pattern).len() > 0 for table in (self.trace.ops, self.kernels))
