"""The answers that every report shows, computed once."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.ranges.projection import range_sums

if TYPE_CHECKING:
    from kernelscope.trace import Trace


@dataclass(frozen=True, slots=True)
class Answers:
    """Frames of :mod:`kernelscope.analysis` for one trace."""

    steps: pl.DataFrame
    """Every step, those that the recording cuts off too."""
    breakdown: pl.DataFrame
    ops: pl.DataFrame
    kernels: pl.DataFrame
    ranges: pl.DataFrame
    """NVTX ranges by name, on the host and on the GPU; empty for a trace without."""
    gpus: pl.DataFrame
    overlap: pl.DataFrame
    """How much of each GPU's communication computing hides."""
    idle: pl.DataFrame
    """How long each GPU idled, by cause."""
    idle_hosts: pl.DataFrame
    """The same by what kept the host meanwhile."""
    recommendations: pl.DataFrame
    """What could make the program faster, the weightiest first."""
    unlinked: pl.DataFrame
    """GPU work by how its operator was found, or why there is none: ``link``, ``kernels``, ``dur_ns``."""
    diagnostics: pl.DataFrame


def answer(trace: "Trace") -> Answers:
    """Everything that a report shows of ``trace``."""
    everything = analysis.step_breakdown(trace, include_partial=True)
    breakdown = everything.filter(~pl.col("is_partial"))
    gpus = analysis.gpu_summary(trace)
    return Answers(
        steps=everything.select("step", "name", "start_ns", "total_ns", "is_partial"),
        breakdown=breakdown,
        ops=analysis.op_table(trace),
        kernels=analysis.kernel_table(trace),
        ranges=range_table(trace),
        gpus=gpus,
        overlap=analysis.comm_comp_overlap(trace),
        idle=analysis.idle_summary(trace),
        idle_hosts=analysis.idle_summary(trace, by=("host",)),
        recommendations=analysis.recommendations(trace),
        unlinked=_unlinked(trace.gpu_ops),
        diagnostics=trace.diagnostics.with_columns(pl.col(pl.Categorical).cast(pl.String)),
    )


def range_table(trace: "Trace") -> pl.DataFrame:
    """NVTX ranges by domain and name, those without GPU work too, their own GPU time first."""
    keys = ["domain", "name"]
    gpu = ("gpu_span_ns", "gpu_busy_ns", "gpu_exclusive_ns", "launches", "gpu_ops")
    if trace.ranges.is_empty():
        numbers = ("ranges", "dur_ns", *gpu)
        return pl.DataFrame(schema={**dict.fromkeys(keys, pl.String), **dict.fromkeys(numbers, pl.Int64)})
    table = range_sums(trace, keys).select(
        pl.col(keys).cast(pl.String),
        "ranges",
        pl.col("host_ns").alias("dur_ns"),
        *(pl.when(pl.col("projected") > 0).then(name) for name in gpu),
    )
    order = ["gpu_exclusive_ns", "dur_ns"]
    return table.sort([*order, *keys], descending=[True, True, False, False], nulls_last=True)


def _unlinked(gpu_ops: pl.DataFrame) -> pl.DataFrame:
    return (
        gpu_ops.select("op_row", "link", "dur_ns")
        .filter(pl.col("op_row").is_null())
        .group_by("link")
        .agg(pl.len().cast(pl.Int64).alias("events"), pl.col("dur_ns").sum())
        .with_columns(pl.col("link").cast(pl.String))
        .sort(["dur_ns", "link"], descending=[True, False], nulls_last=True)
    )
