"""What each operator allocated."""

import polars as pl

from kernelscope.analysis.call_tree import CallTree
from kernelscope.analysis.grouping import Classes, as_text
from kernelscope.analysis.memory.records import AllocatorRecords
from kernelscope.analysis.ops.table import operator_classes
from kernelscope.trace import Trace

_FIGURES = ("increase_bytes", "allocations", "allocated_bytes")
_SUMS = tuple(name for figure in _FIGURES for name in (figure, f"self_{figure}"))


def memory_table(trace: Trace, *, start_ns: int | None = None, end_ns: int | None = None) -> pl.DataFrame:
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
    known = AllocatorRecords(trace)
    frame = known.frame.select("start_ns", "bytes", "device", known.owners)
    if start_ns is not None:
        frame = frame.filter(pl.col("start_ns") >= start_ns)
    if end_ns is not None:
        frame = frame.filter(pl.col("start_ns") <= end_ns)
    placed = frame.filter(pl.col("op_row").is_not_null())
    classes = operator_classes(trace.ops)
    tree = CallTree(trace.ops)
    tree.merge_repeats(trace.ops["name"])
    sums = [
        _summed(tree, classes, made).select(
            pl.lit(known.devices[device], pl.String).alias("device"), "name", "is_operator", "calls", *_SUMS
        )
        for (device,), made in placed.partition_by("device", as_dict=True).items()
    ]
    if not sums:
        nothing = {"device": pl.String, "name": pl.String, **dict.fromkeys(("calls", *_SUMS), pl.Int64)}
        return pl.DataFrame(schema=nothing)
    table = pl.concat(sums).filter("is_operator").drop("is_operator")
    table = table.group_by("device", "name").agg(pl.all().sum())
    return (
        as_text(table.filter(pl.any_horizontal(pl.col(_SUMS) != 0)))
        .select("device", "name", "calls", *_SUMS)
        .sort("device", "self_increase_bytes", "name", descending=[False, True, False], nulls_last=True)
    )


def _summed(tree: CallTree, classes: Classes, records: pl.DataFrame) -> pl.DataFrame:
    """What the calls of each class allocated with what is inside them, and as ``self_`` without it."""
    increase, allocations, allocated = _FIGURES
    own = {
        f"self_{increase}": pl.col("bytes"),
        f"self_{allocations}": pl.col("bytes") > 0,
        f"self_{allocated}": pl.col("bytes").clip(lower_bound=0),
    }
    own_tree = tree.copy_structure()
    own_tree.add(records.select(call="op_row", **own))
    for name in _FIGURES:
        own_tree.with_inner(f"self_{name}", into=name)
    return own_tree.class_sums(classes, _SUMS)
