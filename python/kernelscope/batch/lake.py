"""Opens a lake: a lazy frame per table, over all ranks."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from kernelscope.batch.manifest import MANIFEST, Entry, check_run, read_manifest
from kernelscope.batch.work import RENAMED
from kernelscope.errors import InvalidArgumentError, TraceNotFoundError
from kernelscope.schema import TABLES
from kernelscope.trace import DTYPES

PARTITIONS: dict[str, pl.DataType] = {"run": pl.String(), "rank": pl.Int64()}
"""Columns that come from the names of the folders, at the end of every table."""

RANKS = "ranks"
"""Name of the table of ranks."""

_RANK_COLUMNS = "run rank base_time_ns world_size host source format".split()
_MANIFEST_COLUMNS = (
    "run rank outcome source bytes content_bytes format recorder host world_size base_time_ns rank_from "
    "first_step last_step steps events lost version fingerprint error error_kind"
).split()
_WHOLE_NUMBERS = frozenset(
    "rank bytes content_bytes world_size base_time_ns first_step last_step steps events lost".split()
)


@dataclass(frozen=True, slots=True)
class Lake:
    """The traces of many ranks: ``lake.gpu_ops`` and every other table of a trace is a lazy frame.

    ``lake.ranks`` has a row per rank that is there: ``run``, ``rank``, ``base_time_ns``, ``world_size``,
    ``host``, ``source``, ``format``.

    Columns: those of the table (``kernelscope.schema``), then ``run`` and ``rank``; what ``collectives``
        calls ``rank``, the rank inside the process group, is ``group_rank``. Row numbers are unique within
        a rank.
    """

    path: Path
    entries: tuple[Entry, ...] = field(repr=False)
    """What became of each source, failed ones included."""
    tables: Mapping[str, pl.LazyFrame] = field(repr=False)
    """Every lazy frame by the name of its table."""

    @property
    def manifest(self) -> pl.DataFrame:
        """A row per source: where it came from, what became of it, and what its trace is about."""
        return _table(self.entries, _MANIFEST_COLUMNS)

    @property
    def runs(self) -> list[str]:
        """The runs that have ranks."""
        return sorted({entry.run for entry in self.entries if entry.rank is not None})

    def __getattr__(self, name: str) -> pl.LazyFrame:
        if name in TABLES or name == RANKS:
            return self.tables[name]
        raise AttributeError(f"a lake has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLES, RANKS})


def scan(lake: str | os.PathLike[str], *, run: str | None = None, ranks: Sequence[int] | None = None) -> Lake:
    """Opens the lake that a batch wrote, without reading any table.

    Ranks that a batch has not finished are not there, and those that are there are whole, also while
    a batch is under way. ``run`` and ``ranks`` leave out the others.

    Raises: TraceNotFoundError: there is no lake.
        InvalidArgumentError: the lake has no such run or rank.

    Example: ``ks.scan("lake/").gpu_ops.group_by("rank").agg(pl.col("dur_ns").sum()).collect()``
    """
    path = Path(lake).absolute()
    if not (path / MANIFEST).is_file():
        raise TraceNotFoundError(f"{path}: no lake; kernelscope batch makes one", path=str(path))
    entries = tuple(entry for entry in read_manifest(path) if _is_wanted(entry, path, run, ranks))
    known = {entry.rank for entry in entries if entry.rank is not None}
    if run is not None and not entries:
        raise InvalidArgumentError(f"{path} has no run {check_run(run)!r}")
    for rank in ranks or ():
        if rank not in known:
            raise InvalidArgumentError(f"{path} has no rank {rank}; see the manifest for what failed")
    tables = {name: _scan_table(path, name, entries) for name in TABLES}
    done = [entry for entry in entries if entry.outcome == "done"]
    return Lake(path, entries, tables | {RANKS: _table(done, _RANK_COLUMNS).lazy()})


def _is_wanted(entry: Entry, lake: Path, run: str | None, ranks: Sequence[int] | None) -> bool:
    if run is not None and entry.run != run:
        return False
    if entry.outcome == "failed":
        return ranks is None
    return (ranks is None or entry.rank in ranks) and entry.place(lake).is_dir()


def _scan_table(lake: Path, name: str, entries: Sequence[Entry]) -> pl.LazyFrame:
    schema = {
        RENAMED.get(name, {}).get(column.name, column.name): DTYPES[column.dtype]
        for column in TABLES[name].columns
    }
    files = [entry.place(lake) / f"{name}.parquet" for entry in entries if name in entry.files]
    if not files:
        return pl.LazyFrame(schema=schema | PARTITIONS)
    return pl.scan_parquet(
        files,
        schema=schema,
        hive_partitioning=True,
        hive_schema=PARTITIONS,
        missing_columns="insert",
        extra_columns="ignore",
    )


def _table(entries: Sequence[Entry], columns: Sequence[str]) -> pl.DataFrame:
    """A row per entry: what it and the meta data of its trace have of ``columns``."""
    schema = {name: pl.Int64() if name in _WHOLE_NUMBERS else pl.String() for name in columns}
    rows = [[_value(entry, name) for name in columns] for entry in entries]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _value(entry: Entry, name: str) -> object:
    steps = entry.steps
    values: dict[str, object] = {
        **entry.meta,
        "events": entry.meta.get("seen"),
        "first_step": steps[0] if steps else None,
        "last_step": steps[-1] if steps else None,
        "steps": len(steps),
    }
    return values[name] if name in values else getattr(entry, name, None)
