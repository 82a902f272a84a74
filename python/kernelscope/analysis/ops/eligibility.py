"""Which calls tensor cores could run, and how much kernel time they are."""

from typing import NamedTuple

import polars as pl

from kernelscope.analysis.ops.table import costed_calls, operator_classes
from kernelscope.memo import per_trace
from kernelscope.trace import Trace


class Eligibility(NamedTuple):
    """The calls of operators that tensor cores can run, and the time of the kernels of all operators.

    Columns of ``lowest``, in which no call has another inside: ``row`` and ``kernel_ns`` (of the kernels that
        the call itself launched).
    """

    lowest: pl.DataFrame
    kernel_ns: int


@per_trace
def call_eligibility(trace: Trace) -> Eligibility:
    """Which calls of operators tensor cores can run, and the time of the kernels that operators launched.

    They can if its name is of those that they can, or if it launched a kernel that used them. A call whose
    only child has its own name stands for both.

    Units: ns.
    Source: the recommendations of the TensorBoard plugin.
    """
    classes = operator_classes(trace.ops)
    tree = costed_calls(trace, classes=classes)
    sums = tree.class_sums(classes, ["kernel_ns"])
    found = tree.columns_where("eligible", ["eligible", "eligible_inside", "is_operator", "kernel_ns"])
    is_lowest = pl.col("eligible_inside") == pl.col("eligible")
    found = found.filter((pl.col("is_operator") > 0) & is_lowest)
    lowest = found.select(trace.ops["row"].gather(found["at"]), "kernel_ns")
    return Eligibility(lowest, int(sums.filter("is_operator")["kernel_ns"].sum()))


def eligible_share(trace: Trace) -> float | None:
    """The share of kernel time of operators that runs in operators that tensor cores could run.

    None where no operator launched a kernel.
    """
    lowest, total = call_eligibility(trace)
    return int(lowest["kernel_ns"].sum()) / total if total > 0 else None
