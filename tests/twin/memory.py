"""Who held memory, when and for what."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from slow_reader import Row
from twin.calls import Tree, running_at
from twin.figures import Figures, Rows, grouped, share
from twin.operators import PLACES


def device_of(record: Row) -> str | None:
    kind, index = record["device_type"], record["device_id"]
    if kind in PLACES["cpu"]:
        return "CPU"
    if kind in PLACES["device"] or (kind is None and index is not None):
        return f"GPU{index}" if index is not None and index >= 0 else "GPU"
    return None if kind is None else f"device type {kind}"


def records_of(rows: Rows) -> dict[str | None, list[Row]]:
    """The records that have bytes, in order of time, by device."""
    records = [r for r in rows["memory"] if r["name"] != "[OutOfMemory]" and r["bytes"] is not None]
    records.sort(key=lambda record: (record["start_ns"], record["row"]))
    return grouped(records, device_of)


def curve(records: list[Row]) -> list[tuple[Row, int]]:
    """What is allocated after each record of a device: as recorded with all of them, or summed."""
    totals = [record["total_allocated_bytes"] for record in records]
    held = 0
    found: list[tuple[Row, int]] = []
    for record, total in zip(records, totals, strict=True):
        held = held + record["bytes"] if None in totals else total
        found.append((record, held))
    return found


def memory_timeline(rows: Rows) -> Figures:
    return {
        record["row"]: {
            "device": device,
            "start_ns": record["start_ns"],
            "allocated_bytes": held,
            "reserved_bytes": record["total_reserved_bytes"],
        }
        for device, records in records_of(rows).items()
        for record, held in curve(records)
    }


def pairs(records: list[Row]) -> dict[int, Row]:
    """The free of each allocation by its row: the next record of the address, if that frees."""
    found: dict[int, Row] = {}
    last: dict[int, Row] = {}
    for record in records:
        address = record["address"]
        if address is None or record["bytes"] == 0:
            continue
        before = last.get(address)
        if record["bytes"] < 0 and before is not None and before["bytes"] > 0:
            found[before["row"]] = record
        last[address] = record
    return found


def memory_summary(rows: Rows) -> Figures:
    capacities = {f"GPU{device['device']}": device.get("total_memory_bytes") for device in rows["devices"]}
    failures = grouped((r for r in rows["memory"] if r["name"] == "[OutOfMemory]"), device_of)
    found: Figures = {}
    for device, records in records_of(rows).items():
        allocated = [record for record in records if record["bytes"] > 0]
        figures: dict[str, Any] = {
            "allocations": len(allocated),
            "frees": sum(record["bytes"] < 0 for record in records),
            "allocated_bytes": sum(record["bytes"] for record in allocated),
        }
        found[device] = figures
        if device is None:
            continue
        course = curve(records)
        peak = max(held for _, held in course)
        at = next(record for record, held in course if held == peak)
        recorded = all(record["total_allocated_bytes"] is not None for record in records)
        figures |= {
            "peak_bytes": peak,
            "peak_row": at["row"],
            "peak_ns": at["start_ns"],
            "start_bytes": course[0][1] - records[0]["bytes"] if recorded else None,
            "end_bytes": course[-1][1],
            "source": "recorded" if recorded else "summed",
            "failures": len(failures.get(device, ())),
            "capacity_bytes": capacities.get(device),
        }
        if recorded and capacities.get(device):
            figures["peak_share"] = share(peak, capacities[device])
        figures |= _open(records) | _reserved(course)
    return found


def _open(records: list[Row]) -> dict[str, Any]:
    if not any(record["address"] is not None and record["bytes"] for record in records):
        return {"open_bytes": None, "open_allocations": None}
    freed = pairs(records)
    left = [r for r in records if r["address"] is not None and r["bytes"] > 0 and r["row"] not in freed]
    return {"open_bytes": sum(record["bytes"] for record in left), "open_allocations": len(left)}


def _reserved(course: list[tuple[Row, int]]) -> dict[str, Any]:
    known = [
        (r["total_reserved_bytes"], r["total_reserved_bytes"] - held)
        for r, held in course
        if r["total_reserved_bytes"] is not None
    ]
    if not known or max(known)[0] <= 0:
        return {"peak_reserved_bytes": None, "fragmentation_bytes": None}
    most, idle = max(known)
    # How much of a summed curve was allocated before is not known.
    if any(r["total_allocated_bytes"] is None for r, _ in course):
        return {"peak_reserved_bytes": most, "fragmentation_bytes": None, "fragmentation_share": None}
    return {"peak_reserved_bytes": most, "fragmentation_bytes": idle, "fragmentation_share": idle / most}


def memory_allocations(rows: Rows) -> Figures:
    """By the row of the allocation, or of the free of what was allocated before."""
    owners = owners_of(rows)
    found: Figures = {}
    for device, records in records_of(rows).items():
        freed = pairs(records)
        taken = {free["row"] for free in freed.values()}
        for record in records:
            row, op = record["row"], owners.get(record["row"])
            if record["address"] is None or not record["bytes"]:
                continue
            figures = {"device": device, "bytes": abs(record["bytes"]), "address": record["address"]}
            if record["bytes"] > 0:
                free = freed.get(row)
                figures |= {
                    "alloc_ns": record["start_ns"],
                    "free_ns": None if free is None else free["start_ns"],
                    "lifetime_ns": None if free is None else free["start_ns"] - record["start_ns"],
                    "state": "open" if free is None else "freed",
                    "op": None if op is None else op["name"],
                    "op_row": None if op is None else op["row"],
                }
                found[row, None if free is None else free["row"]] = figures
            elif row not in taken:
                figures |= {"alloc_ns": None, "free_ns": record["start_ns"], "state": "older", "op": None}
                found[None, row] = figures
    return found


def owners_of(rows: Rows) -> dict[int, Row]:
    """The operator of its thread that started last and still runs at each record."""
    operators = [op for op in rows["ops"] if not op["is_annotation"]]
    return running_at(operators, rows["memory"])


def memory_peak(rows: Rows) -> Figures:
    owners = owners_of(rows)
    found: Figures = {}
    for device, records in records_of(rows).items():
        totals = [r["total_allocated_bytes"] for r in records if r["total_allocated_bytes"] is not None]
        if device is None or not totals or not any(r["address"] is not None and r["bytes"] for r in records):
            continue
        peak = max(totals)
        until = next(n for n, r in enumerate(records) if r["total_allocated_bytes"] == peak)
        freed = pairs(records)
        until_then = {record["row"] for record in records[: until + 1]}
        gone = {row for row, free in freed.items() if free["row"] in until_then}
        held: defaultdict[Any, list[int]] = defaultdict(list)
        for record in records[: until + 1]:
            if record["bytes"] > 0 and record["address"] is not None and record["row"] not in gone:
                op = owners.get(record["row"])
                held[None if op is None else op["name"]].append(record["bytes"])
        for name, sizes in held.items():
            figures = {"bytes": sum(sizes), "allocations": len(sizes), "share": share(sum(sizes), peak)}
            found[device, name, False] = figures
        older = peak - sum(map(sum, held.values()))
        if older > 0:
            found[device, None, True] = {"bytes": older, "allocations": None, "share": share(older, peak)}
    return found


def memory_table(rows: Rows) -> Figures:
    owners, tree = owners_of(rows), Tree(rows["ops"], collapse=True)
    names = ("increase_bytes", "allocations", "allocated_bytes")
    sums: defaultdict[Any, dict[str, int]] = defaultdict(
        lambda: {f"{part}{name}": 0 for part in ("", "self_") for name in names}
    )
    for device, records in records_of(rows).items():
        for record in records:
            op = owners.get(record["row"])
            if op is None or device is None:
                continue
            size = record["bytes"]
            values = dict(zip(names, (size, int(size > 0), max(size, 0)), strict=True))
            for row in tree.upwards(op["row"]):
                if tree.ops[row]["is_annotation"]:
                    continue
                parts = ("", "self_") if row == tree.kept[op["row"]] else ("",)
                for part in parts:
                    for name, value in values.items():
                        sums[device, tree.ops[row]["name"]][f"{part}{name}"] += value
    return {key: figures for key, figures in sums.items() if any(figures.values())}
