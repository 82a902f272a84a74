"""How busy and how full each GPU was, as text."""

from typing import TYPE_CHECKING

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.cells import Field, Shape, count, heading, named_table, note, ns
from kernelscope.units import format_bytes, format_ns, format_percent

if TYPE_CHECKING:
    from kernelscope.trace import Trace

ORDER = 50


def frames(trace: "Trace") -> dict[str, pl.DataFrame]:
    """The frames of the view, by the names of their files."""
    return {"gpus": analysis.gpu_summary(trace), "gpu_time": analysis.temporal_breakdown(trace)}


def text(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """A row for each GPU that worked."""
    gpus = analysis.gpu_summary(trace)
    if gpus.is_empty():
        return [heading("GPUs"), note("The trace has no GPU work.", shape)]
    rows = [
        {**row, "name": f"{row['device']} {row['name'] or ''}".strip()} for row in gpus.iter_rows(named=True)
    ]
    fields = [
        Field("utilisation", lambda row: format_percent(row["utilisation"])),
        Field("SM efficiency", lambda row: format_percent(row["sm_efficiency"])),
        Field("occupancy", lambda row: format_percent(_ratio(row["occupancy_pct"]))),
        Field("tensor cores", lambda row: format_percent(row["tensor_core_share"])),
        Field("kernels", count("kernels")),
        Field("kernel time", ns("kernel_ns")),
        Field("idle", ns("idle_ns")),
        Field("copying only", ns("copy_ns")),
        Field("memory", lambda row: format_bytes(row["total_memory_bytes"])),
        Field("capability", lambda row: row["compute_capability"] or "-"),
    ]
    span = gpus["span_ns"].max()
    found: list[RenderableType] = [heading(f"GPUs over {format_ns(span if isinstance(span, int) else None)}")]
    found.append(named_table(rows, "GPU", fields, shape))
    if "derived" in gpus["launch_metrics"].to_list():
        text = "SM efficiency and occupancy follow in part from launch sizes and the limits of the device."
        found.append(note(text, shape))
    return found


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
