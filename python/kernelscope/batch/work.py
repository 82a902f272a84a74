"""Work of a worker: one trace into one folder of Parquet files, which is hidden until it is complete."""

import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from kernelscope.batch.launch_environment import Launch, launch_of
from kernelscope.batch.manifest import ENTRY, SCHEMA_KEY, SCHEMA_VERSION, Entry, Place
from kernelscope.batch.rank_names import NOTHING, Told, told_by_name, told_by_pattern
from kernelscope.batch.sources import Part, Source
from kernelscope.errors import ChangedWhileReadError
from kernelscope.merged import RENAMED
from kernelscope.meta import places_of
from kernelscope.trace import Trace

ZSTD_LEVEL = 1
"""Compression level of the files: half the time of the default level 3 for writing a trace, for files that
are 3 % larger."""

GROUP_ROWS = 2**18
"""Rows of a row group. A file with a single one is read completely and does not use column statistics."""


@dataclass(frozen=True, slots=True)
class Task:
    """A trace to read.

    It is sent to other processes and machines, which access ``workplace``, the working directory of the
    batch, under the same path.
    """

    source: Source
    workplace: str
    run: str
    options: Mapping[str, Any]
    """Arguments of ``kernelscope.read``, except ``threads``."""
    threads: int | None = 1
    rank_from: str | None = None
    """The user's pattern for ranks."""
    before: Entry | None = None
    """Existing entry of the source: it keeps its place if the trace still has the same rank."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a worker: the entry, its folder, and the resources used."""

    entry: Entry
    folder: str
    seconds: float
    peak_bytes: int | None


class Split(NamedTuple):
    """A file of several ranks: merged ranks, or processes of a database with GPU operations."""

    parts: tuple[Part, ...]


def read_rank(task: Task) -> Result | Split:
    """Reads a trace and writes its tables into a new folder in the working directory of the batch.

    Nothing is written for a file of several ranks, each of which becomes a task.

    Raises: KernelscopeError: the trace cannot be read. ChangedWhileReadError: it is still being written.
        OSError: the tables cannot be written.
    """
    start = time.perf_counter()
    _reset_peak()
    folder = Path(task.workplace) / f"rank-{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        entry = _fill(task, folder)
        if isinstance(entry, Split):
            folder.rmdir()
            return entry
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Result(entry, str(folder), time.perf_counter() - start, _peak_bytes())


def _fill(task: Task, folder: Path) -> Entry | Split:
    from kernelscope.analysis.ranks.collective_calls import COMMUNICATION, communication_calls
    from kernelscope.analysis.ranks.rank_tables import trace_tables
    from kernelscope.reading import read_ranks

    source, part = task.source, task.source.part
    before, fingerprint = source.stamp(), source.fingerprint()
    options = task.options if part is None else {**task.options, **_only(part)}
    with source.local(folder.parent) as path:
        trace, *others = read_ranks(path, threads=task.threads, **options)
        if others:
            return Split(tuple(Part(rank=rank) for rank in trace.meta.ranks))
        told, meta = _identity(trace, task, path)
    # What questions about all ranks need, so that they need not open its large tables.
    calls = communication_calls(trace_tables(trace, 0), ranks=1).drop("rank")
    if source.stamp() != before:
        raise ChangedWhileReadError(
            f"{source.name}: the file changed while it was being read. Run again when it is complete",
            path=source.path,
        )
    if part is None and meta["format"] == "nsys" and meta["processes"] > 1:
        return Split(_parts(trace))
    place = Place(task.run, told.rank)
    if task.before is not None and task.before.meta.get("told_rank") == told.rank:
        place = task.before.place
    entry = source.entry(
        place,
        {**task.options, "rank_from": task.rank_from},
        "done",
        asked_run=task.run,
        rank_from=told.rank_from,
        fingerprint=fingerprint,
        meta={**meta, "calls": calls.height},
        steps=tuple(step + place.step_offset for step in trace.steps["step"].drop_nulls().sort()),
        lost=int(trace.diagnostics.filter(severity="lost")["count"].sum()),
    )
    tables = trace.tables if part is None or not part.processes else _without_others(trace.tables, part)
    tables |= {COMMUNICATION: calls}
    # Or every table would live until the last one is written.
    del trace
    files = _write(tables, folder, lambda name, frame: _placed(frame.rename(RENAMED.get(name, {})), place))
    entry = replace(entry, files=files)
    (folder / ENTRY).write_text(entry.own_line(), encoding="utf-8")
    return entry


