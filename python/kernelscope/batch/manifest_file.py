"""The manifest of a lake: a Parquet file of all entries, and a log of later changes.

The first line of the log identifies the content of the file that it continues. If a batch is stopped after
writing the file and before starting a new log, the old log no longer counts, because the file contains all of
it. Readers read the log first, because a file that is newer than a log contains all of it.
"""

import contextlib
import gc
import hashlib
import json
from collections.abc import Generator, Iterable, Mapping
from io import BytesIO
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import polars as pl
from polars.exceptions import PanicException, PolarsError

from kernelscope.batch.lazy_json import LazyJson, read_object
from kernelscope.batch.manifest import (
    ENTRY_FIELDS,
    LOG,
    MANIFEST,
    SCHEMA_KEY,
    SCHEMA_VERSION,
    Entry,
    LogHead,
    check_version,
    entry_from_values,
    log_head,
    read_entry,
    read_files,
    replace_file,
)
from kernelscope.errors import InvalidArgumentError

_JSON = ("options", "meta", "files")
"""Columns with JSON, whose contents differ between kinds of traces."""

_PLAIN: dict[str, pl.DataType] = {
    "run": pl.String(),
    "rank": pl.Int64(),
    "window": pl.Int64(),
    "outcome": pl.String(),
    "source": pl.String(),
    "error": pl.String(),
    "error_kind": pl.String(),
    "rank_from": pl.String(),
    "step_offset": pl.Int64(),
    "steps": pl.List(pl.Int64()),
    "lost": pl.Int64(),
    "bytes": pl.Int64(),
    "mtime_ns": pl.Int64(),
    "ctime_ns": pl.Int64(),
    "fingerprint": pl.String(),
    "version": pl.String(),
    "schema_version": pl.Int64(),
    "asked_run": pl.String(),
    "settled": pl.Boolean(),
    "gathered": pl.String(),
}
_SCHEMA = _PLAIN | dict.fromkeys(_JSON, pl.String()) | {"folder": pl.String(), "raw": pl.String()}
"""``raw`` has the whole entry as JSON if a value fits no column, such as a path that is not UTF-8."""

_Row: TypeAlias = dict[str, Any]


class Listed(NamedTuple):
    """Contents of a manifest: the last entry of each source, and its damage.

    ``lines`` are the numbers of damaged lines of the log. ``is_torn`` is whether the file cannot be read.
    ``is_plain`` is whether the file alone contains everything, in order. ``arranged`` is that of the
    ``LogHead``.
    """

    entries: list[Entry]
    lines: list[int]
    is_torn: bool
    is_plain: bool
    arranged: Mapping[str, str] = MappingProxyType({})

    @property
    def is_damaged(self) -> bool:
        """Returns whether entries may be missing."""
        return self.is_torn or bool(self.lines)


def read_manifest(lake: Path) -> Listed:
    """Returns the entries of the manifest; none if there is no manifest.

    Raises: InvalidArgumentError: a later version or another program wrote it.
    """
    log = _content(lake / LOG)
    file = _content(lake / MANIFEST)
    # The line that a process was writing when it was killed has no end.
    lines = [] if log is None else log.split(b"\n")[:-1]
    head = log_head(lines[0], lake) if lines else None
    entries: dict[tuple[str, str], Entry] = {}
    is_sure = head is not None and file is not None and head.follows == _name(file)
    is_torn = file is None and head is not None
    if file is not None:
        try:
            entries = {entry.key: entry for entry in _entries(file, lake, is_sure=is_sure)}
        except (
            PolarsError,
            PanicException,
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
        ) as error:
            if isinstance(error, InvalidArgumentError) or head is None:
                raise _foreign(lake, error) from None
            is_torn = True
    if head is not None and not is_torn and not is_sure:
        return Listed(list(entries.values()), [], is_torn=False, is_plain=False)
    damaged: list[int] = []
    for number, line in islice(enumerate(lines, 1), int(head is not None), None):
        entry = read_entry(line, lake)
        if entry is None:
            damaged.append(number)
        else:
            # The last one holds the place that several name.
            entries.pop(entry.key, None)
            entries[entry.key] = entry
    is_plain = is_sure and not is_torn and len(lines) == 1 and bool(log) and log[-1:] == b"\n"
    arranged: Mapping[str, str] = {} if head is None or is_torn else head.arranged
    return Listed(list(entries.values()), damaged, is_torn, is_plain, arranged)


def _foreign(lake: Path, error: Exception) -> Exception:
    if isinstance(error, InvalidArgumentError):
        return error
    return InvalidArgumentError(f"{lake / MANIFEST} was not written by a batch: move it elsewhere")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _name(file: bytes) -> str:
    return hashlib.blake2b(file, digest_size=16).hexdigest()


