"""Partitions the rows of all ranks so that a process holds one partition at a time.

The process is this one or an executor's worker.

A question consists of a few steps over partitions: ``map`` transforms each partition, ``gather`` collects
small results in this process, ``exchange`` brings related rows together. Few rows stay in memory as one
partition; larger data is stored in files.
"""

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

from kernelscope.analysis.ranks.part_folders import PartFolder
from kernelscope.errors import InvalidArgumentError

ROW_BYTES = 1_500
"""Upper bound of memory per row of a partition, including temporary copies, in bytes."""

DEFAULT_MEMORY = 4_000_000_000
"""Default memory limit of a process, in bytes."""

LEAST_MEMORY = 250_000_000
"""Base memory of a process in bytes: the interpreter, Polars, and the data read from a lake at a time."""

BUCKETS = 4096
"""Number of buckets, given in ``bucket`` of each row. Rows are exchanged by bucket, and each partition gets
some."""

_BATCH_ROWS = 2**16
"""Target number of rows in a batch of a file. Files are read in whole batches."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of a file."""

    path: str
    offset: int
    rows: int


@dataclass(frozen=True, slots=True)
class Sliced:
    """Slices of files that make up a frame."""

    slices: Sequence[Slice]


Part: TypeAlias = Any
"""A frame, a sliced frame, or another value that functions of the first step accept."""

Function: TypeAlias = Callable[..., pl.DataFrame]
"""Function applied to a partition: a function of a module, so that it can be sent to other processes."""


class Workshop:
    """Execution environment of partitions: the executor, the folder, and the number of rows at a time."""

    def __init__(
        self,
        memory: int | None = None,
        executor: Executor | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        memory = DEFAULT_MEMORY if memory is None else memory
        if memory < LEAST_MEMORY:
            raise InvalidArgumentError(
                f"memory of {memory} bytes is too little for questions about ranks: a process needs "
                f"at least {LEAST_MEMORY:,}"
            )
        self.rows = memory // ROW_BYTES
        self.executor = executor
        self._parent = folder

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Returns the results of ``function`` for each of ``tasks``, in order."""
        if self.executor is None:
            yield from (function(*task) for task in tasks)
            return
        futures = [self.executor.submit(function, *task) for task in tasks]
        yield from (future.result() for future in futures)

    def new_folder(self) -> PartFolder:
        """Creates a folder for the files of one step."""
        return PartFolder(self._parent)


class Parts:
    """Partitioned rows, with ownership of their files."""

    def __init__(self, workshop: Workshop, parts: Sequence[Part], folder: PartFolder | None = None) -> None:
        self._workshop = workshop
        self._parts = parts
        if folder is not None:
            weakref.finalize(self, folder.remove)

    def __len__(self) -> int:
        return len(self._parts)

    def map(self, function: Function, *args: Any) -> "Parts":
        """Returns the partitions that ``function`` returns for each partition and ``args``."""
        if self._workshop.executor is not None or self._in_files:
            return self._to_files(function, args, [])
        held: list[pl.DataFrame] = []
        rows = 0
        for part in self._parts:
            held.append(function(_load(part), *args))
            rows += held[-1].height
            if rows > self._workshop.rows:
                return self._to_files(function, args, held)
        return Parts(self._workshop, held)

    def gather(self, function: Function, *args: Any) -> pl.DataFrame:
        """Returns all rows that ``function`` returns for each partition and ``args``."""
        tasks = [(part, function, args) for part in self._parts]
        return pl.concat(self._workshop.run(_of_part, tasks))

    def exchange(self, function: Function, *args: Any) -> "Parts":
        """Returns the rows that ``function`` returns for each partition and ``args``, with each ``bucket`` in
        one partition."""
        if self._workshop.executor is None and not self._in_files:
            return Parts(self._workshop, [self.gather(function, *args).drop("bucket")])
        folder = self._workshop.new_folder()
        tasks = [
            (part, function, args, f"{folder.path}/{number}.arrow") for number, part in enumerate(self._parts)
        ]
        counted = list(self._workshop.run(_sorted_to_file, tasks))
        paths = [task[-1] for task in tasks]
        return Parts(self._workshop, _regrouped(paths, counted, self._workshop.rows), folder)

    @property
    def _in_files(self) -> bool:
        return bool(self._parts) and isinstance(self._parts[0], Sliced)

    def _to_files(self, function: Function, args: tuple[Any, ...], held: list[pl.DataFrame]) -> "Parts":
        """The rest of :meth:`map` where the first frames are ``held`` already."""
        folder = self._workshop.new_folder()
        paths = [f"{folder.path}/{number}.arrow" for number in range(len(self._parts))]
        rows: list[int] = []
        for frame, path in zip(held, paths, strict=False):
            _write(frame, path)
            rows.append(frame.height)
        held.clear()
        tasks = [
            (part, function, args, path)
            for part, path in zip(self._parts[len(rows) :], paths[len(rows) :], strict=True)
        ]
        rows += self._workshop.run(_to_file, tasks)
        files = [Sliced([Slice(path, 0, height)]) for path, height in zip(paths, rows, strict=True)]
        return Parts(self._workshop, files, folder)


def _load(part: Part) -> Any:
    if not isinstance(part, Sliced):
        return part
    return pl.concat(
        pl.scan_ipc(some.path, glob=False).slice(some.offset, some.rows) for some in part.slices
    ).collect()


def _of_part(part: Part, function: Function, args: tuple[Any, ...]) -> pl.DataFrame:
    return function(_load(part), *args)


def _to_file(part: Part, function: Function, args: tuple[Any, ...], path: str) -> int:
    frame = _of_part(part, function, args)
    _write(frame, path)
    return frame.height


def _sorted_to_file(part: Part, function: Function, args: tuple[Any, ...], path: str) -> pl.DataFrame:
    """Writes rows in the order of their buckets; gives how many each has: ``bucket``, ``rows``."""
    frame = _of_part(part, function, args).sort("bucket", maintain_order=True)
    _write(frame.drop("bucket"), path)
    return frame.group_by("bucket", maintain_order=True).agg(rows=pl.len().cast(pl.Int64))


def _write(frame: pl.DataFrame, path: str) -> None:
    frame.write_ipc(path, record_batch_size=_BATCH_ROWS)


def _regrouped(paths: list[str], counted: list[pl.DataFrame], most: int) -> list[Sliced]:
    """Parts of about ``most`` rows, each of some buckets of all files."""
    of_file = pl.col("rows").cum_sum().over("path") - pl.col("rows")
    counts = pl.concat(
        frame.with_columns(path=pl.lit(path)) for path, frame in zip(paths, counted, strict=True)
    )
    buckets = counts.group_by("bucket").agg(pl.col("rows").sum()).sort("bucket")
    buckets = buckets.select("bucket", part=(pl.col("rows").cum_sum() - pl.col("rows")) // most)
    slices = (
        counts.with_columns(offset=of_file)
        .join(buckets, on="bucket")
        .group_by("part", "path")
        .agg(pl.col("offset").min(), pl.col("rows").sum())
        .sort("part", "path")
    )
    parts: dict[int, list[Slice]] = {}
    for part, path, offset, rows in slices.iter_rows():
        parts.setdefault(part, []).append(Slice(path, offset, rows))
    empty = Sliced([Slice(paths[0], 0, 0)])
    return [Sliced(of_part) for of_part in parts.values()] or [empty]
