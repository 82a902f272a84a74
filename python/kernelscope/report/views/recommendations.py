"""Recommendations for making the program faster."""

from typing import Any

import polars as pl
from rich.console import RenderableType
from rich.table import Table as TextTable
from rich.text import Text

from kernelscope import analysis
from kernelscope.report.names import safe
from kernelscope.report.parts import Note, Page, Part
from kernelscope.report.parts.tables import Table
from kernelscope.report.text.cells import Shape, heading, note, plain
from kernelscope.trace import Trace
from kernelscope.units import format_percent

_MOST = 5
_STYLES = {"high": "red", "medium": "yellow", "low": "dim"}


ORDER = 70
TABLES = (
    "ops", "python", "ranges", "launches", "gpu_ops", "syncs", "memory", "counters", "steps", "gpu_steps",
    "devices",
)  # fmt: skip
# By which calls, waits and streams belong together.
NUMBERS = {"launches": ("correlation",), "syncs": ("correlation",), "gpu_ops": ("context",)}
TEXT_ORDER = 15
PAGE_ORDER = 10
PAGE = Page(
    "recommendations",
    "Recommendations",
    "Changes that could make the program faster, judged by its trace, the most important first.",
)
COLUMNS = (
    "title", "severity", "device", "evidence", "remedy", "saving_ns", "saving_share", "remaining_ns", "cited",
)  # fmt: skip
"""Columns for people: the evidence contains the value and the threshold, which JSON has as numbers."""


def separate(trace: Trace) -> pl.DataFrame:
    """Returns recommendations without those that are part of another."""
    return analysis.recommendations(trace).filter(pl.col("same_cause_as").is_null())


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"recommendations": analysis.recommendations(trace)}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the most important ones with evidence and remedy, or nothing."""
    recommendations = separate(trace)
    if recommendations.is_empty():
        return []
    total_ns = int(analysis.step_times(trace)["total_ns"].sum())
    recommendations = recommendations.with_columns(remaining_share=pl.col("remaining_ns") / total_ns)
    # The GPUs of one kind of advice share a line, which is that of the worst.
    recommendations = recommendations.with_columns(others=pl.col("id").count().over("id") - 1)
    recommendations = recommendations.unique("id", keep="first", maintain_order=True)
    table = TextTable.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in recommendations.head(_MOST).iter_rows(named=True):
        style = _STYLES[row["severity"]] if shape.color else ""
        table.add_row(Text(f"  {row['severity']}", style=style), _advice(row, shape))
    found: list[RenderableType] = [heading("Recommendations"), table]
    rest = recommendations.height - _MOST
    if rest > 0:
        found.append(note(f"and {rest} more in --format json and html", shape))
    return found


def _advice(row: dict[str, Any], shape: Shape) -> Text:
    saving, remaining = row["saving_share"], row["remaining_share"]
    won = "" if saving is None else f" At most {format_percent(saving)} of the step time can be saved"
    # It depends on the changes above if it then saves twice or half as much.
    if saving is not None and remaining is not None and not saving / 2 <= remaining <= 2 * saving:
        won += f", and {format_percent(remaining)} after the changes above"
    won += "." if won else ""
    more = row["others"]
    others = f" The same applies to {more} other GPU{'s' if more > 1 else ''}." if more else ""
    text = Text(f"{row['title']}. ", style="bold" if shape.color else "")
    return text.append_text(plain(f"{safe(row['evidence'])}{others}{won} {row['remedy']}", shape))


def page(trace: Trace) -> list[Part]:
    """The recommendations."""
    table = separate(trace)
    if table.is_empty():
        return [Note("No rule applies to this trace.")]
    what = (
        "Each recommendation refers to rows of the trace. A saving is the reduction of step time in a "
        "replay without the cause. Savings overlap and cannot be added."
    )
    return [
        Table("advice", "Recommendations", what, table.drop("rows", "same_cause_as"), COLUMNS),
        *_cited(table),
    ]


def _cited(table: pl.DataFrame) -> list[Part]:
    text = "kernelscope.analysis.recommendations(trace) has the row numbers behind each recommendation."
    return [Note(text)] if (table["cited"] > 0).any() else []
