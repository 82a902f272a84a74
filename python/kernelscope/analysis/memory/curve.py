"""How much memory was allocated and reserved, and what became of it."""

from typing import TYPE_CHECKING, Any, cast

import polars as pl

from kernelscope.analysis.memory.records import AllocatorRecords, failures
from kernelscope.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_KEPT_PER_PART = 4
_SUMMARY: dict[str, pl.DataType] = {
    "device": pl.String(),
    "capacity_bytes": pl.Int64(),
    "allocations": pl.Int64(),
    "frees": pl.Int64(),
    "allocated_bytes": pl.Int64(),
    "peak_bytes": pl.Int64(),
    "peak_share": pl.Float64(),
    "peak_ns": pl.Int64(),
    "peak_step": pl.Int32(),
    "peak_row": pl.UInt32(),
    "reserved_at_peak_bytes": pl.Int64(),
    "peak_reserved_bytes": pl.Int64(),
    "fragmentation_bytes": pl.Int64(),
    "fragmentation_share": pl.Float64(),
    "start_bytes": pl.Int64(),
    "end_bytes": pl.Int64(),
    "open_bytes": pl.Int64(),
    "open_allocations": pl.Int64(),
    "failures": pl.Int64(),
    "source": pl.String(),
}


def memory_timeline(
    trace: "Trace", *, max_points: int | None = None, records: AllocatorRecords | None = None
) -> pl.DataFrame:
    """How much memory was allocated and reserved on each device, after each record of the allocator.

    With ``max_points`` each device has at most so many rows: of every stretch of time the first and the last
    one and those where least and most is allocated, so that no peak is lost. ``records`` are those of the
    trace, if they are at hand.

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
    known = records or AllocatorRecords(trace)
    curves: list[pl.DataFrame] = []
    for device in known.devices:
        curve = _curve(known.of_device(device))
        if max_points is not None and curve.height > max_points:
            curve = _thinned(curve, max_points)
        curves.append(curve.select(pl.lit(device, pl.String).alias("device"), pl.all()))
    nothing = _curve(known.frame).select(pl.lit("").alias("device"), pl.all()).clear()
    return pl.concat(curves) if curves else nothing


def _curve(records: pl.DataFrame) -> pl.DataFrame:
    """The memory of one device after each of its records."""
    is_recorded = records["total_allocated_bytes"].null_count() == 0
    total = pl.col("total_allocated_bytes") if is_recorded else pl.col("bytes").cum_sum()
    return records.select(
        "start_ns",
        allocated_bytes=total,
        reserved_bytes="total_reserved_bytes",
        source=pl.lit("recorded" if is_recorded else "summed"),
        row="row",
    )


def _thinned(curve: pl.DataFrame, max_points: int) -> pl.DataFrame:
    """The rows of a curve that are seen at that size."""
    parts = max_points // _KEPT_PER_PART
    start, end = pl.col("start_ns").min(), pl.col("start_ns").max()
    part = (pl.col("start_ns") - start) * parts // (end - start + 1)
    at = pl.col("_at")
    kept = (
        curve.select("allocated_bytes", _part=part.set_sorted(), _at=pl.int_range(pl.len(), dtype=pl.UInt32))
        .group_by("_part")
        .agg(
            at.first().alias("first"),
            at.last().alias("last"),
            at.get(pl.col("allocated_bytes").arg_min()).alias("least"),
            at.get(pl.col("allocated_bytes").arg_max()).alias("most"),
        )
        .unpivot(["first", "last", "least", "most"])
    )
    return curve[kept["value"].unique().sort()]


def memory_summary(trace: "Trace", *, records: AllocatorRecords | None = None) -> pl.DataFrame:
    """What became of the memory of each device: the peak, what was never freed, what lay idle.

    ``records`` are those of the trace, if they are at hand.

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
    known = records or AllocatorRecords(trace)
    failed, capacities = failures(trace), _capacities(trace)
    rows: list[dict[str, Any]] = []
    for device in known.devices:
        part = known.of_device(device)
        row: dict[str, Any] = {"device": device, **_sums(part), "failures": 0}
        if device is not None:
            row |= {**_course(part), **_open(known, device), "failures": failed.get(device, 0)}
            row["capacity_bytes"] = capacities.get(device)
            if row["source"] == "recorded" and row["capacity_bytes"]:
                row["peak_share"] = row["peak_bytes"] / row["capacity_bytes"]
        rows.append(row)
    return pl.DataFrame(rows, schema=_SUMMARY).sort("device")


def _sums(records: pl.DataFrame) -> dict[str, Any]:
    """Of the records of one device, how many allocate and free, and how much in all."""
    size = records["bytes"]
    is_allocation = size > 0
    return {
        "allocations": is_allocation.sum(),
        "frees": (size < 0).sum(),
        "allocated_bytes": size.filter(is_allocation).sum(),
    }


def _course(records: pl.DataFrame) -> dict[str, Any]:
    """The peak of one device and the ends of its curve, and what was reserved."""
    curve = _curve(records)
    allocated = curve["allocated_bytes"]
    # The first of several.
    at = (allocated == allocated.max()).arg_true()[0]
    peak = curve.row(at, named=True)
    is_recorded = peak["source"] == "recorded"
    first = allocated[0] - records["bytes"][0]
    found: dict[str, Any] = {
        "peak_bytes": peak["allocated_bytes"],
        "peak_ns": peak["start_ns"],
        "peak_step": records["step"][at],
        "peak_row": peak["row"],
        "start_bytes": first if is_recorded else None,
        "end_bytes": allocated[-1],
        "source": peak["source"],
    }
    reserved = curve["reserved_bytes"]
    most = reserved.max()
    # The allocator of the host reserves nothing.
    if not isinstance(most, int) or most <= 0:
        return found
    idle = cast(int, (reserved - allocated).filter(reserved == most).max())
    return found | {
        "reserved_at_peak_bytes": peak["reserved_bytes"],
        "peak_reserved_bytes": most,
        "fragmentation_bytes": idle,
        "fragmentation_share": idle / most,
    }


def _open(records: AllocatorRecords, device: str) -> dict[str, Any]:
    """What a device still held at the end; nothing is known where addresses were not recorded."""
    frame = records.frame.select("device", "address", "bytes", records.partner.alias("partner"))
    told = frame.filter(
        (pl.col("device") == device) & pl.col("address").is_not_null() & (pl.col("bytes") != 0)
    )
    if told.is_empty():
        return {}
    held = told.filter((pl.col("bytes") > 0) & pl.col("partner").is_null())["bytes"]
    return {"open_bytes": held.sum(), "open_allocations": held.len()}


def _capacities(trace: "Trace") -> dict[str, int | None]:
    known = trace.devices.unique("device", keep="first", maintain_order=True)
    return {
        f"GPU{device}": capacity
        for device, capacity in known.select("device", "total_memory_bytes").iter_rows()
        if device is not None
    }
