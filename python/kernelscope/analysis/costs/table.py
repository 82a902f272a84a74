"""FLOPs and bytes of every operator, and its GPU operations."""

import polars as pl

from kernelscope.analysis.costs.costed import Costed, costed_trace
from kernelscope.analysis.costs.work import CostedWork
from kernelscope.analysis.grouping import as_text, gather_rows
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.costs import ConventionName
from kernelscope.trace import Trace

_OF_WORK = {
    "device_ns": pl.Int64, "kernels": pl.Int64, "tensor_cores": pl.Boolean, "tensor_core_ns": pl.Int64,
    "math": pl.String,
}  # fmt: skip


def costs(trace: Trace, *, convention: ConventionName = "kernelscope") -> pl.DataFrame:
    """FLOPs, bytes and GPU time of every operator that counts.

    Every kernel, copy and memset belongs to the innermost operator around its launch with a known cost. Only
    such operators are rows, so that sums count nothing twice. GPU operations without such an operator belong
    to the innermost operator with a model, or to the innermost operator, with the reason as ``status``. A
    gradient may take an estimate from its forward operator. If an operator and one inside it both launched
    GPU operations and have models of one family, the outer operator's cost is reduced by the inner operator's
    cost. In a trace without GPU operations, the rows are the outermost operators that are not wrappers.
    ``convention`` selects the counting rules: ``kernelscope``, ``torch`` or ``tracelens`` (the outermost
    operator that each of them knows), or ``pyprof``.

    Columns: ``op_row`` (in ``ops``, or in ``ranges`` if the trace has no operators), ``name``, ``phase``
        (of training; null for a range), ``model``, ``family``, ``flops``, ``bytes_read``, ``bytes_written``,
        ``dtype``, ``status`` (exact, estimate, unknown_op, unknown_dtype, missing_shape), ``device_ns`` (null
        in a trace without GPU operations), ``kernels`` (GPU operations), ``tensor_cores`` (whether any of its
        kernels used them; null if unknown), ``tensor_core_ns``, ``math`` (the type in which its kernels
        multiply, if their names contain it), ``peak`` (the fastest type for its computation) and ``note``
        (assumptions, or missing data).
    Units: FLOP, a multiply-add counting 2; bytes of compulsory DRAM traffic; ns. Order: of recording.
    Raises: KeyError: the convention does not exist.
    Example: ``costs(trace).group_by("name").agg(pl.col("flops", "device_ns").sum())``
    """
    return described(trace, costed_trace(trace, convention=convention))


def described(trace: Trace, costed: Costed) -> pl.DataFrame:
    """Returns the rows of :func:`costs` for a trace with known costs."""
    ops = pl.concat([costed.ops.select("op_row"), costed.kinds[costed.ops["kind"]]], how="horizontal")
    if ops.height and trace.gpu_ops.height:
        work = CostedWork(trace, costed)
        found = work.labelled(work.paired(costed.ops["kind"]).ops)
    else:
        found = pl.DataFrame(schema=_OF_WORK).clear(ops.height)
    phases = gather_rows(ops["op_row"], with_replayed_ops(trace).ops, "phase")
    return as_text(pl.concat([ops, phases, found], how="horizontal")).select(
        "op_row", "name", "phase", "model", "family", "flops", "bytes_read", "bytes_written", "dtype",
        "status", "device_ns", "kernels", "tensor_cores", "tensor_core_ns", "math", "peak", "note",
    )  # fmt: skip
