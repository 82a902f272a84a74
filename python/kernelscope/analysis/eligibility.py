"""Which calls tensor cores could run, and how much kernel time they are."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.classes import classes_of
from kernelscope.analysis.ops import operator_classes
from kernelscope.analysis.tensor_cores import kernel_flags
from kernelscope.analysis.tree import CallTree

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
    ops = trace.ops
    classes = operator_classes(ops)
    tree = CallTree(ops)
    tree.merge_repeats(ops["name"])
    tree.put(pl.DataFrame({"eligible": classes.spread(classes.keys["_eligible"])}))
    tree.add(_kernels(trace))
    tree.with_inner("eligible", into="inside")
    figures = tree.columns(["eligible", "inside", "kernel_ns", "tensor_core_ns"])
    is_operator = classes.spread(classes.keys["is_operator"]).alias("is_operator")
    return (
        ops.select("row", "name", is_operator)
        .filter(tree.is_kept())
        .hstack(figures)
        .select(
            "row",
            "name",
            "is_operator",
            own_eligible=pl.col("eligible") > 0,
            is_lowest=(pl.col("eligible") > 0) & (pl.col("inside") == pl.col("eligible")),
            kernel_ns="kernel_ns",
            tensor_core_ns="tensor_core_ns",
        )
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


def _kernels(trace: "Trace") -> pl.DataFrame:
    """Of each kernel its call, its time, that on tensor cores, and whether it used them."""
    work = trace.gpu_ops
    classes = classes_of(work.select("kind", "name", "device"))
    flags = kernel_flags(classes.keys, trace.devices).select(
        is_kernel=(pl.col("kind") == "kernel").fill_null(value=False),
        used=((pl.col("kind") == "kernel") & pl.col("tensor_cores")).fill_null(value=False),
    )
    is_kernel, used = classes.spread(flags["is_kernel"]), classes.spread(flags["used"])
    return work.select(
        used.cast(pl.UInt32).alias("eligible"),
        call="op_row",
        kernel_ns=pl.when(is_kernel).then("dur_ns"),
        tensor_core_ns=pl.when(used).then("dur_ns"),
    )
