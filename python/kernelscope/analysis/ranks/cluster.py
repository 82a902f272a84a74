"""Small frames from which questions about many ranks are answered.

They are built from traces in memory or from the lazy frames of a lake, some ranks at a time, so that memory
does not grow with the number of ranks: a rank keeps one row per collective and one per step.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import polars as pl

from kernelscope.analysis.ranks.collective_calls import (
    CALL_SCHEMA,
    COMMUNICATION,
    communication_calls,
    keyed,
    lines_of,
    matched,
    numbered_lines,
)
from kernelscope.analysis.ranks.host_phases import host_phases, host_ranks
from kernelscope.analysis.ranks.parts import Parts, Workshop
from kernelscope.analysis.ranks.rank_tables import (
    RECORDED,
    RankTables,
    processes_of,
    ranks_of,
    renumbered,
    split_processes,
    trace_tables,
)
from kernelscope.analysis.steps.breakdown import CATEGORIES
from kernelscope.errors import InvalidArgumentError
from kernelscope.memo import Memo
from kernelscope.meta import PLACES, places_of
from kernelscope.schema import TABLES
from kernelscope.trace import Trace, every_rank

RANKS_AT_ONCE = {"events": 64, "calls": 4096, "windows": 128}
"""Number of ranks of a lake in memory at a time: columns of their tables, communication, or whole windows."""

ROWS_AT_ONCE = {"events": 4_000_000, "calls": 400_000, "windows": 400_000}
"""Maximum number of events (or calls) of these ranks' traces, if there are several ranks: under 1 GB."""

RANK_SCHEMA: dict[str, pl.DataType] = {
    "rank": pl.Int64(),
    "base_time_ns": pl.Int64(),
    "world_size": pl.Int64(),
    "host": pl.String(),
    "source": pl.String(),
    "rank_from": pl.String(),
    **dict.fromkeys(PLACES, pl.Int64()),
}
"""Columns of the table of ranks. All but ``rank`` may be null."""

_STEP_SCHEMA: dict[str, pl.DataType] = {
    "rank": pl.Int64(),
    "step": pl.Int32(),
    "start_ns": pl.Int64(),
    "total_ns": pl.Int64(),
    **dict.fromkeys(CATEGORIES, pl.Int64()),
}


class Lake(Protocol):
    """Tables of many ranks, as opened by ``kernelscope.scan``."""

    @property
    def path(self) -> Path | str:
        """The folder, or its URL."""
        ...

    @property
    def tables(self) -> Mapping[str, pl.LazyFrame]:
        """Lazy frame of each table, with a column ``rank``."""
        ...

    def part(self, window: int, ranks: Sequence[int]) -> "Lake":
        """Returns a lake of one window of some ranks."""
        ...

    def windows(self, places: Sequence[tuple[int, int]], tables: Collection[str] = TABLES) -> list[Trace]:
        """Returns the traces of some windows, each given by its rank and number."""
        ...

    @property
    def manifest(self) -> pl.DataFrame:
        """Properties of each window of a rank: ``window`` and the columns of ``RANK_SCHEMA``."""
        ...


_Found = TypeVar("_Found")
_Item = TypeVar("_Item")

Source: TypeAlias = "Trace | Sequence[Trace] | Lake"
"""Source of ranks: traces in memory, or a scanned lake."""


def one_trace(source: Source) -> Trace | None:
    """Returns the source if it is the trace of one rank.

    Raises: InvalidArgumentError: it is a path.
    """
    if isinstance(source, str | os.PathLike):
        raise InvalidArgumentError(f"{source} is a path: pass the result of kernelscope.read or scan")
    return source if isinstance(source, Trace) and not source.parts else None


@dataclass(frozen=True, slots=True)
class Cluster:
    """Retained data of each rank."""

    ranks: pl.DataFrame
    """One row per rank: ``RANK_SCHEMA``."""
    calls: Parts
    """One row per collective or transfer of a rank: ``CALL_SCHEMA``, ``window``, and the columns added by
    ``matched``. A collective is contained in one part."""
    steps: pl.DataFrame
    """One row per complete step of a rank, with its parts."""
    phases: pl.DataFrame
    """One row per phase of a step, for ranks without GPU operations: ``PHASE_SCHEMA``."""
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)


