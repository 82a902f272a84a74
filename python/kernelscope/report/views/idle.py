"""Time of each GPU by category, and causes of idle time, as text."""

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.text.cells import Field, Shape, count, heading, named_table, note, ns, share
from kernelscope.trace import Trace
from kernelscope.units import format_ns, format_percent

_CAUSES = {
    "host_wait": "waiting for the host to launch",
    "kernel_wait": "between operations in the queue",
    "other": "waiting for events, copies or streams",
}
_MOST_HOSTS = 5


ORDER = 60
TABLES = ("ops", "launches", "gpu_ops", "ranges", "steps", "devices")


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {
        "overlap": analysis.comm_comp_overlap(trace),
        "idle": analysis.idle_summary(trace),
        "idle_hosts": analysis.idle_summary(trace, by=("host",)),
    }


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns exposed communication, and idle time by cause and host activity."""
    overlap, idle, idle_hosts = frames(trace).values()
    span = int(analysis.temporal_breakdown(trace)["span_ns"].sum())
    if idle.is_empty() and overlap.is_empty():
        return []
    found: list[RenderableType] = []
    exposed = _exposed(overlap)
    if exposed:
        found += [heading("Communication"), note(exposed, shape)]
    total = int(idle["idle_ns"].sum())
    if not total:
        return found
    causes = idle.group_by("cause").agg(pl.col("idle_ns", "gaps").sum(), pl.col("max_ns").max())
    rows = [
        {**row, "name": _CAUSES.get(row["cause"] or "", "no launch recorded")}
        for row in causes.sort("idle_ns", "cause", descending=[True, False], nulls_last=True).to_dicts()
    ]
    fields = [
        Field("idle", ns("idle_ns")),
        Field("share", share("idle_ns", total)),
        Field("gaps", count("gaps")),
        Field("longest", ns("max_ns")),
    ]
    idle_share = format_percent(total / span)
    title = f"GPU idle: {format_ns(total)}, {idle_share} of the time between the first and last operation"
    found += [heading(title), named_table(rows, "why", fields, shape)]
    hosts = idle_hosts.filter(pl.col("host").is_not_null()).head(min(_MOST_HOSTS, shape.top))
    if hosts.height:
        named = [{**row, "name": row["host"]} for row in hosts.iter_rows(named=True)]
        found += [heading("Host activity during that time"), named_table(named, "operator", fields, shape)]
    return found


def _exposed(overlap: pl.DataFrame) -> str:
    """A sentence on how much of the communication nothing hides; empty if there is none."""
    sums = overlap.select(pl.col("communication_ns", "exposed_ns").sum()).row(0)
    total, exposed = sums
    if not total:
        return ""
    rest = f"{format_ns(exposed)} of {format_ns(total)} is exposed ({format_percent(exposed / total)})"
    return f"{rest}: no kernel computes on the same GPU at that time."
