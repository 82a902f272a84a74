"""Opens a lake: one lazy frame per table, over all ranks."""

import contextlib
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from kernelscope import remote
from kernelscope.analysis.ranks.cluster import together
from kernelscope.analysis.ranks.collective_calls import CALL_SCHEMA, COMMUNICATION
from kernelscope.batch.gathering import gathered_folders
from kernelscope.batch.manifest import LOG, MANIFEST, Entry, check_run, gathered_count
from kernelscope.batch.manifest_file import Listed, read_manifest
from kernelscope.batch.rank_folders import rank_folders
from kernelscope.batch.reports import damage_notes
from kernelscope.errors import InvalidArgumentError, TraceNotFoundError
from kernelscope.merged import RENAMED
from kernelscope.meta import PLACES, TraceMeta
from kernelscope.schema import TABLES
from kernelscope.trace import DTYPES, Trace

PLACE: dict[str, pl.DataType] = {"run": pl.String(), "rank": pl.Int64(), "window": pl.Int64()}
"""Columns at the end of every table that identify the source of a row."""

RANKS = "ranks"
"""Name of the table of ranks."""

_SCANNED = tuple("s3:// s3a:// gs:// gcs:// az:// adl:// abfs:// abfss:// http:// https://".split())
"""URL schemes from which Polars reads Parquet."""

_PLACES_NAMED = 4
_RANK_COLUMNS = [*"run rank window base_time_ns world_size host source format".split(), *PLACES]
_MANIFEST_COLUMNS = [
    *"run rank window outcome source bytes content_bytes format recorder host world_size".split(),
    *"base_time_ns rank_from first_step last_step steps step_offset events calls lost version".split(),
    *("fingerprint", "error", "error_kind", *PLACES),
]
_WHOLE_NUMBERS = {
    *"rank window bytes content_bytes world_size base_time_ns first_step last_step steps step_offset".split(),
    *("events", "calls", "lost", *PLACES),
}


