"""The longest launches, and the resources that limit their occupancy."""

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.text.cells import Field, Shape, count, heading, lacking, named_table, ns
from kernelscope.report.views import missing
from kernelscope.trace import Trace
from kernelscope.units import format_percent

ORDER = 110
TABLES = missing.TABLES
ON_REQUEST = True


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"kernels_by_launch": analysis.kernels_by_launch(trace), "op_kernels": analysis.op_kernels(trace)}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the longest launches, and the resources that limit their occupancy."""
    table = analysis.kernels_by_launch(trace).head(shape.top)
    if table.is_empty():
        return lacking(trace, "kernels", "Launches", shape)
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
