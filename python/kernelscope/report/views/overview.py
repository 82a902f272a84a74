"""The machine, the time of the steps by category, and the utilisation of the GPUs."""

from typing import Any, cast

import polars as pl

from kernelscope import analysis
from kernelscope.analysis import CATEGORIES
from kernelscope.analysis.steps.breakdown import mean_over_gpus
from kernelscope.report.parts import Fact, Facts, Figure, Note, Page, Part
from kernelscope.report.parts.charts import distinct, donut_height, donut_layout, slice_trace, time_unit
from kernelscope.report.parts.columns import COLUMNS
from kernelscope.report.parts.tables import Table
from kernelscope.report.parts.window import origin_ns
from kernelscope.report.text.summary import trace_facts
from kernelscope.report.views import bounds, doubts, missing, recommendations
from kernelscope.trace import Trace
from kernelscope.units import format_count, format_ns, format_percent

ORDER = 80
TABLES = missing.TABLES
PAGE_ORDER = 5
PAGE = Page("overview", "Overview", "Time of the steps and utilisation of the GPUs on one screen.")
_MOST_BARS = 240
"""Maximum number of steps with their own bar. Neighbours share one if there are more."""
_MOST_ADVICE = 5


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"overview": analysis.overview(trace)}


def page(trace: Trace) -> list[Part]:
    """The overview."""
    parts: list[Part] = [
        *doubts.notes(trace),
        _figures(trace),
        *_charts(trace),
        *bounds.tables(trace),
        *_advice(trace),
        *_steps(trace),
        *_gpus(trace),
    ]
    if analysis.step_times(trace).height != 1:
        parts.append(_file(trace))
    return parts


def _figures(trace: Trace) -> Facts:
    steps, found = analysis.step_times(trace), analysis.overview(trace, costs=True).row(0, named=True)
    marked = steps["step"].null_count() < steps.height
    items = [
        Fact("Steps", format_count(steps.height) if marked else "none marked", "Complete steps.", "step"),
        Fact(
            "Mean step" if marked else "Duration",
            format_ns(_number(found["step_ns"])),
            "Wall time of a complete step.",
            "total_ns",
        ),
        _gpu_figure("GPU utilisation", _share(found["utilisation"]), "utilisation"),
        _gpu_figure("SM efficiency", _share(found["sm_efficiency"]), "sm_efficiency"),
        _gpu_figure("Occupancy", _percent(found["occupancy_pct"]), "occupancy_pct"),
        _gpu_figure("Tensor cores", _share(found["tensor_core_share"]), "tensor_core_share"),
        _utilisation(found),
    ]
    return Facts("figures", "", items, tiles=True)


def _gpu_figure(title: str, value: str, term: str) -> Fact:
    return Fact(title, value, COLUMNS[term].what, term)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _share(value: object) -> str:
    return format_percent(value) if isinstance(value, float) else "not known"


def _percent(value: object) -> str:
    return f"{value:.1f} %" if isinstance(value, float) else "not known"


def _utilisation(found: dict[str, object]) -> Fact:
    what = "FLOPs over wall time, relative to the peak of all GPUs (MFU)."
    if isinstance(found["known_pct"], float):
        what += f" FLOPs are known for {found['known_pct']:.1f} % of the GPU time."
    return Fact("FLOPs utilisation", _percent(found["mfu_pct"]), what, "mfu_pct")


def _advice(trace: Trace) -> list[Part]:
    """What to look at first."""
    found = recommendations.separate(trace)
    if found.is_empty():
        return []
    columns = ("title", "severity", "evidence", "saving_ns", "saving_share")
    what = "The most important recommendations. The view of that name lists all of them with their remedies."
    return [Table("findings-first", "Look first at", what, found.head(_MOST_ADVICE), columns)]


def _charts(trace: Trace) -> list[Part]:
    steps = mean_over_gpus(analysis.step_breakdown(trace))
    parts: list[Part] = [*missing.notes(trace, "steps")]
    if steps.is_empty():
        return parts or [Note("The recording cuts off every step, so no step is complete.", missing=True)]
    parts += [_mean_step(steps), _bars(steps) if steps.height > 1 else _file(trace, wide=True)]
    gpus = analysis.mean_steps(trace)
    if gpus.height > 1:
        what = "Time of the mean step on each GPU by category; the figure above averages over the GPUs."
        parts.append(Table("mean-steps", "The mean step of each GPU", what, gpus))
    return parts


