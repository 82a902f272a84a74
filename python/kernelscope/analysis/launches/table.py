"""Kernels by what they were launched with, and what keeps each from filling the GPU."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.kernels.occupancy import launch_limits
from kernelscope.analysis.kernels.table import kernel_table
from kernelscope.analysis.kernels.tensor_cores import ELIGIBLE_OPS

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_SIZES = ("grid", "block", "registers", "shared_memory_bytes")
_BY = ("name", "op", *_SIZES, "device")


def kernels_by_launch(trace: "Trace") -> pl.DataFrame:
    """Kernels by name, operator and launch size, with what keeps each from filling the GPU.

    Columns: ``name``, ``op`` (that launched it; null if unknown), ``grid``, ``block``, ``registers`` (of a
        thread), ``shared_memory_bytes`` (of a block), ``device``; ``calls``, ``total_ns``, ``mean_ns``,
        ``median_ns``, ``min_ns``, ``max_ns``, ``std_ns``, ``blocks_per_sm``, ``occupancy_pct`` (achieved,
        estimated) and ``tensor_cores``, all as in :func:`kernelscope.analysis.kernel_table`;
        ``op_tc_eligible`` (whether tensor cores can run the operator, without regard to those inside it;
        null without one); ``resident_blocks``, ``theoretical_occupancy_pct``, ``waves``, ``tail_pct`` and
        ``limited_by`` (grid, registers, shared memory, blocks, threads, or nothing: see ``launch_limits``).
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
