"""What several questions ask of the GPU work of a trace, each worked out once."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.classes import Classes
from kernelscope.analysis.covering import Intervals
from kernelscope.analysis.launch_classes import launch_classes
from kernelscope.analysis.once import once

if TYPE_CHECKING:
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


class GpuWork:
    """The rows of ``gpu_ops``, by class and in order of time. Any number of threads may ask."""

    def __init__(self, trace: "Trace") -> None:
        self._trace = trace

    @once
    def launches(self) -> Classes:
        """Their classes: see :func:`kernelscope.analysis.launch_classes.launch_classes`."""
        return launch_classes(self._trace)

    @once
    def on_devices(self) -> Intervals:
        """When each device works."""
        return Intervals(self._trace.gpu_ops.select("device", "start_ns", "dur_ns"), by=["device"])

    @once
    def gaps(self) -> pl.DataFrame:
        """The gaps between the works of each device: see :meth:`Intervals.gaps`."""
        return self.on_devices.gaps(self._trace.gpu_ops["launch_row"], self._trace.launches)

    @once
    def computing(self) -> Intervals:
        """When each device computes."""
        return self.on_devices.part(self.classes == CLASSES.index("compute"))

    @property
    def classes(self) -> pl.Series:
        """Which of ``CLASSES`` each row is, by its place."""
        return self._trace.gpu_ops.select(WORK_CLASS).to_series()
