"""The small frames that questions about many ranks are answered from.

They come from traces in memory or from the lazy frames of a lake, some ranks at a time, so that memory
does not grow with the number of ranks: a rank leaves a row per collective and a row per step.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import polars as pl

from kernelscope.analysis.ranks.collective_calls import communication_calls, matched
from kernelscope.analysis.ranks.rank_tables import RankTables, ranks_of, split_processes, trace_tables
from kernelscope.analysis.steps.breakdown import CATEGORIES
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

RANKS_AT_ONCE = 64
"""Ranks of a lake whose tables are in memory at one time, at most."""

EVENTS_AT_ONCE = 4_000_000
"""Events of these ranks' traces, if more than one: what is needed of them takes some 200 MB."""

RANK_SCHEMA: dict[str, pl.DataType] = {
    "rank": pl.Int64(),
    "base_time_ns": pl.Int64(),
    "world_size": pl.Int64(),
    "host": pl.String(),
    "source": pl.String(),
    "rank_from": pl.String(),
}
"""Columns of the table of ranks; all but ``rank`` may be null."""

_STEP_SCHEMA: dict[str, pl.DataType] = {
    "rank": pl.Int64(),
    "step": pl.Int32(),
    "start_ns": pl.Int64(),
    "total_ns": pl.Int64(),
    **dict.fromkeys(CATEGORIES, pl.Int64()),
}


@runtime_checkable
class Lake(Protocol):
    """Tables of many ranks, as ``kernelscope.scan`` opens them."""

    @property
    def tables(self) -> Mapping[str, pl.LazyFrame]:
        """The lazy frame of each table, in which ``rank`` is a column."""
        ...

    @property
    def manifest(self) -> pl.DataFrame:
        """What is known of each rank: has columns of ``RANK_SCHEMA``."""
        ...


Source: TypeAlias = "Trace | Sequence[Trace] | Lake"
"""Where ranks come from: traces in memory, or a scanned lake."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is kept of each rank."""

    ranks: pl.DataFrame
    """A row per rank: ``RANK_SCHEMA``."""
    calls: pl.DataFrame
    """A row per collective or transfer that a rank took part in: ``CALL_SCHEMA``, what ``matched`` adds."""
    steps: pl.DataFrame
    """A row per step of a rank that is recorded whole, with its parts."""


def cluster_of(source: "Source | Cluster") -> Cluster:
    """The small frames of ``source``.

    Asking several questions about one lake is faster with what this gives than with the lake.

    Raises: InvalidArgumentError: two traces are of one rank, or there is none.
    """
    if isinstance(source, Cluster):
        return source
    ranks: list[pl.DataFrame] = []
    calls: list[pl.DataFrame] = []
    steps: list[pl.DataFrame] = []
    for known, tables in batches(source):
        ranks.append(known)
        calls.append(communication_calls(tables, ranks=known.height))
        steps.append(_steps(tables))
    if not ranks:
        raise InvalidArgumentError("there is no rank to look at")
    known, made, split = split_processes(pl.concat(ranks), pl.concat(calls))
    # The parts of a step count the work of all processes: they say nothing of one.
    whole = pl.concat(steps).filter(~pl.col("rank").is_in(split))
    return Cluster(ranks=known.sort("rank"), calls=matched(made), steps=whole.sort("rank", "start_ns"))


def tables_in(source: Source, table: str) -> list[pl.LazyFrame]:
    """The lazy frames that make up a table over all ranks, in each of which ``rank`` is a column.

    Raises: InvalidArgumentError: two traces are of one rank, or there is none.
    """
    if isinstance(source, Lake):
        return [source.tables[table]]
    traces = source if isinstance(source, Sequence) else [source]
    if not traces:
        raise InvalidArgumentError("there is no rank to look at")
    ranks = (rank for rank, _ in ranks_of(traces))
    return [trace_tables(trace, rank)[table] for trace, rank in zip(traces, ranks, strict=True)]


def batches(source: Source) -> Iterator[tuple[pl.DataFrame, RankTables]]:
    """Some ranks at a time: what is known of them, and their tables."""
    if isinstance(source, Lake):
        yield from _lake_batches(source)
    else:
        yield from _trace_batches(source if isinstance(source, Sequence) else [source])


def _trace_batches(traces: Sequence[Trace]) -> Iterator[tuple[pl.DataFrame, RankTables]]:
    for trace, (rank, origin) in zip(traces, ranks_of(traces), strict=True):
        meta = trace.meta
        row = {
            "rank": rank,
            "base_time_ns": meta.base_time_ns,
            "world_size": meta.world_size,
            "host": meta.host,
            "source": meta.path,
            "rank_from": origin,
        }
        yield pl.DataFrame([row], schema=RANK_SCHEMA), trace_tables(trace, rank)


def _lake_batches(lake: Lake) -> Iterator[tuple[pl.DataFrame, RankTables]]:
    listed = lake.manifest
    usable = pl.col("rank").is_not_null()
    if "outcome" in listed.columns:
        usable &= pl.col("outcome") == "done"
    known = listed.filter(usable).select(
        (pl.col(name) if name in listed.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in RANK_SCHEMA.items()
    )
    doubled = known.filter(known["rank"].is_duplicated())["rank"].unique().sort().to_list()
    if doubled:
        raise InvalidArgumentError(f"rank {doubled[0]} is in the lake more than once: scan one run of it")
    for ranks in _together(listed, known):
        wanted = pl.col("rank").is_in(ranks)
        tables = {name: frame.filter(wanted) for name, frame in lake.tables.items()}
        yield known.filter(wanted).sort("rank"), tables


def _together(listed: pl.DataFrame, known: pl.DataFrame) -> Iterator[list[int]]:
    """Ranks in order, as many at a time as may be in memory."""
    sizes: dict[int, int | None] = {}
    if "events" in listed.columns:
        sizes = dict(listed.filter(pl.col("rank").is_not_null()).select("rank", "events").iter_rows())
    ranks: list[int] = []
    events = 0
    for rank in known["rank"].sort():
        size = sizes.get(rank) or 0
        if ranks and (len(ranks) == RANKS_AT_ONCE or events + size > EVENTS_AT_ONCE):
            yield ranks
            ranks, events = [], 0
        ranks.append(rank)
        events += size
    if ranks:
        yield ranks


def _steps(tables: RankTables) -> pl.DataFrame:
    return (
        tables["steps"]
        .filter(~pl.col("is_partial"))
        .select(pl.col(name).cast(dtype) for name, dtype in _STEP_SCHEMA.items())
        .collect()
    )
