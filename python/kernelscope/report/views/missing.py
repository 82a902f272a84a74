"""Missing data of the trace, and how to record it."""

import polars as pl
from rich.console import RenderableType
from rich.table import Table

from kernelscope import analysis
from kernelscope.report.names import safe
from kernelscope.report.parts import Note
from kernelscope.report.text.cells import Shape, heading, note, plain
from kernelscope.trace import Trace

ORDER = 130
TABLES = (
    "ops", "launches", "gpu_ops", "python", "ranges", "syncs", "memory", "collectives", "counters", "steps",
    "gpu_steps", "devices",
)  # fmt: skip
"""Data of every view that explains why it is empty."""

ON_REQUEST = True


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"missing_views": analysis.missing_views(trace)}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns missing data of the trace, and how to record it."""
    rows = analysis.missing_views(trace)
    if rows.is_empty():
        return [heading("Missing"), note("Everything that has a view was recorded.", shape)]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for view, why, remedy in rows.iter_rows():
        grid.add_row(f"  {view.replace('_', ' ')}", plain(safe(f"{why} {remedy}"), shape))
    return [heading("Missing"), grid]


def notes(trace: Trace, *names: str) -> list[Note]:
    """Returns missing data for these views and the remedies, for the page."""
    rows = analysis.missing_views(trace)
    known = {view: f"{why} {remedy}" for view, why, remedy in rows.iter_rows()}
    return [Note(known[name], missing=True) for name in names if name in known]
