"""Allocations of operators, lifetimes of allocations, and owners of the memory peak."""

from collections.abc import Sequence
from typing import Literal

import polars as pl

from kernelscope.analysis.call_tree import CallTree
from kernelscope.analysis.grouping import Classes, as_text, check_by, positions
from kernelscope.analysis.memory.records import AllocatorRecords, owners_of
from kernelscope.analysis.ops.table import operator_classes
from kernelscope.trace import Trace

Pairing = Literal["device", "address"]
"""Keys that match a free with its allocation."""

_COLUMNS = (
    "device", "address", "bytes", "alloc_ns", "free_ns", "lifetime_ns", "state", "op", "parent_op", "module",
    "phase", "step", "alloc_row", "free_row", "op_row",
)  # fmt: skip
_HOLDERS = ("op", "parent_op", "module", "phase", "step")
_FIGURES = ("increase_bytes", "allocations", "allocated_bytes")
_SUMS = tuple(name for figure in _FIGURES for name in (figure, f"self_{figure}"))


def memory_table(trace: Trace, *, start_ns: int | None = None, end_ns: int | None = None) -> pl.DataFrame:
    """Allocations of operators on each device, summed over the calls of one name.

    ``start_ns`` and ``end_ns`` restrict the records to a time range.

    Columns: ``device`` (``CPU``, ``GPU0`` ...), ``name``, ``calls``, ``increase_bytes`` (allocated minus
        freed by its thread during the calls), ``self_increase_bytes`` (excluding operators inside),
        ``allocations``, ``self_allocations``, ``allocated_bytes`` (regardless of frees) and
        ``self_allocated_bytes``. Operators without records on a device have no row there.
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


def memory_allocations(trace: Trace, *, pairing: Pairing = "device") -> pl.DataFrame:
    """Allocations with their frees, and frees whose allocation was not recorded.

    An allocation is matched with the next record of its address, if that is a free. ``pairing`` defines equal
    addresses: on the same device (``device``), or anywhere (``address``, as in the TensorBoard plugin).
    Records without an address are left out.

    Columns: ``device`` (``CPU``, ``GPU0`` ...), ``address``, ``bytes``, ``alloc_ns`` (null if allocated
        before the recording), ``free_ns`` (null if not freed), ``lifetime_ns``, ``state`` (freed; open: not
        freed in the recording; older: allocated before it), ``op``, ``parent_op`` (the enclosing operator),
        ``module``, ``phase`` and ``step`` of the allocation, ``alloc_row``, ``free_row`` and ``op_row``.
    Units: ns; bytes. Order: of the allocations, or of the frees for older ones.
    Source: the memory view of the TensorBoard plugin.
    Example: ``memory_allocations(trace).filter(state="open").sort("bytes", descending=True)``
    """
    known = AllocatorRecords(trace)
    partners = known.partners(anywhere=pairing == "address")
    found = _with_holders(_paired(known, partners), trace, known)
    made = pl.col("state") != "older"
    return found.with_columns(
        pl.when(made).then(pl.col("op_row", *_HOLDERS)), lifetime_ns=pl.col("free_ns") - pl.col("alloc_ns")
    ).select(_COLUMNS)


def memory_peak(trace: Trace, by: str | Sequence[str] = ("op",)) -> pl.DataFrame:
    """Owners of the memory of each device at the allocation peak.

    ``by`` accepts ``op``, ``parent_op``, ``module``, ``phase`` and ``step``.

    Columns: ``device``, the columns of ``by``, ``bytes``, ``share`` (of all memory allocated then),
        ``allocations``, and ``is_older`` (true for the row of memory allocated before the recording, whose
        ``allocations`` are null; its bytes are the rest of the allocator's total). Empty if addresses were
        not recorded.
    Units: bytes; shares between 0 and 1. Order: by device, largest bytes first.
    Raises: InvalidArgumentError: ``by`` contains another column.
    """
    columns = check_by(by, _HOLDERS)
    known = AllocatorRecords(trace)
    alive = known.frame[known.alive()]
    alive = _with_holders(alive.with_columns(owners_of(alive, trace.ops)), trace, known)
    alive = alive.filter(pl.col("device").is_not_null())
    keys = ["device", *columns]
    held = alive.group_by(keys).agg(pl.col("bytes").sum(), pl.len().cast(pl.Int64).alias("allocations"))
    of_device = alive.group_by("device").agg(pl.col("bytes").sum().alias("_held"))
    devices = pl.Series("device", known.devices, dtype=pl.String)
    peaks = known.courses.select(devices, "has_addresses", _total="recorded_peak_bytes")
    older = (
        peaks.filter(pl.col("has_addresses") & pl.col("device").is_not_null())
        .join(of_device, on="device", how="left")
        .select("device", bytes=pl.col("_total") - pl.col("_held").fill_null(0), is_older=pl.lit(value=True))
    )
    rows = pl.concat(
        [held.with_columns(is_older=pl.lit(value=False)), older.filter(pl.col("bytes") > 0)], how="diagonal"
    ).join(peaks.drop_nulls(), on="device", how="left")
    share = pl.when(pl.col("_total") > 0).then(pl.col("bytes") / pl.col("_total"))
    return rows.select(*keys, "bytes", share.alias("share"), "allocations", "is_older").sort(
        "device", "bytes", *columns, descending=[False, True, *(False for _ in columns)], nulls_last=True
    )


def _paired(records: AllocatorRecords, partner: pl.Series) -> pl.DataFrame:
    """Allocations with their frees, and frees without, before anything is looked up about them.

    ``partner`` are the places of frees and allocations, as ``records`` gives them.

    Columns: ``device``, ``address``, ``bytes``, ``state``; ``row``, ``start_ns``, ``step`` and ``op_row`` of
        the allocation, or of the free where there is none; ``alloc_ns``, ``alloc_row``, ``free_ns``,
        ``free_row``.
    """
    frame = records.frame
    needed = frame.select("device", "address", "step", "bytes", "row", "start_ns", records.owners)
    loose, freed = pl.col("bytes") < 0, pl.col("partner").is_not_null()
    found = needed.with_columns(partner).filter(
        pl.col("address").is_not_null() & ((pl.col("bytes") > 0) | (loose & ~freed))
    )
    end = found["partner"]
    return found.with_columns(
        alloc_ns=pl.when(~loose).then("start_ns"),
        alloc_row=pl.when(~loose).then("row"),
        free_ns=pl.when(loose).then("start_ns").otherwise(frame["start_ns"].gather(end)),
        free_row=pl.when(loose).then("row").otherwise(frame["row"].gather(end)),
        state=pl.when(loose)
        .then(pl.lit("older"))
        .when(freed)
        .then(pl.lit("freed"))
        .otherwise(pl.lit("open")),
    ).with_columns(pl.col("bytes").abs())


def _with_holders(allocations: pl.DataFrame, trace: Trace, records: AllocatorRecords) -> pl.DataFrame:
    """Adds what is known of the operators ``op_row`` that made allocations, and the name of the device."""
    ops = trace.ops
    at = positions(ops["row"], allocations["op_row"])
    around = positions(ops["row"], ops["parent_row"].gather(at))
    return as_text(
        allocations.with_columns(
            records.device_names(allocations["device"]),
            ops["name"].gather(at).alias("op"),
            ops["module"].gather(at),
            ops["phase"].gather(at),
            ops["name"].gather(around).alias("parent_op"),
        )
    )
