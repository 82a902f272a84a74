"""What could make the program faster."""

import polars as pl

from kernelscope.report.html.parts import Note, Part, View
from kernelscope.report.html.sources import Sources
from kernelscope.report.html.tables import Table

COLUMNS = (
    "title", "severity", "evidence", "remedy", "saving_ns", "saving_share", "value", "threshold", "unit",
    "table", "cited", "id",
)  # fmt: skip


def view(sources: Sources) -> View:
    """The recommendations."""
    what = "What could make the program faster, as far as its trace shows, the weightiest first."
    return View("recommendations", "Recommendations", what, _parts(sources))


def _parts(sources: Sources) -> list[Part]:
    table = sources.recommendations
    if table.is_empty():
        return [Note("No rule has anything to say about this trace.")]
    what = (
        "Each rests on rows of the trace. A saving is the time that would be gone if the cause were gone"
        " altogether; savings overlap and cannot be added."
    )
    return [Table("advice", "Recommendations", what, table.drop("rows"), COLUMNS), *_cited(table)]


def _cited(table: pl.DataFrame) -> list[Part]:
    text = "Row numbers that each rests on are in kernelscope.analysis.recommendations(trace)."
    return [Note(text)] if (table["cited"] > 0).any() else []