def _entries(file: bytes, lake: Path, *, is_sure: bool) -> list[Entry]:
    """The entries in a Parquet file; rows that make no sense are left out.

    If it ``is_sure`` that a batch wrote the file, JSON in it is parsed when somebody looks into it.

    Raises: InvalidArgumentError: a later version wrote it.
        ValueError: it is no manifest.
        PolarsError, PanicException: it is damaged.
    """
    version = pl.read_parquet_metadata(BytesIO(file)).get(SCHEMA_KEY)
    if version is None:
        raise ValueError("no manifest")
    check_version(int(version), lake)
    frame = pl.read_parquet(BytesIO(file), hive_partitioning=False)
    columns = {name: frame[name].cast(dtype).to_list() for name, dtype in _SCHEMA.items() if name in frame}
    names = [name for name in columns if name in ENTRY_FIELDS]
    options = {text: LazyJson(text or "", read_object) for text in set(columns["options"])}
    entries: list[Entry] = []
    with _collecting_nothing():
        for raw, values in zip(
            columns["raw"], zip(*(columns[name] for name in names), strict=True), strict=True
        ):
            entry = (
                read_entry(raw.encode(), lake)
                if raw
                else _entry(dict(zip(names, values, strict=True)), options)
            )
            if entry is not None and (is_sure or _is_whole(entry)):
                entries.append(entry)
    return entries


@contextlib.contextmanager
def _collecting_nothing() -> Generator[None]:
    """Keeps Python from looking for cycles: among many new objects it would look at all, again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _entry(row: _Row, options: Mapping[str, LazyJson]) -> Entry | None:
    """The entry of a row; null if that makes no sense."""
    try:
        row["options"] = options[row["options"]]
        row["meta"] = LazyJson(row["meta"] or "", read_object)
        row["files"] = LazyJson(row["files"] or "", read_files)
        row["steps"] = tuple(row["steps"])
        return entry_from_values(row)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _is_whole(entry: Entry) -> bool:
    """Whether everything of an entry can be looked into."""
    try:
        return all(len(getattr(entry, name)) >= 0 for name in _JSON)
    except InvalidArgumentError:
        return False


def append(lake: Path, entries: Iterable[Entry]) -> None:
    """Adds entries to the log; the last one of a source counts."""
    lines = "".join(entry.to_line() for entry in entries)
    with (lake / LOG).open("ab", buffering=0) as file:
        file.write(lines.encode())


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Entries by run, rank, window and source."""
    return sorted(entries, key=lambda e: (e.run, e.rank is None, e.rank or 0, e.window, e.source))


def rewrite(lake: Path, entries: Iterable[Entry], arranged: Mapping[str, str]) -> None:
    """Writes all entries to the file, in order, and starts a new log."""
    buffer = BytesIO()
    frame = _frame(in_order(entries))
    frame.write_parquet(buffer, compression_level=1, metadata={SCHEMA_KEY: str(SCHEMA_VERSION)})
    file = buffer.getvalue()
    replace_file(lake, lake / MANIFEST, file)
    replace_file(lake, lake / LOG, LogHead(_name(file), arranged).to_line().encode())


def _frame(entries: list[Entry]) -> pl.DataFrame:
    try:
        return _table([_row(entry) for entry in entries])
    except _NO_VALUE:
        return _table([_any_row(entry) for entry in entries])


_NO_VALUE = (PolarsError, OverflowError, TypeError, ValueError)
"""Exceptions that Polars raises for a value that fits no column."""


def _table(rows: list[_Row]) -> pl.DataFrame:
    columns = {name: [row.get(name) for row in rows] for name in _SCHEMA}
    return pl.DataFrame(
        [pl.Series(name, values, dtype=_SCHEMA[name], strict=True) for name, values in columns.items()]
    )


def _row(entry: Entry) -> _Row:
    row: _Row = {name: getattr(entry, name) for name in _PLAIN}
    row["steps"] = list(entry.steps)
    row |= {name: _json(getattr(entry, name)) for name in _JSON}
    row["folder"] = entry.home if entry.outcome == "done" else None
    return row


def _any_row(entry: Entry) -> _Row:
    """The row of an entry of which a value may fit no column."""
    row = _row(entry)
    try:
        _table([row])
    except _NO_VALUE:
        source = entry.source.encode("utf-8", "replace").decode()
        where = {name: row[name] for name in ("run", "rank", "window", "outcome", "folder")}
        return {**where, "source": source, "raw": entry.to_line()}
    return row


def _json(value: Mapping[str, Any]) -> str:
    return str(value) if isinstance(value, LazyJson) else json.dumps(value, sort_keys=True)
