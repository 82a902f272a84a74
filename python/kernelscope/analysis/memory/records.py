"""The records of an allocator: on which device, and in which operator each was made."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.innermost import innermost
from kernelscope.analysis.memory.allocations import DEVICE_TYPES, HOST_TYPES
from kernelscope.analysis.ops import operator_flags

if TYPE_CHECKING:
    from kernelscope.trace import Trace

OUT_OF_MEMORY = "[OutOfMemory]"
"""The name of a record that is no allocation, but the failure of one."""


def device_label() -> pl.Expr:
    """Where memory lies, as text: ``CPU``, ``GPU0`` ..., another kind by its number, or null if unknown."""
    kind, index = pl.col("device_type"), pl.col("device_id")
    number = pl.when(index >= 0).then(index.cast(pl.String)).otherwise(pl.lit(""))
    return (
        pl.when(kind.is_in(HOST_TYPES))
        .then(pl.lit("CPU"))
        # Databases of nsys have device memory only, and do not say so.
        .when(kind.is_in(DEVICE_TYPES) | (kind.is_null() & index.is_not_null()))
        .then(pl.lit("GPU") + number)
        .when(kind.is_not_null())
        .then(pl.lit("device type ") + kind.cast(pl.String))
    )


def allocator_records(trace: "Trace") -> pl.DataFrame:
    """Allocations and frees in order of time, records of failures left out.

    Columns: those of the table ``memory``; ``device`` (see :func:`device_label`) and ``order``, the number
        of the record.
    """
    failed = (trace.memory["name"].cast(pl.String) == OUT_OF_MEMORY).fill_null(value=False)
    return (
        trace.memory.filter(~failed & trace.memory["bytes"].is_not_null())
        .sort("start_ns", "row")
        .with_columns(device_label().alias("device"))
        .with_row_index("order")
    )


def with_operators(records: pl.DataFrame, trace: "Trace") -> pl.DataFrame:
    """Adds ``op_row``: the innermost operator that ran on the record's thread then; null for none.

    An operator runs from its start until just before its end. Annotations are not operators.

    Columns: of ``records``, needs ``row``, ``track`` and ``start_ns``.
    Source: the memory view of the TensorBoard plugin.
    """
    flags = operator_flags(trace.ops.select("row", "name", "category"))["is_operator"]
    moments = records.select("track", "start_ns", dur_ns=pl.lit(0, pl.Int64))
    found = innermost(moments, trace.ops, counts=flags)
    return records.with_columns(found.alias("op_row"))
