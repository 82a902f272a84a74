"""Says how a batch is getting on: a line of JSON per rank for machines, rate and time left for people."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from kernelscope.units import format_bytes, format_count

if TYPE_CHECKING:
    from kernelscope.batch.reports import BatchReport, RankReport

_PATIENCE_S = 1.0
_EVERY_S = {True: 0.2, False: 10.0}
"""How often a terminal is written to, and a file."""
_SHOWN_FAILURES = 10


class Watch:
    """Shows how far a batch is while a context lasts. Results go to stdout, everything else to stderr."""

    def __init__(self, *, json_lines: bool) -> None:
        self._json_lines = json_lines
        self._terminal = sys.stderr.isatty()
        self._shown = time.monotonic() + (_PATIENCE_S if self._terminal else 0)
        self._width = 0
        self._failures = 0

    def update(self, rank: "RankReport", batch: "BatchReport") -> None:
        """Notes that a source is finished."""
        if self._json_lines:
            sys.stdout.write(rank.to_line())
            sys.stdout.flush()
        if rank.status == "failed":
            self._failures += 1
            if self._failures <= _SHOWN_FAILURES:
                self._say(f"kernelscope: {rank.entry.error}")
        if time.monotonic() - self._shown >= _EVERY_S[self._terminal]:
            self._shown = time.monotonic()
            self._show(progress_text(batch))

    def _show(self, text: str) -> None:
        if self._terminal:
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)
        else:
            print(f"kernelscope: {text}", file=sys.stderr)

    def _say(self, text: str) -> None:
        self._clear()
        print(text, file=sys.stderr)

    def _clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0

    def conclude(self, batch: "BatchReport", *, run: str) -> None:
        """Says what became of the batch, and what is odd about the ranks of ``run``."""
        from kernelscope.batch.reports import consistency_warnings

        if self._failures > _SHOWN_FAILURES:
            more = self._failures - _SHOWN_FAILURES
            print(f"kernelscope: ... and {format_count(more)} more, see {batch.lake}", file=sys.stderr)
        print(f"kernelscope: {final_text(batch)}", file=sys.stderr)
        for warning in consistency_warnings(batch.entries.values(), run=run):
            print(f"kernelscope: {warning}", file=sys.stderr)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()


def progress_text(batch: "BatchReport") -> str:
    """How far a batch is, how fast it goes, and when it will be done."""
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
    """What became of a batch."""
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
