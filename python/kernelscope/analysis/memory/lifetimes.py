"""How long each allocation lived, and which operator made it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import polars as pl

from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.analysis.memory.records import AllocatorRecords, with_operators
from kernelscope.analysis.row_lookup import positions

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


def memory_allocations(
    trace: "Trace", *, pairing: Pairing = "device", records: AllocatorRecords | None = None
) -> pl.DataFrame:
    """Every allocation with its free, and what was freed without being seen allocated.

    An allocation is matched with the next record of its address, if that is a free. ``pairing`` says which
    addresses are the same: those of one device (``device``), or equal ones anywhere (``address``, as the
    TensorBoard plugin does). Records without an address are left out. ``records`` are those of the trace, if
    they are at hand.

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
    known = records or AllocatorRecords(trace)
    partner = known.partner if pairing == "device" else known.partner_by(pl.lit(0, pl.UInt32))
    return _described(paired_records(known, partner), trace, known).select(_COLUMNS)


def memory_peak(
    trace: "Trace", by: str | Sequence[str] = ("op",), *, records: AllocatorRecords | None = None
) -> pl.DataFrame:
    """Who held the memory of each device when most of it was allocated.

    ``by`` takes any of ``op``, ``parent_op``, ``module``, ``phase`` and ``step``. ``records`` are those of
    the trace, if they are at hand.

    Columns: ``device``, those of ``by``, ``bytes``, ``share`` (of all that was allocated then),
        ``allocations``, and ``is_older`` (true for the row of what was allocated before the recording, whose
        ``allocations`` are null; its bytes are the rest of what the allocator counts). Empty where addresses
        were not recorded.
    Units: bytes; shares between 0 and 1.
    Order: by device, most bytes first.
    Raises: InvalidArgumentError: ``by`` names another column.
    """
    columns = check_by(by, _HOLDERS)
    found = records or AllocatorRecords(trace)
    paired = paired_records(found, found.partner)
    total = pl.col("total_allocated_bytes")
    peaks = (
        found.frame.select("device", total, _at=pl.int_range(pl.len(), dtype=pl.UInt32))
        .filter(total.is_not_null() & pl.col("device").is_not_null())
        .group_by("device")
        .agg(_total=total.max(), _peak=pl.col("_at").get(total.arg_max()))
    )
    orders = paired.select("device", "alloc_order", "free_order")
    at_peak = orders.join(peaks, on="device", how="left", maintain_order="left").select(
        (pl.col("alloc_order") <= pl.col("_peak"))
        & (pl.col("free_order").is_null() | (pl.col("free_order") > pl.col("_peak")))
    )
    alive = paired.filter(at_peak.to_series()).join(peaks, on="device", maintain_order="left")
    # Looked up for what was alive alone: it is little of everything that ever was.
    alive = _described(alive, trace, found)
    paired_devices = paired["device"].unique().drop_nulls().cast(pl.String)
    peaks = peaks.with_columns(pl.col("device").cast(pl.String))
    keys = ["device", *columns]
    held = alive.group_by(keys).agg(
        pl.col("bytes").sum(), pl.len().cast(pl.Int64).alias("allocations"), pl.col("_total").first()
    )
    known = alive.group_by("device").agg(pl.col("bytes").sum())
    older = (
        peaks.filter(pl.col("device").is_in(paired_devices.implode()))
        .join(known, on="device", how="left")
        .select(
            "device",
            "_total",
            bytes=pl.col("_total") - pl.col("bytes").fill_null(0),
            is_older=pl.lit(value=True),
        )
    )
    rows = pl.concat(
        [held.with_columns(is_older=pl.lit(value=False)), older.filter(pl.col("bytes") > 0)], how="diagonal"
    )
    share = pl.when(pl.col("_total") > 0).then(pl.col("bytes") / pl.col("_total"))
    return rows.select(*keys, "bytes", share.alias("share"), "allocations", "is_older").sort(
        "device", "bytes", *columns, descending=[False, True, *(False for _ in columns)], nulls_last=True
    )


def paired_records(records: AllocatorRecords, partner: pl.Series) -> pl.DataFrame:
    """Allocations with their frees, and frees without, before anything is looked up about them.

    ``partner`` are the places of frees and allocations, as ``records`` gives them.

    Columns: ``device``, ``address``, ``bytes``, ``state``; ``row``, ``track``, ``start_ns`` and ``step`` of
        the allocation, or of the free where there is none; ``alloc_ns``, ``alloc_row``, ``alloc_order``,
        ``free_ns``, ``free_row``, ``free_order``, where the order is the place among the records.
    """
    frame = records.frame
    needed = frame.select("track", "device", "address", "step", "bytes", "row", "start_ns")
    loose, freed = pl.col("bytes") < 0, pl.col("partner").is_not_null()
    found = needed.with_columns(
        partner.alias("partner"), order=pl.int_range(pl.len(), dtype=pl.UInt32)
    ).filter(pl.col("address").is_not_null() & ((pl.col("bytes") > 0) | (loose & ~freed)))
    end = found["partner"]
    return found.with_columns(
        alloc_ns=pl.when(~loose).then("start_ns"),
        alloc_row=pl.when(~loose).then("row"),
        alloc_order=pl.when(~loose).then("order"),
        free_ns=pl.when(loose).then("start_ns").otherwise(frame["start_ns"].gather(end)),
        free_row=pl.when(loose).then("row").otherwise(frame["row"].gather(end)),
        free_order=pl.when(loose).then("order").otherwise("partner"),
        state=pl.when(loose)
        .then(pl.lit("older"))
        .when(freed)
        .then(pl.lit("freed"))
        .otherwise(pl.lit("open")),
    ).with_columns(pl.col("bytes").abs())


def _described(lifetimes: pl.DataFrame, trace: "Trace", records: AllocatorRecords) -> pl.DataFrame:
    """Adds what is known of the operators that made the allocations; nothing is of older ones."""
    ops = trace.ops
    made = pl.col("state") != "older"
    placed = with_operators(lifetimes, trace, records.operators).with_columns(
        pl.when(made).then("op_row"),
        pl.when(made).then("step"),
        pl.col("device").cast(pl.String),
        lifetime_ns=pl.col("free_ns") - pl.col("alloc_ns"),
    )
    at = positions(ops["row"], placed["op_row"])
    around = positions(ops["row"], ops["parent_row"].gather(at))
    return as_text(
        placed.with_columns(
            ops["name"].gather(at).alias("op"),
            ops["module"].gather(at),
            ops["phase"].gather(at),
            ops["name"].gather(around).alias("parent_op"),
        )
    )
