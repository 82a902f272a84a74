"""Which steps of two traces are compared."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.errors import NotRecordedError

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_SIDES = ("before", "after")


def step_pairs(before: "Trace", after: "Trace") -> pl.DataFrame:
    """The steps that correspond: those of the same number, or, if no number is common, of the same place.

    Steps that a recording cuts off are left out, unless it has no other.

    Columns: ``pair`` (counted from 0 in order of time), ``step_before``, ``step_after``, ``start_before``,
        ``start_after``, ``before_ns`` and ``after_ns`` (wall times).
    Raises: NotRecordedError: a trace has nothing that takes time, or only one of them marks steps.
    """
    sides = [
        _whole_steps(trace).select(
            pl.col("step").alias(f"step_{side}"),
            pl.col("start_ns").alias(f"start_{side}"),
            pl.col("total_ns").alias(f"{side}_ns"),
        )
        for trace, side in zip((before, after), _SIDES, strict=True)
    ]
    marked = [
        side[f"step_{name}"].null_count() < side.height for side, name in zip(sides, _SIDES, strict=True)
    ]
    if marked[0] != marked[1]:
        without = (after if marked[0] else before).meta.path
        raise NotRecordedError(
            f"{without} marks no steps, and the other trace does: name the annotation that delimits its steps"
            " with step_range= or --step-range"
        )
    numbers = [frame[f"step_{side}"].drop_nulls() for frame, side in zip(sides, _SIDES, strict=True)]
    if numbers[0].is_in(numbers[1].implode()).any():
        joined = sides[0].join(
            sides[1], left_on="step_before", right_on="step_after", how="inner", coalesce=False
        )
    else:
        count = min(side.height for side in sides)
        joined = pl.concat([side.head(count) for side in sides], how="horizontal")
    columns = ("step_before", "step_after", "start_before", "start_after", "before_ns", "after_ns")
    return joined.sort("start_before").select(columns).with_row_index("pair")


def _whole_steps(trace: "Trace") -> pl.DataFrame:
    steps = trace.steps.filter(~pl.col("is_partial"))
    if steps.is_empty():
        steps = trace.steps
    if steps.is_empty():
        raise NotRecordedError(
            f"{trace.meta.path} has nothing that takes time, so there is nothing to compare"
        )
    return steps.sort("start_ns").unique("step", keep="first", maintain_order=True)
