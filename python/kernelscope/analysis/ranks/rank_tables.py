"""The tables of some ranks, of a trace in memory or of several ranks of a lake, and which ranks these are."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import Protocol

import polars as pl

from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import gather_rows
from kernelscope.analysis.intervals import Intervals
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

_COMPUTES = (
    ((pl.col("kind") == "kernel") & ~pl.col("is_communication").fill_null(value=False))
    .fill_null(value=False)
    .alias("computes")
)
"""Whether a row of ``gpu_ops`` is a kernel that computes; a whole graph may hold collectives."""


class RankTables(Protocol):
    """The tables of some ranks, in each of which ``rank`` is a column."""

    def __getitem__(self, name: str) -> pl.LazyFrame:
        """A table."""
        ...

    def gather_rows(self, name: str, wanted: pl.DataFrame, texts: Mapping[str, str]) -> pl.DataFrame:
        """Columns of text of some rows of a table, under names of their own.

        Columns: of ``wanted``, needs ``rank`` and ``row``, no pair twice; gives both, of the rows that are
            there, and the columns that ``texts`` names.
        """
        ...

    def computing(self, by: list[str]) -> Intervals:
        """When kernels compute, in groups of ``by``."""
        ...


class TraceTables:
    """The tables of a trace."""

    def __init__(self, trace: Trace, rank: int) -> None:
        self._trace = trace
        self._rank = pl.lit(rank, dtype=pl.Int64).alias("rank")

    def __getitem__(self, name: str) -> pl.LazyFrame:
        """A table."""
        return self._trace.tables[name].lazy().with_columns(self._rank)

    def gather_rows(self, name: str, wanted: pl.DataFrame, texts: Mapping[str, str]) -> pl.DataFrame:
        """See :class:`RankTables`."""
        asked = wanted.sort("row")
        found = gather_rows(asked["row"], self._trace.tables[name], "row", *texts.values())
        named = (pl.col(column).cast(pl.String).alias(name) for name, column in texts.items())
        return found.filter(pl.col("row").is_not_null()).select(self._rank, "row", *named)

    def computing(self, by: list[str]) -> Intervals:
        """See :class:`RankTables`."""
        work = self._trace.gpu_ops
        every = GpuWork(self._trace).on_devices if by == ["device"] else Intervals(work, by=by)
        return every.part(work.select(_COMPUTES).to_series())


class LakeTables:
    """The tables of some ranks of a lake."""

    def __init__(self, tables: Mapping[str, pl.LazyFrame]) -> None:
        self._tables = tables

    def __getitem__(self, name: str) -> pl.LazyFrame:
        """A table."""
        return self._tables[name]

    def gather_rows(self, name: str, wanted: pl.DataFrame, texts: Mapping[str, str]) -> pl.DataFrame:
        """See :class:`RankTables`."""
        # A row of one rank may be one of another, too; this leaves few for the join and for the texts.
        some = self[name].filter(pl.col("row").is_in(wanted["row"].implode()))
        chosen = some.select("rank", "row", **{text: pl.col(column) for text, column in texts.items()})
        found = chosen.join(wanted.lazy(), on=["rank", "row"], how="semi").collect()
        return found.with_columns(pl.col(list(texts)).cast(pl.String))

    def computing(self, by: list[str]) -> Intervals:
        """See :class:`RankTables`."""
        return Intervals(self._work, by=by).part(self._work["computes"])

    @cached_property
    def _work(self) -> pl.DataFrame:
        return self["gpu_ops"].select("rank", "device", "start_ns", "dur_ns", _COMPUTES).collect()


RECORDED = "metadata"
"""Where a rank comes from that the trace itself records: it is no other rank's."""

_RANK_IN_NAME = re.compile(r"rank[-_.]?(\d+)", re.IGNORECASE)


def ranks_of(traces: Sequence[Trace]) -> list[tuple[int, str]]:
    """The rank of each trace, and where it comes from: its metadata, its file's name, or its place.

    Traces of which neither is known get the smallest numbers that no other has.

    Raises: InvalidArgumentError: two traces are of one rank.
    """
    known: list[tuple[int, str] | None] = []
    paths: dict[int, str] = {}
    for trace in traces:
        path, rank, origin = trace.meta.path, trace.meta.rank, RECORDED
        named = _RANK_IN_NAME.search(PurePath(path).name)
        if rank is None and named:
            rank, origin = int(named[1]), "name"
        if rank is not None and rank in paths:
            raise InvalidArgumentError(f"{paths[rank]} and {path} are both of rank {rank}")
        if rank is not None:
            paths[rank] = path
        known.append(None if rank is None else (rank, origin))
    free = (number for number in range(len(known) + len(paths)) if number not in paths)
    return [(next(free), "place") if found is None else found for found in known]


def split_processes(ranks: pl.DataFrame, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, list[int]]:
    """Makes each process that communicates a rank, where one trace has several.

    That is a trace that does not record its rank, as a database of all processes of a machine. Its ranks get
    the smallest numbers that no other trace has, in order of trace, process and device.

    Columns: of ``ranks``, needs ``rank``, ``rank_from``; of ``calls``, ``rank``, ``pid``, ``device``.
    Gives both anew, and the numbers of the traces that were split.
    """
    untold = ranks.filter(pl.col("rank_from") != RECORDED)["rank"]
    on_gpu = calls.filter(pl.col("rank").is_in(untold.implode()) & pl.col("device").is_not_null())
    processes = on_gpu.select("rank", "pid", "device").unique().sort("rank", "pid", "device", nulls_last=True)
    processes = processes.filter(pl.len().over("rank") > 1)
    if processes.is_empty():
        return ranks, calls, []
    split = processes["rank"].unique().sort().to_list()
    whole = ~pl.col("rank").is_in(split)
    taken = set(ranks.filter(whole)["rank"])
    free = [n for n in range(processes.height + len(taken)) if n not in taken][: processes.height]
    numbers = processes.with_columns(pl.Series("_number", free, dtype=pl.Int64))
    on = ["rank", "pid", "device"]
    of_gpu = calls.filter(~whole & pl.col("device").is_not_null())
    of_gpu = of_gpu.join(numbers, on=on, how="inner", nulls_equal=True)
    # What the host of a process communicates belongs to the first of its devices.
    of_host = calls.filter(~whole & pl.col("device").is_null())
    firsts = numbers.unique(["rank", "pid"], keep="first", maintain_order=True).drop("device")
    of_host = of_host.join(firsts, on=["rank", "pid"], how="inner", nulls_equal=True)
    moved = pl.concat([of_gpu, of_host]).with_columns(rank="_number").drop("_number")
    of_ranks = ranks.filter(~whole).join(numbers.select("rank", "_number"), on="rank")
    of_ranks = of_ranks.with_columns(rank="_number").select(ranks.columns)
    return (
        pl.concat([ranks.filter(whole), of_ranks]),
        pl.concat([calls.filter(whole), moved.select(calls.columns)]),
        split,
    )
