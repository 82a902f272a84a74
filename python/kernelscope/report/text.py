"""The report as text: tables that fit the terminal."""

import io
import re
import shutil
import sys

from rich.console import Console, RenderableType

from kernelscope.report import summary, views
from kernelscope.report.cells import Shape
from kernelscope.trace import Trace

_PLAIN_WIDTH = 100
_NARROWEST = 60
_TRAILING = re.compile(r" +$", re.MULTILINE)


def print_report(trace: Trace, *, top: int, width: int | None, also: tuple[str, ...] = ()) -> None:
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
        console.print(*_parts(trace, shape, also), sep="\n")
    sys.stdout.write(_trimmed(captured.get()))


def to_text(trace: Trace, *, top: int, width: int | None, also: tuple[str, ...] = ()) -> str:
    """The report as text without colour."""
    columns = max(width or _PLAIN_WIDTH, _NARROWEST)
    console = Console(
        file=io.StringIO(), width=columns, markup=False, highlight=False, emoji=False, color_system=None
    )
    with console.capture() as captured:
        shape = Shape(columns, color=False, unicode=True, top=top)
        console.print(*_parts(trace, shape, also), sep="\n")
    return _trimmed(captured.get())


def _trimmed(text: str) -> str:
    """``text`` without the spaces that fill tables up on the right."""
    return _TRAILING.sub("", text).rstrip("\n") + "\n"


def _parts(trace: Trace, shape: Shape, also: tuple[str, ...]) -> list[RenderableType]:
    """The header, every view that has a text, and before the last, on the file, those asked for."""
    shown = [view for view in views.every() if hasattr(view, "text") and not views.is_on_request(view)]
    shown.sort(key=lambda view: getattr(view, "TEXT_ORDER", view.ORDER))
    shown[-1:-1] = [views.named(name) for name in also]
    return [summary.header(trace, shape), *(part for view in shown for part in view.text(trace, shape))]
