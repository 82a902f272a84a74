"""What was wrong with the file, or that nothing was."""

from typing import TYPE_CHECKING

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelscope.report.cells import Shape, heading, note
from kernelscope.report.findings import findings

if TYPE_CHECKING:
    from kernelscope.trace import Trace

ORDER = 160


def frames(trace: "Trace") -> dict[str, pl.DataFrame]:
    """The frames of the view, by the names of their files."""
    return {"diagnostics": trace.diagnostics.with_columns(pl.col(pl.Categorical).cast(pl.String))}


def text(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """What was wrong with the file, or that nothing was."""
    diagnostics = frames(trace)["diagnostics"]
    if diagnostics.is_empty():
        return [heading("The file"), note("Nothing was repaired and nothing was lost.", shape)]
    lines: list[RenderableType] = [heading("What was wrong or odd about the file")]
    styles = {"lost": "red", "repaired": "yellow"}
    for finding in findings(diagnostics):
        line = Text()
        line.append(f"{finding.count:>9,} ", style="bold")
        line.append(
            f"{finding.severity:<9}", style=styles.get(finding.severity, "dim") if shape.color else ""
        )
        line.append(finding.message)
        if finding.place and finding.severity != "info":
            line.append(f" First at {finding.place}.")
        elif finding.place:
            line.append(f" ({finding.place})")
        lines.append(_hanging(line))
    return [Group(*lines)]


def _hanging(line: Text) -> RenderableType:
    grid = Table.grid(padding=0)
    grid.add_column(width=20, no_wrap=True)
    grid.add_column()
    grid.add_row(line[:20], line[20:] if len(line) > 20 else Text())
    return grid
