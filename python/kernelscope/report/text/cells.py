"""Common parts of text reports: their layout, and the cells of their tables."""

import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.box import SIMPLE_HEAD, Box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from kernelscope.report.files import print_or_write
from kernelscope.report.names import safe, short
from kernelscope.trace import Trace
from kernelscope.units import format_count, format_ns, format_percent

# The narrowest name that still tells kernels apart.
_NAME_WIDTH = 24
_NAME_SHARE = 0.45
_GAP = 2
_NARROWEST = 60
_TRAILING = re.compile(r" +$", re.MULTILINE)
_ASCII = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


@dataclass(frozen=True, slots=True)
class Shape:
    """Limits of the report: ``width`` in characters, ``top`` rows per table."""

    width: int
    color: bool
    unicode: bool
    top: int


Parts = Callable[[Shape], list[RenderableType]]


PIPED_WIDTH = 80
"""Width of plain text without a terminal, in characters."""


def text_width() -> int:
    """Returns the width of tables on standard output: of the terminal, or ``PIPED_WIDTH`` without one."""
    is_terminal = sys.stdout.isatty()
    return max(shutil.get_terminal_size().columns, _NARROWEST) if is_terminal else PIPED_WIDTH


def write_parts(
    parts: Parts, out: Path | None, *, top: int, width: int | None = None, plain_width: int = 100
) -> None:
    """Prints ``parts``, in colour if standard output is a terminal, or writes them to ``out``.

    Without ``width``, a text is as wide as the terminal, or ``plain_width`` characters without one.
    """
    if out is not None:
        console = plain_console(width or plain_width, file=io.StringIO(), color_system=None)
        shape = Shape(console.width, color=False, unicode=True, top=top)
    else:
        console = plain_console(width or shutil.get_terminal_size((plain_width, 24)).columns, file=sys.stdout)
        unicode = (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
        color = console.is_terminal and not console.no_color
        shape = Shape(console.width, color=color, unicode=unicode, top=top)
    with console.capture() as captured:
        console.print(*parts(shape), sep="\n")
    # Tables are filled up with spaces on the right.
    print_or_write(_TRAILING.sub("", captured.get()).rstrip("\n") + "\n", out)


def plain_console(width: int, **options: Any) -> Console:
    """Returns a console for text of traces, without markup, emoji or highlighting of names."""
    # rich takes NO_COLOR to be about colours, and writes escape sequences for bold text.
    if os.environ.get("NO_COLOR"):
        options["force_terminal"] = False
    return Console(width=max(width, _NARROWEST), markup=False, highlight=False, emoji=False, **options)


@dataclass(frozen=True, slots=True)
class Field:
    """A column of numbers: its title, and the text of a row's cell."""

    title: str
    cell: Callable[[dict[str, Any]], str]


def heading(title: str) -> Text:
    """Returns the title of a part of the report."""
    return Text("\n").append(title, style="bold")


def note(text: str, shape: Shape) -> Text:
    """Returns a remark under a table."""
    return Text(text, style="dim" if shape.color else "")


def ns(column: str) -> Callable[[dict[str, Any]], str]:
    """Returns the cell of a duration."""
    return lambda row: format_ns(row[column])


def count(column: str) -> Callable[[dict[str, Any]], str]:
    """Returns the cell of a number of things."""
    return lambda row: format_count(row[column])


def share(column: str, total: float | None) -> Callable[[dict[str, Any]], str]:
    """Returns the cell of the share of a value in ``total``."""
    return lambda row: format_percent(row[column] / total if total and row[column] is not None else None)


def named_table(rows: Sequence[dict[str, Any]], title: str, fields: Sequence[Field], shape: Shape) -> Table:
    """Returns a table of names with numbers beside them.

    As many of ``fields`` are shown, in order, as fit beside names of a useful width. The names get the
    remaining width.
    """
    cells = [[field.cell(row) for row in rows] for field in fields]
    widths = [max([len(field.title), *map(len, column)]) for field, column in zip(fields, cells, strict=True)]
    longest = max([len(title), *(len(safe(row["name"])) for row in rows)])
    width = min(longest, max(_NAME_WIDTH, int(shape.width * _NAME_SHARE)))
    room = shape.width - width
    shown = 0
    while shown < len(fields) and room >= widths[shown] + _GAP:
        room -= widths[shown] + _GAP
        shown += 1
    width = min(longest, width + room)
    # The box itself takes one character between columns.
    table = Table(
        box=SIMPLE_HEAD if shape.unicode else _ASCII,
        pad_edge=False,
        show_edge=False,
        padding=(0, _GAP - 1, 0, 0),
    )
    table.add_column(title, no_wrap=True, overflow="ellipsis", max_width=width)
    for field in fields[:shown]:
        table.add_column(field.title, justify="right", no_wrap=True)
    for index, row in enumerate(rows):
        table.add_row(plain(short(row["name"], width), shape), *(column[index] for column in cells[:shown]))
    return table


def top_table(
    table: pl.DataFrame, by: str, title: str, fields: list[Field], shape: Shape
) -> list[RenderableType]:
    """Returns the rows of ``table`` with the largest ``by``, under a heading."""
    order = table.sort([by, "name"], descending=[True, False], nulls_last=True).head(shape.top)
    found: list[RenderableType] = [heading(title), named_table(order.to_dicts(), "name", fields, shape)]
    if table.height > order.height:
        found.append(note(f"and {format_count(table.height - order.height)} more", shape))
    return found


def plain(text: str, shape: Shape) -> Text:
    """Returns text from a trace as a cell: without markup, and limited to printable characters."""
    return Text(text if shape.unicode else text.encode("ascii", "replace").decode("ascii"))


def lacking(trace: Trace, view: str, title: str, shape: Shape) -> list[RenderableType]:
    """Returns the reason why the trace has no data for a view, and the remedy."""
    from kernelscope import analysis

    rows = analysis.missing_views(trace).filter(view=view)
    text = " ".join(rows.row(0)[1:]) if rows.height else "There is nothing to show."
    return [heading(title), note(text, shape)]
