"""The calls that can have a cost: operators, and NVTX ranges that stand for them."""

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from kernelscope.trace import Trace

INPUTS = ("input_dims", "input_types", "input_strides", "concrete_inputs")
"""The columns that hold what was recorded of a call's inputs."""


def operator_calls(trace: "Trace") -> pl.DataFrame:
    """Operators and annotations, and the NVTX ranges of a trace that has no operators.

    PyTorch's ``emit_nvtx`` writes an operator's name and sizes into a range; it records neither types nor
    strides.

    Columns: ``row``, ``parent_row``, ``forward_row``, ``name``, and those of ``INPUTS``.
    """
    if trace.ops.height or not trace.ranges.height:
        return trace.ops.select("row", "parent_row", "forward_row", "name", *INPUTS)
    unread = pl.lit(None, trace.ops.schema["input_types"])
    return trace.ranges.filter(pl.col("kind") == "push_pop").select(
        "row",
        "parent_row",
        pl.lit(None, pl.UInt32).alias("forward_row"),
        "name",
        pl.col("sizes").alias("input_dims"),
        *(unread.alias(column) for column in INPUTS[1:]),
    )
