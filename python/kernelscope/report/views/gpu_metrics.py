"""Sampled metrics by GPU, kernel, operator, range and step, and their curves."""

from collections.abc import Callable
from typing import Any

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.analysis.gpu.unrecorded import unrecorded_activity
from kernelscope.report.names import safe
from kernelscope.report.parts import Figure, Note, Page, Part
from kernelscope.report.parts.cells import label
from kernelscope.report.parts.charts import PALETTE, time_unit
from kernelscope.report.parts.tables import Table
from kernelscope.report.parts.window import origin_ns
from kernelscope.report.text.cells import Field, Shape, count, heading, named_table, note
from kernelscope.report.views import missing
from kernelscope.trace import Trace
from kernelscope.units import format_ns

ORDER = 55
TABLES = missing.TABLES
PAGE_ORDER = 58
PAGE = Page(
    "gpu-metrics",
    "GPU metrics",
    "Sampled GPU metrics: over time, and during kernels, operators, ranges and steps.",
)
UTILISATION = ("SMs Active", "SM Active", "SM Issue", "Tensor Active")
"""Prefixes of the metrics shown in tables of kernels and similar."""
_PARTS = 300
_MOST_CURVES = 12
_FIGURES = ("device", "metric", "mean_value", "peak_value", "unit", "samples", "covered_ns")
_BY = {
    "step": ("Steps", "During each step.", ("step",)),
    "kernel": ("Kernels", "During kernels of this name.", ("name",)),
    "op": ("Operators", "During operations that the operator or one inside it launched.", ("name",)),
    "range": ("Ranges", "From the first to the last operation launched in the range.", ("domain", "name")),
    "host_range": (
        "Ranges on the host",
        "From the start to the end of the range itself, regardless of the GPU operations in it.",
        ("domain", "name"),
    ),
}


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    tables = {by: analysis.gpu_metric_table(trace, by, metrics=UTILISATION) for by in ("kernel", "step")}
    return {
        "gpu_metrics": analysis.gpu_metrics(trace),
        **{f"gpu_metrics_by_{by}": table for by, table in tables.items()},
    }


def more_frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames that only a folder of files has."""
    wanted = ("op", "range", "host_range")
    tables = {by: analysis.gpu_metric_table(trace, by, metrics=UTILISATION) for by in wanted}
    return {
        **{f"gpu_metrics_by_{by}": table for by, table in tables.items()},
        "gpu_metric_timeline": analysis.gpu_metric_timeline(trace),
    }


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the metrics of each GPU, and its utilisation by kernel."""
    metrics = analysis.gpu_metrics(trace)
    if metrics.is_empty():
        return []
    fields = [
        Field("GPU", count("device")),
        Field("mean value", _number("mean_value")),
        Field("highest value", _number("peak_value")),
        Field("samples", count("samples")),
    ]
    steps = _in_steps(trace)
    if steps.height:
        metrics = metrics.join(steps, on=["device", "metric"], how="left", maintain_order="left")
        fields.insert(2, Field("in steps", _number("in_steps")))
    first = pl.any_horizontal(pl.col("metric").str.starts_with(start) for start in UTILISATION)
    shown = metrics.filter(pl.col("peak_value") > 0).sort(first, descending=True, maintain_order=True)
    rows = [{**row, "name": safe(row["metric"])} for row in shown.head(shape.top).iter_rows(named=True)]
    found: list[RenderableType] = [heading("GPU metrics"), named_table(rows, "metric", fields, shape)]
    if shown.height > shape.top or shown.height < metrics.height:
        rest = (
            f"{max(shown.height - shape.top, 0)} more, and {metrics.height - shown.height} that are always 0."
        )
        found.append(note(rest, shape))
    return [*found, *(note(text, shape) for text in _unrecorded(trace))]


def _unrecorded(trace: Trace) -> list[str]:
    """What the samples show that was not recorded, as sentences."""
    rows = unrecorded_activity(trace).iter_rows(named=True)
    return [
        f"GPU {row['device']} was active for {format_ns(row['active_ns'])} more "
        f"({safe(row['metric'])}) while no recorded operation ran (those ran for "
        f"{format_ns(row['recorded_ns'])}). It ran operations of another process, or of calls that "
        "the profiler does not record."
        for row in rows
    ]


