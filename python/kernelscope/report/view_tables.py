"""Views that the text shows when asked: modules, memory, launch sizes, and what is missing."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import RenderableType
from rich.table import Table

from kernelscope import analysis
from kernelscope.report.cells import Field, Shape, count, heading, named_table, note, ns, plain
from kernelscope.report.names import safe
from kernelscope.units import format_bytes, format_ns, format_percent

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_INDENT = "  "


def parts(trace: "Trace", shape: Shape, views: tuple[str, ...]) -> list[RenderableType]:
    """The views of these names, in this order."""
    return [part for name in views for part in VIEWS[name](trace, shape)]


def _lacking(trace: "Trace", view: str, title: str, shape: Shape) -> list[RenderableType]:
    rows = analysis.missing_views(trace).filter(view=view)
    text = " ".join(rows.row(0)[1:]) if rows.height else "There is nothing to show."
    return [heading(title), note(text, shape)]


def _modules(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """The modules that take longest, each below the one that calls it."""
    table = analysis.module_table(trace)
    if table.is_empty():
        return _lacking(trace, "modules", "Modules", shape)
    by = "host_total_ns" if table["device_total_ns"].null_count() else "device_total_ns"
    shown = table.with_row_index("_order").sort(by, "_order", descending=[True, False]).head(2 * shape.top)
    rows = [
        {**row, "name": _INDENT * row["depth"] + (row["module"] or "")}
        for row in shown.sort("_order").iter_rows(named=True)
    ]
    fields = [
        Field("device total", ns("device_total_ns")),
        Field("device self", ns("device_self_ns")),
        Field("calls", count("calls")),
        Field("host total", ns("host_total_ns")),
        Field("host self", ns("host_self_ns")),
        Field("backward", ns("backward_device_ns")),
    ]
    found: list[RenderableType] = [heading("Modules"), named_table(rows, "module", fields, shape)]
    if table.height > len(rows):
        found.append(note(f"and {table.height - len(rows):,} more", shape))
    return found


def _memory(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """The peak of each device, who held it, and who allocates most."""
    summary = analysis.memory_summary(trace)
    if summary.is_empty():
        return _lacking(trace, "memory", "Memory", shape)
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


def _launches(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """The launches that take longest, and what keeps them from filling the GPU."""
    table = analysis.kernels_by_launch(trace).head(shape.top)
    if table.is_empty():
        return _lacking(trace, "kernels", "Launches", shape)
    fields = [
        Field("total", ns("total_ns")),
        Field("calls", count("calls")),
        Field("occupancy", lambda row: _percent(row["occupancy_pct"])),
        Field("at most", lambda row: _percent(row["theoretical_occupancy_pct"])),
        Field("limited by", lambda row: row["limited_by"] or "-"),
        Field("waves", lambda row: "-" if row["waves"] is None else f"{row['waves']:,.2f}"),
        Field("grid", lambda row: str(row["grid"] or "-")),
        Field("block", lambda row: str(row["block"] or "-")),
    ]
    rows = table.to_dicts()
    return [heading("Kernels by launch size"), named_table(rows, "name", fields, shape)]


def _percent(value: float | None) -> str:
    return format_percent(None if value is None else value / 100)


def _missing(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """What the trace has nothing for, and what would have recorded it."""
    rows = analysis.missing_views(trace)
    if rows.is_empty():
        return [heading("Missing"), note("Everything that has a view was recorded.", shape)]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for view, why, remedy in rows.iter_rows():
        grid.add_row(f"  {view.replace('_', ' ')}", plain(safe(f"{why} {remedy}"), shape))
    return [heading("Missing"), grid]


def _idle(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """The longest gaps, and what the host did meanwhile."""
    gaps = analysis.idle_gaps(trace).head(shape.top)
    if gaps.is_empty():
        return [heading("Gaps"), note("No GPU idled between its works.", shape)]
    rows = [{**row, "name": row["host"] or "nothing recorded"} for row in gaps.iter_rows(named=True)]
    fields = [
        Field("gap", ns("dur_ns")),
        Field("host took", ns("host_ns")),
        Field("GPU", lambda row: str(row["device"])),
        Field("before", lambda row: safe(row["op"] or "-")[:24]),
    ]
    total = format_ns(int(gaps["dur_ns"].sum()))
    title = heading(f"The longest gaps: {total}")
    return [title, named_table(rows, "host meanwhile", fields, shape)]


VIEWS: Mapping[str, Callable[["Trace", Shape], list[RenderableType]]] = {
    "modules": _modules,
    "memory": _memory,
    "launches": _launches,
    "gaps": _idle,
    "missing": _missing,
}
"""Every view by name."""
