"""What each operator allocated."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.memory_records import allocator_records, with_operators
from kernelscope.analysis.ops import operator_flags
from kernelscope.analysis.tree import collapse_repeats, subtree_sums

if TYPE_CHECKING:
    from kernelscope.trace import Trace

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
    records = allocator_records(trace)
    if start_ns is not None:
        records = records.filter(pl.col("start_ns") >= start_ns)
    if end_ns is not None:
        records = records.filter(pl.col("start_ns") <= end_ns)
    ops = trace.ops.select("row", "parent_row", "name", "category")
    kept = collapse_repeats(ops)
    placed = with_operators(records, trace).join(kept, left_on="op_row", right_on="row", how="inner")
    devices = placed["device"].drop_nulls().unique().sort().to_list()
    own = placed.group_by("device", row="kept").agg(
        pl.col("bytes").sum().alias(_FIGURES[0]),
        (pl.col("bytes") > 0).sum().cast(pl.Int64).alias(_FIGURES[1]),
        pl.col("bytes").filter(pl.col("bytes") > 0).sum().alias(_FIGURES[2]),
    )
    calls = _remaining(ops, kept)
    tables = [_of_device(own.filter(pl.col("device") == device), calls, device) for device in devices]
    empty = _of_device(own.clear(), calls.clear(), "")
    return pl.concat([empty, *tables])


def _remaining(ops: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """The calls that stand for themselves, their parents among them."""
    parents = kept.rename({"row": "parent_row", "kept": "_parent"})
    remaining = ops.join(kept.filter(pl.col("row") == pl.col("kept")).select("row"), on="row", how="semi")
    remaining = remaining.join(parents, on="parent_row", how="left", maintain_order="left")
    return operator_flags(remaining.with_columns(parent_row="_parent").drop("_parent"))


def _of_device(own: pl.DataFrame, calls: pl.DataFrame, device: str) -> pl.DataFrame:
    joined = calls.join(own.drop("device"), on="row", how="left", maintain_order="left").with_columns(
        pl.col(_FIGURES).fill_null(0)
    )
    joined = joined.with_columns(pl.col(_FIGURES).name.prefix("self_"))
    totals = subtree_sums(joined, list(_FIGURES)).filter("is_operator")
    figures = [name for figure in _FIGURES for name in (figure, f"self_{figure}")]
    table = totals.group_by("name").agg(pl.len().cast(pl.Int64).alias("calls"), pl.col(figures).sum())
    used = table.filter(pl.any_horizontal(pl.col(figures) != 0))
    order = ["self_increase_bytes", "name"]
    return (
        as_text(used)
        .select(pl.lit(device).alias("device"), "name", "calls", *figures)
        .sort(order, descending=[True, False], nulls_last=True)
    )
