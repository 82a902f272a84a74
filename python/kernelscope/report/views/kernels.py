"""Costs of kernels, their launches, and GPU operations without an operator."""

from typing import Any, cast

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.analysis.grouping import sizes_as_text
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.report.parts import Group, Page, Part
from kernelscope.report.parts.charts import donut
from kernelscope.report.parts.tables import Table, with_share
from kernelscope.report.text.cells import Field, Shape, count, heading, note, ns, share, top_table
from kernelscope.report.views import missing
from kernelscope.report.views.unlinked import unlinked
from kernelscope.trace import Trace
from kernelscope.units import format_count, format_ns

_ROOFS = ("intensity", "flops_per_s", "attained_pct", "bound")
_REASONS = {
    "no_op": "launched outside any operator",
    "nvtx_range": "launched inside an NVTX range",
    "several_ranges": "launched while several NVTX ranges of the process were open",
    "no_launch": "launched before the recording started",
    "no_correlation": "without a correlation id",
}


ORDER = 30
TABLES = missing.TABLES
PAGE = Page(
    "kernels", "Kernels", "Kernels on the GPU, the occupancy of each launch, and the distance to the roofs."
)
_LAUNCH = ("name", "op", "grid", "block", "registers", "shared_memory_bytes")
_LIMITS = (
    "limited_by", "theoretical_occupancy_pct", "resident_blocks", "waves", "tail_pct", "op_tc_eligible",
    "device",
)  # fmt: skip
_FIGURES = (
    "calls", "total_ns", "share_pct", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns",
    "blocks_per_sm", "occupancy_pct", "tensor_cores", "intensity", "flops_per_s", "attained_pct", "bound",
)  # fmt: skip


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"kernels": analysis.kernel_table(trace)}


def more_frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames that only a folder of files has."""
    return {"kernels_by_op": analysis.kernel_table(trace, by=("op", "name"))}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the kernels with the highest cost, and GPU operations without an operator."""
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
    for row in unlinked(with_replayed_ops(trace).gpu_ops).iter_rows(named=True):
        reason = _REASONS.get(row["link"] or "", row["link"] or "for an unknown reason")
        events = format_count(row["events"]) + (" GPU event" if row["events"] == 1 else " GPU events")
        text = f"Without operator: {format_ns(row['dur_ns'])} in {events}, {reason}."
        found.append(note(text, shape))
    return found


def _percent(value: Any) -> str:
    return "-" if value is None else f"{value:.1f} %"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,.2f}"


def page(trace: Trace) -> list[Part]:
    """The kernels."""
    kernels = analysis.kernel_table(trace)
    if kernels.is_empty():
        return [*missing.notes(trace, "kernels")]
    parts: list[Part] = [
        donut("pie-kernels", "Time by kernel", "Summed durations of kernels by name.", kernels, "total_ns")
    ]
    roofs = analysis.roofline(trace, "kernel").select("kernel", *_ROOFS)
    named = with_share(kernels, "total_ns").join(roofs, left_on="name", right_on="kernel", how="left")
    opens = (("Launches", "launches", "name", "name"),)
    what = "Summed over the launches of one name."
    by_launch = with_share(sizes_as_text(analysis.kernels_by_launch(trace)), "total_ns")
    choices: list[tuple[str, Part]] = [
        ("name", Table("kernels", "Kernels", what, named, ("name", *_FIGURES), opens)),
        (
            "name, operator and launch size",
            Table(
                "launches",
                "Kernels by operator and launch size",
                "Summed over the launches with equal name, operator, grid, block, registers and memory.",
                by_launch,
                (*_LAUNCH, *_FIGURES, *_LIMITS),
            ),
        ),
    ]
    lacks = missing.notes(trace, "launch_sizes", "gpu_limits")
    return [*parts, Group("grouping", "Group by", choices), *lacks]
