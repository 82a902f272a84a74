"""Which calls tensor cores could run, and how much kernel time they are."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.ops import costed_calls
from kernelscope.analysis.tree import CallTree

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def call_eligibility(trace: "Trace", *, calls: CallTree | None = None) -> pl.DataFrame:
    """For every call of an operator that launched a kernel itself whether tensor cores can run it.

    They can if its name is of those that they can, or if it launched a kernel that used them. A call whose
    only child has its own name stands for both. ``calls`` takes the answer of
    :func:`kernelscope.analysis.ops.costed_calls`.

    Columns: ``row``, ``is_operator``, ``is_lowest`` (eligible, and no call inside it is) and ``kernel_ns``
        (of the kernels that the call itself launched).
    Units: ns.
    Source: the recommendations of the TensorBoard plugin.
    """
    tree = costed_calls(trace) if calls is None else calls
    figures = tree.columns_where("kernels", ["is_operator", "eligible", "eligible_inside", "kernel_ns"])
    return figures.select(
        trace.ops["row"].gather(figures["at"]),
        is_operator=pl.col("is_operator") > 0,
        is_lowest=(pl.col("eligible") > 0) & (pl.col("eligible_inside") == pl.col("eligible")),
        kernel_ns="kernel_ns",
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
