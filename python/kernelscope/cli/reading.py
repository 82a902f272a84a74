"""Reads the trace of a subcommand, with a progress bar on stderr if it takes longer than a second."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kernelscope.cli.console import say
from kernelscope.cli.inputs import STDIN, STDIN_NAME, on_disk
from kernelscope.errors import InvalidArgumentError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kernelscope.batch.lake import Lake
    from kernelscope.report.findings import Finding
    from kernelscope.trace import Trace

_PATIENCE_S = 1.0
LOST = "lost_rows"
"""Options that change after reading: whether rows of a database are lost without permission."""

_TOLD = "told_findings"
_DATABASES = ("nsys", "nvprof")
# What leaves rows in their table, without a value that a figure may need.
_NOT_KNOWN = (
    "missing_column", "missing_duration", "negative_duration", "unexpected_null", "unknown_string",
    "untimed_work",
)  # fmt: skip
# A recording that begins inside a range has its end alone: no row of the file is missing.
_NEVER_THERE = ("range_without_start",)


class Bar:
    """Shows progress in bytes during a context, unless stderr is not a terminal or the read is short.

    Example: ``with Bar("reading") as bar: ks.read(path, progress=bar.update)``
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()
        # A bar is moved by escape sequences.
        self._wanted = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._shown: tuple[Progress, TaskID] | None = None

    def update(self, done: int, total: int) -> None:
        """Shows that ``done`` of ``total`` bytes are done; ``total`` is 0 if unknown."""
        if not self._wanted or time.monotonic() - self._started < _PATIENCE_S:
            return
        progress, task = self._shown or self._show()
        progress.update(task, completed=done, total=total or None)

    def _show(self) -> tuple["Progress", "TaskID"]:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        progress.start()
        self._shown = progress, progress.add_task(self._title)
        return self._shown

    def __enter__(self) -> "Bar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown[0].stop()


def read_trace(
    options: argparse.Namespace,
    *,
    tables: "Mapping[str, Sequence[str]] | None" = None,
    knows_ranks: bool = False,
    **filters: Any,
) -> "Trace":
    """Reads the trace in the arguments of ``arguments.add_reading``, with a progress bar.

    ``tables`` selects tables, and the columns of each (default: all). With ``knows_ranks``, it may contain
    several ranks. ``filters`` come from ``arguments.filters_of``.
    """
    return read_file(
        options,
        options.trace,
        threads=options.threads,
        step_range=options.step_range,
        tables=tables,
        capture=options.capture,
        rank=options.rank,
        knows_ranks=knows_ranks,
        **filters,
    )


def read_ranks(options: argparse.Namespace) -> "Trace | Lake":
    """Reads a trace, perhaps of several merged ranks, or opens the lake in its place.

    Raises: InvalidArgumentError: there are options of reading for a lake.
    """
    from kernelscope.batch.lake import scan
    from kernelscope.batch.rank_folders import is_lake
    from kernelscope.remote import is_url

    path: str = options.trace
    if path == STDIN or is_url(path) or not is_lake(Path(path)):
        return read_trace(options, knows_ranks=True)
    check_of_lake(options)
    return scan(path, ranks=None if options.rank is None else [options.rank])


def check_of_lake(options: argparse.Namespace) -> None:
    """Refuses options of reading for a lake.

    Raises: InvalidArgumentError: there are some.
    """
    if options.strict or options.step_range is not None or options.capture is not None:
        raise InvalidArgumentError(
            f"{options.trace} is a lake, whose traces were read already: pass such options to kernelscope "
            "batch"
        )


def read_file(
    options: argparse.Namespace,
    path: str,
    *,
    for_json: str | None = None,
    watch: Callable[[int, int], object] | None = None,
    knows_ranks: bool = False,
    **reading: Any,
) -> "Trace":
    """Reads the trace at ``path``, which may be a URL or ``-`` for standard input, with a progress bar.

    ``options`` are those of ``arguments.add_loss``, ``reading`` further ones of ``reading.read_part``. A
    command that does not read JSON names another one in ``for_json``. ``watch`` also receives the progress. A
    file of several ranks is refused without ``knows_ranks``.
    """
    from kernelscope.reading import read_part

    with on_disk(path, for_json=for_json) as file, Bar("reading") as bar:

        def advance(done: int, total: int) -> None:
            bar.update(done, total)
            if watch is not None:
                watch(done, total)

        trace = read_part(file, progress=advance, strict=options.strict, **reading)
    # A file of standard input or of a URL is gone by now.
    name = STDIN_NAME if path == STDIN else path
    trace = trace if file == path else replace(trace, meta=replace(trace.meta, path=name))
    if trace.parts and not knows_ranks:
        from kernelscope.meta import rank_text

        ranks = ", ".join(rank_text(trace.meta, rank) for rank in trace.meta.ranks)
        raise InvalidArgumentError(
            f"{name}: contains {len(trace.parts)} ranks. Choose one with --rank: {ranks}"
        )
    tell_loss(trace, options)
    return trace


def tell_loss(trace: "Trace", options: argparse.Namespace) -> None:
    """Prints lost data of a trace, and unknown data of a database; each finding once for ``options``.

    Records in ``options`` that rows of a database are lost, which is a failure unless permitted. Bad events
    of a JSON trace are never a failure.
    """
    from kernelscope.report.findings import findings

    is_database = trace.meta.format in _DATABASES
    found = [
        finding
        for finding in findings(trace)
        if finding.severity == "lost" or (is_database and finding.code in _NOT_KNOWN)
    ]
    told: set[tuple[str, Finding]] = vars(options).setdefault(_TOLD, set())
    new = [finding for finding in found if (trace.meta.path, finding) not in told]
    told.update((trace.meta.path, finding) for finding in new)
    gone = [finding for finding in found if finding.severity == "lost" and finding.code not in _NEVER_THERE]
    fails = is_database and bool(gone) and not options.allow_loss
    setattr(options, LOST, vars(options).get(LOST, False) or fails)
    parts = [
        f"{what}: {', '.join(map(_in_words, chosen))}"
        for what, chosen in (
            ("lost", [finding for finding in new if finding.severity == "lost"]),
            ("not known", [finding for finding in new if finding.severity != "lost"]),
        )
        if chosen
    ]
    if parts:
        end = "; the exit code is 1 without --allow-loss" if fails else ""
        say(f"{trace.meta.path}: {'; '.join(parts)}; kernelscope info shows details{end}")


def _in_words(finding: "Finding") -> str:
    place = f" ({finding.place})" if finding.place else ""
    return f"{finding.count:,} {finding.code.replace('_', ' ')}{place}"
