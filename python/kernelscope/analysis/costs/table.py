"""What every operator had to compute and move, and the GPU work that it did."""

from functools import cached_property

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.costs.costed import Costed, costed_trace
from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import as_text, codes
from kernelscope.analysis.kernels.kernel_math import with_kernel_math
from kernelscope.costs import ConventionName
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
_OF_WORK = {
    "device_ns": pl.Int64,
    "kernels": pl.Int64,
    "tensor_cores": pl.Boolean,
    "tensor_core_ns": pl.Int64,
    "math": pl.String,
}


class CostedWork:
    """The GPU work of a trace, with the operators of ``costed`` that it counts for.

    Columns of ``classes``, a row per class of equal work: ``kernel``, ``kind``, ``stream``, ``device``,
    ``step``, ``is_communication``.
    """

    def __init__(self, trace: Trace, costed: Costed) -> None:
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


def costs(trace: Trace, *, convention: ConventionName = "kernelscope") -> pl.DataFrame:
    """What every operator that counts had to compute and move, and how long the GPU worked for it.

    Every kernel, copy and memset belongs to the innermost operator around its launch whose cost is known;
    only such operators are rows, so that sums count nothing twice. GPU work without such an operator is a
    row of the innermost operator with a model, or of the innermost of all, with the reason as ``status``; a
    gradient may take an estimate from its forward operator. Where an operator and one inside it both did GPU
    work and have models of one family, the outer one's cost is what the inner one's leaves. In a trace
    without GPU work the outermost operators that are no wrappers are the rows. ``convention`` is the way of
    counting: ``kernelscope``, ``torch`` or ``tracelens`` (the outermost operator
    that each of them knows), or ``pyprof``.

    Columns: ``op_row`` (of ``ops``, or of ``ranges`` in a trace without operators), ``name``, ``model``,
        ``family``, ``flops``, ``bytes_read``, ``bytes_written``, ``dtype``, ``status`` (exact, estimate,
        unknown_op, unknown_dtype, missing_shape), ``device_ns`` (null in a trace without GPU work),
        ``kernels`` (GPU ops), ``tensor_cores`` (whether a kernel of it used them; null if unknown),
        ``tensor_core_ns``, ``math`` (the type in which its kernels multiply, where their names say),
        ``peak`` (the type in which it computes at best) and ``note`` (what was assumed, or is missing).
    Units: FLOP, a multiply-add counting 2; bytes of compulsory DRAM traffic; ns.
    Order: of recording.
    Raises: KeyError: there is no such convention.
    Example: ``costs(trace).group_by("name").agg(pl.col("flops", "device_ns").sum())``
    """
    return described(trace, costed_trace(trace, convention=convention))


def described(trace: Trace, costed: Costed) -> pl.DataFrame:
    """The rows of :func:`costs` for a trace whose costs are known."""
    ops = pl.concat([costed.ops.select("op_row"), costed.kinds[costed.ops["kind"]]], how="horizontal")
    if ops.height and trace.gpu_ops.height:
        work = CostedWork(trace, costed)
        found = work.labelled(pl.DataFrame(work.paired(costed.ops["kind"]).ops()))
    else:
        found = pl.DataFrame(schema=_OF_WORK).clear(ops.height)
    return as_text(pl.concat([ops, found], how="horizontal")).select(
        "op_row",
        "name",
        "model",
        "family",
        "flops",
        "bytes_read",
        "bytes_written",
        "dtype",
        "status",
        "device_ns",
        "kernels",
        "tensor_cores",
        "tensor_core_ns",
        "math",
        "peak",
        "note",
    )
