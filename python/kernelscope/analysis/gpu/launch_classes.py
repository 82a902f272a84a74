"""Divides GPU work by what it was launched as, and by whom."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.classes import Classes, classes_of
from kernelscope.analysis.kernels.occupancy import IS_KERNEL, LAUNCH_COLUMNS, launch_metrics

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_OWN = ("kind", "name", "is_communication", "device", *LAUNCH_COLUMNS)


def launch_classes(trace: "Trace", callers: pl.Series) -> Classes:
    """The classes of the rows of ``gpu_ops`` that agree in all of the columns below.

    ``callers`` has the position in ``ops`` of the operator that launched each, or null.

    Columns: of ``keys``, ``kind``, ``name``, ``is_communication``, ``device`` and ``LAUNCH_COLUMNS`` as in
        ``gpu_ops``, those of kernels completed, with ``launch_metrics``, as ``occupancy.launch_metrics``
        does; ``op`` and ``op_category`` (of the operator that launched it) and ``is_linked`` (one is known).
    """
    told = trace.ops.select(op="name", op_category="category")[callers]
    told = told.with_columns(is_linked=callers.is_not_null())
    of, keys = classes_of(trace.gpu_ops.select(*_OWN).hstack(told))
    return Classes(of, launch_metrics(keys, trace.devices, only=IS_KERNEL))
