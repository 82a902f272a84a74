"""Selects the format and the destination of a report."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import knows_ranks

if TYPE_CHECKING:
    from kernelscope.report.parts import View
    from kernelscope.trace import Trace

FORMATS = ("text", "json", "csv", "parquet", "html")
"""Formats of a report."""


@knows_ranks
def render(
    trace: "Trace",
    *,
    format: str = "text",  # noqa: A002 - as --format
    out: str | os.PathLike[str] | None = None,
    top: int = 10,
    width: int | None = None,
    also: tuple[str, ...] = (),
) -> None:
    """Writes the report of ``trace``.

    ``text`` and ``json`` go to standard output or the file ``out``. ``csv`` and ``parquet`` need a folder
    ``out``, and ``html`` a file, one page that works offline. Existing output is replaced when the new report
    is complete. ``top`` is the number of rows of each table of the text, ``width`` its width in characters
    (default: the terminal's). ``also`` names additional views of the text: those in ``report/views`` with
    ``ON_REQUEST``. Each of several ranks in ``trace`` has its own report: in one text or JSON, in folders
    ``rank0`` and so on, or in pages with this suffix in their names.

    Raises: InvalidArgumentError: the format is unknown, the folder for CSV or Parquet or the file for HTML is
            missing, or a package that the page needs is not installed. OSError: the report cannot be written.
    """
    if format not in FORMATS:
        raise InvalidArgumentError(f"there is no format {format!r}; the formats are {', '.join(FORMATS)}")
    if top < 1:
        raise InvalidArgumentError(f"top must be at least 1, not {top}")
    out = None if out is None else Path(out)
    if trace.parts and out is not None and format not in ("text", "json"):
        for part in trace.parts:
            place = f"rank{part.meta.rank}"
            own = out.with_suffix(f".{place}{out.suffix}") if format == "html" else out / place
            render(part, format=format, out=own)
        return
    if format in ("csv", "parquet"):
        if out is None:
            raise InvalidArgumentError(f"the format {format} is a folder of files: pass it with --out")
        from kernelscope.report import folder

        folder.write(trace, out, suffix=format)
        return
    if format == "html":
        if out is None:
            raise InvalidArgumentError("the format html is a page: pass its file with --out")
        from kernelscope.report.html.page import write_page

        write_page(trace, out)
        return
    if format == "json":
        from kernelscope.report.files import print_or_write
        from kernelscope.report.json_document import to_json

        print_or_write(to_json(trace), out)
        return
    from kernelscope.report.text.cells import write_parts
    from kernelscope.report.text.trace import parts

    write_parts(partial(parts, trace, also), out, top=top, width=width)


def page_views(trace: "Trace") -> "dict[str, View]":
    """The views of the page by name. Each displays itself in a notebook.

    Example: ``ks.report.page_views(trace)["kernels"]``
    """
    from kernelscope.report.html.page import every_view

    return {view.id: view for view in every_view(trace)}
