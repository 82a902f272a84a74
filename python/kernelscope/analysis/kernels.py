"""What each kernel cost on the device."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.classes import classes_of
from kernelscope.analysis.described import described, weighted_means
from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.analysis.occupancy import IS_KERNEL, LAUNCH_COLUMNS, launch_metrics
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
    needed = dict.fromkeys(["kind", "op_row", "name", "device", "dur_ns", *LAUNCH_COLUMNS, *recorded])
    work = trace.gpu_ops.select(list(needed))
    work = launch_metrics(work, trace.devices, only=IS_KERNEL)
    if len(recorded) < len(columns):
        asked = [c for c in of_op if c in columns]
        linked = looked_up(work["op_row"], trace.ops, "name", *asked)
        work = work.with_columns(linked["name"].alias("op"), *(linked[c] for c in asked))
    # What a kernel's name and GPU decide is worked out once for all launches that agree in these, too.
    finer = classes_of(work.select(list(dict.fromkeys([*columns, "kind", "name", "device"]))))
    coarser = classes_of(finer.keys.select(columns))
    kinds = finer.keys.select("kind", "name", "device", group=coarser.of)
    kinds = kinds.with_columns(pl.when(IS_KERNEL).then("group").alias("group"))
    groups, keys = finer.spread(kinds["group"]), coarser.keys
    found = described(groups, work["dur_ns"], keys.height, quantiles=(0.5,))
    table = keys.hstack(
        found.select(
            calls="rows",
            total_ns="sum",
            mean_ns="mean",
            median_ns="q0",
            min_ns="min",
            max_ns="max",
            std_ns="std",
        )
    )
    # What all launches of a group agree in is their mean, too.
    means = [c for c in _FULL if c not in columns]
    known = [c for c in means if work[c].null_count() < work.height]
    table = table.with_columns(
        *(weighted_means(groups, work["dur_ns"], work[c], keys.height).alias(c) for c in known),
        *(pl.lit(None, pl.Float64).alias(c) for c in means if c not in known),
        _on_tensor_cores(trace, kinds.drop_nulls("group"), keys.height),
    )
    table = table.filter(pl.col("calls") > 0).select(*columns, *_METRICS, *means, "tensor_cores")
    return as_text(table).sort(
        ["total_ns", *columns], descending=[True, *(False for _ in columns)], nulls_last=True
    )


def _on_tensor_cores(trace: "Trace", kinds: pl.DataFrame, count: int) -> pl.Series:
    """Whether some kernel of each group runs on tensor cores, which its name and its GPU decide.

    Columns: of ``kinds``, needs ``name``, ``device`` and ``group``.
    """
    told = kernel_flags(kinds, trace.devices).group_by("group")
    told = told.agg(pl.col("tensor_cores").any(ignore_nulls=False))
    unknown = pl.repeat(None, count, dtype=pl.Boolean, eager=True)
    return unknown.scatter(told["group"], told["tensor_cores"]).alias("tensor_cores")
