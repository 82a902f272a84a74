"""Which calls tensor cores could run, and how much kernel time they are."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.ops import operator_flags
from kernelscope.analysis.tensor_cores import kernel_flags
from kernelscope.analysis.tree import collapse_repeats, subtree_sums

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def call_eligibility(trace: "Trace") -> pl.DataFrame:
    """For every operator whether tensor cores can run it, or an operator inside it.

    A call can run on them if its name is of those that can, or if it launched a kernel that does.

    Columns: ``row``, ``kept`` (``row`` of the call it counts as, see ``collapse_repeats``), ``name``,
        ``is_operator``, ``tc_eligible``, ``own_eligible`` (without regard to calls inside it), ``is_lowest``
        (eligible, and no call inside it is), ``kernel_ns``
        (of the kernels that the call itself launched) and ``tensor_core_ns`` (of those among them that
        use tensor cores); figures of a call that counts as another are null.
    Units: ns.
    Source: the recommendations of the TensorBoard plugin.
    """
    ops = operator_flags(trace.ops.select("row", "parent_row", "name", "category"))
    kept = collapse_repeats(ops.select("row", "parent_row", "name"))
    parents = kept.rename({"row": "parent_row", "kept": "_parent"})
    calls = ops.join(kept.filter(pl.col("row") == pl.col("kept")).select("row"), on="row", how="semi")
    calls = calls.join(parents, on="parent_row", how="left", maintain_order="left")
    calls = calls.with_columns(parent_row="_parent").drop("_parent")
    own = _own_kernels(trace, kept)
    marked = calls.join(own, on="row", how="left", maintain_order="left").with_columns(
        pl.col("kernel_ns", "tensor_core_ns").fill_null(0),
        own=pl.max_horizontal("_eligible", pl.col("_launched").fill_null(0)),
    )
    summed = subtree_sums(marked.with_columns(below="own"), ["below"])
    known = summed.select(
        "row",
        "name",
        "is_operator",
        "kernel_ns",
        "tensor_core_ns",
        tc_eligible=pl.col("below") > 0,
        own_eligible=pl.col("own") > 0,
        is_lowest=(pl.col("own") > 0) & (pl.col("below") == pl.col("own")),
    )
    return kept.join(known, on="row", how="left", maintain_order="left")


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
            (used.len() > 0).cast(pl.UInt32).alias("_launched"),
        )
    )
