"""Allocated memory over time, its owners, and unfreed memory."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.parts import Figure, Note, Page, Part
from kernelscope.report.parts.charts import byte_unit, time_unit
from kernelscope.report.parts.tables import MOST_ROWS, Table
from kernelscope.report.parts.window import origin_ns, window_of
from kernelscope.report.text.cells import Field, Shape, count, heading, lacking, named_table
from kernelscope.report.views import missing
from kernelscope.trace import Trace
from kernelscope.units import format_bytes, format_percent

ORDER = 100
TABLES = missing.TABLES
PAGE_ORDER = 60
PAGE = Page(
    "memory",
    "Memory",
    "Allocated and reserved memory, the owners of the peak, and allocations that were never freed.",
)
ON_REQUEST = True
_MOST_POINTS = 1_200
_SUMMARY = (
    "device", "peak_bytes", "peak_share", "peak_ns", "peak_step", "reserved_at_peak_bytes",
    "peak_reserved_bytes", "fragmentation_bytes", "fragmentation_share", "start_bytes", "end_bytes",
    "open_bytes", "open_allocations", "allocations", "frees", "allocated_bytes", "failures",
    "capacity_bytes", "source",
)  # fmt: skip
_ALLOCATIONS = (
    "op", "device", "bytes", "alloc_ns", "free_ns", "lifetime_ns", "state", "parent_op", "module", "phase",
    "step",
)  # fmt: skip


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {
        "memory": analysis.memory_summary(trace),
        "memory_peak": analysis.memory_peak(trace),
        "memory_by_op": analysis.memory_table(trace),
    }


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the peak of each device, its owners, and the largest allocators."""
    summary = analysis.memory_summary(trace)
    if summary.is_empty():
        return lacking(trace, "memory", "Memory", shape)
    fields = [
        Field("peak", _bytes("peak_bytes")),
        Field("of capacity", lambda row: format_percent(row["peak_share"])),
        Field("reserved", _bytes("peak_reserved_bytes")),
        Field("unused", lambda row: format_percent(row["fragmentation_share"])),
        Field("not freed", _bytes("open_bytes")),
        Field("allocations", count("allocations")),
        Field("allocated", _bytes("allocated_bytes")),
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
        found += [heading("Owners of the peak"), named_table(held, "operator", columns, shape)]
    return found


def _holder(row: Mapping[str, Any]) -> str:
    who = "allocated before the recording" if row["is_older"] else row["op"] or "no operator"
    return f"{row['device']} {who}"


def _bytes(column: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: format_bytes(row[column])


def page(trace: Trace) -> list[Part]:
    """The memory."""
    notes = missing.notes(trace, "memory")
    if notes:
        return [*notes]
    origin = origin_ns(trace)
    summary = analysis.memory_summary(trace).with_columns(pl.col("peak_ns") - origin)
    curve = analysis.memory_timeline(trace, max_points=_MOST_POINTS)
    parts: list[Part] = [_curve(curve.filter(device=d), d, origin) for d in summary["device"].to_list()]
    what = (
        "The peak, reserved but unallocated memory, and allocations that were not freed in the "
        "recording. A summed curve starts at 0 because earlier allocations were not recorded."
    )
    parts.append(Table("memory-devices", "Memory of each device", what, summary, _SUMMARY))
    peak = analysis.memory_peak(trace)
    if peak.height:
        what = "Owners of the memory at the allocation peak; older means allocated before the recording."
        held = peak.with_columns(
            share_pct=100.0 * pl.col("share"),
            op=pl.when("is_older").then(pl.lit("(before the recording)")).otherwise("op"),
        )
        columns = ("op", "device", "bytes", "share_pct", "allocations")
        parts.append(Table("memory-peak", "Owners of the peak", what, held, columns))
    window, stretch = window_of(trace)
    operators = analysis.memory_table(window)
    if stretch:
        parts.append(Note(f"The trace is large: operators and allocations below cover {stretch}."))
    if operators.height:
        what = "Allocations of operators. The increase is allocated minus freed bytes during their calls."
        parts.append(Table("memory-operators", "Memory by operator", what, operators, _leading(operators)))
    parts += _allocations(window, origin)
    return [*parts, *missing.notes(trace, "memory_lifetimes", "memory_reserved")]


def _leading(frame: pl.DataFrame) -> list[str]:
    return ["name", *(column for column in frame.columns if column != "name")]


def _allocations(trace: Trace, origin: int) -> list[Part]:
    """The largest allocations with their lifetimes."""
    found = analysis.memory_allocations(trace)
    if found.is_empty():
        return []
    order = found.sort(["bytes", "lifetime_ns"], descending=True, nulls_last=True)
    shown = order.head(MOST_ROWS).with_columns(pl.col("alloc_ns", "free_ns") - origin)
    what = "Allocations with their lifetimes, the largest first. open: not freed in the recording."
    return [Table("allocations", "Allocations", what, shown, _ALLOCATIONS, all_rows=found.height)]


def _curve(curve: pl.DataFrame, device: str, origin: int) -> Figure:
    most = curve.select(
        pl.max_horizontal("allocated_bytes", pl.col("reserved_bytes").fill_null(0)).max()
    ).item()
    times = (curve["start_ns"] - origin).to_list()
    size, unit = byte_unit(most or 1)
    span, time = time_unit(times[-1] if times else 1)
    moments = [round(at / span, 6) for at in times]
    traces: list[dict[str, Any]] = []
    for column, name, color in (
        ("allocated_bytes", "allocated", "--accent"),
        ("reserved_bytes", "reserved", "--runtime"),
    ):
        values = curve[column].to_list()
        if not any(values):
            continue
        formatted = {value: format_bytes(value) for value in set(values)}
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "line": {"shape": "hv", "color": color, "width": 1.5},
                "x": moments,
                "y": [None if value is None else round(value / size, 6) for value in values],
                "customdata": [formatted[value] for value in values],
                "hovertemplate": f"%{{x}} {time}<br>{name}: %{{customdata}}<extra></extra>",
            }
        )
    layout = {
        "xaxis": {"title": {"text": f"{time} since the first event"}},
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        "showlegend": True,
    }
    what = "Memory allocated and reserved by the allocator over time."
    return Figure(f"memory-{device}", f"Memory of {device}", what, traces, layout, height=300)
