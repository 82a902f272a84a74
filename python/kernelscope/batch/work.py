"""What a worker does: one trace into one folder of Parquet files, which nobody sees until it is whole."""

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from kernelscope.batch.manifest import ENTRY, Entry, staging
from kernelscope.batch.sources import Source, rank_from_name
from kernelscope.errors import ChangedWhileReadError, RankUnknownError
from kernelscope.trace import Trace

RENAMED = {"collectives": {"rank": "group_rank"}}
"""Columns whose names the partitions of a lake take."""

ZSTD_LEVEL = 1
"""Of the files: half the time that the usual level 3 takes to write a trace, for files 3 % larger."""

GROUP_ROWS = 2**18
"""Rows of a row group. A file of one is read whole, and has no use for the extremes of its columns."""


@dataclass(frozen=True, slots=True)
class Task:
    """A trace to read. It travels to other processes and machines, which see ``lake`` as this one does."""

    source: Source
    lake: str
    run: str
    options: Mapping[str, Any]
    """What ``kernelscope.read`` is asked for, apart from ``threads``."""
    threads: int | None = 1


@dataclass(frozen=True, slots=True)
class Result:
    """What a worker made: the entry, its folder, and what it took."""

    entry: Entry
    folder: str
    seconds: float
    peak_bytes: int | None


def read_rank(task: Task) -> Result:
    """Reads a trace and writes its tables into a new folder of the lake's staging folder.

    Raises: KernelscopeError: the trace cannot be read, or its rank is not known.
        ChangedWhileReadError: it is still being written.
        OSError: the tables cannot be written.
    """
    start = time.perf_counter()
    _reset_peak()
    folder = staging(Path(task.lake)) / f"rank-{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        entry = _fill(task, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Result(entry, str(folder), time.perf_counter() - start, _peak_bytes())


def _fill(task: Task, folder: Path) -> Entry:
    from kernelscope.trace import read

    source = task.source
    before, fingerprint = source.stamp(), source.fingerprint()
    with source.local(folder.parent) as path:
        trace = read(path, threads=task.threads, **task.options)
    if source.stamp() != before:
        raise ChangedWhileReadError(
            f"{source.name}: the file changed while it was read; run again when it is complete",
            path=source.path,
        )
    rank, rank_from = _rank(trace, source)
    entry = source.entry(
        task.run,
        task.options,
        "done",
        rank=rank,
        rank_from=rank_from,
        fingerprint=fingerprint,
        meta=_describe(trace),
        steps=tuple(trace.steps["step"].drop_nulls().sort().to_list()),
        lost=int(trace.diagnostics.filter(severity="lost")["count"].sum()),
    )
    tables = trace.tables
    # Or every table would live until the last one is written.
    del trace
    entry = replace(entry, files=_write(tables, folder))
    (folder / ENTRY).write_text(entry.to_line(), encoding="utf-8")
    return entry


def _rank(trace: Trace, source: Source) -> tuple[int, str]:
    if trace.meta.rank is not None and trace.meta.rank >= 0:
        return trace.meta.rank, "metadata"
    rank = rank_from_name(source.base)
    if rank is None:
        raise RankUnknownError(
            f"{source.name}: neither the trace nor its name tells the rank; name it rank0.json or the like",
            path=source.path,
        )
    return rank, "name"


_DESCRIBED = (
    "format compression content_bytes recorder base_time_ns world_size backend host seen kept dropped"
).split()


def _describe(trace: "Trace") -> dict[str, Any]:
    meta = {name: getattr(trace.meta, name) for name in _DESCRIBED}
    processes = trace.gpu_ops["pid"].drop_nulls().n_unique()
    return meta | {"versions": dict(trace.meta.versions), "processes": processes}


def _write(tables: dict[str, pl.DataFrame], folder: Path) -> dict[str, tuple[int, int]]:
    """Writes every table that has rows, and lets go of it; gives rows and bytes of each file.

    The largest comes last: what writing takes besides then meets the fewest other tables.
    """
    from polars.exceptions import PolarsError

    files: dict[str, tuple[int, int]] = {}
    for name in sorted(tables, key=lambda name: tables[name].estimated_size()):
        frame = tables.pop(name)
        if frame.height:
            path = folder / f"{name}.parquet"
            try:
                write_table(frame.rename(RENAMED[name]) if name in RENAMED else frame, path)
            except (PolarsError, OSError):
                _check_space(folder)
                raise
            files[name] = frame.height, path.stat().st_size
    return files


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Writes a table as the lake has it."""
    frame.write_parquet(
        path, compression_level=ZSTD_LEVEL, row_group_size=GROUP_ROWS, statistics=frame.height > GROUP_ROWS
    )


def _check_space(folder: Path) -> None:
    """Fails with the system's own error if nothing more can be written, which Polars does not report."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(1 << 20))
        probe.flush()
        os.fsync(probe.fileno())


def _reset_peak() -> None:
    if sys.platform == "linux":
        # 5 sets the high-water mark to the present size; see proc_pid_clear_refs(5).
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes() -> int | None:
    """The largest resident size since the last reset; null on other systems."""
    if sys.platform != "linux":
        return None
    status = Path("/proc/self/status").read_text(encoding="ascii")
    sizes = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(sizes[1]) * 1024 if sizes else None
