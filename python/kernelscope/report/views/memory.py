"""The peak of each device, who held it, and who allocates most."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.cells import Field, Shape, count, heading, lacking, named_table
from kernelscope.units import format_bytes, format_percent

if TYPE_CHECKING:
    from kernelscope.trace import Trace

ORDER = 100
ON_REQUEST = True


def frames(trace: "Trace") -> dict[str, pl.DataFrame]:
    """The frames of the view, by the names of their files."""
    return {
        "memory": analysis.memory_summary(trace),
        "memory_peak": analysis.memory_peak(trace),
        "memory_by_op": analysis.memory_table(trace),
    }


def text(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """The peak of each device, who held it, and who allocates most."""
    summary = analysis.memory_summary(trace)
    if summary.is_empty():
        return lacking(trace, "memory", "Memory", shape)
    fields = [
        Field("peak", _bytes("peak_bytes")),
        Field("of memory", lambda row: format_percent(row["peak_share"])),
        Field("reserved", _bytes("peak_reserved_bytes")),
        Field("idle", lambda row: format_percent(row["fragmentation_share"])),
        Field("not freed", _bytes("open_bytes")),
        Field("allocations", count("allocations")),
        Field("of together", _bytes("allocated_bytes")),
    ]
    rows = [{**row, "name": row["device"]} for row in summary.drop_nulls("device").iter_rows(named=True)]
    found: list[RenderableType] = [heading("Memory"), named_table(rows, "device", fields, shape)]
    peak = analysis.memory_peak(trace).filter(pl.col("device").str.starts_with("GPU")).head(shape.top)
    if peak.height:
        held = [{**row, "name": _holder(row)} for row in peak.iter_rows(named=True)]
        columns = [
            Field("bytes", _bytes("bytes")),
            Field("share", lambda row: format_percent(row["share"])),
            Field("allocations", count("allocations")),
        ]
        found += [heading("Who held the peak"), named_table(held, "operator", columns, shape)]
    return found


def _holder(row: Mapping[str, Any]) -> str:
    who = "allocated before the recording" if row["is_older"] else row["op"] or "no operator"
    return f"{row['device']} {who}"


def _bytes(column: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: format_bytes(row[column])
