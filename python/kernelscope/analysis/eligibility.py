"""Which calls tensor cores could run, and how much kernel time they are."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.calls import Places, nearest
from kernelscope.analysis.ops import operator_flags
from kernelscope.analysis.tensor_cores import kernel_flags
from kernelscope.analysis.tree import collapse_repeats

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def call_eligibility(trace: "Trace") -> pl.DataFrame:
    """For every call of an operator whether tensor cores can run it.

    They can if its name is of those that they can, or if it launched a kernel that used them. A call whose
    only child has its own name stands for both.

    Columns: ``row``, ``name``, ``is_operator``, ``own_eligible``, ``is_lowest`` (eligible, and no call inside
        it is), ``kernel_ns`` (of the kernels that the call itself launched) and ``tensor_core_ns`` (of those
        among them that use tensor cores).
    Units: ns.
    Source: the recommendations of the TensorBoard plugin.
    """
    ops = operator_flags(trace.ops.select("row", "parent_row", "name", "category"))
    kept = collapse_repeats(ops.select("row", "parent_row", "name"))
    known = ops.join(_own_kernels(trace, kept), on="row", how="left", maintain_order="left").with_columns(
        pl.col("kernel_ns", "tensor_core_ns").fill_null(0),
        own_eligible=(pl.col("_eligible") > 0) | pl.col("_launched").fill_null(value=False),
    )
    stands = (kept["row"] == kept["kept"]).rename("stands")
    marked = known["own_eligible"] & stands
    places = Places(known["row"])
    nobody = pl.zeros(1, dtype=pl.UInt32, eager=True)
    parents = pl.concat([nobody, places.of(known["parent_row"])])
    around = nearest(pl.concat([pl.Series([False]), marked]), parents).gather(parents)[1:]
    # An eligible call with another inside is the nearest around one of them.
    inner = around.filter(marked).unique()
    has_inner = pl.repeat(False, known.height + 1, dtype=pl.Boolean, eager=True).scatter(inner, True)[1:]
    lowest = (marked & ~has_inner).alias("is_lowest")
    return (
        known.with_columns(lowest)
        .filter(stands)
        .select("row", "name", "is_operator", "own_eligible", "is_lowest", "kernel_ns", "tensor_core_ns")
    )


def eligible_share(trace: "Trace", calls: pl.DataFrame | None = None) -> float | None:
    """The share of kernel time of operators that runs in operators that tensor cores could run.

    ``calls`` takes the answer of :func:`call_eligibility`. Null where no operator launched a kernel.
    """
    calls = call_eligibility(trace) if calls is None else calls
    operators = calls.filter("is_operator")
    total = int(operators["kernel_ns"].sum())
    eligible = int(operators.filter("is_lowest")["kernel_ns"].sum())
    return eligible / total if total > 0 else None


def _own_kernels(trace: "Trace", kept: pl.DataFrame) -> pl.DataFrame:
    linked = trace.gpu_ops.select("op_row", "kind", "name", "device", "dur_ns").filter(
        (pl.col("kind") == "kernel") & pl.col("op_row").is_not_null()
    )
    used = pl.col("dur_ns").filter(pl.col("tensor_cores"))
    return (
        kernel_flags(linked, trace.devices)
        .join(kept, left_on="op_row", right_on="row", how="inner")
        .group_by(row="kept")
        .agg(
            pl.col("dur_ns").sum().alias("kernel_ns"),
            used.sum().alias("tensor_core_ns"),
            (used.len() > 0).alias("_launched"),
        )
    )
