"""Reads the trace that a subcommand names; a progress bar on stderr if it takes longer than a second."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kernelscope.trace import Trace

_PATIENCE_S = 1.0


class Bar:
    """Shows bytes done while a context lasts; nothing if stderr is no terminal or the work is short.

    Example: ``with Bar("reading") as bar: ks.read(path, progress=bar.update)``
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()
        self._wanted = sys.stderr.isatty()
        self._shown: tuple[Progress, TaskID] | None = None

    def update(self, done: int, total: int) -> None:
        """Shows that ``done`` of ``total`` bytes are done; ``total`` is 0 while unknown."""
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
    options: argparse.Namespace, *, tables: "Mapping[str, Sequence[str]] | None" = None
) -> "Trace":
    """The trace of the arguments that ``arguments.add_reading`` adds, read with a progress bar.

    ``tables`` are those that are needed, and the columns of each; all if null.
    """
    from kernelscope.trace import read

    with Bar("reading") as bar:
        return read(
            options.trace,
            strict=options.strict,
            threads=options.threads,
            step_range=options.step_range,
            tables=tables,
            progress=bar.update,
        )