def _only(part: Part) -> dict[str, object]:
    """The options of reading for what of a file is one rank."""
    if part.rank is not None:
        return {"rank": part.rank}
    return {"process": part.processes, "of_no_process": part.has_rest}


def _parts(trace: Trace) -> tuple[Part, ...]:
    """The ranks of a database: its processes that have GPU work."""
    ranks = trace.gpu_ops["pid"].drop_nulls().unique().sort().to_list()
    every = pl.concat([trace.tables[name]["pid"] for name in ("threads", "gpu_ops", "syncs")])
    others = sorted(set(every.drop_nulls().to_list()) - set(ranks))
    return (Part((ranks[0], *others), has_rest=True), *(Part((pid,), has_rest=False) for pid in ranks[1:]))


def _without_others(tables: dict[str, pl.DataFrame], part: Part) -> dict[str, pl.DataFrame]:
    """The tables without the names of threads of other processes, which no event is left of."""
    is_own = pl.col("pid").is_in(part.processes) | (pl.col("pid").is_null() & part.has_rest)
    return tables | {name: tables[name].filter(is_own) for name in ("threads", "metadata")}


def _identity(trace: Trace, task: Task, path: Path) -> tuple[Told, dict[str, Any]]:
    """The rank that a trace tells, and all that says which job and process it is of."""
    meta = _describe(trace)
    source = task.source
    told = NOTHING if task.rank_from is None else told_by_pattern(task.rank_from, source.name)
    run = told.run
    is_of_one = trace.meta.format == "nsys" and meta["processes"] <= 1
    pid = source.part.processes[0] if source.part is not None and source.part.processes else None
    launch = launch_of(path, pid) if is_of_one else Launch(None, None, None)
    if told.rank is None and trace.meta.rank is not None and trace.meta.rank >= 0:
        told = Told(trace.meta.rank, "metadata")
    if told.rank is None:
        told = Told(launch.rank, launch.rank_from)
    if told.rank is None and source.part is None:
        # The name of a database of several is not that of one of them.
        told = told_by_name(source.inside)
    size = launch.world_size if meta["world_size"] is None else meta["world_size"]
    parts = {"parts": source.parts} if source.parts else {}
    # The process of a part may have GPU work, and no call that tells its id.
    main = _main_process(trace) if pid is None else pid
    return told, {**meta, **parts, "pid": main, "world_size": size, "told_rank": told.rank, "told_run": run}


_DESCRIBED = (
    "format compression content_bytes recorder base_time_ns world_size backend host seen kept dropped"
).split()


_MOST_GROUPS = 64
"""Maximum number of process groups with a cached hash: a rank is in a few, but a file may name a million."""


def _describe(trace: Trace) -> dict[str, Any]:
    meta = {name: getattr(trace.meta, name) for name in _DESCRIBED}
    base, extent = trace.meta.base_time_ns or 0, trace.extent()
    start, end = (None, None) if extent is None else (base + extent[0], base + extent[1])
    groups = _groups(trace)
    return (
        meta
        | places_of(trace.meta)
        | {
            "versions": dict(trace.meta.versions),
            "processes": trace.gpu_ops["pid"].drop_nulls().n_unique(),
            "start_ns": start,
            "end_ns": end,
            "groups": groups,
            "default_group": groups.get("0"),
        }
    )


