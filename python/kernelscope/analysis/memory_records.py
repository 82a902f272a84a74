"""The records of an allocator: on which device, and in which operator each was made."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.allocations import DEVICE_TYPES, HOST_TYPES
from kernelscope.analysis.calls import Places
from kernelscope.analysis.ops import operator_flags
from kernelscope.analysis.tree import nest

if TYPE_CHECKING:
    from kernelscope.trace import Trace

# Operators nest a dozen deep; how far up one looks for one that still runs.
_MOST_CLIMBS = 64
# What stands at place 0, which means "none": it never ends.
_NOBODY = pl.Series([0], dtype=pl.UInt32)
_NEVER = pl.Series([2**63 - 1], dtype=pl.Int64)

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
    if records.is_empty() or trace.ops.is_empty():
        return records.with_columns(op_row=pl.lit(None, pl.UInt32))
    places = Places(trace.ops["row"])
    found = _last_started(records, trace.ops, places)
    ends = pl.concat([_NEVER, trace.ops["start_ns"] + trace.ops["dur_ns"].fill_null(0)])
    flags = operator_flags(trace.ops.select("row", "name", "category"))["is_operator"]
    counts = pl.concat([pl.Series([True]), flags])
    parents = pl.concat([_NOBODY, places.of(trace.ops["parent_row"])])
    for _ in range(_MOST_CLIMBS):
        climbs = (ends.gather(found) <= records["start_ns"]) | ~counts.gather(found)
        if not climbs.any():
            rows = pl.concat([pl.Series([None], dtype=pl.UInt32), trace.ops["row"]])
            return records.with_columns(rows.gather(found).alias("op_row"))
        found = pl.select(pl.when(climbs).then(parents.gather(found)).otherwise(found)).to_series()
    return _with_nested(records, trace)


def _last_started(records: pl.DataFrame, ops: pl.DataFrame, places: Places) -> pl.Series:
    """The place of the operator that started last on each record's thread before it, or with it."""
    tracks = records["track"].unique()
    started = ops.select("row", "track", "start_ns", "dur_ns").filter(pl.col("track").is_in(tracks.implode()))
    # Of those that start together the innermost comes last.
    started = started.sort(
        "track", "start_ns", pl.col("dur_ns").fill_null(0), "row", descending=[False, False, True, False]
    )
    ordered = records.select("track", "start_ns", at=pl.int_range(pl.len())).sort("start_ns")
    joined = ordered.join_asof(
        started.select("track", "start_ns", op_row="row").sort("start_ns", maintain_order=True),
        on="start_ns",
        by="track",
        strategy="backward",
        check_sortedness=False,
    )
    return places.of(joined.sort("at")["op_row"])


def _with_nested(records: pl.DataFrame, trace: "Trace") -> pl.DataFrame:
    """The same by nesting everything, which takes longer, but not the longer the deeper operators nest."""
    ops = trace.ops.select("row", "name", "category", "track", "start_ns", "dur_ns")
    ops = operator_flags(ops.join(records.select("track").unique(), on="track", how="semi"))
    slices = [
        ops.filter("is_operator").select("row", "track", "start_ns", "dur_ns"),
        records.select("row", "track", "start_ns", dur_ns=pl.lit(0, pl.Int64)),
    ]
    around = nest(pl.concat(slices)).select("row", op_row="parent_row")
    return records.join(around, on="row", how="left", maintain_order="left")
