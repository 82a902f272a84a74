"""The report as text: tables that fit the terminal."""

import io
import re
import shutil
import sys
from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console, Group, RenderableType
from rich.text import Text

from kernelscope.report import (
    advice_text,
    facts,
    gpu_tables,
    idle_tables,
    op_tables,
    range_tables,
    step_tables,
)
from kernelscope.report.answers import Answers
from kernelscope.report.cells import Shape, heading, note
from kernelscope.report.findings import findings

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_PLAIN_WIDTH = 100
_NARROWEST = 60
_TRAILING = re.compile(r" +$", re.MULTILINE)


def print_report(
    trace: "Trace", answers: Answers, *, top: int, width: int | None, also: tuple[str, ...] = ()
) -> None:
    """Prints the report on standard output, in colour if that is a terminal."""
    columns = width or shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns
    # The names of a trace are never markup, emoji or highlighted.
    console = Console(
        file=sys.stdout, width=max(columns, _NARROWEST), markup=False, highlight=False, emoji=False
    )
    unicode = (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
    color = console.is_terminal and not console.no_color
    shape = Shape(console.width, color=color, unicode=unicode, top=top)
    with console.capture() as captured:
        console.print(*_parts(trace, answers, shape, also), sep="\n")
    sys.stdout.write(_trimmed(captured.get()))


def to_text(
    trace: "Trace", answers: Answers, *, top: int, width: int | None, also: tuple[str, ...] = ()
) -> str:
    """The report as text without colour."""
    columns = max(width or _PLAIN_WIDTH, _NARROWEST)
    console = Console(
        file=io.StringIO(), width=columns, markup=False, highlight=False, emoji=False, color_system=None
    )
    with console.capture() as captured:
        shape = Shape(columns, color=False, unicode=True, top=top)
        console.print(*_parts(trace, answers, shape, also), sep="\n")
    return _trimmed(captured.get())


def _trimmed(text: str) -> str:
    """``text`` without the spaces that fill tables up on the right."""
    return _TRAILING.sub("", text).rstrip("\n") + "\n"


def _parts(trace: "Trace", answers: Answers, shape: Shape, also: tuple[str, ...]) -> list[RenderableType]:
    parts: list[RenderableType] = [facts.header(trace, shape)]
    parts += step_tables.parts(answers, shape)
    parts += advice_text.parts(answers.recommendations, shape)
    parts += op_tables.operators(answers.ops, shape)
    parts += op_tables.kernels(answers, shape)
    parts += range_tables.parts(answers.ranges, shape)
    parts += gpu_tables.parts(answers, shape)
    parts += idle_tables.parts(answers, shape)
    if also:
        from kernelscope.report import view_tables

        parts += view_tables.parts(trace, shape, also)
    parts += _findings(answers.diagnostics, shape)
    return parts


def _findings(diagnostics: pl.DataFrame, shape: Shape) -> list[RenderableType]:
    """What was wrong with the file, or that nothing was."""
    if diagnostics.is_empty():
        return [heading("The file"), note("Nothing was repaired and nothing was lost.", shape)]
    lines: list[RenderableType] = [heading("What was wrong or odd about the file")]
    styles = {"lost": "red", "repaired": "yellow"}
    for finding in findings(diagnostics):
        line = Text()
        line.append(f"{finding.count:>9,} ", style="bold")
        line.append(
            f"{finding.severity:<9}", style=styles.get(finding.severity, "dim") if shape.color else ""
        )
        line.append(finding.message)
        if finding.place and finding.severity != "info":
            line.append(f" First at {finding.place}.")
        elif finding.place:
            line.append(f" ({finding.place})")
        lines.append(_hanging(line))
    return [Group(*lines)]


def _hanging(line: Text) -> RenderableType:
    from rich.table import Table

    grid = Table.grid(padding=0)
    grid.add_column(width=20, no_wrap=True)
    grid.add_column()
    grid.add_row(line[:20], line[20:] if len(line) > 20 else Text())
    return grid
