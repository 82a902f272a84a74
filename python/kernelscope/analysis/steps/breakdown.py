"""Where the time of each step went."""

import polars as pl

from kernelscope.trace import Trace

CATEGORIES = (
    "kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "dataloader_ns", "cpu_exec_ns",
    "other_ns",
)  # fmt: skip
"""The parts of a step, the one that counts first in front."""


def step_breakdown(trace: Trace, *, include_partial: bool = False) -> pl.DataFrame:
    """Where the wall time of each step went, one category at each moment.

    A moment in which several things happen counts as the first of: kernel, copy, memset,
    communication, runtime call, data loading, other host work. So the parts sum to the step.

    A step whose GPU work is cut off by the end of the recording is left out unless
    ``include_partial`` is set.

    Columns: ``step`` (its number; null for a trace without steps, taken as one), ``total_ns``, the
        eight parts in ``CATEGORIES``, then ``start_ns``, ``name`` and ``is_partial``.
    Units: ns.
    Source: the table ``steps``.
    """
    steps = trace.steps if include_partial else trace.steps.filter(~pl.col("is_partial"))
    return steps.select(
        "step", "total_ns", *CATEGORIES, "start_ns", pl.col("name").cast(pl.String), "is_partial"
    ).sort("start_ns", "step", maintain_order=True)
