"""Activity of the GPUs over the whole trace: utilisation, occupancy, and causes of idle time."""

from typing import Any

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.parts import Figure, Page, Part
from kernelscope.report.parts.charts import time_unit
from kernelscope.report.parts.tables import Table
from kernelscope.report.text.cells import Field, Shape, count, heading, named_table, note, ns
from kernelscope.report.views import missing
from kernelscope.trace import Trace
from kernelscope.units import format_bytes, format_ns, format_percent

ORDER = 50
TABLES = missing.TABLES
PAGE = Page("gpus", "GPU time", "Time of each GPU by category, causes of its idle time, and launch overhead.")
_CLASSES = {
    "compute_ns": ("computing", "--kernel"),
    "communication_ns": ("communicating only", "--communication"),
    "memory_ns": ("copying only", "--memcpy"),
    "idle_ns": ("idle", "--other"),
}
_LAUNCHES = (
    "call", "works", "cpu_dur_ns_sum", "cpu_dur_ns_p50", "cpu_dur_ns_max", "gpu_dur_ns_sum",
    "launch_delay_ns_p50", "launch_delay_ns_p90", "launch_delay_ns_max", "short", "slow_calls", "late",
)  # fmt: skip


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"gpus": analysis.gpu_summary(trace), "gpu_time": analysis.temporal_breakdown(trace)}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns one row per GPU with operations."""
    idle = analysis.temporal_breakdown(trace).select("device", "idle_share", "memory_share")
    gpus = analysis.gpu_summary(trace).join(idle, on="device", how="left")
    if gpus.is_empty():
        return [heading("GPUs"), note("The trace has no GPU operations.", shape)]
    rows = [
        {**row, "name": f"{row['device']} {row['name'] or ''}".strip()} for row in gpus.iter_rows(named=True)
    ]
    fields = [
        Field("utilisation", lambda row: format_percent(row["utilisation"])),
        Field("idle", lambda row: format_percent(row["idle_share"])),
        Field("SM efficiency", lambda row: format_percent(row["sm_efficiency"])),
        Field("occupancy", lambda row: format_percent(_ratio(row["occupancy_pct"]))),
        Field("tensor cores", lambda row: format_percent(row["tensor_core_share"])),
        Field("kernels", count("kernels")),
        Field("kernel time", ns("gpu_kernel_ns")),
        Field("copying only", lambda row: format_percent(row["memory_share"])),
        Field("memory", lambda row: format_bytes(row["total_memory_bytes"])),
        Field("capability", lambda row: row["compute_capability"] or "-"),
    ]
    window = gpus["window_ns"].max()
    found: list[RenderableType] = [
        heading(f"GPUs over {format_ns(window if isinstance(window, int) else None)}")
    ]
    found.append(named_table(rows, "GPU", fields, shape))
    if "derived" in gpus["launch_metrics"].to_list():
        text = (
            "SM efficiency and occupancy are partly derived from launch sizes and the limits of the device."
        )
        found.append(note(text, shape))
    return found


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def page(trace: Trace) -> list[Part]:
    """The GPUs."""
    if trace.gpu_ops.is_empty():
        return [*missing.notes(trace, "kernels")]
    # First, as they take the most memory, and what the others took is not yet all given back.
    queues = analysis.queue_summary(trace)
    times = analysis.temporal_breakdown(trace)
    parts: list[Part] = [_figure(times)]
    what = "From a GPU's first to its last operation. Communication counts only while nothing computes."
    parts.append(Table("gpu-time", "Time of each GPU", what, times))
    what = (
        "Gaps with an idle GPU. host_wait: its next operation had not been launched; "
        "kernel_wait: a short wait in the queue; other: it waited for an event, a copy or another "
        "stream."
    )
    idle = analysis.idle_summary(trace)
    if idle.height:
        parts.append(Table("idle", "Idle time by cause", what, _as_percent(idle)))
    launches = analysis.launch_summary(trace)
    if launches.height:
        what = "Calls that launched GPU operations, and the delay until the operations started."
        parts.append(Table("launch-calls", "Launches", what, launches, _LAUNCHES))
    if queues.height:
        what = "Calls that wait in the queue of each stream. An empty queue means that the host is too slow."
        parts.append(Table("queues", "Queues", what, queues))
    copies = analysis.memory_bandwidth_summary(trace)
    if copies.height:
        what = "Size and speed of copies and memsets of each kind."
        parts.append(Table("copies", "Copies", what, copies))
    return parts


def _as_percent(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(share_pct=100.0 * pl.col("share")).drop("share")


def _figure(times: pl.DataFrame) -> Figure:
    longest = times["span_ns"].max()
    size, unit = time_unit(longest if isinstance(longest, int) else 1)
    labels = [f"GPU {device}" for device in times["device"].to_list()]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": labels,
            "x": [value / size for value in times[column].to_list()],
            "customdata": [format_ns(value) for value in times[column].to_list()],
            "hovertemplate": f"%{{y}} {name}: %{{customdata}}<extra></extra>",
            "marker": {"color": color},
        }
        for column, (name, color) in _CLASSES.items()
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": unit}},
        "yaxis": {"autorange": "reversed"},
        "legend": {"traceorder": "normal"},
    }
    what = "Time of each GPU by category. Hidden communication and copies are not counted."
    # On a phone the legend takes four lines above the bars.
    return Figure("gpu-bars", "Time of each GPU", what, traces, layout, height=180 + 36 * times.height)
