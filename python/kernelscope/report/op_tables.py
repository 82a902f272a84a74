"""The operators and kernels that cost most, as text."""

from typing import Any, cast

import polars as pl
from rich.console import RenderableType

from kernelscope.report.answers import Answers
from kernelscope.report.cells import Field, Shape, count, heading, named_table, note, ns, share
from kernelscope.units import format_count, format_ns

_REASONS = {
    "no_op": "launched outside every operator",
    "nvtx_range": "launched inside an NVTX range",
    "no_launch": "launched before the recording began",
    "no_correlation": "without a correlation id",
}


def operators(ops: pl.DataFrame, shape: Shape) -> list[RenderableType]:
    """The operators that cost most: by device self time, and by host self time."""
    found: list[RenderableType] = []
    if ops.is_empty():
        return [heading("Operators"), note("The trace has no operators.", shape)]
    device = (
        cast("int | None", ops["device_self_ns"].sum()) if ops["device_self_ns"].null_count() == 0 else None
    )
    host = cast(int, ops["host_self_ns"].sum())
    if device:
        fields = [
            Field("device self", ns("device_self_ns")),
            Field("share", share("device_self_ns", device)),
            Field("calls", count("calls")),
            Field("device total", ns("device_total_ns")),
            Field("host self", ns("host_self_ns")),
            Field("host total", ns("host_total_ns")),
        ]
        found += _top(ops, "device_self_ns", "Operators by their own time on the device", fields, shape)
    fields = [
        Field("host self", ns("host_self_ns")),
        Field("share", share("host_self_ns", host)),
        Field("calls", count("calls")),
        Field("host total", ns("host_total_ns")),
    ]
    if device:
        fields += [Field("device self", ns("device_self_ns")), Field("device total", ns("device_total_ns"))]
    return found + _top(ops, "host_self_ns", "Operators by their own time on the host", fields, shape)


def kernels(answers: Answers, shape: Shape) -> list[RenderableType]:
    """The kernels that cost most, and what GPU work belongs to no operator."""
    table = answers.kernels
    if table.is_empty():
        return [heading("Kernels"), note("The trace has no kernels.", shape)]
    total = cast(int, table["total_ns"].sum())
    fields = [
        Field("total", ns("total_ns")),
        Field("share", share("total_ns", total)),
        Field("calls", count("calls")),
        Field("mean", ns("mean_ns")),
        Field("occupancy", lambda row: _percent(row["occupancy_pct"])),
        Field("longest", ns("max_ns")),
        Field("median", ns("median_ns")),
        Field("blocks/SM", lambda row: _number(row["blocks_per_sm"])),
        Field("tensor cores", lambda row: {True: "yes", False: "no", None: "-"}[row["tensor_cores"]]),
    ]
    found = _top(table, "total_ns", f"Kernels: {format_ns(total)} in all", fields, shape)
    for row in answers.unlinked.iter_rows(named=True):
        reason = _REASONS.get(row["link"] or "", row["link"] or "for no known reason")
        events = format_count(row["events"]) + (" GPU event" if row["events"] == 1 else " GPU events")
        text = f"Without operator: {format_ns(row['dur_ns'])} in {events}, {reason}."
        found.append(note(text, shape))
    return found


def _top(table: pl.DataFrame, by: str, title: str, fields: list[Field], shape: Shape) -> list[RenderableType]:
    order = table.sort([by, "name"], descending=[True, False], nulls_last=True).head(shape.top)
    found: list[RenderableType] = [heading(title), named_table(order.to_dicts(), "name", fields, shape)]
    if table.height > order.height:
        found.append(note(f"and {format_count(table.height - order.height)} more", shape))
    return found


def _percent(value: Any) -> str:
    return "-" if value is None else f"{value:.1f} %"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,.2f}"
