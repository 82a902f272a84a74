"""GPU work by the kinds of the operators that it counts for, and by what is asked of the work itself."""

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.costs.costed import Costed
from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import codes
from kernelscope.analysis.kernels.kernel_math import with_kernel_math

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_CLASSES = {
    "kernel": "name",
    "kind": "kind",
    "stream": "stream",
    "device": "device",
    "step": "step",
    "is_communication": "is_communication",
}
# Algorithms that need fewer multiply-adds than the direct product that is counted.
_FEWER = r"(?i)winograd|fft|gcgemm|cgemm|strassen"


class CostedWork:
    """The GPU work of a trace, with the operators of ``costed`` that it counts for.

    Columns of ``classes``, a row per class of equal work: ``kernel``, ``kind``, ``stream``, ``device``,
    ``step``, ``is_communication``.
    """

    def __init__(self, trace: "Trace", costed: Costed) -> None:
        self._trace = trace
        work = trace.gpu_ops
        labels = [codes(work[column]).alias(str(at)) for at, column in enumerate(_CLASSES.values())]
        busy = GpuWork(trace).on_devices.shared_ns()
        frame = pl.DataFrame([work["dur_ns"], busy.alias("busy_ns"), costed.work.alias("op"), *labels])
        self._pieces = _traceparse.WorkCosting(frame)
        first = pl.DataFrame(self._pieces.first())["first"]
        self.classes = work.select(**{name: pl.col(column) for name, column in _CLASSES.items()})[first]

    @cached_property
    def maths(self) -> list[str]:
        """The types in which kernels multiply; their numbers count from 1."""
        return self._marked["math"].drop_nulls().unique().sort().to_list()

    def paired(self, kinds: pl.Series) -> _traceparse.WorkPairs:
        """The work by pairs of the kinds of its operators and its classes."""
        # An operator used tensor cores if a kernel did, and may have if of a kernel it is not known.
        used = pl.col("tensor_cores").cast(pl.UInt8) * 2
        text = pl.col("kernel").cast(pl.String)
        numbers = {name: number for number, name in enumerate(self.maths, 1)}
        marks = self._marked.select(
            cores=pl.when(pl.col("kind") == "kernel").then(used).otherwise(0).fill_null(1).cast(pl.UInt8),
            math=pl.col("math").replace_strict(numbers, default=0, return_dtype=pl.UInt8),
            needs_fewer=text.str.contains(_FEWER).fill_null(value=False),
        )
        of_ops = kinds.alias("kind").to_frame()
        return self._pieces.pair(of_ops, marks)

    @cached_property
    def _marked(self) -> pl.DataFrame:
        return with_kernel_math(self.classes.with_columns(name="kernel"))

    def labelled(self, found: pl.DataFrame) -> pl.DataFrame:
        """Replaces ``cores`` and ``math`` as numbers by ``tensor_cores`` and ``math`` as types."""
        names = pl.Series([None, *self.maths], dtype=pl.String)
        known = pl.when(pl.col("cores") == 2).then(True).when(pl.col("cores") == 0).then(False)
        return found.with_columns(names.gather(found["math"]).alias("math"), tensor_cores=known).drop("cores")
