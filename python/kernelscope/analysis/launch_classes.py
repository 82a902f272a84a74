"""Divides GPU work by what it was launched as, and by whom."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.classes import Classes, classes_of
from kernelscope.analysis.occupancy import IS_KERNEL, LAUNCH_COLUMNS, launch_metrics
from kernelscope.analysis.row_lookup import positions

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_OWN = ("kind", "name", "device", *LAUNCH_COLUMNS)


def launch_classes(trace: "Trace") -> Classes:
    """The classes of the rows of ``gpu_ops`` that agree in all of the columns below.

    Columns: of ``keys``, ``kind``, ``name``, ``device`` and ``LAUNCH_COLUMNS`` as in ``gpu_ops``, those of
        kernels completed, with ``launch_metrics``, as ``occupancy.launch_metrics`` does;
        ``op`` and ``op_category`` (of the operator that launched it) and ``is_linked`` (one is known).
    """
    ops = classes_of(trace.ops.select("name", "category"))
    caller = ops.of.gather(positions(trace.ops["row"], trace.gpu_ops["op_row"])).alias("caller")
    of, keys = classes_of(trace.gpu_ops.select(*_OWN, caller))
    named = ops.keys.select(pl.col("name", "category").gather(keys["caller"]))
    keys = launch_metrics(keys, trace.devices, only=IS_KERNEL)
    keys = keys.with_columns(
        named["name"].alias("op"),
        named["category"].alias("op_category"),
        is_linked=pl.col("caller").is_not_null(),
    )
    return Classes(of, keys.drop("caller"))
