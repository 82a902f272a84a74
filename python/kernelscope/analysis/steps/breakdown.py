"""Time of each step by category, on each GPU."""

import polars as pl

from kernelscope.trace import Trace

CATEGORIES = (
    "kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "dataloader_ns", "cpu_exec_ns",
    "other_ns",
)  # fmt: skip
"""Parts of a step in order of priority, the highest first."""

_LAST = ("start_ns", pl.col("name").cast(pl.String), "is_partial")


def step_breakdown(trace: Trace, *, include_partial: bool = False) -> pl.DataFrame:
    """Wall time of each step on each GPU, with one category at each moment.

    A moment with several activities counts for the first of: kernel, copy, memset, communication, runtime
    call, data loading, other host work. So the parts sum to the step. Each row counts the activity of one
    GPU, and on the host that of the process that launched on it, or of a process without a GPU.

    A step whose GPU operations are cut off by the end of the recording is left out unless ``include_partial``
    is set.

    Columns: ``step`` (its number; null for a trace without steps, which counts as one), ``total_ns``, the
        eight parts in ``CATEGORIES``, ``start_ns``, ``name`` and ``is_partial``, then ``device`` and ``pid``
        (of the process, null if not recorded; both null without GPU operations).
    Units: ns.
    Order: by start, then by GPU.
    Source: the tables ``gpu_steps`` and ``steps``.
    """
    found = trace.gpu_steps
    if found.is_empty():
        found = trace.steps.with_columns(device=pl.lit(None, pl.Int32), pid=pl.lit(None, pl.Int64))
    found = _kept(found, include_partial=include_partial)
    found = found.select("step", "total_ns", *CATEGORIES, *_LAST, "device", "pid")
    return found.sort("start_ns", "step", "device", "pid", maintain_order=True)


def step_times(trace: Trace, *, include_partial: bool = False) -> pl.DataFrame:
    """Returns the time of each step, independent of its GPUs.

    Columns: ``step``, ``total_ns``, ``start_ns``, ``name`` and ``is_partial``, as in ``step_breakdown``.
    Units: ns.
    Order: by start.
    """
    found = _kept(trace.steps, include_partial=include_partial).select("step", "total_ns", *_LAST)
    return found.sort("start_ns", "step", maintain_order=True)


def mean_over_gpus(breakdown: pl.DataFrame) -> pl.DataFrame:
    """Returns the breakdown of each step as its mean over the GPUs.

    Columns: ``breakdown`` has those of ``step_breakdown``. The result has the same without ``device`` and
    ``pid``.
    Units: ns.
    """
    if breakdown["device"].n_unique() < 2 and breakdown["pid"].n_unique() < 2:
        return breakdown.drop("device", "pid")
    by = ["step", "total_ns", "start_ns", "name", "is_partial"]
    means = breakdown.group_by(by, maintain_order=True).agg(pl.col(CATEGORIES).mean())
    return means.select("step", "total_ns", *CATEGORIES, *by[2:])


def mean_steps(trace: Trace) -> pl.DataFrame:
    """Time of the mean complete step by category, on each GPU.

    Columns: ``device`` and ``pid``, as in ``step_breakdown``; ``steps`` (their number), ``total_ns`` and the
        eight parts in ``CATEGORIES``.
    Units: ns.
    Order: by GPU.
    """
    means = pl.col("total_ns", *CATEGORIES).mean()
    count = pl.len().cast(pl.Int64).alias("steps")
    return step_breakdown(trace).group_by("device", "pid").agg(count, means).sort("device", "pid")


def _kept(steps: pl.DataFrame, *, include_partial: bool) -> pl.DataFrame:
    return steps if include_partial else steps.filter(~pl.col("is_partial"))
