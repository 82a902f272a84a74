"""NVTX ranges on the host and on the GPU, as text."""

from typing import cast

import polars as pl
from rich.console import RenderableType

from kernelscope.report.cells import Field, Shape, count, heading, named_table, note, ns, share
from kernelscope.units import format_count


def parts(ranges: pl.DataFrame, shape: Shape) -> list[RenderableType]:
    """The ranges that cost most; nothing for a trace without NVTX."""
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
        found.append(note("No range encloses a call with GPU work.", shape))
    return found
