"""Intermediate results about the GPU operations of a trace that several questions use, each computed once."""

import polars as pl

from kernelscope.analysis.grouping import Classes, classes_of, positions, sum_by_group
from kernelscope.analysis.intervals import Intervals, group_codes
from kernelscope.analysis.kernels.occupancy import IS_KERNEL, LAUNCH_COLUMNS, launch_metrics
from kernelscope.memo import Memo, per_trace
from kernelscope.trace import Trace

CLASSES = ("compute", "communication", "memory")
"""Classes of GPU operations in order of priority, the highest first."""

WORK_CLASS = (
    pl.when(pl.col("is_communication").fill_null(value=False))
    .then(pl.lit(1, pl.UInt8))
    .when((pl.col("kind") == "memcpy") | (pl.col("kind") == "memset"))
    .then(pl.lit(2, pl.UInt8))
    .otherwise(pl.lit(0, pl.UInt8))
    .alias("class")
)
"""Returns the index in ``CLASSES`` of a row of ``gpu_ops``."""


_LAUNCHED = ("kind", "name", "is_communication", "device", *LAUNCH_COLUMNS)


class GpuWork:
    """The rows of ``gpu_ops``, by class and in order of time."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @property
    def memo(self) -> Memo:
        """Memo of the trace, in which the answers are kept."""
        return self._trace.memo

    @property
    @per_trace
    def launches(self) -> Classes:
        """Classes of operations with the same launch configuration and launching operator.

        Columns: ``keys`` has ``kind``, ``name``, ``is_communication``, ``device`` and ``LAUNCH_COLUMNS`` as
            in ``gpu_ops`` (for kernels completed, with ``launch_metrics``, as in
            ``occupancy.launch_metrics``); ``op`` and ``is_annotation`` (of the operator that launched it) and
            ``is_linked`` (whether it is known).
        """
        ops = self._trace.ops.select("is_annotation", op="name")[self.callers]
        ops = ops.with_columns(is_linked=self.callers.is_not_null())
        of, keys = classes_of(self._trace.gpu_ops.select(*_LAUNCHED).hstack(ops))
        return Classes(of, launch_metrics(keys, self._trace.devices, only=IS_KERNEL))

    @property
    @per_trace
    def callers(self) -> pl.Series:
        """Position in ``ops`` of the operator that launched each operation; null if unknown."""
        return positions(self._trace.ops["row"], self._trace.gpu_ops["op_row"])

    @property
    @per_trace
    def totals(self) -> pl.DataFrame:
        """Number of operations of each class of ``launches``, and their time: ``rows``, ``sum``."""
        of, keys = self.launches
        return sum_by_group(of, self._trace.gpu_ops["dur_ns"], keys.height)

    @property
    @per_trace
    def calls(self) -> pl.Series:
        """Position in ``launches`` of the call that launched each operation; null if unknown."""
        return positions(self._trace.launches["row"], self._trace.gpu_ops["launch_row"])

    @property
    @per_trace
    def streams(self) -> pl.Series | None:
        """Number of the stream of each operation, in order of device and stream.

        None if there is only one.
        """
        return group_codes(self._trace.gpu_ops, ("device", "stream"))

    @property
    @per_trace
    def on_streams(self) -> Intervals:
        """Active times of each stream."""
        return self.on_devices.regrouped(self._trace.gpu_ops.select("device", "stream"), self.streams)

    @property
    @per_trace
    def on_devices(self) -> Intervals:
        """Active times of each device."""
        return Intervals(self._trace.gpu_ops.select("device", "start_ns", "dur_ns"), by=["device"])

    @property
    @per_trace
    def gaps(self) -> pl.DataFrame:
        """Gaps between the operations of each device; see :meth:`Intervals.gaps`."""
        return self.on_devices.gaps(self.calls, self._trace.launches)

    @property
    def queues(self) -> pl.DataFrame:
        """Changes of the queue of each stream; see :meth:`Intervals.queues`."""
        return self.on_streams.queues(self.calls, self._trace.launches)

    @property
    @per_trace
    def computing(self) -> Intervals:
        """Computation times of each device."""
        return self.on_devices.part(self.kinds == CLASSES.index("compute"), of=self.launches.of)

    @property
    def kinds(self) -> pl.Series:
        """Index in ``CLASSES`` of each class of ``launches``."""
        return self.launches.keys.select(WORK_CLASS).to_series()
