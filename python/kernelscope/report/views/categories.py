"""GPU time by category of kernel names."""

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.parts import Page, Part
from kernelscope.report.parts.tables import Table
from kernelscope.report.text.cells import Field, Shape, count, heading, lacking, named_table, ns
from kernelscope.trace import Trace
from kernelscope.units import format_percent

ORDER = 105
TABLES = ("gpu_ops", "ops", "ranges")
PAGE = Page("categories", "Kernel categories", "GPU time by category of kernel names.")
ON_REQUEST = True


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"kernel_categories": analysis.kernel_categories(trace)}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the categories with the longest time."""
    table = analysis.kernel_categories(trace).head(shape.top)
    if table.is_empty():
        return lacking(trace, "kernels", "Kernel categories", shape)
    fields = [
        Field("total", ns("total_ns")),
        Field("share", lambda row: format_percent(row["share"])),
        Field("calls", count("calls")),
        Field("kernels", count("kernels")),
    ]
    rows = table.rename({"category": "name"}).to_dicts()
    return [heading("Kernel categories"), named_table(rows, "category", fields, shape)]


def page(trace: Trace) -> list[Part]:
    """Returns the categories of kernels as a table."""
    table = analysis.kernel_categories(trace)
    if table.is_empty():
        return []
    what = "GPU operations by purpose, derived from kernel names, including operations without operators."
    return [Table("kernel_categories", "Kernel categories", what, table)]