def cluster_of(
    source: "Source | Cluster",
    *,
    memory: int | None = None,
    executor: Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Cluster:
    """Data for questions about the ranks of ``source``.

    Passing the result to several questions is faster than passing the lake to each.

    ``memory`` limits the bytes that a process uses for it (default: 4 GB). Communication data beyond that is
    stored in files in ``folder`` (default: the folder for temporary files). An ``executor`` processes several
    parts at once, for example one of ``concurrent.futures`` or Dask's ``client.get_executor(pure=False)``.
    Its workers need access to ``folder`` and the lake.

    Raises: InvalidArgumentError: two traces are of one rank, or there is none. OSError: there is no space for
        the files.

    Example: ``cluster_of(ks.scan("lake"), memory=2_000_000_000)``
    """
    if isinstance(source, Cluster):
        return source
    ranks: list[pl.DataFrame] = []
    blocks: list[_Block] = []
    bases: dict[int, int | None] = {}
    for window, known, tables in batches(source, size="calls"):
        blocks.append(_Block(window, known["rank"].to_list(), tables, _later(known, bases)))
        ranks.append(known.filter(~pl.col("rank").is_in(list(bases))))
        bases |= dict(ranks[-1].select("rank", "base_time_ns").iter_rows())
    if not ranks:
        raise InvalidArgumentError("there are no ranks")
    read = Parts(Workshop(memory, executor, folder), blocks)
    steps, calls = read.gather(_steps), read.map(_calls)
    phases = read.gather(_phases, frozenset(host_ranks(steps)))
    known = pl.concat(ranks)
    unrecorded = known.filter(pl.col("rank_from") != RECORDED)["rank"]
    known, numbers = split_processes(known, calls.gather(processes_of, unrecorded).unique())
    lines = numbered_lines(calls.gather(lines_of))
    # Files go with the last that knows them: no more than those of two steps are there at a time.
    calls = calls.exchange(_keyed, numbers, lines)
    calls = calls.map(matched)
    # The parts of a step count the work of all processes: they say nothing of one.
    is_whole = ~pl.col("rank").is_in(numbers["rank"].implode())
    return Cluster(
        ranks=known.sort("rank"),
        calls=calls,
        steps=steps.filter(is_whole).sort("rank", "start_ns"),
        phases=phases.filter(is_whole),
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """One window of some ranks, as it is read."""

    window: int
    ranks: Sequence[int]
    tables: RankTables
    later: Mapping[int, int]


def _keyed(calls: pl.DataFrame, numbers: pl.DataFrame, lines: pl.DataFrame) -> pl.DataFrame:
    return keyed(renumbered(calls, numbers), lines)


def _later(known: pl.DataFrame, bases: Mapping[int, int | None]) -> dict[int, int]:
    """By how much the zero of a window is later than that of the rank's first one, in ns, where it is."""
    rows = known.select("rank", "base_time_ns").drop_nulls().iter_rows()
    later = {rank: base - first for rank, base in rows if (first := bases.get(rank)) is not None}
    return {rank: by for rank, by in later.items() if by}


def _shifted(frame: pl.DataFrame, later: Mapping[int, int]) -> pl.DataFrame:
    """Counts the times of a window from the zero of its rank's first one."""
    if not later:
        return frame
    by = pl.col("rank").replace_strict(later, default=0, return_dtype=pl.Int64)
    return frame.with_columns(pl.col("^(start|issued)_ns$") + by)


def tables_in(source: Source, table: str) -> list[pl.LazyFrame]:
    """Returns the lazy frames that make up a table over all ranks, each with a column ``rank``.

    Raises: InvalidArgumentError: two traces are of one rank, or there is none.
    """
    if not isinstance(source, Trace | Sequence):
        return [source.tables[table]]
    traces = every_rank(source)
    if not traces:
        raise InvalidArgumentError("there are no ranks")
    ranks = (rank for rank, _ in ranks_of(traces))
    return [trace_tables(trace, rank)[table] for trace, rank in zip(traces, ranks, strict=True)]


def batches(source: Source, *, size: str = "events") -> Iterator[tuple[int, pl.DataFrame, RankTables]]:
    """Yields one window of some ranks at a time: its number, the properties of the ranks, and their tables.

    ``size`` limits the events in memory, or the calls if only these are requested.
    """
    if isinstance(source, Trace | Sequence):
        yield from _trace_batches(every_rank(source))
    else:
        yield from ((window, known, part.tables) for window, known, part in _parts_of(source, size))


def rank_places(source: Source) -> pl.DataFrame:
    """Returns the place of each rank in parallelism, as given by its label.

    Columns: ``rank``, and ``kernelscope.meta.PLACES``.
    """
    known = pl.concat([known.select("rank", *PLACES) for _, known, _ in batches(source)])
    return known.unique("rank", keep="first", maintain_order=True)


class Window(NamedTuple):
    """A window of a rank, and how much later its zero is than that of the rank's first one."""

    rank: int
    window: int
    later_ns: int
    source: "Trace | Lake"

    def trace(self) -> Trace:
        """Reads it, if it is in a lake."""
        return _traces_of([self], TABLES)[0]


def windows_of(source: Source) -> list[Window]:
    """Returns the windows of all ranks, by window and rank.

    Raises: InvalidArgumentError: two traces are of one rank, or there is none.
    """
    found: list[Window] = []
    if isinstance(source, Trace | Sequence):
        traces = every_rank(source)
        found += [
            Window(rank, 0, 0, trace) for trace, (rank, _) in zip(traces, ranks_of(traces), strict=True)
        ]
    else:
        bases: dict[int, int | None] = {}
        for window, known, part in _parts_of(source, "windows"):
            later = _later(known, bases)
            found += [Window(rank, window, later.get(rank, 0), part) for rank in known["rank"]]
            bases = dict(known.select("rank", "base_time_ns").iter_rows()) | bases
    if not found:
        raise InvalidArgumentError("there are no ranks")
    return found


def each_window(
    function: Callable[..., _Found],
    tasks: Iterable[tuple[Any, ...]],
    *,
    tables: Collection[str] = TABLES,
    executor: Executor | None = None,
) -> Iterator[_Found]:
    """Returns what ``function`` returns for each of ``tasks``, in order.

    A task is a window and other arguments; the function gets the window, its trace, and the arguments. Only
    ``tables`` have rows. Neighbours in a lake are read together.
    """
    for found in each_share(partial(_each, function), tasks, tables=tables, executor=executor):
        yield from found


def _each(
    function: Callable[..., _Found], tasks: Sequence[tuple[Any, ...]], traces: Sequence[Trace]
) -> list[_Found]:
    return [function(window, trace, *rest) for (window, *rest), trace in zip(tasks, traces, strict=True)]


def each_share(
    function: Callable[[Sequence[tuple[Any, ...]], Sequence[Trace]], _Found],
    tasks: Iterable[tuple[Any, ...]],
    *,
    tables: Collection[str] = TABLES,
    executor: Executor | None = None,
) -> Iterator[_Found]:
    """Returns what ``function`` returns for some of ``tasks`` at a time, in order; see :func:`each_window`.

    It gets the tasks, and the traces of their windows.
    """
    shares: list[list[tuple[Any, ...]]] = []
    last: Trace | Lake | None = None
    for task in tasks:
        source = task[0].source
        if source is last and not isinstance(source, Trace):
            shares[-1].append(task)
        else:
            shares.append([task])
        last = source
    parts = [(function, share, tuple(tables)) for share in shares]
    return Workshop(executor=executor).run(_of_share, parts)


def _of_share(
    function: Callable[[Sequence[tuple[Any, ...]], Sequence[Trace]], _Found],
    tasks: Sequence[tuple[Any, ...]],
    tables: Collection[str],
) -> _Found:
    return function(tasks, _traces_of([window for window, *_ in tasks], tables))


def _traces_of(windows: Sequence[Window], tables: Collection[str]) -> list[Trace]:
    """The traces of windows of one source."""
    source = windows[0].source
    if isinstance(source, Trace):
        return [source]
    return source.windows([(window.rank, window.window) for window in windows], tables)


def _trace_batches(traces: Sequence[Trace]) -> Iterator[tuple[int, pl.DataFrame, RankTables]]:
    for trace, (rank, origin) in zip(traces, ranks_of(traces), strict=True):
        meta = trace.meta
        row = {
            "rank": rank,
            "base_time_ns": meta.base_time_ns,
            "world_size": meta.world_size,
            "host": meta.host,
            "source": meta.path,
            "rank_from": origin,
            **places_of(meta),
        }
        yield 0, pl.DataFrame([row], schema=RANK_SCHEMA), trace_tables(trace, rank)


def _parts_of(lake: Lake, size: str) -> Iterator[tuple[int, pl.DataFrame, Lake]]:
    """Yields one window of some ranks at a time, as :func:`batches` does, as a lake of its own."""
    listed = lake.manifest
    usable = pl.col("rank").is_not_null()
    if "outcome" in listed.columns:
        usable &= pl.col("outcome") == "done"
    listed = listed.filter(usable)
    known = listed.select(
        (pl.col(name) if name in listed.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in RANK_SCHEMA.items()
    )
    doubled = listed.filter(listed.select("rank", "window").is_duplicated())["rank"].sort()
    if doubled.len():
        raise InvalidArgumentError(f"rank {doubled[0]} is in the lake more than once: scan a single run")
    # Lakes of earlier versions do not tell the calls.
    if size == "calls" and ("calls" not in listed.columns or listed["calls"].null_count()):
        size = "events"
    rows = "calls" if size == "calls" else "events"
    sizes = pl.col(rows).fill_null(0) if rows in listed.columns else pl.lit(0)
    # Row numbers are those of a window; every window's are looked up by themselves.
    for window in listed["window"].unique().sort():
        of_window = known.filter(listed["window"] == window)
        own = listed.filter(window=window).select("rank", sizes).sort("rank")
        for ranks in together(own.iter_rows(), size):
            yield window, of_window.filter(pl.col("rank").is_in(ranks)).sort("rank"), lake.part(window, ranks)


def together(sizes: Iterable[tuple[_Item, int]], size: str) -> Iterator[list[_Item]]:
    """Yields ranks in order, as many at a time as may be in memory. ``sizes`` has the rows of each."""
    some: list[_Item] = []
    rows = 0
    for item, more in sizes:
        if some and (len(some) == RANKS_AT_ONCE[size] or rows + more > ROWS_AT_ONCE[size]):
            yield some
            some, rows = [], 0
        some.append(item)
        rows += more
    if some:
        yield some


_TEXTS = tuple(name for name, dtype in CALL_SCHEMA.items() if dtype == pl.String)


def _calls(block: _Block) -> pl.DataFrame:
    """What ranks communicated: as their lake has it, else from their tables."""
    if COMMUNICATION in block.tables:
        found = block.tables[COMMUNICATION].select(list(CALL_SCHEMA)).collect()
    else:
        found = communication_calls(block.tables, ranks=len(block.ranks))
    # Texts are few.
    found = found.with_columns(pl.col(_TEXTS).cast(pl.Categorical), window=pl.lit(block.window, pl.Int64))
    return _shifted(found, block.later)


def _steps(block: _Block) -> pl.DataFrame:
    found = (
        block.tables["steps"]
        .filter(~pl.col("is_partial"))
        .select(pl.col(name).cast(dtype) for name, dtype in _STEP_SCHEMA.items())
        .collect()
    )
    return _shifted(found, block.later)


def _phases(block: _Block, hosts: frozenset[int]) -> pl.DataFrame:
    return host_phases(block.tables, [rank for rank in block.ranks if rank in hosts])
