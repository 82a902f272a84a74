"""The modules that take longest, each below the one that calls it."""

from typing import TYPE_CHECKING

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.cells import Field, Shape, count, heading, lacking, named_table, note, ns

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_INDENT = "  "
ORDER = 90
ON_REQUEST = True


def frames(trace: "Trace") -> dict[str, pl.DataFrame]:
    """The frames of the view, by the names of their files."""
    return {"modules": analysis.module_table(trace)}


def text(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """The modules that take longest, each below the one that calls it."""
    table = analysis.module_table(trace)
    if table.is_empty():
        return lacking(trace, "modules", "Modules", shape)
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
