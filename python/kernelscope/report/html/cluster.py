"""The page about a job of many ranks: as large for a thousand as for ten."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.report.files import write_bytes
from kernelscope.report.html.cluster_views import clocks, collectives, files, look_first, ranks, steps
from kernelscope.report.html.job import Job
from kernelscope.report.html.libraries import packed_libraries
from kernelscope.report.html.page import to_page
from kernelscope.report.html.parts import View
from kernelscope.report.names import safe

if TYPE_CHECKING:
    from kernelscope.analysis.ranks.cluster import Source


def write_cluster_page(
    source: "Source",
    out: Path,
    *,
    title: str,
    sources: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Writes the page about the ranks of ``source``; what stood at ``out`` is replaced when it is complete.

    ``sources`` is the manifest of a lake, and ``notes`` are sentences about it.

    Raises: InvalidArgumentError: there is no rank, or a library of the page is not installed.
        OSError: the page cannot be written.
    """
    libraries = packed_libraries()
    views = _views(Job(source, sources, notes))
    write_bytes(out, *to_page(views, title=safe(title), libraries=libraries))


def _views(job: Job) -> list[View]:
    return [view(job) for view in (look_first, ranks, collectives, steps, clocks, files)]
