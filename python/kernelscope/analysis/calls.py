"""The calls that can have a cost: operators, and NVTX ranges that stand for them."""

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from kernelscope.trace import Trace

INPUTS = ("input_dims", "input_types", "input_strides", "concrete_inputs")
"""The columns that hold what was recorded of a call's inputs."""

_MOST_ROUNDS = 33


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


class Places:
    """Where rows stand in a frame, counted from 1; 0 stands for none."""

    def __init__(self, rows: pl.Series) -> None:
        self._rows = rows

    @cached_property
    def _at(self) -> pl.Series:
        rows = self._rows
        largest = rows.max()
        size = (largest if isinstance(largest, int) else 0) + 1
        numbers = pl.int_range(1, rows.len() + 1, dtype=pl.UInt32, eager=True)
        return pl.zeros(size, dtype=pl.UInt32, eager=True).scatter(rows, numbers)

    def of(self, rows: pl.Series) -> pl.Series:
        """The places of ``rows``; 0 for null and for a row that is not in the frame."""
        size = self._at.len()
        known = rows.is_not_null() & (rows < size)
        inside = pl.select(pl.when(known).then(rows).otherwise(0).cast(pl.UInt32)).to_series()
        found = self._at.gather(inside)
        return pl.select(pl.when(known).then(found).otherwise(0).cast(pl.UInt32)).to_series()


def nearest(marked: pl.Series, parents: pl.Series) -> pl.Series:
    """The place of the nearest marked call on the way up from each call, itself included; 0 for none.

    Shapes: both are indexed by place, so their first value stands for "none".
    """
    here = pl.int_range(marked.len(), dtype=pl.UInt32, eager=True)
    jump = pl.select(pl.when(marked).then(here).otherwise(parents)).to_series()
    for _ in range(_MOST_ROUNDS):
        # The jump of the jump is twice as far.
        further = jump.gather(jump)
        if (further == jump).all():
            break
        jump = further
    return jump
