"""The tables of some ranks, of a trace in memory or of several ranks of a lake, and which ranks these are."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TypeAlias

import polars as pl

from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

RankTables: TypeAlias = Mapping[str, pl.LazyFrame]
"""The tables of some ranks by name, in each of which ``rank`` is a column."""


def trace_tables(trace: Trace, rank: int) -> RankTables:
    """The tables of a trace."""
    number = pl.lit(rank, dtype=pl.Int64).alias("rank")
    return {name: table.lazy().with_columns(number) for name, table in trace.tables.items()}


def gather_texts(table: pl.LazyFrame, wanted: pl.DataFrame, **texts: str) -> pl.DataFrame:
    """Columns of text of some rows of a table of several ranks, under names of their own.

    Columns: of ``wanted``, needs ``rank`` and ``row``, no pair twice; gives both, of the rows that are
        there, and the columns that ``texts`` names.
    """
    # A row of one rank may be one of another, too; this leaves few for the join and for the texts.
    some = table.filter(pl.col("row").is_in(wanted["row"].implode()))
    chosen = some.select("rank", "row", **{text: pl.col(column) for text, column in texts.items()})
    found = chosen.join(wanted.lazy(), on=["rank", "row"], how="semi").collect()
    return found.with_columns(pl.col(list(texts)).cast(pl.String))


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


def processes_of(calls: pl.DataFrame, unrecorded: pl.Series) -> pl.DataFrame:
    """The processes and devices that communicate, of the ranks that ``unrecorded`` names.

    Columns: ``rank``, ``pid``, ``device``.
    """
    on_gpu = calls.filter(pl.col("rank").is_in(unrecorded.implode()) & pl.col("device").is_not_null())
    return on_gpu.select("rank", "pid", "device").unique()


def split_processes(ranks: pl.DataFrame, processes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Makes each process that communicates a rank, where one trace has several.

    That is a trace that does not record its rank, as a database of all processes of a machine. Its ranks get
    the smallest numbers that no other trace has, in order of trace, process and device.

    Columns: of ``ranks``, needs ``rank``, ``rank_from``; of ``processes``, ``rank``, ``pid``, ``device``.
    Gives ``ranks`` anew, and of the processes of those that were split the ``number`` of each.
    """
    processes = processes.filter(pl.len().over("rank") > 1)
    processes = processes.sort("rank", "pid", "device", nulls_last=True)
    whole = ~pl.col("rank").is_in(processes["rank"].implode())
    taken = set(ranks.filter(whole)["rank"])
    free = [n for n in range(processes.height + len(taken)) if n not in taken][: processes.height]
    numbers = processes.with_columns(pl.Series("number", free, dtype=pl.Int64))
    of_ranks = ranks.filter(~whole).join(numbers.select("rank", "number"), on="rank")
    of_ranks = of_ranks.with_columns(rank="number").select(ranks.columns)
    return pl.concat([ranks.filter(whole), of_ranks]), numbers


def renumbered(calls: pl.DataFrame, numbers: pl.DataFrame) -> pl.DataFrame:
    """The calls of processes by the ``numbers`` that ``split_processes`` gives them."""
    if numbers.is_empty():
        return calls
    whole = ~pl.col("rank").is_in(numbers["rank"].implode())
    of_gpu = calls.filter(~whole & pl.col("device").is_not_null())
    of_gpu = of_gpu.join(numbers, on=["rank", "pid", "device"], how="inner", nulls_equal=True)
    # What the host of a process communicates belongs to the first of its devices.
    of_host = calls.filter(~whole & pl.col("device").is_null())
    firsts = numbers.unique(["rank", "pid"], keep="first", maintain_order=True).drop("device")
    of_host = of_host.join(firsts, on=["rank", "pid"], how="inner", nulls_equal=True)
    moved = pl.concat([of_gpu, of_host]).with_columns(rank="number")
    return pl.concat([calls.filter(whole), moved.select(calls.columns)])