def _in_steps(trace: Trace) -> pl.DataFrame:
    """The mean of each metric in all steps that have a number."""
    steps = analysis.gpu_metric_table(trace, "step").drop_nulls(["step", "mean_value"])
    covered = pl.col("covered_ns")
    mean = (pl.col("mean_value") * covered).sum() / covered.sum()
    known = steps.filter(covered > 0)
    return known.group_by("device", "metric", maintain_order=True).agg(mean.alias("in_steps"))


def _number(column: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: "" if row[column] is None else f"{row[column]:,.1f}"


def page(trace: Trace) -> list[Part]:
    """Returns the curves of each GPU, and tables."""
    metrics = analysis.gpu_metrics(trace)
    if metrics.is_empty():
        return [*missing.notes(trace, "gpu_metrics")]
    curves = analysis.gpu_metric_timeline(trace, parts=_PARTS)
    in_steps = _of_steps(trace, metrics)
    origin = origin_ns(trace)
    parts: list[Part] = []
    for device in metrics["device"].unique(maintain_order=True):
        shares = metrics.filter(
            (pl.col("device") == device) & (pl.col("unit") == "%") & (pl.col("peak_value") > 0)
        )
        if shares.height:
            names = _in_order(shares["metric"].to_list())
            parts.append(_curve(curves, device, names, origin))
            parts += [_curve(close, device, names, origin, in_steps=True) for close in in_steps]
    parts += [Note(text) for text in _unrecorded(trace)]
    what = "Means are weighted by time. Each metric that the GPU was configured to count has a row."
    parts.append(Table("gpu-metrics", "Metrics of each GPU", what, metrics, (*_FIGURES, "interval_ns")))
    for by, (title, what, place) in _BY.items():
        table = analysis.gpu_metric_table(trace, by, metrics=UTILISATION)
        if table.height:
            columns = (*place, *_FIGURES, "time_ns")
            name = by.replace("_", "-")
            parts.append(Table(f"gpu-metrics-{name}", f"{title} by GPU metrics", what, table, columns))
    return parts


def _of_steps(trace: Trace, metrics: pl.DataFrame) -> list[pl.DataFrame]:
    """The curves from the first to the last numbered step, where these are less than half of the time."""
    steps = trace.steps.drop_nulls("step").filter(pl.col("total_ns") > 0)
    if steps.is_empty():
        return []
    last = (pl.col("start_ns") + pl.col("total_ns")).max()
    start, end = steps.select(pl.col("start_ns").min(), last.alias("end_ns")).row(0)
    (sampled,) = metrics.select(pl.col("end_ns").max() - pl.col("start_ns").min()).row(0)
    is_close = 2 * (end - start) < sampled
    return [analysis.gpu_metric_timeline(trace, parts=_PARTS, window=(start, end))] if is_close else []


def _in_order(metrics: list[str]) -> list[str]:
    """How busy the multiprocessors are comes first."""
    return sorted(metrics, key=lambda name: (not name.startswith(UTILISATION), name))[:_MOST_CURVES]


def _curve(
    curves: pl.DataFrame, device: int, metrics: list[str], origin: int, *, in_steps: bool = False
) -> Figure:
    own = curves.filter(pl.col("device") == device)
    last = own.select((pl.col("start_ns") + pl.col("dur_ns")).max()).item() - origin
    span, time = time_unit(last or 1)
    traces: list[dict[str, Any]] = []
    for at, metric in enumerate(metrics):
        line = own.filter(pl.col("metric") == metric)
        name = label(metric)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "visible": True if metric.startswith(UTILISATION) or at == 0 else "legendonly",
                "line": {"shape": "hv", "color": PALETTE[at % len(PALETTE)], "width": 1.5},
                "x": [round((start - origin) / span, 6) for start in line["start_ns"]],
                "y": [None if mean is None else round(mean, 3) for mean in line["mean_value"]],
                "hovertemplate": f"%{{x}} {time}<br>{name}: %{{y}} %<extra></extra>",
            }
        )
    layout = {
        "xaxis": {"title": {"text": f"{time} since the first event"}},
        "yaxis": {"title": {"text": "%"}, "range": [0, 100]},
        "showlegend": True,
    }
    what = "Means over equal parts of the time. Gaps were not sampled. The legend adds metrics."
    where, name = ("in the steps", f"steps-{device}") if in_steps else ("over time", str(device))
    return Figure(f"gpu-metrics-{name}", f"GPU {device} {where}", what, traces, layout)
