"""Recipes of Nsight Systems: GPU utilisation over time, durations of kernels, NCCL ranges, and waits."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from rich.console import RenderableType

from kernelscope.compat.nsys import nsys_report
from kernelscope.report.parts import Figure, Page, Part
from kernelscope.report.parts.charts import PALETTE, time_unit
from kernelscope.report.parts.tables import Table
from kernelscope.report.parts.window import origin_ns
from kernelscope.report.text.cells import Field, Shape, count, heading, named_table, note, ns
from kernelscope.report.views import missing
from kernelscope.trace import Trace
from kernelscope.units import format_ns, format_percent

ORDER = 87
TABLES = missing.TABLES
NUMBERS = {"gpu_ops": ("pid",), "launches": ("pid", "tid")}
PAGE = Page(
    "recipes",
    "Recipes",
    "Recipes of Nsight Systems: utilisation of each GPU over time, durations of kernels, NCCL, and waits.",
)
_PLACE = ("device", "process")
_ALL = 99.95
"""Percentage from which a part of the time counts as full: it is printed as 100.0 %."""
_SUMS = (
    "name", "instances", "total_ns", "mean_ns", "q1_ns", "median_ns", "q3_ns", "min_ns", "max_ns", "std_ns",
)  # fmt: skip
_REPORTS = {
    "gpu_use_over_time": "cuda_gpu_time_util_map",
    "communication_over_time": "nccl_gpu_time_util_map",
    "kernel_durations": "cuda_gpu_kern_hist",
    "nccl_ranges": "nccl_sum",
    "waiting_calls": "cuda_api_sync",
}


_IN_JSON = ("gpu_use_over_time", "nccl_ranges")


def _made(trace: Trace, names: Iterable[str]) -> dict[str, pl.DataFrame]:
    return {name: nsys_report(trace, _REPORTS[name]) for name in names}


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return _made(trace, _IN_JSON)


def more_frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames that only a folder of files has."""
    return _made(trace, (name for name in _REPORTS if name not in _IN_JSON))


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the utilisation of each GPU of an nsys database over time, and NCCL's own ranges."""
    if trace.meta.format != "nsys":
        return []
    found = _made(trace, _IN_JSON)
    return [*_use_text(_placed(trace, found["gpu_use_over_time"]), shape), *_nccl_text(found, shape)]


def _use_text(use: pl.DataFrame, shape: Shape) -> list[RenderableType]:
    if use.is_empty():
        return []
    rows = [
        {"name": _place(group), "parts": group["busy_pct"].to_list(), "mean": _mean(group)}
        for group in use.partition_by(*_PLACE, maintain_order=True)
    ]
    fields = [
        Field("mean", lambda row: format_percent(row["mean"])),
        Field("over time", lambda row: "".join(map(_tenths, row["parts"]))),
    ]
    length = format_ns((use["end_ns"] - use["start_ns"])[0])
    remark = f"Each character is {length}: . is idle, 1 to 9 are tenths of utilisation, # is full."
    return [
        heading("Use of each GPU over time"),
        named_table(rows[: shape.top], "GPU of a process", fields, shape),
        note(remark, shape),
    ]


def _mean(group: pl.DataFrame) -> float | None:
    """The share of the whole time in use: parts differ by 1 ns."""
    length = pl.col("end_ns") - pl.col("start_ns")
    known = group.drop_nulls("busy_pct")
    return (
        known.select((pl.col("busy_pct") * length).sum() / length.sum() / 100).item()
        if known.height
        else None
    )


def _tenths(share: float | None) -> str:
    """A share of a part of the time as one character; what is below a tenth is 1, and what misses all 9."""
    if share is None:
        return " "
    if share <= 0:
        return "."
    return "#" if share >= _ALL else str(min(max(int(share / 10), 1), 9))


def _nccl_text(found: Mapping[str, pl.DataFrame], shape: Shape) -> list[RenderableType]:
    table = found["nccl_ranges"]
    if table.is_empty():
        return []
    fields = [
        Field("total", ns("total_ns")),
        Field("calls", count("instances")),
        Field("median", ns("median_ns")),
        Field("longest", ns("max_ns")),
    ]
    rows = table.head(shape.top).to_dicts()
    return [heading("NCCL on the host"), named_table(rows, "range", fields, shape)]


