"""What each operator allocated."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.memory.records import AllocatorRecords, with_operators
from kernelscope.analysis.ops import operator_flags
from kernelscope.analysis.tree import collapse_repeats

if TYPE_CHECKING:
    from kernelscope.trace import Trace

# Operators nest a dozen deep; a wrapper further up than this does not count the records.
_MOST_LEVELS = 1_000
_FIGURES = ("increase_bytes", "allocations", "allocated_bytes")


def memory_table(trace: "Trace", *, start_ns: int | None = None, end_ns: int | None = None) -> pl.DataFrame:
    """What operators allocated on each device, summed over the calls of one name.

    ``start_ns`` and ``end_ns`` take only the records from that time on, and until it.

    Columns: ``device`` (``CPU``, ``GPU0`` ...), ``name``, ``calls``, ``increase_bytes`` (allocated less freed
        during the calls, by the thread that made them), ``self_increase_bytes`` (less what operators inside
        did), ``allocations``, ``self_allocations``, ``allocated_bytes`` (without regard to frees) and
        ``self_allocated_bytes``. Operators that did nothing on a device have no row there.
    Units: bytes.
    Order: by device, then by own increase, largest first.
    Source: the memory view of the TensorBoard plugin.
    """
    records = AllocatorRecords(trace).frame.select("row", "track", "start_ns", "bytes", "device")
    if start_ns is not None:
        records = records.filter(pl.col("start_ns") >= start_ns)
    if end_ns is not None:
        records = records.filter(pl.col("start_ns") <= end_ns)
    ops = trace.ops.select("row", "parent_row", "name", "category")
    kept = collapse_repeats(ops)
    placed = with_operators(records, trace).join(kept, left_on="op_row", right_on="row", how="inner")
    level = placed.group_by("device", row="kept").agg(
        pl.col("bytes").sum().alias(_FIGURES[0]),
        (pl.col("bytes") > 0).sum().cast(pl.Int64).alias(_FIGURES[1]),
        pl.col("bytes").filter(pl.col("bytes") > 0).sum().alias(_FIGURES[2]),
    )
    calls = _remaining(ops, kept)
    sums = _with_calls_around(level, calls).join(
        calls.filter("is_operator").select("row", "name"), on="row", how="inner"
    )
    figures = [name for figure in _FIGURES for name in (figure, f"self_{figure}")]
    table = sums.group_by("device", "name").agg(pl.col(figures).sum())
    counts = calls.filter("is_operator").group_by("name").agg(pl.len().cast(pl.Int64).alias("calls"))
    used = table.filter(pl.any_horizontal(pl.col(figures) != 0))
    used = used.join(counts, on="name", how="left", nulls_equal=True)
    return (
        as_text(used.with_columns(pl.col("device").cast(pl.String)))
        .select("device", "name", "calls", *figures)
        .sort("device", "self_increase_bytes", "name", descending=[False, True, False], nulls_last=True)
    )


def _with_calls_around(level: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """What each call did itself, and as ``self_`` nothing of it for each call around that one."""
    parents = calls.select("row", _parent="parent_row")
    own = level.with_columns(pl.col(_FIGURES).name.prefix("self_"))
    levels = [own]
    while level.height and len(levels) < _MOST_LEVELS:
        climbed = level.join(parents, on="row", how="inner").filter(pl.col("_parent").is_not_null())
        level = climbed.group_by("device", row="_parent").agg(pl.col(_FIGURES).sum())
        levels.append(level.with_columns(pl.lit(0, pl.Int64).alias(f"self_{name}") for name in _FIGURES))
    return pl.concat(levels)


def _remaining(ops: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """The calls that stand for themselves, their parents among them."""
    parents = kept.rename({"row": "parent_row", "kept": "_parent"})
    remaining = ops.join(kept.filter(pl.col("row") == pl.col("kept")).select("row"), on="row", how="semi")
    remaining = remaining.join(parents, on="parent_row", how="left", maintain_order="left")
    return operator_flags(remaining.with_columns(parent_row="_parent").drop("_parent"))