@dataclass(frozen=True, slots=True)
class Lake:
    """Traces of many ranks: ``lake.gpu_ops`` and every other table of a trace is a lazy frame.

    ``lake.ranks`` has one row per window of an available rank: ``run``, ``rank``, ``window``,
    ``base_time_ns``, ``world_size``, ``host``, ``source``, ``format``, and its place in parallelism if its
    label contains it: ``dp``, ``ep``, ``pp``, ``cp``, ``tp``.

    Columns: the columns of the table (``kernelscope.schema``), then ``run``, ``rank`` and ``window``. The
        column ``rank`` of ``collectives``, the rank inside the process group, is named ``group_rank``. Row
        numbers are unique within a window of a rank.
    """

    path: Path | str
    """The folder, or its URL."""
    entries: tuple[Entry, ...] = field(repr=False)
    """Result of each source, including failed ones."""
    tables: Mapping[str, pl.LazyFrame] = field(repr=False)
    """Every lazy frame by the name of its table."""

    def part(self, window: int, ranks: Sequence[int]) -> "Lake":
        """Returns the lake with only one window of some ranks, without accessing other files."""
        wanted = set(ranks)
        return self._of(e for e in self.entries if e.window == window and e.rank in wanted)

    def of_run(self, run: str) -> "Lake":
        """Returns the lake with only the run ``run``."""
        return self._of(entry for entry in self.entries if entry.run == run)

    def _of(self, entries: Iterable[Entry]) -> "Lake":
        some = tuple(entries)
        return Lake(self.path, some, _Tables(self.path, some))

    def trace(self, rank: int, *, run: str | None = None, window: int | None = None) -> Trace:
        """Reads one rank as a trace: its tables are the lake's rows of the rank, without the rank columns.

        ``run`` and ``window`` may be omitted if the rank has one of each. Steps have the numbers assigned by
        the lake. File properties that the lake does not keep, such as the options of the profiler, are
        missing in ``meta``.

        Raises: InvalidArgumentError: there is no such rank, or several.

        Example: ``ks.scan("lake/").trace(7)``
        """
        found = [
            entry
            for entry in self.entries
            if entry.outcome == "done"
            and entry.rank == rank
            and run in (None, entry.run)
            and window in (None, entry.window)
        ]
        if len(found) != 1:
            named = "".join(
                f", {what} {one}" for what, one in (("run", run), ("window", window)) if one is not None
            )
            places = ", ".join(entry.place.folder for entry in found[:_PLACES_NAMED])
            several = f" more than once ({places}): specify its run and window" if found else ""
            has = "has" if found else "has no"
            raise InvalidArgumentError(f"{self.path} {has} rank {rank}{named}{several}")
        return self.trace_of(found[0])

    def traces(self, tables: Collection[str] = TABLES) -> Iterator[Trace]:
        """Reads each window of each rank as a trace, by run, rank and window. Only ``tables`` have rows.

        ``meta.path`` is its source. See :meth:`trace`.
        """
        done = [entry for entry in self.entries if entry.outcome == "done" and entry.rank is not None]
        done.sort(key=lambda entry: (entry.run, entry.rank or 0, entry.window))
        for some in together(((entry, entry.meta["seen"]) for entry in done), "windows"):
            yield from self._read(some, tables)

    def windows(self, places: Sequence[tuple[int, int]], tables: Collection[str] = TABLES) -> list[Trace]:
        """Reads some windows, each given by its rank and number, at once. Only ``tables`` have rows."""
        known = {(entry.rank, entry.window): entry for entry in self.entries if entry.outcome == "done"}
        return self._read([known[place] for place in places], tables)

    def trace_of(self, entry: Entry) -> Trace:
        """Reads the trace of a finished entry; see :meth:`trace`."""
        return self._read([entry], TABLES)[0]

    def _read(self, entries: Sequence[Entry], tables: Collection[str]) -> list[Trace]:
        """The traces of finished entries: each file is opened once. Only ``tables`` have rows."""
        frames: list[dict[str, Any]] = [{} for _ in entries]
        places = [(entry.run, entry.rank, entry.window) for entry in entries]
        scanned = {name: _scan_table(self.path, name, entries) for name in TABLES if name in tables}
        wanted = [frame.select(*_schema(name), *PLACE) for name, frame in scanned.items()]
        found = dict(zip(scanned, pl.collect_all(wanted), strict=True))
        for name in TABLES:
            empty = pl.DataFrame(schema=_schema(name))
            parts: Mapping[tuple[Any, ...], pl.DataFrame] = {}
            if name in found:
                parts = found[name].partition_by(*PLACE, as_dict=True, include_key=False)
            # Polars plans even a renaming of nothing.
            back = {there: here for here, there in RENAMED.get(name, {}).items()}
            for own, place in zip(frames, places, strict=True):
                part = parts.get(place, empty)
                own[name] = part.rename(back) if back else part
        return [Trace(meta=_meta(entry), **own) for entry, own in zip(entries, frames, strict=True)]

    @property
    def manifest(self) -> pl.DataFrame:
        """Returns one row per source: its location, its result, and properties of its trace."""
        return _table(self.entries, _MANIFEST_COLUMNS)

    @property
    def runs(self) -> list[str]:
        """Names of the runs with ranks."""
        return sorted({entry.run for entry in self.entries if entry.outcome == "done"})

    def __getattr__(self, name: str) -> pl.LazyFrame:
        if name in TABLES or name == RANKS:
            return self.tables[name]
        raise AttributeError(f"a lake has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *TABLES, RANKS})


def scan(lake: str | os.PathLike[str], *, run: str | None = None, ranks: Sequence[int] | None = None) -> Lake:
    """Opens a lake written by a batch without reading any table.

    Ranks that a batch has not finished are absent, and all others are complete, even while a batch runs. A
    batch replaces and merges files, after which an open lake must be opened again. ``run`` and ``ranks``
    select runs and ranks. ``lake`` may be a URL (s3, gs, az, http, https, file); Polars reads the tables
    there, with credentials from the environment.

    Raises: TraceNotFoundError: there is no lake. TracePermissionError, StorageError: the storage does not
        answer, or refuses access. InvalidArgumentError: the lake has no such run or rank.

    Example: ``ks.scan("lake/").gpu_ops.group_by("rank").agg(pl.col("dur_ns").sum()).collect()``
    """
    path, listed = _open(lake)
    wanted = None if ranks is None else frozenset(ranks)
    entries = tuple(entry for entry in listed if _is_wanted(entry, run, wanted))
    known = {entry.rank for entry in entries if entry.outcome == "done"}
    if run is not None and not entries:
        raise InvalidArgumentError(f"{path} has no run {check_run(run)!r}")
    for rank in ranks or ():
        if rank not in known:
            raise InvalidArgumentError(f"{path} has no rank {rank}; the manifest lists failed ranks")
    return Lake(path, entries, _Tables(path, entries))


def _open(lake: str | os.PathLike[str]) -> tuple[Path | str, list[Entry]]:
    """Where a lake is, and the entries of its manifest."""
    if remote.is_storage(lake):
        url = lake.rstrip("/")
        if not url.startswith(_SCANNED):
            raise InvalidArgumentError(
                f"{url}: lakes are read from {', '.join(_SCANNED)}, file:// and folders"
            )
        with tempfile.TemporaryDirectory(prefix="kernelscope-manifest-") as place:
            for name in (LOG, MANIFEST):
                _fetch(f"{url}/{name}", Path(place) / name)
            listed = _listed(Path(place), url)
        if listed.is_damaged:
            _warn(url, listed)
        return url, _holders(listed.entries)
    path = (remote.local_path(os.fspath(lake)) or Path(lake)).absolute()
    return path, _entries(path)


def _fetch(url: str, copy: Path) -> None:
    """Copies a file of a manifest; a lake of an earlier version has not both."""
    with contextlib.suppress(TraceNotFoundError), remote.local_copy(url, copy.parent) as file:
        file.rename(copy)


def _listed(folder: Path, lake: Path | str) -> Listed:
    if not any((folder / name).is_file() for name in (LOG, MANIFEST)):
        raise TraceNotFoundError(f"{lake}: is not a lake; create one with kernelscope batch", path=str(lake))
    return read_manifest(folder)


def _entries(lake: Path) -> list[Entry]:
    """What the manifest has and is there; for what of it is damaged what the folders have."""
    while True:
        listed = _listed(lake, lake)
        entries = _holders(listed.entries)
        there = {home: os.path.isdir(f"{lake}/{home}") for home in {entry.home for entry in entries}}
        # What went since the manifest was read was gathered, replaced or taken out.
        if all(there.values()) or read_manifest(lake) == listed:
            break
    entries = [entry for entry in entries if entry.outcome == "failed" or there[entry.home]]
    if not listed.is_damaged:
        return entries
    _warn(lake, listed)
    places = {entry.place.folder for entry in listed.entries}
    found = [
        folder.entry for folder in rank_folders(lake, []) if folder.entry and folder.has_whole(folder.entry)
    ]
    for gathered in gathered_folders(lake, []):
        if gathered.is_whole:
            found += [replace(e, gathered=gathered.path.name) for e in gathered.entries() if e is not None]
    for entry in found:
        if entry.place.folder not in places:
            places.add(entry.place.folder)
            entries.append(entry)
    return entries


def _holders(entries: Sequence[Entry]) -> list[Entry]:
    """Entries of which no two are at one place: the last one that took it is there."""
    last = {entry.place.folder: entry.key for entry in entries if entry.outcome == "done"}
    return [e for e in entries if e.outcome == "failed" or last[e.place.folder] == e.key]


def _warn(lake: Path | str, listed: Listed) -> None:
    note = damage_notes(listed.lines, is_torn=listed.is_torn)[0]
    warnings.warn(f"{lake}: {note}. The next batch repairs the manifest", stacklevel=5)


def _is_wanted(entry: Entry, run: str | None, ranks: Collection[int] | None) -> bool:
    if run is not None and entry.run != run:
        return False
    return ranks is None or (entry.outcome == "done" and entry.rank in ranks)


class _Tables(Mapping[str, pl.LazyFrame]):
    """The tables of some entries of a lake, each scanned when it is asked for."""

    def __init__(self, lake: Path | str, entries: Sequence[Entry]) -> None:
        self._lake = lake
        self._done = [entry for entry in entries if entry.outcome == "done"]
        self._scanned: dict[str, pl.LazyFrame] = {}
        # Earlier versions did not write it.
        summed_up = all("calls" in entry.meta for entry in self._done)
        self._names = (*TABLES, RANKS, *((COMMUNICATION,) if summed_up else ()))

    def __getitem__(self, name: str) -> pl.LazyFrame:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._scanned:
            if name == RANKS:
                self._scanned[name] = _table(self._done, _RANK_COLUMNS).lazy()
            else:
                self._scanned[name] = _scan_table(self._lake, name, self._done)
        return self._scanned[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _schema(name: str) -> dict[str, pl.DataType]:
    if name == COMMUNICATION:
        return {column: dtype for column, dtype in CALL_SCHEMA.items() if column not in PLACE}
    renamed = RENAMED.get(name, {})
    return {renamed.get(column.name, column.name): DTYPES[column.dtype] for column in TABLES[name].columns}


def _scan_table(lake: Path | str, name: str, entries: Sequence[Entry]) -> pl.LazyFrame:
    schema = _schema(name)
    members = Counter(entry.home for entry in entries)
    pieces: list[pl.LazyFrame] = []
    for home, some in _by_home(entry for entry in entries if name in entry.files):
        if home is None:
            files = [f"{lake}/{entry.home}/{name}.parquet" for entry in some]
            pieces.append(_scan_files(lake, files, schema | PLACE))
        else:
            frame = _scan_files(lake, [f"{lake}/{home}/{name}.parquet"], schema | PLACE, is_hive=False)
            is_all = members[home] == gathered_count(home.rpartition("/")[2])
            pieces.append(frame if is_all else frame.filter(_is_of(some)))
    if not pieces:
        return pl.LazyFrame(schema=schema | PLACE)
    return pieces[0] if len(pieces) == 1 else pl.concat(pieces)


def _by_home(entries: Iterable[Entry]) -> list[tuple[str | None, list[Entry]]]:
    """Entries with the folder that they were gathered into, in order; null for those with their own."""
    found: list[tuple[str | None, list[Entry]]] = []
    gathered: dict[str, list[Entry]] = {}
    for entry in entries:
        home = None if entry.gathered is None else entry.home
        if home in gathered:
            gathered[home].append(entry)
        elif home is None and found and found[-1][0] is None:
            found[-1][1].append(entry)
        else:
            found.append((home, [entry]))
            if home is not None:
                gathered[home] = found[-1][1]
    return found


def _is_of(entries: Sequence[Entry]) -> pl.Expr:
    """Whether a row is of one of these. The bounds let row groups of others be passed over."""
    windows: dict[int, list[int]] = {}
    for entry in entries:
        windows.setdefault(entry.window, []).append(entry.rank or 0)
    rank, window = pl.col("rank"), pl.col("window")
    return pl.any_horizontal(
        (window == number) & rank.is_between(min(ranks), max(ranks)) & rank.is_in(ranks)
        for number, ranks in windows.items()
    )


def _scan_files(
    lake: Path | str, files: list[str], schema: Mapping[str, pl.DataType], *, is_hive: bool = True
) -> pl.LazyFrame:
    # The names of the folders say the same as the columns of the files, and those of other ranks are not
    # opened. But Polars takes folders above the lake, such as job=7, for columns, too.
    is_hive = is_hive and "=" not in str(lake)
    return pl.scan_parquet(
        files,
        schema=schema,
        glob=False,
        hive_partitioning=is_hive,
        hive_schema=PLACE if is_hive else None,
        missing_columns="insert",
        extra_columns="ignore",
    )


def _meta(entry: Entry) -> TraceMeta:
    """What the lake has of what is known of a trace as a whole."""
    meta: Mapping[str, Any] = entry.meta
    return TraceMeta(
        path=entry.source,
        format=meta["format"],
        compression=meta["compression"],
        file_bytes=entry.bytes,
        content_bytes=meta["content_bytes"],
        recorder=meta.get("recorder"),
        base_time_ns=meta.get("base_time_ns"),
        rank=entry.rank,
        world_size=meta.get("world_size"),
        backend=meta.get("backend"),
        host=meta.get("host"),
        trace_id=None,
        flags={},
        versions=meta.get("versions", {}),
        seen=meta["seen"],
        kept=meta["kept"],
        dropped=meta["dropped"],
        properties={},
    )


def _table(entries: Sequence[Entry], columns: Sequence[str]) -> pl.DataFrame:
    """A row per entry: what it and the meta data of its trace have of ``columns``."""
    schema = {name: pl.Int64() if name in _WHOLE_NUMBERS else pl.String() for name in columns}
    rows = [_row(entry, columns) for entry in entries]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _row(entry: Entry, columns: Sequence[str]) -> list[object]:
    steps = entry.steps
    known: dict[str, object] = {
        **entry.meta,
        "events": entry.meta.get("seen"),
        "first_step": steps[0] if steps else None,
        "last_step": steps[-1] if steps else None,
        "steps": len(steps),
    }
    return [_text(known[name] if name in known else getattr(entry, name, None)) for name in columns]


def _text(value: object) -> object:
    """A value of a frame, where text must be UTF-8, which a path need not be."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
