"""NVTX ranges on the host and on the GPU."""

import polars as pl

from kernelscope.report.html.charts import bars
from kernelscope.report.html.parts import Note, Part, View
from kernelscope.report.html.sources import Sources
from kernelscope.report.html.tables import Table
from kernelscope.report.views.ranges import range_table

_COLUMNS = (
    "name", "domain", "ranges", "gpu_exclusive_ns", "gpu_busy_ns", "gpu_span_ns", "dur_ns", "launches",
    "gpu_ops",
)  # fmt: skip


def view(sources: Sources) -> View:
    """The ranges."""
    what = "NVTX ranges of the program, their time on the host and what they come to on the GPU."
    return View("ranges", "NVTX ranges", what, _parts(sources))


def _parts(sources: Sources) -> list[Part]:
    if sources.trace.ranges.is_empty():
        return [*sources.missing("ranges")]
    table = range_table(sources.trace)
    on_gpu = (table["gpu_exclusive_ns"].fill_null(0) > 0).any()
    shown = table.with_columns(pl.coalesce("name", pl.lit("(no name)")))
    title, column = ("GPU time by range", "gpu_exclusive_ns") if on_gpu else ("Host time by range", "dur_ns")
    what = "Work of which the range is the innermost, on the GPU." if on_gpu else "Summed durations."
    parts: list[Part] = [bars("range-bars", title, what, shown, column)]
    if not on_gpu:
        parts.append(Note("No range encloses a call with GPU work."))
    return [
        *parts,
        Table("ranges", "Ranges", "Summed over the ranges of one domain and name.", table, _COLUMNS),
    ]
