"""Faults and oddities of the file, and its contents."""

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table as TextTable
from rich.text import Text

from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.report.findings import findings
from kernelscope.report.parts import Note, Page, Part
from kernelscope.report.parts.tables import Table
from kernelscope.report.text.cells import Shape, heading, note
from kernelscope.trace import Trace

ORDER = 160
TABLES = ("gpu_ops", "diagnostics")
PAGE = Page(
    "diagnostics",
    "Diagnostics",
    "Repairs, losses and doubts found while reading, and the number of rows of each table.",
)


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"diagnostics": trace.diagnostics.with_columns(pl.col(pl.Categorical).cast(pl.String))}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the faults of the file, or a note that there are none."""
    if trace.diagnostics.is_empty():
        return [heading("The file"), note("Nothing was repaired and nothing was lost.", shape)]
    lines: list[RenderableType] = [heading("Faults and oddities of the file")]
    styles = {"lost": "red", "repaired": "yellow"}
    for finding in findings(trace):
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
    grid = TextTable.grid(padding=0)
    grid.add_column(width=20, no_wrap=True)
    grid.add_column()
    grid.add_row(line[:20], line[20:] if len(line) > 20 else Text())
    return grid


def page(trace: Trace) -> list[Part]:
    """The diagnostics."""
    return [*_findings(trace), _tables(trace), *_unlinked(trace)]


def _findings(trace: Trace) -> list[Part]:
    found = findings(trace)
    if not found:
        return [Note("Nothing was repaired and nothing was lost.")]
    rows = [(f.severity, f.count, f.message, f.place or None, f.code) for f in found]
    schema = {
        "severity": pl.String,
        "count": pl.Int64,
        "message": pl.String,
        "place": pl.String,
        "code": pl.String,
    }
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    what = "One line per kind of repair, loss or doubt. Lost data is missing from all figures of this page."
    columns = ("message", "severity", "count", "place", "code")
    return [Table("findings", "Findings", what, frame, columns)]


def _tables(trace: Trace) -> Table:
    rows = [(name, frame.height) for name, frame in trace.tables.items() if frame.height]
    frame = pl.DataFrame(rows, schema={"table": pl.String, "rows": pl.Int64}, orient="row")
    return Table("tables", "Tables of the trace", "Rows read, by table.", frame)


def _unlinked(trace: Trace) -> list[Part]:
    work = with_replayed_ops(trace).gpu_ops.select("op_row", "link", "dur_ns")
    loose = work.filter(pl.col("op_row").is_null())
    if loose.is_empty():
        return []
    frame = (
        loose.group_by("link")
        .agg(pl.len().cast(pl.Int64).alias("events"), pl.col("dur_ns").sum().alias("device_ns"))
        .with_columns(pl.col("link").cast(pl.String))
        .sort(["device_ns", "link"], descending=[True, False], nulls_last=True)
    )
    what = (
        "GPU operations without a known operator. no_op: launched outside any operator; nvtx_range: "
        "inside an NVTX range; several_ranges: several ranges of the process were open; no_launch: "
        "launched before the recording started."
    )
    return [Table("unlinked", "GPU operations without operator", what, frame)]
