"""A trace in memory: one frame per table, and what is known of the file."""

import html
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import cast

import polars as pl

from kernelscope import _traceparse
from kernelscope.errors import InvalidArgumentError
from kernelscope.memo import Memo, per_trace
from kernelscope.meta import TraceMeta, meta_from_raw
from kernelscope.schema import TABLES
from kernelscope.units import format_bytes, format_count, format_ns

DTYPES: dict[str, pl.DataType] = {
    str(dtype): dtype
    for dtype in (
        pl.Array(pl.Int32(), 3),
        pl.Boolean(),
        pl.Categorical(),
        pl.Float64(),
        pl.Int32(),
        pl.Int64(),
        pl.UInt32(),
        pl.UInt64(),
    )
}
"""The types of columns by their names in ``kernelscope.schema``."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trace:
    """A trace: one Polars frame per table. ``kernelscope.schema`` documents every column.

    A table that the source does not have is empty and has all its columns. Times are int64
    nanoseconds on the trace's own clock; a missing value is null.
    """

    meta: TraceMeta
    ops: pl.DataFrame
    launches: pl.DataFrame
    gpu_ops: pl.DataFrame
    python: pl.DataFrame
    ranges: pl.DataFrame
    gpu_annotations: pl.DataFrame
    syncs: pl.DataFrame
    memory: pl.DataFrame
    collectives: pl.DataFrame
    counters: pl.DataFrame
    instants: pl.DataFrame
    flows: pl.DataFrame
    spans: pl.DataFrame
    metadata: pl.DataFrame
    extra_args: pl.DataFrame
    steps: pl.DataFrame
    devices: pl.DataFrame
    process_groups: pl.DataFrame
    threads: pl.DataFrame
    diagnostics: pl.DataFrame
    memo: Memo = field(default_factory=Memo, init=False, compare=False)
    """What questions have found out: see :func:`kernelscope.memo.per_trace`."""

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """Every frame by the name of its table."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name in TABLES}

    def __repr__(self) -> str:
        meta = self.meta
        rank = "" if meta.rank is None else f", rank {meta.rank} of {meta.world_size or '?'}"
        counts = [
            f"  {name}: {format_count(frame.height)}" for name, frame in self.tables.items() if frame.height
        ]
        extent = self.extent()
        time = "" if extent is None else f", {format_ns(extent[1] - extent[0])}"
        head = f"Trace {meta.path!r} ({meta.format}, {format_bytes(meta.content_bytes)}{rank}{time})"
        return "\n".join([head, *counts])

    def _repr_html_(self) -> str:
        """The trace in a notebook: the file, and every table that has rows."""
        head, *_ = repr(self).split("\n")
        rows = "".join(
            f"<tr><td>{name}</td><td>{format_count(frame.height)}</td><td>{html.escape(TABLES[name].doc)}</td></tr>"
            for name, frame in self.tables.items()
            if frame.height
        )
        return f"<p>{html.escape(head)}</p><table><tr><th>table</th><th>rows</th><th></th></tr>{rows}</table>"

    @per_trace
    def extent(self) -> tuple[int, int] | None:
        """First start and last end of host and GPU work, or of NVTX ranges; null if there is none.

        Units: ns on the trace's clock.
        """
        timed = [frame for frame in (self.ops, self.launches, self.gpu_ops) if frame.height]
        # Ranges can be open to the end of a session that lasts long after the work.
        timed = timed or [frame for frame in (self.ranges,) if frame.height]
        if not timed:
            return None
        start = min(cast(int, frame["start_ns"].min()) for frame in timed)
        end = max(cast(int, (frame["start_ns"] + frame["dur_ns"].fill_null(0)).max()) for frame in timed)
        return start, end


def read(
    path: str | os.PathLike[str],
    *,
    strict: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    step_range: str | None = None,
    tables: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
) -> Trace:
    """Reads a profiler trace, whatever its format, era and compression.

    A bad event is repaired or dropped and counted in ``trace.diagnostics``; with ``strict``
    the first loss raises instead. ``threads`` is the number of threads to parse with, all
    cores if null. ``progress`` is called about ten times a second with bytes done and bytes
    in all (0 while unknown); what it raises stops the reading. ``step_range`` names the
    annotation or NVTX range that delimits steps where there is no ``ProfilerStep#N``. ``tables``
    names the tables that are wanted, and may map each to the columns that are: the others are empty,
    other columns may be null, links to tables that are not wanted are null, and a database is read
    only where it feeds what is wanted.

    Raises: TraceNotFoundError, TracePermissionError, NotAFileError: the path cannot be read.
        NotATraceError: the file is no trace of a known format.
        TraceFormatError: the trace is damaged beyond repair.
        StrictError: ``strict`` is set and something would be lost.

    Example: ``ks.read("rank0.pt.trace.json.gz").gpu_ops.filter(kind="kernel")``
    Example: ``ks.read("report.sqlite", tables={"gpu_ops": ["name", "dur_ns"]})``
    """
    return read_part(
        path, strict=strict, threads=threads, progress=progress, step_range=step_range, tables=tables
    )


def read_part(
    path: str | os.PathLike[str],
    *,
    strict: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    step_range: str | None = None,
    tables: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    kinds: Sequence[str] | None = None,
    only_launching: bool = False,
) -> Trace:
    """Reads what a report on GPU work needs; see :func:`read`. Not public.

    ``kinds`` names the kinds of GPU work that are wanted. With ``only_launching`` only API calls that
    launched such work are, and NVTX ranges that enclose one of them. A database is read without the others;
    other formats may have them.
    """
    if threads is not None and threads < 1:
        raise InvalidArgumentError(f"threads must be at least 1, not {threads}")
    raw = _traceparse.read(
        path,
        strict=strict,
        threads=threads,
        step_range=step_range,
        tables=None if tables is None else _wanted(tables),
        kinds=None if kinds is None else list(kinds),
        only_launching=only_launching,
        progress=progress,
    )
    tables_read = raw.take_tables()
    frames = {name: _take_frame(tables_read, name) for name in list(tables_read)}
    return Trace(meta=meta_from_raw(os.fspath(path), json.loads(raw.meta)), **frames)


def _wanted(tables: Sequence[str] | Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The wanted columns of each wanted table; none for all of them."""
    if isinstance(tables, Mapping):
        return {name: list(columns) for name, columns in tables.items()}
    return {name: [] for name in tables}


def _take_frame(tables: dict[str, _traceparse.ArrowTable], name: str) -> pl.DataFrame:
    """Takes a table out of ``tables``, with a column of nulls for every column that holds no value.

    Most optional columns are empty in most traces. Built eagerly: the lazy engine would cost
    more memory than a small trace.
    """
    dtypes = {c.name: DTYPES[c.dtype] for c in TABLES[name].columns}
    rows = len(tables[name])
    if rows == 0:
        return pl.DataFrame(schema=dtypes)
    # Column by column: those of one stream keep one another alive, and Polars copies categoricals.
    columns = tables.pop(name).columns()
    filled: dict[str, pl.Series] = {}
    while columns:
        series = pl.DataFrame(columns.pop()).to_series()
        filled[series.name] = series
    missing = {dtype for column, dtype in dtypes.items() if column not in filled}
    nulls = {dtype: pl.Series([None], dtype=dtype).new_from_index(0, rows) for dtype in missing}
    return pl.DataFrame(
        [
            filled[column] if column in filled else nulls[dtype].alias(column)
            for column, dtype in dtypes.items()
        ]
    )
