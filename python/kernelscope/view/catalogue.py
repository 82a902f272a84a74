"""Lists of traces in a viewer: the files of a folder."""

import contextlib
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import polars as pl

from kernelscope.batch import sources
from kernelscope.batch.rank_names import told_by_name
from kernelscope.batch.sources import Source
from kernelscope.errors import KernelscopeError, NotRecordedError
from kernelscope.report.names import safe
from kernelscope.trace import Trace
from kernelscope.view.headers import Header, header_of
from kernelscope.view.session import Progress

Reader: TypeAlias = Callable[[str, Progress], Trace]
"""Reads the trace at a path, and reports progress."""

_CYCLE = re.compile(r"(.+)\.([0-9]{9,20})(?:\.pt)?(?:\.trace)?\.json(?:\.gz|\.zst)?")
_FOLDER_SCHEMA: dict[str, pl.DataType] = {
    "file": pl.String(),
    "run": pl.String(),
    "rank": pl.Int64(),
    "cycle": pl.Int64(),
    "gpu_names": pl.String(),
    "recorded_ns": pl.Int64(),
    "bytes": pl.Int64(),
    "error": pl.String(),
}


class Opening(NamedTuple):
    """How to open a trace. ``path`` is the file that is watched for changes; null if there is none."""

    name: str
    read: Callable[[Progress], Trace]
    path: str | None


class Catalogue(Protocol):
    """A list of traces with numbers from 0."""

    @property
    def name(self) -> str:
        """Title of the page."""
        ...

    @property
    def what(self) -> str:
        """A sentence about the list."""
        ...

    def look(self, advance: Progress) -> None:
        """Finds the traces. Afterwards ``rows`` contains them.

        Raises: KernelscopeError: there is nothing.
        """
        ...

    def look_inside(self, advance: Progress) -> None:
        """Reads the headers of traces that are not known yet."""
        ...

    def rows(self) -> pl.DataFrame:
        """One row per trace in the order of their numbers. The first column is its name."""
        ...

    def opening(self, number: int) -> Opening:
        """Returns how to open the trace ``number``.

        Raises: NotRecordedError: there is none, or it cannot be read.
        """
        ...

    def close(self) -> None:
        """Releases temporary resources."""
        ...


@dataclass(slots=True)
class _Found:
    """A source, and what is known of it."""

    source: Source
    header: Header
    error: str | None


class Folder:
    """The traces below a folder, as a batch finds them: files, members of archives, nested folders."""

    what = "Identified by names and first bytes. Click one to open it."

    def __init__(self, path: str, read: Reader) -> None:
        self.name = Path(path).absolute().name or path
        self._path = path
        self._read = read
        self._found: list[_Found] = []
        # Where archives are unpacked: the folder itself is only looked at.
        self._place = tempfile.TemporaryDirectory(prefix="kernelscope-view-", ignore_cleanup_errors=True)

    def look(self, advance: Progress) -> None:
        """Finds the files.

        Raises: InvalidArgumentError, TraceNotFoundError: there is none.
        """
        advance(0, 0)
        listed = sources.find([self._path], Path(self._place.name))
        self._found = [_Found(source, Header(), _sentence(source.error)) for source in listed]

    def look_inside(self, advance: Progress) -> None:
        """Reads the headers."""
        for number, found in enumerate(self._found):
            advance(number, len(self._found))
            source = found.source
            if found.error is None:
                is_member = source.kind == "member"
                try:
                    found.header = header_of(
                        source.path, offset=source.offset, size=source.bytes if is_member else None
                    )
                except (OSError, KernelscopeError) as error:
                    found.error = _sentence(error)

    def rows(self) -> pl.DataFrame:
        """See :class:`Catalogue`."""
        cycles = _cycles([found.source for found in self._found])
        rows = [self._row(found, cycle) for found, cycle in zip(self._found, cycles, strict=True)]
        return pl.DataFrame(rows, schema=_FOLDER_SCHEMA, orient="row")

    def _row(self, found: _Found, cycle: int | None) -> list[object]:
        source, header = found.source, found.header
        told = told_by_name(source.inside)
        rank = told.rank if header.rank is None else header.rank
        run = _run(source.inside)
        inside = source.inside.removeprefix(f"{run}/")
        names = safe(_text(inside)), safe(_text(run)) or None
        known = header.gpu_names and safe(header.gpu_names)
        error = found.error and safe(_text(found.error))
        return [*names, rank, cycle, known, header.recorded_ns, source.bytes, error]

    def opening(self, number: int) -> Opening:
        """See :class:`Catalogue`."""
        if not 0 <= number < len(self._found):
            raise NotRecordedError(f"the folder has {len(self._found):,} traces; there is no number {number}")
        source = self._found[number].source
        if source.error is not None:
            raise NotRecordedError(str(source.error))

        def read(watch: Progress) -> Trace:
            with source.local(Path(self._place.name)) as path:
                return self._read(str(path), watch)

        is_file = source.kind == "file"
        return Opening(_text(source.inside), read, source.path if is_file else None)

    def close(self) -> None:
        """Removes unpacked files."""
        with contextlib.suppress(OSError):
            self._place.cleanup()


def _run(inside: str) -> str:
    """The folders that a trace lies in, without those that tell its rank."""
    above, _, _ = inside.rpartition("/")
    if told_by_name(inside).rank_from == "folder":
        parts = above.split("/")
        at = max(place for place, part in enumerate(parts) if told_by_name(f"{part}/x").rank is not None)
        above = "/".join([*parts[:at], *parts[at + 1 :]])
    return above


def _cycles(found: Sequence[Source]) -> list[int | None]:
    """Which recording of its process each trace is, from 1; null where its name has no time."""
    times: dict[int, tuple[str, int]] = {}
    for number, source in enumerate(found):
        named = _CYCLE.fullmatch(source.base)
        if named:
            times[number] = f"{source.inside.rpartition('/')[0]}/{named[1]}", int(named[2])
    by_process: dict[str, list[int]] = defaultdict(list)
    for number in sorted(times, key=times.__getitem__):
        by_process[times[number][0]].append(number)
    cycles: list[int | None] = [None] * len(found)
    for numbers in by_process.values():
        for cycle, number in enumerate(numbers, 1):
            cycles[number] = cycle
    return cycles


def _sentence(error: Exception | None) -> str | None:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return None if error is None else str(error)


def _text(text: str) -> str:
    """Text as UTF-8, which a path need not be."""
    return os.fsencode(text).decode("utf-8", "replace")
