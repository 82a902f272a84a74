"""The tables of some ranks: those of one trace in memory, or of several ranks of a lake."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import polars as pl

from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.intervals import Intervals
from kernelscope.analysis.once import once
from kernelscope.analysis.row_lookup import looked_up

if TYPE_CHECKING:
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

    def looked_up(self, name: str, wanted: pl.DataFrame, texts: Mapping[str, str]) -> pl.DataFrame:
        """Columns of text of some rows of a table, under names of their own.

        Columns: of ``wanted``, needs ``rank`` and ``row``, no pair twice; gives both, of the rows that are
            there, and the columns that ``texts`` names.
        """
        ...

    def computing(self, by: list[str]) -> Intervals:
        """When kernels compute, in groups of ``by``."""
        ...


class TraceTables:
    """The tables of a trace; ``work`` takes what other questions asked of its GPU work, too."""

    def __init__(self, trace: "Trace", rank: int, work: GpuWork | None = None) -> None:
        self._trace = trace
        self._rank = pl.lit(rank, dtype=pl.Int64).alias("rank")
        self._work = GpuWork(trace) if work is None else work

    def __getitem__(self, name: str) -> pl.LazyFrame:
        """A table."""
        return self._trace.tables[name].lazy().with_columns(self._rank)

    def looked_up(self, name: str, wanted: pl.DataFrame, texts: Mapping[str, str]) -> pl.DataFrame:
        """See :class:`RankTables`."""
        asked = wanted.sort("row")
        found = looked_up(asked["row"], self._trace.tables[name], "row", *texts.values())
        named = (pl.col(column).cast(pl.String).alias(name) for name, column in texts.items())
        return found.filter(pl.col("row").is_not_null()).select(self._rank, "row", *named)

    def computing(self, by: list[str]) -> Intervals:
        """See :class:`RankTables`."""
        work = self._trace.gpu_ops
        every = self._work.on_devices if by == ["device"] else Intervals(work, by=by)
        return every.part(work.select(_COMPUTES).to_series())


class LakeTables:
    """The tables of some ranks of a lake."""

    def __init__(self, tables: Mapping[str, pl.LazyFrame]) -> None:
        self._tables = tables

    def __getitem__(self, name: str) -> pl.LazyFrame:
        """A table."""
        return self._tables[name]

    def looked_up(self, name: str, wanted: pl.DataFrame, texts: Mapping[str, str]) -> pl.DataFrame:
        """See :class:`RankTables`."""
        # A row of one rank may be one of another, too; this leaves few for the join and for the texts.
        some = self[name].filter(pl.col("row").is_in(wanted["row"].implode()))
        chosen = some.select("rank", "row", **{text: pl.col(column) for text, column in texts.items()})
        found = chosen.join(wanted.lazy(), on=["rank", "row"], how="semi").collect()
        return found.with_columns(pl.col(list(texts)).cast(pl.String))

    def computing(self, by: list[str]) -> Intervals:
        """See :class:`RankTables`."""
        return Intervals(self._work, by=by).part(self._work["computes"])

    @once
    def _work(self) -> pl.DataFrame:
        return self["gpu_ops"].select("rank", "device", "start_ns", "dur_ns", _COMPUTES).collect()
