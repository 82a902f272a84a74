"""Progress of a batch: one line of JSON per rank for machines, rate and remaining time for people."""

import contextlib
import os
import sys
import time
from collections.abc import Generator
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from kernelscope.cli.console import say
from kernelscope.units import format_bytes, format_count

if TYPE_CHECKING:
    from kernelscope.batch.reports import BatchReport, RankReport

_PATIENCE_S = 1.0
_EVERY_S = {True: 0.2, False: 10.0}
"""Interval between updates of a terminal, and of a file, in seconds."""
_SHOWN_FAILURES = 10
_NAMED_FAILURES = 100
_SHOWN_RUNS = 3
"""Maximum number of runs with reported oddities; there may be a hundred jobs in a folder."""
_WIDTH = 80


class Watch:
    """Shows the progress of a batch during a context. Results go to stdout, everything else to stderr."""

    def __init__(self, *, json_lines: bool) -> None:
        self._json_lines = json_lines
        self._terminal = sys.stderr.isatty()
        self._shown = time.monotonic() + (_PATIENCE_S if self._terminal else 0)
        self._width = 0
        self._failed: dict[str, None] = {}

    def update(self, rank: "RankReport", batch: "BatchReport") -> None:
        """Records that a source is finished."""
        with ignoring_closed_pipes():
            self._update(rank, batch)

    def _update(self, rank: "RankReport", batch: "BatchReport") -> None:
        if rank.status == "failed":
            self._failed[rank.entry.source] = None
        if self._json_lines:
            sys.stdout.write(rank.to_line())
            # Those that are unchanged are all known at once.
            if rank.status != "unchanged":
                sys.stdout.flush()
        if rank.status == "failed" and len(self._failed) <= _SHOWN_FAILURES:
            self._say(f"{rank.entry.error}")
        if time.monotonic() - self._shown >= _EVERY_S[self._terminal]:
            self._shown = time.monotonic()
            self._show(progress_text(batch))

    def _show(self, text: str) -> None:
        if self._terminal:
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)
        else:
            self._say(text)

    def _say(self, text: str) -> None:
        self._clear()
        # A terminal wraps lines itself.
        say(text, width=None if self._terminal else _WIDTH)

    def _clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0

    def conclude(self, batch: "BatchReport", *, run: str) -> None:
        """Prints the result of the batch, and oddities of the ranks that were requested as ``run``."""
        from kernelscope.batch.reports import consistency_warnings, runs_of

        self._say(final_text(batch))
        for note in batch.notes:
            self._say(note)
        runs = runs_of(batch.entries.values(), asked=run)
        for name in runs[:_SHOWN_RUNS]:
            for warning in consistency_warnings(batch.entries.values(), run=name):
                self._say(f"run {name}: {warning}" if len(runs) > 1 else warning)

    def name_failures(self) -> None:
        """Prints last the sources whose current state is not in the lake."""
        for name in islice(self._failed, _NAMED_FAILURES):
            say(f"failed: {name}")
        if len(self._failed) > _NAMED_FAILURES:
            more = format_count(len(self._failed) - _NAMED_FAILURES)
            say(f"failed: {more} more, listed in the manifest of the lake")

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ignoring_closed_pipes():
            sys.stdout.flush()
            self._clear()


@contextlib.contextmanager
def ignoring_closed_pipes() -> Generator[None]:
    """Discards output to a closed pipe: the purpose of a batch is its lake."""
    try:
        yield
    except BrokenPipeError:
        _silence(sys.stdout)
        _silence(sys.stderr)


def _silence(stream: TextIO) -> None:
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        stream.flush()


def progress_text(batch: "BatchReport") -> str:
    """Returns the progress, rate and remaining time of a batch."""
    seconds = max(time.monotonic() - batch.started, 1e-9)
    parts = [f"{format_count(batch.finished)} of {format_count(batch.total)} traces"]
    if batch.failed:
        parts.append(f"{format_count(batch.failed)} failed")
    parts.append(f"{format_bytes(batch.read_bytes / seconds)}/s")
    left = batch.total_bytes - batch.seen_bytes
    if batch.read_bytes:
        parts.append(f"{_duration(seconds * left / batch.read_bytes)} left")
    return ", ".join(parts)


def final_text(batch: "BatchReport") -> str:
    """Returns the result of a batch."""
    seconds = time.monotonic() - batch.started
    parts = [f"{format_count(batch.done)} read"]
    if batch.unchanged:
        parts.append(f"{format_count(batch.unchanged)} unchanged")
    if batch.failed:
        parts.append(f"{format_count(batch.failed)} failed")
    rate = f", {format_bytes(batch.read_bytes / max(seconds, 1e-9))}/s" if batch.done else ""
    traces = f"{format_count(batch.total)} traces" if batch.total != 1 else "1 trace"
    return f"{traces} in {_duration(seconds)}{rate}: {', '.join(parts)}; the lake is {batch.lake}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