def _main_process(trace: Trace) -> int | None:
    """The process that did most of what the host did."""
    hosts = pl.concat(trace.tables[name].select("pid") for name in ("ops", "launches", "ranges"))
    counted = hosts.drop_nulls().group_by("pid").len().sort("len", "pid", descending=[True, False])
    return counted["pid"][0] if counted.height else None


def _groups(trace: Trace) -> dict[str, str]:
    """A hash of the ranks of each process group that a trace names."""
    named = trace.process_groups.select(pl.col("name", "ranks").cast(pl.String)).drop_nulls()
    some = named.filter(pl.col("ranks").str.contains(r"\d")).sort("name", "ranks").head(_MOST_GROUPS)
    return {
        name[:100]: hashlib.blake2b("".join(ranks.split()).encode(), digest_size=8).hexdigest()
        for name, ranks in some.iter_rows()
    }


def _write(
    tables: dict[str, pl.DataFrame], folder: Path, finish: Callable[[str, pl.DataFrame], pl.DataFrame]
) -> dict[str, tuple[int, int]]:
    """Writes every table that has rows, finished, and lets go of it; gives rows and bytes of each file.

    The largest comes last: what writing takes besides then meets the fewest other tables.
    """
    from polars.exceptions import PolarsError

    files: dict[str, tuple[int, int]] = {}
    for name in sorted(tables, key=lambda name: tables[name].estimated_size()):
        frame = tables.pop(name)
        if frame.height:
            path = folder / f"{name}.parquet"
            try:
                write_table(finish(name, frame), path)
            except (PolarsError, OSError):
                _check_space(folder)
                raise
            files[name] = frame.height, path.stat().st_size
    return files


def _placed(frame: pl.DataFrame, place: Place) -> pl.DataFrame:
    """A table with the columns that say where it belongs; its steps are counted on as the place says."""
    step = [pl.col("step") + place.step_offset] if place.step_offset and "step" in frame.columns else []
    return frame.with_columns(
        *step,
        run=pl.lit(place.run, pl.String()),
        rank=pl.lit(place.rank, pl.Int64()),
        window=pl.lit(place.window, pl.Int64()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A trace that was read and must be moved: the location of its tables, and its place.

    It is rewritten into the ``workplace`` of the batch.
    """

    entry: Entry
    folder: str
    place: Place
    workplace: str

    @property
    def name(self) -> str:
        """Name of the trace."""
        return self.entry.source

    @property
    def bytes(self) -> int:
        """Size of its file in bytes."""
        return self.entry.bytes


class Moved(NamedTuple):
    """A rewritten trace: its entry, and its folder."""

    entry: Entry
    folder: str


def move_rank(move: Move) -> Moved:
    """Rewrites a trace for its place, into a new folder in the working directory of the batch.

    Raises: OSError, PolarsError: the tables cannot be read or written.
    """
    folder = Path(move.workplace) / f"rank-{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        entry, by = move.entry, move.place.step_offset - move.entry.step_offset
        place = move.place._replace(step_offset=by)
        files: dict[str, tuple[int, int]] = {}
        for name in entry.files:
            there = pl.scan_parquet(
                Path(move.folder) / f"{name}.parquet", glob=False, hive_partitioning=False
            )
            if entry.gathered is not None:
                there = there.filter(rank=entry.rank, window=entry.window)
            frame = there.collect()
            files |= _write({name: frame}, folder, lambda _, frame: _placed(frame, place))
        steps = tuple(step + by for step in entry.steps)
        moved = replace(
            entry.moved(move.place), files=files, steps=steps, rank_from=entry.rank_from or "order"
        )
        (folder / ENTRY).write_text(moved.own_line(), encoding="utf-8")
        return Moved(moved, str(folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Writes a table in the form of the lake."""
    frame.write_parquet(
        path,
        compression_level=ZSTD_LEVEL,
        row_group_size=GROUP_ROWS,
        statistics=frame.height > GROUP_ROWS,
        metadata={SCHEMA_KEY: str(SCHEMA_VERSION)},
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
