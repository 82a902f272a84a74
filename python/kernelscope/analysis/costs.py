"""What every operator had to compute and move."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.costed import Costed, costed_trace
from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.kernel_math import with_kernel_math
from kernelscope.costs import ConventionName

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def costs(trace: "Trace", *, convention: ConventionName = "kernelscope") -> pl.DataFrame:
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
    Order: of first GPU work; of recording in a trace without it.
    Raises: KeyError: there is no such convention.
    Example: ``costs(trace).group_by("name").agg(pl.col("flops", "device_ns").sum())``
    """
    return described(trace, costed_trace(trace, convention=convention))


def described(trace: "Trace", costed: Costed) -> pl.DataFrame:
    """The rows of :func:`costs` for a trace whose costs are known."""
    kernels = trace.gpu_ops.select("row", "kind", "name", "dur_ns").join(costed.work, on="row", how="inner")
    flagged = with_kernel_math(kernels)
    duration = pl.col("dur_ns")
    is_kernel = pl.col("kind").cast(pl.String) == "kernel"
    used, unknown = (
        pl.col("tensor_cores").filter(is_kernel),
        pl.col("tensor_cores").is_null().filter(is_kernel),
    )
    multiplied = pl.col("math").filter(pl.col("math").is_not_null())
    longest = duration.filter(pl.col("math").is_not_null()).fill_null(0).arg_max()
    device = flagged.group_by("op_row").agg(
        duration.sum().alias("device_ns"),
        pl.len().cast(pl.Int64).alias("kernels"),
        pl.when(used.any()).then(True).when(unknown.any()).then(None).otherwise(False).alias("tensor_cores"),
        duration.filter(pl.col("tensor_cores") & is_kernel).sum().alias("tensor_core_ns"),
        multiplied.get(longest, null_on_oob=True).alias("math"),
    )
    return as_text(costed.ops.join(device, on="op_row", how="left", maintain_order="left")).select(
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
