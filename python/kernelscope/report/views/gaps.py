"""The longest gaps, and the host activity in them."""

from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.names import safe
from kernelscope.report.text.cells import Field, Shape, heading, named_table, note, ns
from kernelscope.trace import Trace
from kernelscope.units import format_ns

ORDER = 125
TABLES = ("ops", "launches", "gpu_ops", "ranges", "steps")
ON_REQUEST = True


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the longest gaps, and the host activity in them."""
    gaps = analysis.idle_gaps(trace).head(shape.top)
    if gaps.is_empty():
        return [heading("Gaps"), note("No GPU was idle between its operations.", shape)]
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