def page(trace: Trace) -> list[Part]:
    """Returns the recipes that have data."""
    found = {name: _placed(trace, frame) for name, frame in _made(trace, _REPORTS).items()}
    use, durations = found["gpu_use_over_time"], found["kernel_durations"]
    if use.is_empty():
        return [*missing.notes(trace, "kernels")]
    what = "Share of equal parts of the time with any operation on each GPU of a process."
    parts: list[Part] = [
        Figure("use-over-time", "Use over time", what, _curves(use), _USE_LAYOUT, height=320),
        Table("use-by-bin", "Use by part of the time", what, use, (*_PLACE, "start_ns", "busy_pct")),
    ]
    shared = found["communication_over_time"]
    if shared["nccl_pct"].sum():
        what = "The same for communication kernels, for other kernels, and for both at once."
        columns = (*_PLACE, "start_ns", "nccl_pct", "compute_pct", "overlap_pct")
        parts.append(Table("communication-by-bin", "Communication over time", what, shared, columns))
    if durations.height:
        what = "Number of kernels of each GPU by duration, in parts of equal width."
        columns = (*_PLACE, "from_ns", "to_ns", "instances", "share_pct")
        some = durations.filter(pl.col("instances") > 0)
        parts += [
            _histogram(durations),
            Table("kernel-durations", "Kernels by duration", what, some, columns),
        ]
    nccl, waits = found["nccl_ranges"], found["waiting_calls"]
    if nccl.height:
        what = "NCCL's own ranges on the host, by name; quartiles are exact."
        parts.append(Table("nccl-ranges", "NCCL on the host", what, nccl, _SUMS))
    if waits.height:
        what = "Calls with the longest waits for a GPU."
        columns = ("api", "start_ns", "dur_ns", "process", "thread")
        parts.append(Table("waiting-calls", "Calls that wait", what, waits, columns))
    return parts


def _placed(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    """Processes and threads as text, and times since the first event."""
    origin = origin_ns(trace)
    texts = {"process": "pid", "thread": "tid"}
    named = {
        name: pl.col(column).cast(pl.String) for name, column in texts.items() if column in frame.columns
    }
    times = [pl.col(name) - origin for name in ("start_ns", "end_ns") if name in frame.columns]
    return frame.with_columns(*times, **named)


def _place(group: pl.DataFrame) -> str:
    device, process = group["device"][0], group["process"][0]
    of = "" if process is None else f" of {process}"
    return f"GPU {'?' if device is None else device}{of}"


_USE_LAYOUT: dict[str, Any] = {
    "yaxis": {"title": {"text": "% in use"}, "range": [0, 101]},
    "showlegend": True,
}


def _curves(use: pl.DataFrame) -> list[dict[str, Any]]:
    """A curve of the use of each GPU."""
    ends = use["start_ns"].max()
    size, unit = time_unit(ends if isinstance(ends, int) else 1)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": _place(group),
            "line": {"shape": "hv", "color": PALETTE[at % len(PALETTE)], "width": 1.5},
            "x": [start / size for start in group["start_ns"]],
            "y": [None if share is None else round(share, 3) for share in group["busy_pct"]],
            "hovertemplate": f"%{{x}} {unit}: %{{y}} %<extra></extra>",
        }
        for at, group in enumerate(use.partition_by(*_PLACE, maintain_order=True))
    ]


def _histogram(durations: pl.DataFrame) -> Figure:
    """A bar for each part of the durations, of each GPU in a colour of its own."""
    longest = durations["to_ns"].max()
    size, unit = time_unit(longest if isinstance(longest, int) else 1)
    bars = [
        {
            "type": "bar",
            "name": _place(group),
            "x": [(low + high) / 2 / size for low, high in group.select("from_ns", "to_ns").iter_rows()],
            "y": group["instances"].to_list(),
            "customdata": [
                f"{format_ns(low)} to {format_ns(high)}"
                for low, high in group.select("from_ns", "to_ns").iter_rows()
            ],
            "hovertemplate": "%{customdata}: %{y} kernels<extra></extra>",
            "marker": {"color": PALETTE[at % len(PALETTE)]},
        }
        for at, group in enumerate(durations.partition_by(*_PLACE, maintain_order=True))
    ]
    layout = {
        "xaxis": {"title": {"text": f"duration, {unit}"}},
        "yaxis": {"title": {"text": "kernels"}},
        "showlegend": True,
    }
    what = "Number of kernels of each GPU by duration."
    return Figure("kernel-histogram", "Durations of kernels", what, bars, layout, height=320)
