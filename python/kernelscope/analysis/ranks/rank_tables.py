"""Tables of some ranks, from a trace in memory or several ranks of a lake, and the numbers of these ranks."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TypeAlias

import polars as pl

from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

RankTables: TypeAlias = Mapping[str, pl.LazyFrame]
"""Tables of some ranks by name, each with a column ``rank``."""


def trace_tables(trace: Trace, rank: int) -> RankTables:
    """Returns the tables of a trace."""
    number = pl.lit(rank, dtype=pl.Int64).alias("rank")
    return {name: table.lazy().with_columns(number) for name, table in trace.tables.items()}


def gather_texts(table: pl.LazyFrame, wanted: pl.DataFrame, **texts: str) -> pl.DataFrame:
    """Returns text columns of some rows of a table of several ranks under new names.

    Columns: ``wanted`` needs unique pairs of ``rank`` and ``row``. The result has both, for existing rows,
        and the columns named in ``texts``.
    """
    # A row of one rank may be one of another, too; this leaves few for the join and for the texts.
    some = table.filter(pl.col("row").is_in(wanted["row"].implode()))
    chosen = some.select("rank", "row", **{text: pl.col(column) for text, column in texts.items()})
    found = chosen.join(wanted.lazy(), on=["rank", "row"], how="semi").collect()
    return found.with_columns(pl.col(list(texts)).cast(pl.String))


RECORDED = "metadata"
"""Source of a rank that the trace itself records: it is unique."""

_RANK_IN_NAME = re.compile(r"rank[-_.]?(\d+)", re.IGNORECASE)


def ranks_of(traces: Sequence[Trace]) -> list[tuple[int, str]]:
    """Returns the rank of each trace, and its source: the metadata, the file name, or the position.

    Traces without either get the smallest unused numbers.

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
    """Returns the communicating processes and devices of the ranks named in ``unrecorded``.

    Columns: ``rank``, ``pid``, ``device``.
    """
    on_gpu = calls.filter(pl.col("rank").is_in(unrecorded.implode()) & pl.col("device").is_not_null())
    return on_gpu.select("rank", "pid", "device").unique()


def split_processes(ranks: pl.DataFrame, processes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Makes each communicating process a rank, if one trace has several.

    This applies to a trace that does not record its rank, such as a database of all processes of a machine.
    Its ranks get the smallest unused numbers, in order of trace, process and device.

    Columns: ``ranks`` needs ``rank``, ``rank_from``; ``processes`` needs ``rank``, ``pid``, ``device``.
    Returns the new ``ranks``, and the ``number`` of each process of a rank that was split.
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
    """Returns the calls of processes with the ``numbers`` from ``split_processes``."""
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
