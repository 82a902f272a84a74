"""How long each allocation lived, and which operator made it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import polars as pl

from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.analysis.memory.records import allocator_records, with_operators

if TYPE_CHECKING:
    from kernelscope.trace import Trace

Pairing = Literal["device", "address"]
"""By what a free is matched with its allocation."""

_COLUMNS = (
    "device",
    "address",
    "bytes",
    "alloc_ns",
    "free_ns",
    "lifetime_ns",
    "state",
    "op",
    "parent_op",
    "module",
    "phase",
    "step",
    "alloc_row",
    "free_row",
    "op_row",
)
_HOLDERS = ("op", "parent_op", "module", "phase", "step")


def memory_allocations(trace: "Trace", *, pairing: Pairing = "device") -> pl.DataFrame:
    """Every allocation with its free, and what was freed without being seen allocated.

    An allocation is matched with the next record of its address, if that is a free. ``pairing`` says which
    addresses are the same: those of one device (``device``), or equal ones anywhere (``address``, as the
    TensorBoard plugin does). Records without an address are left out.

    Columns: ``device`` (``CPU``, ``GPU0`` ...), ``address``, ``bytes``, ``alloc_ns`` (null where the
        allocation came before the recording), ``free_ns`` (null where it lived on), ``lifetime_ns``,
        ``state`` (freed; open: not freed in the recording; older: allocated before it), ``op``,
        ``parent_op`` (the operator around that one), ``module``, ``phase`` and ``step`` of the allocation,
        ``alloc_row``, ``free_row`` and ``op_row``.
    Units: ns; bytes.
    Order: of the allocations, or of the frees of older ones.
    Source: the memory view of the TensorBoard plugin.
    Example: ``memory_allocations(trace).filter(state="open").sort("bytes", descending=True)``
    """
    return _lifetimes(trace, pairing).select(_COLUMNS)


def memory_peak(trace: "Trace", by: str | Sequence[str] = ("op",)) -> pl.DataFrame:
    """Who held the memory of each device when most of it was allocated.

    ``by`` takes any of ``op``, ``parent_op``, ``module``, ``phase`` and ``step``.

    Columns: ``device``, those of ``by``, ``bytes``, ``share`` (of all that was allocated then),
        ``allocations``, and ``is_older`` (true for the row of what was allocated before the recording, whose
        ``allocations`` are null; its bytes are the rest of what the allocator counts). Empty where addresses
        were not recorded.
    Units: bytes; shares between 0 and 1.
    Order: by device, most bytes first.
    Raises: InvalidArgumentError: ``by`` names another column.
    """
    columns = check_by(by, _HOLDERS)
    records = allocator_records(trace).filter(pl.col("total_allocated_bytes").is_not_null())
    peaks = (
        records.sort("total_allocated_bytes", "order", descending=[True, False])
        .unique("device", keep="first", maintain_order=True)
        .select("device", _peak="order", _total="total_allocated_bytes")
    )
    lived = _lifetimes(trace, "device").join(peaks, on="device", how="inner")
    alive = lived.filter(
        (pl.col("alloc_order") <= pl.col("_peak"))
        & (pl.col("free_order").is_null() | (pl.col("free_order") > pl.col("_peak")))
    )
    keys = ["device", *columns]
    held = alive.group_by(keys).agg(
        pl.col("bytes").sum(), pl.len().cast(pl.Int64).alias("allocations"), pl.col("_total").first()
    )
    known = alive.group_by("device").agg(pl.col("bytes").sum())
    older = peaks.join(lived.select("device").unique(), on="device", how="semi")
    older = older.join(known, on="device", how="left").select(
        "device", "_total", bytes=pl.col("_total") - pl.col("bytes").fill_null(0), is_older=pl.lit(value=True)
    )
    rows = pl.concat(
        [held.with_columns(is_older=pl.lit(value=False)), older.filter(pl.col("bytes") > 0)], how="diagonal"
    )
    share = pl.when(pl.col("_total") > 0).then(pl.col("bytes") / pl.col("_total"))
    return rows.select(*keys, "bytes", share.alias("share"), "allocations", "is_older").sort(
        "device", "bytes", *columns, descending=[False, True, *(False for _ in columns)], nulls_last=True
    )


def _lifetimes(trace: "Trace", pairing: Pairing) -> pl.DataFrame:
    """The rows of :func:`memory_allocations`, with the numbers of their records."""
    return _described(paired_records(trace, pairing), trace)


def paired_records(trace: "Trace", pairing: Pairing = "device") -> pl.DataFrame:
    """Allocations with their frees, before anything is looked up about them.

    Columns: ``device``, ``address``, ``bytes``, ``state``; ``row``, ``track``, ``start_ns`` and ``step`` of
        the allocation, or of the free where there is none; ``alloc_ns``, ``alloc_row``, ``alloc_order``,
        ``free_ns``, ``free_row``, ``free_order`` (see ``allocator_records`` for the order).
    """
    keys = ["device", "address"] if pairing == "device" else ["address"]
    records = allocator_records(trace).filter(pl.col("address").is_not_null() & (pl.col("bytes") != 0))
    records = records.select("order", "row", "track", "device", "address", "bytes", "start_ns", "step").sort(
        *keys, "order"
    )
    same_before = pl.all_horizontal(pl.col(k).eq_missing(pl.col(k).shift(1)) for k in keys)
    same_next = pl.all_horizontal(pl.col(k).eq_missing(pl.col(k).shift(-1)) for k in keys)
    is_free = pl.col("bytes") < 0
    found = records.with_columns(
        _is_free=is_free,
        _freed=~is_free & same_next & (pl.col("bytes").shift(-1) < 0),
        _known=is_free & same_before & (pl.col("bytes").shift(1) > 0),
        _next_ns=pl.col("start_ns").shift(-1),
        _next_row=pl.col("row").shift(-1),
        _next_order=pl.col("order").shift(-1),
    ).filter(~pl.col("_known").fill_null(value=False))
    freed, loose = pl.col("_freed").fill_null(value=False), pl.col("_is_free")
    return found.select(
        "track",
        "device",
        "address",
        "step",
        pl.col("bytes").abs(),
        "row",
        "start_ns",
        alloc_ns=pl.when(~loose).then("start_ns"),
        alloc_row=pl.when(~loose).then("row"),
        alloc_order=pl.when(~loose).then("order"),
        free_ns=pl.when(loose).then("start_ns").when(freed).then("_next_ns"),
        free_row=pl.when(loose).then("row").when(freed).then("_next_row"),
        free_order=pl.when(loose).then("order").when(freed).then("_next_order"),
        state=pl.when(loose)
        .then(pl.lit("older"))
        .when(freed)
        .then(pl.lit("freed"))
        .otherwise(pl.lit("open")),
        _order="order",
    ).sort("_order")


def _described(lifetimes: pl.DataFrame, trace: "Trace") -> pl.DataFrame:
    """Adds what is known of the operators that made the allocations; nothing is of older ones."""
    placed = with_operators(lifetimes, trace).with_columns(
        pl.when(pl.col("state") != "older").then("op_row"), pl.when(pl.col("state") != "older").then("step")
    )
    ops = trace.ops.select(op_row="row", op="name", _around="parent_row", module="module", phase="phase")
    around = trace.ops.select(_around="row", parent_op="name")
    described = placed.join(ops, on="op_row", how="left", maintain_order="left").join(
        around, on="_around", how="left", maintain_order="left"
    )
    return as_text(described.with_columns(lifetime_ns=pl.col("free_ns") - pl.col("alloc_ns")))
