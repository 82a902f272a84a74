"""What several questions ask of the GPU work of a trace, each worked out once."""

import polars as pl

from kernelscope.analysis.grouping import Classes, classes_of, positions, sum_by_group
from kernelscope.analysis.intervals import Intervals, group_codes
from kernelscope.analysis.kernels.occupancy import IS_KERNEL, LAUNCH_COLUMNS, launch_metrics
from kernelscope.memo import Memo, per_trace
from kernelscope.trace import Trace

CLASSES = ("compute", "communication", "memory")
"""What GPU work can be, the one that counts first in front."""

WORK_CLASS = (
    pl.when(pl.col("is_communication").fill_null(value=False))
    .then(pl.lit(1, pl.UInt8))
    .when((pl.col("kind") == "memcpy") | (pl.col("kind") == "memset"))
    .then(pl.lit(2, pl.UInt8))
    .otherwise(pl.lit(0, pl.UInt8))
    .alias("class")
)
"""Which of ``CLASSES`` a row of ``gpu_ops`` is, by its place."""


_LAUNCHED = ("kind", "name", "is_communication", "device", *LAUNCH_COLUMNS)


class GpuWork:
    """The rows of ``gpu_ops``, by class and in order of time."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @property
    def memo(self) -> Memo:
        """That of the trace, in which the answers are kept."""
        return self._trace.memo

    @property
    @per_trace
    def launches(self) -> Classes:
        """The classes of works that agree in what was launched, and by whom.

        Columns: of ``keys``, ``kind``, ``name``, ``is_communication``, ``device`` and ``LAUNCH_COLUMNS`` as
            in ``gpu_ops``, those of kernels completed, with ``launch_metrics``, as
            ``occupancy.launch_metrics`` does; ``op`` and ``is_annotation`` (of the operator that launched
            it) and ``is_linked`` (one is known).
        """
        ops = self._trace.ops.select("is_annotation", op="name")[self.callers]
        ops = ops.with_columns(is_linked=self.callers.is_not_null())
        of, keys = classes_of(self._trace.gpu_ops.select(*_LAUNCHED).hstack(ops))
        return Classes(of, launch_metrics(keys, self._trace.devices, only=IS_KERNEL))

    @property
    @per_trace
    def callers(self) -> pl.Series:
        """The position in ``ops`` of the operator that launched each work; null where it is not known."""
        return positions(self._trace.ops["row"], self._trace.gpu_ops["op_row"])

    @property
    @per_trace
    def totals(self) -> pl.DataFrame:
        """How many works each class of ``launches`` has, and their time: ``rows``, ``sum``."""
        of, keys = self.launches
        return sum_by_group(of, self._trace.gpu_ops["dur_ns"], keys.height)

    @property
    @per_trace
    def calls(self) -> pl.Series:
        """The position in ``launches`` of the call that launched each work; null where it is not known."""
        return positions(self._trace.launches["row"], self._trace.gpu_ops["launch_row"])

    @property
    @per_trace
    def streams(self) -> pl.Series | None:
        """A number for the stream of each work, in order of device and stream; None where there is one."""
        return group_codes(self._trace.gpu_ops, ("device", "stream"))

    @property
    @per_trace
    def on_streams(self) -> Intervals:
        """When each stream works."""
        return self.on_devices.regrouped(self._trace.gpu_ops.select("device", "stream"), self.streams)

    @property
    @per_trace
    def on_devices(self) -> Intervals:
        """When each device works."""
        return Intervals(self._trace.gpu_ops.select("device", "start_ns", "dur_ns"), by=["device"])

    @property
    @per_trace
    def gaps(self) -> pl.DataFrame:
        """The gaps between the works of each device: see :meth:`Intervals.gaps`."""
        return self.on_devices.gaps(self.calls, self._trace.launches)

    @property
    def queues(self) -> pl.DataFrame:
        """The changes of the queue of each stream: see :meth:`Intervals.queues`."""
        return self.on_streams.queues(self.calls, self._trace.launches)

    @property
    @per_trace
    def computing(self) -> Intervals:
        """When each device computes."""
        return self.on_devices.part(self.kinds == CLASSES.index("compute"), of=self.launches.of)

    @property
    def kinds(self) -> pl.Series:
        """Which of ``CLASSES`` each class of ``launches`` is, by its place."""
        return self.launches.keys.select(WORK_CLASS).to_series()
