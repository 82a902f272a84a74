"""Where the time of each step went on each GPU."""

import polars as pl

from kernelscope.trace import Trace

CATEGORIES = (
    "kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "dataloader_ns", "cpu_exec_ns",
    "other_ns",
)  # fmt: skip
"""The parts of a step, the one that counts first in front."""

_LAST = ("start_ns", pl.col("name").cast(pl.String), "is_partial")


def step_breakdown(trace: Trace, *, include_partial: bool = False) -> pl.DataFrame:
    """Where the wall time of each step went on each GPU, one category at each moment.

    A moment in which several things happen counts as the first of: kernel, copy, memset,
    communication, runtime call, data loading, other host work. So the parts sum to the step. Only what the
    GPU does counts, and of the host what the process did that launched on it, or one without a GPU.

    A step whose GPU work is cut off by the end of the recording is left out unless
    ``include_partial`` is set.

    Columns: ``step`` (its number; null for a trace without steps, taken as one), ``total_ns``, the
        eight parts in ``CATEGORIES``, ``start_ns``, ``name`` and ``is_partial``, then ``device`` and ``pid``
        (of the process, null where the source does not say; both null without GPU work).
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
    """When each step was, whatever GPUs it had.

    Columns: ``step``, ``total_ns``, ``start_ns``, ``name`` and ``is_partial``, as in ``step_breakdown``.
    Units: ns.
    Order: by start.
    """
    found = _kept(trace.steps, include_partial=include_partial).select("step", "total_ns", *_LAST)
    return found.sort("start_ns", "step", maintain_order=True)


def mean_over_gpus(breakdown: pl.DataFrame) -> pl.DataFrame:
    """The breakdown of each step as its mean over the GPUs.

    Columns: of ``breakdown``, those of ``step_breakdown``; gives those but ``device`` and ``pid``.
    Units: ns.
    """
    if breakdown["device"].n_unique() < 2 and breakdown["pid"].n_unique() < 2:
        return breakdown.drop("device", "pid")
    by = ["step", "total_ns", "start_ns", "name", "is_partial"]
    means = breakdown.group_by(by, maintain_order=True).agg(pl.col(CATEGORIES).mean())
    return means.select("step", "total_ns", *CATEGORIES, *by[2:])


def mean_steps(trace: Trace) -> pl.DataFrame:
    """Where the time of the mean step went on each GPU, over the whole steps.

    Columns: ``device`` and ``pid``, as in ``step_breakdown``; ``steps`` (how many), ``total_ns`` and the
        eight parts in ``CATEGORIES``.
    Units: ns.
    Order: by GPU.
    """
    means = pl.col("total_ns", *CATEGORIES).mean()
    count = pl.len().cast(pl.Int64).alias("steps")
    return step_breakdown(trace).group_by("device", "pid").agg(count, means).sort("device", "pid")


def _kept(steps: pl.DataFrame, *, include_partial: bool) -> pl.DataFrame:
    return steps if include_partial else steps.filter(~pl.col("is_partial"))
