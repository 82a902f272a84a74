"""A lake in which very many ranks are done, made without reading traces: collectives and steps of each."""

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kernelscope import __version__
from kernelscope.analysis.ranks.collective_calls import CALL_SCHEMA, COMMUNICATION
from kernelscope.analysis.steps.breakdown import CATEGORIES
from kernelscope.batch import gathering, manifest_file
from kernelscope.batch.manifest import ENTRIES, SCHEMA_KEY, SCHEMA_VERSION, Entry, staging
from kernelscope.schema import TABLES
from kernelscope.trace import DTYPES

_BASE_NS, _STEP_NS = 1_767_189_312_000_000_000, 500_000_000
_TENSOR, _WORLD = 8, 5
"""Ranks of a group of tensor parallelism; one of so many collectives is of all ranks."""
_STEPS = 10
_OPTIONS = {"strict": False, "step_range": None, "rank_from": None}
"""What ``kernelscope batch`` reads traces with if nothing is said."""


@dataclass(frozen=True)
class SimulatedLake:
    """Ranks that train together, eight to a host: one in a thousand is slow, clocks of hosts are off.

    The lake has what questions about collectives and steps read, in files of 1,024 ranks. Traces are empty
    files that it takes for the ones it has.
    """

    folder: Path
    ranks: int
    collectives: int
    """Of each rank, in ten steps."""

    @property
    def lake(self) -> Path:
        """The folder of the lake."""
        return self.folder / "lake"

    @property
    def traces(self) -> Path:
        """The folder of the traces."""
        return self.folder / "traces"

    def write(self) -> None:
        """Writes the traces and the lake."""
        staging(self.lake)
        entries: list[Entry] = []
        for first in range(0, self.ranks, gathering.MOST_RANKS):
            entries += self._share(range(first, min(first + gathering.MOST_RANKS, self.ranks)))
        manifest_file.rewrite(self.lake, entries, {})

    def _share(self, ranks: Sequence[int]) -> list[Entry]:
        """Writes the traces and the tables of ranks that are gathered; gives their entries."""
        name = f"gathered-{len(ranks)}-{uuid.uuid4().hex}"
        folder = self.lake / "run=default" / name
        folder.mkdir(parents=True)
        frame = pl.int_range(ranks[0], ranks[-1] + 1, eager=True).alias("rank")
        rows = {COMMUNICATION: self.collectives, "steps": _STEPS}
        for table, found in ((COMMUNICATION, self._calls(frame)), ("steps", self._steps(frame))):
            found.with_columns(run=pl.lit("default"), window=pl.lit(0, pl.Int64)).write_parquet(
                folder / f"{table}.parquet",
                compression_level=1,
                row_group_size=rows[table],
                metadata={SCHEMA_KEY: str(SCHEMA_VERSION)},
            )
        sizes = {table: (folder / f"{table}.parquet").stat().st_size for table in rows}
        files = {table: (rows[table], size // len(ranks)) for table, size in sizes.items()}
        entries = [self._entry(rank, trace, files, name) for rank, trace in self._traces(ranks)]
        head = json.dumps({"schema_version": SCHEMA_VERSION, "tables": sizes}) + "\n"
        (folder / ENTRIES).write_text("".join([head, *(entry.own_line() for entry in entries)]))
        return entries

    def _traces(self, ranks: Sequence[int]) -> Iterator[tuple[int, Path]]:
        folder = self.traces / f"part{ranks[0]}"
        folder.mkdir(parents=True)
        for rank in ranks:
            trace = folder / f"rank{rank}.pt.trace.json"
            trace.touch()
            yield rank, trace

    def _entry(self, rank: int, trace: Path, files: dict[str, tuple[int, int]], gathered: str) -> Entry:
        status = trace.stat()
        tensor = rank // _TENSOR
        meta = {
            "backend": "nccl",
            "base_time_ns": _BASE_NS,
            "calls": self.collectives,
            "compression": "none",
            "content_bytes": status.st_size,
            "default_group": "c90307c90126bdb2",
            "dropped": 0,
            "end_ns": _BASE_NS + _STEPS * _STEP_NS,
            "format": "kineto",
            "groups": {"0": "c90307c90126bdb2", "1": f"{tensor:016x}"},
            "host": f"node{tensor}",
            "kept": self.collectives,
            "pid": rank % _TENSOR + 100,
            "processes": 0,
            "recorder": "Kineto of September 2024 or later",
            "seen": self.collectives,
            "start_ns": _BASE_NS,
            "told_rank": rank,
            "told_run": None,
            "versions": {"cuda_driver_version": "12080", "cuda_runtime_version": "12080"},
            "world_size": self.ranks,
        }
        return Entry(
            source=str(trace.absolute()),
            outcome="done",
            run="default",
            rank=rank,
            bytes=status.st_size,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
            fingerprint=f"{rank:032x}",
            version=__version__,
            options=_OPTIONS,
            rank_from="metadata",
            meta=meta,
            steps=tuple(range(_STEPS)),
            files=files,
            asked_run="default",
            settled=True,
            gathered=gathered,
        )

    def _late_ns(self) -> pl.Expr:
        """Returns the delay of each rank at a collective, after the first one, in ns."""
        return (pl.col("rank") * 7919 + pl.col("row").cast(pl.Int64) * 104_729) % 20_000

    def _calls(self, ranks: pl.Series) -> pl.DataFrame:
        rows = pl.int_range(self.collectives, dtype=pl.UInt32, eager=True).alias("row")
        every = ranks.to_frame().join(rows.to_frame(), how="cross")
        rank, row = pl.col("rank"), pl.col("row").cast(pl.Int64)
        of_step = max(self.collectives // _STEPS, 1)
        is_of_all = row % _WORLD == 0
        first = rank - rank % _TENSOR
        ends = pl.format("1 [{},...,{}]", first, first + _TENSOR - 1)
        clock_ns = rank // _TENSOR * 7919 % 100_000
        found = every.with_columns(
            kind=pl.when(is_of_all).then(pl.lit("all_reduce")).otherwise(pl.lit("all_gather")),
            group=pl.when(is_of_all).then(pl.lit(f"0 [0,...,{self.ranks - 1}]")).otherwise(ends),
            group_size=pl.when(is_of_all).then(self.ranks).otherwise(_TENSOR),
            sequence=row,
            dtype=pl.lit("BFloat16"),
            message_bytes=pl.when(is_of_all).then(50_000_000).otherwise(8_000_000),
            pid=rank % _TENSOR + 100,
            device=rank % _TENSOR,
            stream=pl.lit(20),
            step=row // of_step,
            start_ns=row // of_step * _STEP_NS + row % of_step * 4_000_000 + self._late_ns() + clock_ns,
            dur_ns=3_000_000 - self._late_ns(),
            hidden_ns=pl.lit(100_000),
        )
        missing = {name: pl.lit(None) for name in CALL_SCHEMA if name not in found.columns}
        return found.with_columns(**missing).select(
            pl.col(name).cast(dtype) for name, dtype in CALL_SCHEMA.items()
        )

    def _steps(self, ranks: pl.Series) -> pl.DataFrame:
        steps = pl.int_range(_STEPS, dtype=pl.Int32, eager=True).alias("step")
        every = ranks.to_frame().join(steps.to_frame(), how="cross")
        parts = {name: pl.lit(0, pl.Int64) for name in CATEGORIES}
        slow_ns = pl.when(pl.col("rank") % 1000 == 17).then(30_000_000).otherwise(0)
        parts |= {"kernel_ns": 300_000_000 + slow_ns, "communication_ns": pl.lit(90_000_000, pl.Int64)}
        every = every.with_columns(
            start_ns=pl.col("step").cast(pl.Int64) * _STEP_NS, is_partial=pl.lit(value=False), **parts
        )
        found = every.with_columns(total_ns=pl.sum_horizontal(CATEGORIES))
        types = {column.name: DTYPES[column.dtype] for column in TABLES["steps"].columns}
        return found.cast({name: types[name] for name in found.columns if name in types})
