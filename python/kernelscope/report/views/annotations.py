"""Costs of annotations of the program and of the profiler, on the host and on the GPU."""

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.parts import Note, Page, Part
from kernelscope.report.parts.charts import bars
from kernelscope.report.parts.tables import Table
from kernelscope.report.text.cells import Field, Shape, count, heading, named_table, note, ns
from kernelscope.report.views import missing
from kernelscope.trace import Trace
from kernelscope.units import format_count

ORDER = 105
TABLES = (*missing.TABLES, "gpu_annotations")
PAGE_ORDER = 84
PAGE = Page(
    "annotations",
    "Annotations",
    "Annotations of the program and of the profiler, with their time on the host and on the GPU.",
)
ON_REQUEST = True
_COLUMNS = (
    "name", "calls", "gpu_busy_ns", "gpu_exclusive_ns", "gpu_span_ns", "device_total_ns", "other_thread_ns",
    "host_total_ns", "gpu_ops", "images", "image_ns",
)  # fmt: skip
_NONE = "The trace has no annotations. Record some with torch.profiler.record_function."


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"annotations": analysis.annotation_table(trace)}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the annotations with the longest GPU time, or host time without GPU operations."""
    table = analysis.annotation_table(trace)
    if table.is_empty():
        return [heading("Annotations"), note(_NONE, shape)]
    on_gpu = [
        Field("GPU busy", ns("gpu_busy_ns")),
        Field("GPU own", ns("gpu_exclusive_ns")),
        Field("GPU span", ns("gpu_span_ns")),
        Field("GPU operations", count("gpu_ops")),
    ]
    host = [Field("on the host", ns("host_total_ns")), Field("calls", count("calls"))]
    fields = host if trace.gpu_ops.is_empty() else [*on_gpu, *host]
    rows = table.head(shape.top).to_dicts()
    found: list[RenderableType] = [heading("Annotations"), named_table(rows, "annotation", fields, shape)]
    if table.height > len(rows):
        found.append(note(f"{format_count(table.height - len(rows))} more names.", shape))
    return found


def page(trace: Trace) -> list[Part]:
    """The annotations."""
    table = analysis.annotation_table(trace)
    if table.is_empty():
        return [Note(_NONE, missing=True)]
    on_gpu = (table["gpu_exclusive_ns"].fill_null(0) > 0).any()
    title, column = (
        ("GPU time by annotation", "gpu_exclusive_ns")
        if on_gpu
        else ("Host time by annotation", "host_total_ns")
    )
    what = "Time of the operations whose innermost annotation it is." if on_gpu else "Summed durations."
    about = (
        "An operation counts for every annotation that is open on the launching thread, and in the "
        "backward pass also for those on the thread that waits for it."
    )
    return [
        bars("annotation-bars", title, what, table, column),
        Table("annotations", "Annotations", about, table, _COLUMNS),
    ]
