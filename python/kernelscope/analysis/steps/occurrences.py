"""Step of each GPU operation, if several steps have the same number."""

import polars as pl

from kernelscope.analysis.call_tree import innermost, nest
from kernelscope.analysis.grouping import gather_rows
from kernelscope.trace import Trace


def step_places(trace: Trace) -> pl.Series:
    """Returns the position in ``steps`` of the step that each row of ``gpu_ops`` belongs to; null for none.

    A unique number identifies the step. Two cycles of a profiler in one file, or two processes, give several
    steps the same number. Then an operation belongs to the step in which its launch starts, otherwise to the
    step in which it starts, and of several to the last that started.
    """
    steps = trace.steps.with_columns(place=pl.int_range(pl.len(), dtype=pl.UInt32))
    # The first step of a number stands for the number.
    steps = steps.with_columns(number=pl.col("place").first().over("step"))
    numbers = steps.select("step", "number").unique("step")
    work = trace.gpu_ops.select("step", "start_ns")
    work = work.join(numbers, on="step", how="left", nulls_equal=True, maintain_order="left")
    repeated = steps.filter(pl.col("number").is_duplicated())
    at = work["number"].is_in(repeated["number"].implode()).arg_true()
    if at.is_empty():
        return work["number"]
    launched = gather_rows(trace.gpu_ops["launch_row"][at], trace.launches, "start_ns")["start_ns"]
    by_start = _around(work[at], repeated, "start_ns", "total_ns")
    by_launch = _around(
        work[at].with_columns(launched.fill_null(0)), repeated, "host_start_ns", "host_dur_ns"
    )
    return work["number"].scatter(at, by_launch.zip_with(launched.is_not_null(), by_start))


def _around(moments: pl.DataFrame, steps: pl.DataFrame, start: str, length: str) -> pl.Series:
    """The place of the last step of its number that each moment lies in; null for none."""
    # A number stands for a thread, on which slices nest; a call may begin at the very end of its step.
    spans = steps.select(row="place", track="number", start_ns=start, dur_ns=pl.col(length) + 1)
    points = moments.select(track="number", start_ns="start_ns", dur_ns=pl.lit(0, pl.Int64))
    return innermost(points, nest(spans))
