"""Kernels by name, by operator and by launch configuration."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import (
    Classes,
    as_text,
    check_by,
    classes_of,
    describe_by_group,
    gather_rows,
    sum_by_group,
    weighted_means,
)
from kernelscope.analysis.kernels.occupancy import IS_KERNEL, launch_limits
from kernelscope.analysis.kernels.tensor_cores import ELIGIBLE_OPS, kernel_flags
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.trace import Trace

_METRICS = ("calls", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns")
_FULL = ("blocks_per_sm", "occupancy_pct")
_SIZES = ("grid", "block", "registers", "shared_memory_bytes")
_BY = ("name", "op", *_SIZES, "device")


def kernel_table(trace: Trace, by: str | Sequence[str] = ("name",)) -> pl.DataFrame:
    """Costs of kernels, summed over launches with equal columns ``by``.

    ``by`` accepts any columns of the table ``gpu_ops``, ``op`` (name of the operator that launched the
    kernel), and any other columns of that operator, such as ``module`` or ``input_dims``.

    Columns: the columns of ``by``; ``calls``; ``total_ns``, ``mean_ns``, ``median_ns``, ``min_ns``,
        ``max_ns``, ``std_ns`` (sample standard deviation; null for one call); ``blocks_per_sm`` and
        ``occupancy_pct`` (means weighted by duration over calls with known values), and ``tensor_cores``
        (whether any call runs on tensor cores; null if unknown).
    Units: ns; percent.
    Order: by total time, longest first, then by the columns ``by``.
    Raises: InvalidArgumentError: ``by`` contains an unknown column.
    Source: the kernel view of the TensorBoard plugin.

    Example: ``kernel_table(trace, by=("op", "name"))``
    """
    of_op = [c for c in trace.ops.columns if c not in trace.gpu_ops.columns]
    columns = check_by(by, [*trace.gpu_ops.columns, "op", *of_op])
    work = GpuWork(trace)
    finer = _divided(trace, work.launches, columns)
    coarser = classes_of(finer.keys.select(columns))
    kinds = finer.keys.with_columns(group=pl.when(IS_KERNEL).then(coarser.of))
    groups, keys = finer.spread(kinds["group"]), coarser.keys
    found = describe_by_group(groups, trace.gpu_ops["dur_ns"], keys.height)
    table = keys.hstack(
        found.select(
            calls="rows",
            total_ns="sum",
            mean_ns="mean",
            median_ns="median",
            min_ns="min",
            max_ns="max",
            std_ns="std",
        )
    )
    # What all launches of a group agree in is their mean, too.
    means = [c for c in _FULL if c not in columns]
    is_known = finer.of is work.launches.of
    every = work.totals if is_known else sum_by_group(finer.of, trace.gpu_ops["dur_ns"], kinds.height)
    kinds = kinds.with_columns(works=every["rows"], dur_ns=every["sum"]).drop_nulls("group")
    table = table.with_columns(
        *(_weighted_mean(kinds, c, keys.height) for c in means), _on_tensor_cores(trace, kinds, keys.height)
    )
    table = table.filter(pl.col("calls") > 0).select(*columns, *_METRICS, *means, "tensor_cores")
    return as_text(table).sort(
        ["total_ns", *columns], descending=[True, *(False for _ in columns)], nulls_last=True
    )


def _divided(trace: Trace, known: Classes, columns: list[str]) -> Classes:
    """The classes ``known``, divided further by those of ``columns`` that they may disagree in."""
    more = [c for c in columns if c not in known.keys.columns]
    if not more:
        return known
    linked = [c for c in more if c not in trace.gpu_ops.columns]
    rows = trace.gpu_ops.select(known.of.alias("class"), *(c for c in more if c not in linked))
    if linked:
        replayed = with_replayed_ops(trace)
        rows = rows.hstack(gather_rows(replayed.gpu_ops["op_row"], replayed.ops, *linked))
    of, keys = classes_of(rows)
    return Classes(of, known.keys.select(pl.all().gather(keys["class"])).hstack(keys.drop("class")))


def _weighted_mean(kinds: pl.DataFrame, column: str, count: int) -> pl.Series:
    """The mean of a column over the launches of each group, weighted by their time where they take any.

    Columns: of ``kinds``, needs ``column``, ``group``, ``works`` and ``dur_ns``.
    """
    known = kinds.filter(pl.col(column).is_not_null())
    takes_time = pl.col("dur_ns").sum().over("group") > 0
    weight = known.select(pl.when(takes_time).then("dur_ns").otherwise("works")).to_series()
    return weighted_means(known["group"], weight, known[column], count).alias(column)


def _on_tensor_cores(trace: Trace, kinds: pl.DataFrame, count: int) -> pl.Series:
    """Whether some kernel of each group runs on tensor cores, which its name and its GPU decide.

    Columns: of ``kinds``, needs ``name``, ``device`` and ``group``.
    """
    flags = kernel_flags(kinds, trace.devices).group_by("group")
    flags = flags.agg(pl.col("tensor_cores").any(ignore_nulls=False))
    unknown = pl.repeat(None, count, dtype=pl.Boolean, eager=True)
    return unknown.scatter(flags["group"], flags["tensor_cores"]).alias("tensor_cores")


def kernels_by_launch(trace: Trace) -> pl.DataFrame:
    """Kernels by name, operator and launch size, with the resource that limits occupancy.

    Columns: ``name``, ``op`` (that launched it; null if unknown), ``grid``, ``block``, ``registers`` (of a
        thread), ``shared_memory_bytes`` (of a block), ``device``; ``calls``, ``total_ns``, ``mean_ns``,
        ``median_ns``, ``min_ns``, ``max_ns``, ``std_ns``, ``blocks_per_sm``, ``occupancy_pct`` (achieved,
        estimated) and ``tensor_cores``, all as in :func:`kernelscope.analysis.kernel_table`;
        ``op_tc_eligible`` (whether the operator can run on tensor cores, regardless of operators inside it;
        null without an operator); ``resident_blocks``, ``theoretical_occupancy_pct``, ``waves``, ``tail_pct``
        and ``limited_by`` (grid, registers, shared memory, blocks, threads, or nothing; see
        ``launch_limits``).
    Units: ns; bytes; percent.
    Order: by total time, longest first.
    Source: the kernel view of the TensorBoard plugin, grouped by kernel properties and operator.
    """
    table = kernel_table(trace, by=_BY)
    distinct = table.select("device", *_SIZES).unique()
    limits = launch_limits(distinct, trace.devices)
    # Tensor cores can run what they run.
    runs = pl.col("tensor_cores").fill_null(value=False).any().over("op")
    eligible = pl.when(pl.col("op").is_not_null()).then(pl.col("op").is_in(list(ELIGIBLE_OPS)) | runs)
    known = table.join(limits, on=distinct.columns, how="left", nulls_equal=True, maintain_order="left")
    return known.with_columns(op_tc_eligible=eligible)