def _steps(trace: Trace) -> list[Part]:
    steps = analysis.step_breakdown(trace)
    if steps.is_empty():
        return []
    table = steps.with_columns(pl.col("start_ns") - origin_ns(trace))
    gpu = ("device", "pid") if analysis.mean_steps(trace).height > 1 else ()
    columns = ("step", "name", *gpu, "total_ns", *CATEGORIES, "start_ns")
    what = (
        "Every complete step on each GPU. Each moment counts for the first category in the list that is "
        "active."
    )
    return [Table("steps", "Steps", what, table, columns, titles={"total_ns": "Wall time"})]


def _bars(steps: pl.DataFrame) -> Figure:
    size, unit = time_unit(cast(float, steps["total_ns"].max()))
    together = -(-steps.height // _MOST_BARS)
    binned = (
        steps.with_row_index("_at")
        .group_by(pl.col("_at") // together, maintain_order=True)
        .agg(pl.col("step").first(), pl.col("total_ns", *CATEGORIES).mean())
    )
    mean = steps.select(pl.col("total_ns", *CATEGORIES).mean()).row(0, named=True)
    # A program that counts anew has several steps of one number.
    labels = ["mean", *distinct([str(step) for step in binned["step"].to_list()])]
    traces: list[dict[str, Any]] = []
    for column in CATEGORIES:
        values = [mean[column], *binned[column].to_list()]
        title = COLUMNS[column].title
        if any(values):
            traces.append(
                {
                    "type": "bar",
                    "name": title,
                    "x": labels,
                    "y": [value / size for value in values],
                    "customdata": [format_ns(value) for value in values],
                    "hovertemplate": f"step %{{x}}<br>{title}: %{{customdata}}<extra></extra>",
                    "marker": {"color": _color(column)},
                }
            )
    what = "One bar per step in order of time, preceded by the mean of all."
    if together > 1:
        what += f" A bar is the mean of {together} consecutive steps."
    layout = {
        "barmode": "stack",
        "bargap": 0.15,
        "legend": {"traceorder": "normal"},
        "xaxis": {"type": "category", "title": {"text": "step"}, "nticks": 20},
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
    }
    return Figure("step-bars", "Steps", what, traces, layout, height=donut_height(len(traces)), wide=True)


def _mean_step(steps: pl.DataFrame) -> Figure:
    mean = steps.select(pl.col(CATEGORIES).mean()).row(0, named=True)
    shown = [column for column in CATEGORIES if mean[column]]
    total = cast(float, steps["total_ns"].mean()) or 1.0
    names = [f"{COLUMNS[c].title}: {format_ns(mean[c])}, {format_percent(mean[c] / total)}" for c in shown]
    slices = slice_trace(names, [mean[column] for column in shown], [_color(column) for column in shown])
    slices["hovertemplate"] = "%{label}<extra></extra>"
    layout = donut_layout(format_ns(total))
    what = (
        "Wall time of a step by category. A moment with several activities counts for the first of: "
        "kernel, copy, memset, communication, runtime API call, data loading, other host work."
    )
    return Figure(
        "mean-step", "The mean step", what, [slices], layout, height=donut_height(len(names)), narrow=True
    )


def _color(column: str) -> str:
    return f"--{column.removesuffix('_ns').replace('_', '-')}"


def _gpus(trace: Trace) -> list[Part]:
    gpus = analysis.gpu_summary(trace)
    if gpus.is_empty():
        return [*missing.notes(trace, "kernels")]
    columns = (
        "device", "name", "utilisation", "sm_efficiency", "occupancy_pct", "tensor_core_share", "window_ns",
        "busy_ns", "kernels", "total_memory_bytes", "compute_capability",
        "launch_metrics",
    )  # fmt: skip
    what = "Utilisation of each GPU, from the start of the first step to the end of the last."
    return [Table("gpus", "GPUs", what, gpus, columns)]


def _file(trace: Trace, *, wide: bool = False) -> Facts:
    facts = trace_facts(trace)
    flags = trace.meta.flags
    facts["recorded with"] = ", ".join(f"{name}={value}" for name, value in flags.items())
    items = [Fact(name, value) for name, value in facts.items() if value]
    return Facts("file", "The file", items, wide=wide)
