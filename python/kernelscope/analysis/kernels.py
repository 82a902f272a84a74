"""What each kernel cost on the device."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.analysis.occupancy import LAUNCH_COLUMNS, launch_metrics
from kernelscope.analysis.row_lookup import looked_up
from kernelscope.analysis.tensor_cores import kernel_flags

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_METRICS = ("calls", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns")
_FULL = ("blocks_per_sm", "occupancy_pct")


def kernel_table(trace: "Trace", by: str | Sequence[str] = ("name",)) -> pl.DataFrame:
    """What kernels cost, summed over the launches that agree in the columns ``by``.

    ``by`` takes any columns of the table ``gpu_ops``, ``op`` (name of the operator that launched
    the kernel), and any other columns of that operator, such as ``module`` or ``input_dims``.

    Columns: those of ``by``; ``calls``; ``total_ns``, ``mean_ns``, ``median_ns``, ``min_ns``,
        ``max_ns``, ``std_ns`` (of a sample; null for one call); ``blocks_per_sm`` and
        ``occupancy_pct`` (means weighted by duration over the calls where they are known), and
        ``tensor_cores`` (whether any of them runs on tensor cores; null if unknown).
    Units: ns; percent.
    Order: by total time, longest first, then by the columns ``by``.
    Raises: InvalidArgumentError: ``by`` names no such column.
    Source: the kernel view of the TensorBoard plugin.

    Example: ``kernel_table(trace, by=("op", "name"))``
    """
    of_op = [c for c in trace.ops.columns if c not in trace.gpu_ops.columns]
    columns = check_by(by, [*trace.gpu_ops.columns, "op", *of_op])
    recorded = [c for c in columns if c in trace.gpu_ops.columns]
    needed = dict.fromkeys(["op_row", "name", "device", "dur_ns", *LAUNCH_COLUMNS, *recorded])
    kernels = trace.gpu_ops.select(list(dict.fromkeys(["kind", *needed]))).filter(pl.col("kind") == "kernel")
    kernels = launch_metrics(kernels, trace.devices)
    if len(recorded) < len(columns):
        asked = [c for c in of_op if c in columns]
        linked = looked_up(kernels["op_row"], trace.ops, "name", *asked)
        kernels = kernels.with_columns(linked["name"].alias("op"), *(linked[c] for c in asked))
    duration = pl.col("dur_ns")
    table = kernels.group_by(columns).agg(
        pl.len().cast(pl.Int64).alias("calls"),
        duration.sum().alias("total_ns"),
        duration.mean().alias("mean_ns"),
        duration.median().alias("median_ns"),
        duration.min().alias("min_ns"),
        duration.max().alias("max_ns"),
        duration.std().alias("std_ns"),
        *(_weighted_mean(c) for c in _FULL if kernels[c].null_count() < kernels.height),
    )
    table = table.with_columns(pl.lit(None, pl.Float64).alias(c) for c in _FULL if c not in table.columns)
    table = table.join(_on_tensor_cores(trace, kernels, columns), on=columns, how="left", nulls_equal=True)
    table = table.select(*columns, *_METRICS, *_FULL, "tensor_cores")
    return as_text(table).sort(
        ["total_ns", *columns], descending=[True, *(False for _ in columns)], nulls_last=True
    )


def _on_tensor_cores(trace: "Trace", kernels: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Whether some kernel of each group runs on tensor cores, which its name and its GPU decide."""
    kinds = kernels.select(list(dict.fromkeys([*columns, "name", "device"]))).unique()
    flags = kernel_flags(kinds.select("name", "device"), trace.devices)
    kinds = kinds.with_columns(flags["tensor_cores"])
    return kinds.group_by(columns).agg(pl.col("tensor_cores").any(ignore_nulls=False))


def _weighted_mean(column: str) -> pl.Expr:
    """The mean of ``column`` over the time of the calls; over the calls if none took time."""
    known = pl.col(column).is_not_null()
    weight = pl.col("dur_ns").filter(known).sum()
    weighted = (pl.col(column) * pl.col("dur_ns")).sum() / weight
    return pl.when(weight > 0).then(weighted).otherwise(pl.col(column).mean()).alias(column)
