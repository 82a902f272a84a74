"""How much memory was allocated and reserved, and what became of it."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.memory.lifetimes import paired_records
from kernelscope.analysis.memory.records import OUT_OF_MEMORY, allocator_records, device_label
from kernelscope.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_KEPT_PER_PART = 4


def memory_timeline(trace: "Trace", *, max_points: int | None = None) -> pl.DataFrame:
    """How much memory was allocated and reserved on each device, after each record of the allocator.

    With ``max_points`` each device has at most so many rows: of every stretch of time the first and the last
    one and those where least and most is allocated, so that no peak is lost.

    Columns: ``device`` (``CPU``, ``GPU0`` ...), ``start_ns``, ``allocated_bytes``, ``reserved_bytes`` (null
        where not recorded), ``source`` (recorded: as the allocator said; summed: the sum of the records, from
        0 at the first of them, where it did not say) and ``row`` of ``memory``.
    Units: ns; bytes.
    Order: by device, then by time.
    Raises: InvalidArgumentError: ``max_points`` is below 4.
    Source: the memory view of the TensorBoard plugin.
    """
    if max_points is not None and max_points < _KEPT_PER_PART:
        raise InvalidArgumentError(f"max_points must be at least {_KEPT_PER_PART}, not {max_points}")
    records = allocator_records(trace)
    recorded = pl.col("total_allocated_bytes").is_not_null().all().over("device")
    curve = records.sort("device", "order").select(
        "device",
        "start_ns",
        pl.when(recorded)
        .then("total_allocated_bytes")
        .otherwise(pl.col("bytes").cum_sum().over("device"))
        .alias("allocated_bytes"),
        reserved_bytes="total_reserved_bytes",
        source=pl.when(recorded).then(pl.lit("recorded")).otherwise(pl.lit("summed")),
        row="row",
    )
    return curve if max_points is None else _thinned(curve, max_points)


def _thinned(curve: pl.DataFrame, max_points: int) -> pl.DataFrame:
    parts = max_points // _KEPT_PER_PART
    start, end = pl.col("start_ns").min().over("device"), pl.col("start_ns").max().over("device")
    part = (pl.col("start_ns") - start) * parts // (end - start + 1)
    numbered = curve.with_row_index("_at").with_columns(part.alias("_part"))
    at = pl.col("_at")
    kept = (
        numbered.group_by("device", "_part")
        .agg(
            at.first().alias("first"),
            at.last().alias("last"),
            at.get(pl.col("allocated_bytes").arg_min()).alias("least"),
            at.get(pl.col("allocated_bytes").arg_max()).alias("most"),
        )
        .unpivot(["first", "last", "least", "most"])
    )
    wanted = kept["value"].unique().sort()
    crowded = numbered.select(pl.len().over("device") > max_points).to_series()
    chosen = numbered["_at"].is_in(wanted.implode()) | ~crowded
    return curve.filter(chosen)


def memory_summary(trace: "Trace") -> pl.DataFrame:
    """What became of the memory of each device: the peak, what was never freed, what lay idle.

    Columns: ``device`` (``CPU``, ``GPU0`` ...), ``capacity_bytes`` (of the GPU), ``allocations``,
        ``frees``, ``allocated_bytes`` (of all allocations together), ``peak_bytes`` (most that was
        allocated at once), ``peak_share`` (of the capacity), ``peak_ns``, ``peak_step``, ``peak_row`` (of
        ``memory``), ``reserved_at_peak_bytes``, ``peak_reserved_bytes``, ``fragmentation_bytes`` (reserved
        but not allocated when most was reserved), ``fragmentation_share`` (of what was reserved),
        ``start_bytes`` and ``end_bytes`` (allocated before the first, null if not recorded, and after the
        last record), ``open_bytes`` and ``open_allocations`` (allocated in the recording and not freed in
        it), ``failures`` (that memory was out) and ``source`` (see :func:`memory_timeline`; peaks of summed
        curves count from 0). Reserved columns are null where it was not recorded, open ones where addresses
        were not.
    Units: ns; bytes; shares between 0 and 1.
    Order: by device.
    """
    curve = memory_timeline(trace)
    records = allocator_records(trace)
    table = _sums(records)
    for part in (
        _peaks(curve, records),
        _reserved(curve),
        _ends(curve, records),
        _open(trace),
        _failures(trace),
        _capacities(trace),
    ):
        table = table.join(part, on="device", how="left")
    return table.select(
        "device",
        "capacity_bytes",
        "allocations",
        "frees",
        "allocated_bytes",
        "peak_bytes",
        pl.when(pl.col("source") == "recorded")
        .then(pl.col("peak_bytes") / pl.col("capacity_bytes"))
        .alias("peak_share"),
        "peak_ns",
        "peak_step",
        "peak_row",
        pl.when(pl.col("peak_reserved_bytes").is_not_null()).then("reserved_at_peak_bytes"),
        "peak_reserved_bytes",
        "fragmentation_bytes",
        "fragmentation_share",
        pl.when(pl.col("source") == "recorded").then("start_bytes"),
        "end_bytes",
        "open_bytes",
        "open_allocations",
        pl.col("failures").fill_null(0),
        "source",
    ).sort("device")


def _peaks(curve: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    steps = records.select("row", "step")
    return (
        curve.sort("allocated_bytes", "start_ns", descending=[True, False], maintain_order=True)
        .unique("device", keep="first", maintain_order=True)
        .join(steps, on="row", how="left", maintain_order="left")
        .select(
            "device",
            "source",
            peak_bytes="allocated_bytes",
            peak_ns="start_ns",
            peak_step="step",
            peak_row="row",
            reserved_at_peak_bytes="reserved_bytes",
        )
    )


def _reserved(curve: pl.DataFrame) -> pl.DataFrame:
    return (
        curve.filter(pl.col("reserved_bytes").is_not_null())
        # The allocator of the host reserves nothing.
        .filter(pl.col("reserved_bytes").max().over("device") > 0)
        .with_columns(idle=pl.col("reserved_bytes") - pl.col("allocated_bytes"))
        .sort("reserved_bytes", "idle", descending=True)
        .unique("device", keep="first", maintain_order=True)
        .select(
            "device",
            peak_reserved_bytes="reserved_bytes",
            fragmentation_bytes="idle",
            fragmentation_share=pl.col("idle") / pl.col("reserved_bytes"),
        )
    )


def _sums(records: pl.DataFrame) -> pl.DataFrame:
    size = pl.col("bytes")
    return records.group_by("device").agg(
        (size > 0).sum().cast(pl.Int64).alias("allocations"),
        (size < 0).sum().cast(pl.Int64).alias("frees"),
        size.filter(size > 0).sum().alias("allocated_bytes"),
    )


def _ends(curve: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    changes = records.select("row", "bytes")
    return (
        curve.join(changes, on="row", how="left", maintain_order="left")
        .group_by("device", maintain_order=True)
        .agg(
            (pl.col("allocated_bytes").first() - pl.col("bytes").first()).alias("start_bytes"),
            pl.col("allocated_bytes").last().alias("end_bytes"),
        )
    )


def _open(trace: "Trace") -> pl.DataFrame:
    lived = paired_records(trace)
    is_open = pl.col("state") == "open"
    return lived.group_by("device").agg(
        pl.col("bytes").filter(is_open).sum().alias("open_bytes"),
        is_open.sum().cast(pl.Int64).alias("open_allocations"),
    )


def _failures(trace: "Trace") -> pl.DataFrame:
    failed = trace.memory.filter(pl.col("name").cast(pl.String) == OUT_OF_MEMORY)
    return failed.group_by(device_label().alias("device")).agg(pl.len().cast(pl.Int64).alias("failures"))


def _capacities(trace: "Trace") -> pl.DataFrame:
    known = trace.devices.unique("device", keep="first", maintain_order=True)
    return known.select(
        pl.lit("GPU") + pl.col("device").cast(pl.String), capacity_bytes="total_memory_bytes"
    ).rename({"literal": "device"})
