"""Allocated and reserved memory over time, and its summary."""

from typing import Any

import polars as pl

from kernelscope.analysis.memory.records import AllocatorRecords, device_label
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

_KEPT_PER_PART = 4
_TIMELINE: dict[str, pl.DataType] = {
    "device": pl.String(),
    "start_ns": pl.Int64(),
    "allocated_bytes": pl.Int64(),
    "reserved_bytes": pl.Int64(),
    "source": pl.String(),
    "row": pl.UInt32(),
}
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


def memory_timeline(trace: Trace, *, max_points: int | None = None) -> pl.DataFrame:
    """Allocated and reserved memory of each device, after each record of the allocator.

    ``max_points`` limits the rows of each device. Every part of the time keeps the first and last row and
    those with the minimum and maximum, so that no peak is lost.

    Columns: ``device`` (``CPU``, ``GPU0`` ...), ``start_ns``, ``allocated_bytes``, ``reserved_bytes`` (null
        if not recorded), ``source`` (recorded by the allocator; summed from 0 at the first record if not) and
        ``row`` of ``memory``.
    Units: ns; bytes.
    Order: by device, then by time.
    Raises: InvalidArgumentError: ``max_points`` is below 4.
    Source: the memory view of the TensorBoard plugin.
    """
    if max_points is not None and max_points < _KEPT_PER_PART:
        raise InvalidArgumentError(f"max_points must be at least {_KEPT_PER_PART}, not {max_points}")
    known = AllocatorRecords(trace)
    curves = [_curve(known, device, max_points) for device in range(len(known.devices))]
    return pl.concat(curves) if curves else pl.DataFrame(schema=_TIMELINE)


def _curve(records: AllocatorRecords, device: int, max_points: int | None) -> pl.DataFrame:
    """The memory of one device after each of its records, or some of them."""
    levels = records.curve(device, most=max_points)
    recorded = records.frame.select("start_ns", "row", reserved_bytes="total_reserved_bytes")[levels["at"]]
    source = _source(has_totals=records.courses["has_totals"][device])
    return recorded.select(
        pl.lit(records.devices[device], pl.String).alias("device"),
        "start_ns",
        levels["allocated_bytes"],
        "reserved_bytes",
        pl.lit(source).alias("source"),
        "row",
    )


def _source(*, has_totals: bool) -> str:
    return "recorded" if has_totals else "summed"


def memory_summary(trace: Trace) -> pl.DataFrame:
    """Memory of each device: the peak, unfreed allocations, and unused reserved memory.

    Columns: ``device`` (``CPU``, ``GPU0`` ...), ``capacity_bytes`` (of the GPU), ``allocations``, ``frees``,
        ``allocated_bytes`` (sum of all allocations), ``peak_bytes`` (maximum allocated at once),
        ``peak_share`` (of the capacity), ``peak_ns``, ``peak_step``, ``peak_row`` (of ``memory``),
        ``reserved_at_peak_bytes``, ``peak_reserved_bytes``, ``fragmentation_bytes`` (reserved but not
        allocated at the reservation peak), ``fragmentation_share`` (of the reserved bytes), ``start_bytes``
        and ``end_bytes`` (allocated before the first record, null if not recorded, and after the last),
        ``open_bytes`` and ``open_allocations`` (not freed in the recording), ``failures`` (out-of-memory
        events) and ``source`` (see :func:`memory_timeline`; peaks of summed curves count from 0). Reserved
        columns are null if not recorded, those of fragmentation also if allocated bytes are summed, open ones
        if addresses were not recorded.
    Units: ns; bytes; shares between 0 and 1.
    Order: by device.
    """
    known = AllocatorRecords(trace)
    counts = known.failed.group_by(device_label().alias("device")).agg(pl.len().cast(pl.Int64))
    failed, capacities = dict(counts.iter_rows()), _capacities(trace)
    rows: list[dict[str, Any]] = []
    for device, course in zip(known.devices, known.courses.iter_rows(named=True), strict=True):
        row: dict[str, Any] = {"device": device, "failures": 0}
        row |= {name: course[name] for name in ("allocations", "frees", "allocated_bytes")}
        if device is not None:
            row |= {**_course(known.frame, course), "failures": failed.get(device, 0)}
            row["capacity_bytes"] = capacities.get(device)
            if row["source"] == "recorded" and row["capacity_bytes"]:
                row["peak_share"] = row["peak_bytes"] / row["capacity_bytes"]
        rows.append(row)
    return pl.DataFrame(rows, schema=_SUMMARY).sort("device")


def _course(records: pl.DataFrame, course: dict[str, Any]) -> dict[str, Any]:
    """The peak of one device and the ends of its curve, what was reserved, and what it still held."""
    peak = records.row(course["peak_at"], named=True)
    found: dict[str, Any] = {
        "peak_bytes": course["peak_bytes"],
        "peak_ns": peak["start_ns"],
        "peak_step": peak["step"],
        "peak_row": peak["row"],
        "start_bytes": course["start_bytes"] if course["has_totals"] else None,
        "end_bytes": course["end_bytes"],
        "source": _source(has_totals=course["has_totals"]),
    }
    # Nothing is known of what was freed where addresses were not recorded.
    if course["has_addresses"]:
        found |= {name: course[name] for name in ("open_bytes", "open_allocations")}
    most, idle = course["peak_reserved_bytes"], course["fragmentation_bytes"]
    # The allocator of the host reserves nothing.
    if most is None or most <= 0:
        return found
    found |= {"reserved_at_peak_bytes": peak["total_reserved_bytes"], "peak_reserved_bytes": most}
    # A summed curve does not say what was allocated before it.
    if course["has_totals"]:
        found |= {"fragmentation_bytes": idle, "fragmentation_share": idle / most}
    return found


def _capacities(trace: Trace) -> dict[str, int | None]:
    known = trace.devices.unique("device", keep="first", maintain_order=True)
    return {
        f"GPU{device}": capacity
        for device, capacity in known.select("device", "total_memory_bytes").iter_rows()
        if device is not None
    }
