"""Chooses the form of a report and where it goes."""

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
"""The forms of a report."""


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

    ``text`` and ``json`` go to standard output or into the file ``out``; ``csv`` and ``parquet``
    need ``out``, a folder, and ``html`` a file, one page that works offline. What stood there before
    is replaced only when the new report is complete. ``top`` is the number of rows of each table of
    the text, ``width`` its columns: null for those of the terminal. ``also`` names views that the text
    shows, too: those of ``report/views`` with ``ON_REQUEST``. Each of several ranks in ``trace`` has a
    report of its own: in one text or JSON, in folders ``rank0`` and so on, or in pages called so before
    their suffix.

    Raises: InvalidArgumentError: an unknown format, no folder for CSV or Parquet or file for HTML, or a
            package that the page needs is not installed.
        OSError: the report cannot be written.
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
            raise InvalidArgumentError(f"the format {format} is a folder of files: name it with --out")
        from kernelscope.report import folder

        folder.write(trace, out, suffix=format)
        return
    if format == "html":
        if out is None:
            raise InvalidArgumentError("the format html is a page: name its file with --out")
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
    """The views of the page by name; each displays itself in a notebook.

    Example: ``ks.report.page_views(trace)["kernels"]``
    """
    from kernelscope.report.html.page import every_view

    return {view.id: view for view in every_view(trace)}
