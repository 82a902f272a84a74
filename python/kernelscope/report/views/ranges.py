"""NVTX ranges on the host and on the GPU."""

from typing import cast

import polars as pl
from rich.console import RenderableType

from kernelscope.analysis.ranges.projection import range_sums
from kernelscope.report.parts import Note, Page, Part
from kernelscope.report.parts.charts import bars
from kernelscope.report.parts.tables import Table
from kernelscope.report.text.cells import Field, Shape, count, heading, named_table, note, ns, share
from kernelscope.report.views import missing
from kernelscope.trace import Trace
from kernelscope.units import format_count

ORDER = 40
TABLES = missing.TABLES
PAGE_ORDER = 86
PAGE = Page(
    "ranges", "NVTX ranges", "NVTX ranges of the program, with their time on the host and on the GPU."
)
_COLUMNS = (
    "name", "domain", "ranges", "gpu_exclusive_ns", "gpu_busy_ns", "gpu_span_ns", "other_thread_ns", "dur_ns",
    "launches", "gpu_ops",
)  # fmt: skip


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"ranges": range_table(trace)}


def range_table(trace: Trace) -> pl.DataFrame:
    """Returns NVTX ranges by domain and name, longest own GPU time first.

    Ranges without GPU operations are included.
    """
    keys = ["domain", "name"]
    gpu = ("gpu_span_ns", "gpu_busy_ns", "gpu_exclusive_ns", "other_thread_ns", "launches", "gpu_ops")
    if trace.ranges.is_empty():
        numbers = ("ranges", "dur_ns", *gpu)
        return pl.DataFrame(schema={**dict.fromkeys(keys, pl.String), **dict.fromkeys(numbers, pl.Int64)})
    table = range_sums(trace, keys).select(
        pl.col(keys).cast(pl.String),
        "ranges",
        pl.col("host_ns").alias("dur_ns"),
        *(pl.when(pl.col("projected") > 0).then(name) for name in gpu),
    )
    order = ["gpu_exclusive_ns", "dur_ns"]
    return table.sort([*order, *keys], descending=[True, True, False, False], nulls_last=True)


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the ranges with the highest cost; nothing for a trace without NVTX."""
    ranges = range_table(trace)
    if ranges.is_empty():
        return []
    total = cast("int | None", ranges["gpu_exclusive_ns"].sum()) or 0
    host = [Field("ranges", count("ranges")), Field("on the host", ns("dur_ns"))]
    if total:
        title = "NVTX ranges by their own time on the GPU"
        fields = [
            Field("GPU own", ns("gpu_exclusive_ns")),
            Field("share", share("gpu_exclusive_ns", total)),
            Field("GPU busy", ns("gpu_busy_ns")),
            *host,
            Field("launches", count("launches")),
        ]
    else:
        title, fields = "NVTX ranges by their time on the host", host
    rows = [
        {**row, "name": ":".join(part for part in (row["domain"], row["name"]) if part) or None}
        for row in ranges.head(shape.top).iter_rows(named=True)
    ]
    found: list[RenderableType] = [heading(title), named_table(rows, "range", fields, shape)]
    left = ranges.height - len(rows)
    if left > 0:
        found.append(note(f"{format_count(left)} more names.", shape))
    if not total:
        found.append(note("No range encloses a call that launched GPU operations.", shape))
    return found


def page(trace: Trace) -> list[Part]:
    """The ranges."""
    if trace.ranges.is_empty():
        return [*missing.notes(trace, "ranges")]
    table = range_table(trace)
    on_gpu = (table["gpu_exclusive_ns"].fill_null(0) > 0).any()
    shown = table.with_columns(pl.coalesce("name", pl.lit("(no name)")))
    title, column = ("GPU time by range", "gpu_exclusive_ns") if on_gpu else ("Host time by range", "dur_ns")
    what = "GPU operations whose innermost range it is." if on_gpu else "Summed durations."
    parts: list[Part] = [bars("range-bars", title, what, shown, column)]
    if not on_gpu:
        parts.append(Note("No range encloses a call that launched GPU operations."))
    return [
        *parts,
        Table("ranges", "Ranges", "Summed over the ranges of one domain and name.", table, _COLUMNS),
    ]
