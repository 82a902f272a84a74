"""The kernels that cost most, and the GPU work without operator."""

from typing import TYPE_CHECKING, Any, cast

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.cells import Field, Shape, count, heading, note, ns, share, top_table
from kernelscope.report.views.unlinked import unlinked
from kernelscope.units import format_count, format_ns

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_REASONS = {
    "no_op": "launched outside every operator",
    "nvtx_range": "launched inside an NVTX range",
    "no_launch": "launched before the recording began",
    "no_correlation": "without a correlation id",
}


ORDER = 30


def frames(trace: "Trace") -> dict[str, pl.DataFrame]:
    """The frames of the view, by the names of their files."""
    return {"kernels": analysis.kernel_table(trace)}


def more_frames(trace: "Trace") -> dict[str, pl.DataFrame]:
    """What only a folder of files has."""
    return {"kernels_by_op": analysis.kernel_table(trace, by=("op", "name"))}


def text(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """The kernels that cost most, and what GPU work belongs to no operator."""
    table = analysis.kernel_table(trace)
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
    found = top_table(table, "total_ns", f"Kernels: {format_ns(total)} in all", fields, shape)
    for row in unlinked(trace.gpu_ops).iter_rows(named=True):
        reason = _REASONS.get(row["link"] or "", row["link"] or "for no known reason")
        events = format_count(row["events"]) + (" GPU event" if row["events"] == 1 else " GPU events")
        text = f"Without operator: {format_ns(row['dur_ns'])} in {events}, {reason}."
        found.append(note(text, shape))
    return found


def _percent(value: Any) -> str:
    return "-" if value is None else f"{value:.1f} %"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,.2f}"
