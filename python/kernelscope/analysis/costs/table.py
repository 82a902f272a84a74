"""What every operator had to compute and move, and the GPU work that it did."""

import polars as pl

from kernelscope.analysis.costs.costed import Costed, costed_trace
from kernelscope.analysis.costs.work import CostedWork
from kernelscope.analysis.grouping import as_text
from kernelscope.costs import ConventionName
from kernelscope.trace import Trace

_OF_WORK = {
    "device_ns": pl.Int64, "kernels": pl.Int64, "tensor_cores": pl.Boolean, "tensor_core_ns": pl.Int64,
    "math": pl.String,
}  # fmt: skip


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
        found = work.labelled(work.paired(costed.ops["kind"]).ops)
    else:
        found = pl.DataFrame(schema=_OF_WORK).clear(ops.height)
    return as_text(pl.concat([ops, found], how="horizontal")).select(
        "op_row", "name", "model", "family", "flops", "bytes_read", "bytes_written", "dtype", "status",
        "device_ns", "kernels", "tensor_cores", "tensor_core_ns", "math", "peak", "note",
    )  # fmt: skip
