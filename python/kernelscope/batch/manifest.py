"""Entries of a lake, one for each of its sources.

A finished trace is one folder, ``run=NAME/rank=N/window=N``, which contains its tables and its entry, and is
moved into place by a single rename (``rank_folders.py``), or it is part of the files of many ranks
(``gathering.py``). The manifest (``manifest_file.py``) repeats the entries of all traces, and contains the
entries of failed sources.
"""

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from kernelscope import locks
from kernelscope.errors import InvalidArgumentError, LakeBusyError
from kernelscope.meta import LARGEST_RANK

ENTRY = "_entry.json"
ENTRIES = "_entries.jsonl"
"""Header of a folder of merged ranks: the sizes of its tables, followed by the entries in the order of the
rows."""
MANIFEST = "manifest.parquet"
LOG = "manifest.jsonl"
"""Log of changes after the manifest was written; the whole manifest in lakes of schema 1."""
LOCK = "lock"
STAGING = ".batch"
"""Folder of a lake for unfinished data, accessed only by batches."""

SCHEMA_VERSION = 2
"""Version of entries and tables. It is raised if readers of the previous version would misinterpret them."""

SCHEMA_KEY = "kernelscope:schema_version"
"""Key in a Parquet file's metadata for the version of its columns."""

_FIRST_LINES = 100
"""Number of lines within which an entry must occur; otherwise the file belongs to another program."""
_FOOTER = 1 << 20
"""Number of bytes that contain the footer of a manifest."""

_RUN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_TABLE = re.compile(r"[a-z][a-z_]*")
_GATHERED = re.compile(r"gathered-([0-9]{1,9})-[0-9a-f]{32}")
_HELD = re.compile(r"process \d+ on \S+|")
# What a batch puts into the staging folder: what it is at work on (as one of 0.1 had it, too), a rank taken
# out, an archive, a file.
_UNFINISHED = re.compile(
    r"(work|rank|copy)-[0-9a-f]{32}|discarded-[0-9a-f]{32}|unpacked-[0-9]+-[0-9]+\.tar|waiting-[0-9a-f]{32}"
)

Outcome = Literal["done", "failed"]
Key: TypeAlias = tuple[str, str]


class Place(NamedTuple):
    """Place of a trace in a lake, also stored in its tables: run, rank and window.

    ``step_offset`` is the difference between its step numbers and the recorded ones.
    """

    run: str
    rank: int | None
    window: int = 0
    step_offset: int = 0

    @property
    def folder(self) -> str:
        """Its folder in the lake."""
        return f"run={self.run}/rank={self.rank}/window={self.window}"


@dataclass(frozen=True, slots=True)
class Entry:
    """Result of a source. Unknown values, such as the rank of a broken file, are null.

    ``bytes``, ``mtime_ns``, ``ctime_ns``, ``fingerprint`` and ``version`` determine whether a source must be
    read again. ``asked_run`` is the run requested from the batch; ``run`` is the run of the job that the
    trace belongs to. ``files`` has rows and bytes of each table's file; a table without rows has no file.
    ``settled`` (only in the manifest) says that ``run`` was chosen with all traces of the batch known: the
    job keeps this name from then on. ``gathered`` (only in the manifest) is the folder of its run with its
    tables merged with others; null if they are in a folder of their own.
    """

    source: str
    outcome: Outcome
    run: str
    rank: int | None
    bytes: int
    mtime_ns: int | None
    fingerprint: str
    version: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None
    error_kind: str | None = None
    rank_from: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    steps: tuple[int, ...] = ()
    lost: int = 0
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    schema_version: int = SCHEMA_VERSION
    asked_run: str = ""
    window: int = 0
    step_offset: int = 0
    ctime_ns: int | None = None
    settled: bool = False
    gathered: str | None = None

    @property
    def key(self) -> Key:
        """Key of the entry: a source has one entry for each requested run."""
        return self.asked_run, self.source

    @property
    def place(self) -> Place:
        """Place of the trace in the lake."""
        return Place(self.run, self.rank, self.window, self.step_offset)

    def own_line(self) -> str:
        """Returns the line stored next to the tables."""
        return self.own().to_line()

    def own(self) -> "Entry":
        """Returns the entry stored next to the tables."""
        return replace(self, settled=False, gathered=None)

    @property
    def home(self) -> str:
        """Returns the folder in the lake that contains its tables, merged or alone."""
        return self.place.folder if self.gathered is None else f"run={self.run}/{self.gathered}"

    def moved(self, place: Place) -> "Entry":
        """Returns the entry of the same trace in another place, in a folder of its own."""
        return replace(self, gathered=None, **place._asdict())

    def to_line(self) -> str:
        """The entry as a line of JSON."""
        # Not through asdict, which would copy every value, and take most of the time of a large manifest.
        return (
            json.dumps({name: getattr(self, name) for name in ENTRY_FIELDS}, sort_keys=True, default=dict)
            + "\n"
        )

    def folder(self, lake: Path) -> Path:
        """Folder that contains its tables."""
        return lake / self.home


ENTRY_FIELDS = frozenset(field.name for field in fields(Entry))


def entry_from(line: bytes) -> Entry:
    """Parses an entry written by ``to_line`` in this or another version. Unknown fields are left out.

    Raises: InvalidArgumentError: a version that this one does not understand wrote it. ValueError, TypeError,
        KeyError, AttributeError: it is damaged.
    """
    value: dict[str, Any] = json.loads(line)
    value |= {"files": _files(value["files"]), "steps": tuple(value["steps"])}
    if not isinstance(value["meta"], dict) or not isinstance(value["options"], dict):
        raise TypeError("no object")
    return entry_from_values({name: value[name] for name in ENTRY_FIELDS & value.keys()})


def entry_from_values(value: dict[str, Any]) -> Entry:
    """Returns the entry with these fields, with composite fields parsed.

    Raises: as ``entry_from``.
    """
    version: object = value.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int):
        raise TypeError("the version is not a number")
    if version > SCHEMA_VERSION:
        raise InvalidArgumentError(_later(version))
    if not _makes_sense(value):
        raise TypeError("no entry has this value")
    return Entry(**value)


def read_files(text: str) -> Mapping[str, tuple[int, int]]:
    """Parses the files of an entry from JSON.

    Raises: ValueError, TypeError, AttributeError: the value is invalid.
    """
    return _files(json.loads(text))


def _files(value: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Rows and bytes by the names of tables, which lead nowhere else."""
    files = {name: (int(rows), int(size)) for name, (rows, size) in value.items()}
    if not all(map(_TABLE.fullmatch, files)):
        raise ValueError("not the name of a table")
    return files


def check_version(version: int, lake: Path) -> None:
    """Raises InvalidArgumentError if a later version wrote to ``lake``."""
    if version > SCHEMA_VERSION:
        raise InvalidArgumentError(f"{lake}: {_later(version)}")


def _later(version: int) -> str:
    return (
        f"a later version of kernelscope wrote this lake (schema {version}, supported is "
        f"{SCHEMA_VERSION}). Update kernelscope"
    )


def _makes_sense(value: Mapping[str, Any]) -> bool:
    """Whether values are of their kinds, and the names of folders lead nowhere else."""
    gathered = value.get("gathered")
    return (
        isinstance(value["source"], str)
        and isinstance(value["bytes"], int)
        and isinstance(value["asked_run"], str)
        and isinstance(value["step_offset"], int)
        and value["outcome"] in ("done", "failed")
        and (value["rank"] is None or _is_small(value["rank"]))
        and _is_small(value["window"])
        and _RUN.fullmatch(value["run"]) is not None
        and (gathered is None or _GATHERED.fullmatch(gathered) is not None)
    )


def _is_small(number: object) -> bool:
    return isinstance(number, int) and 0 <= number <= LARGEST_RANK


def check_run(run: str) -> str:
    """Checks the name of a run, which becomes the name of a folder.

    Raises: InvalidArgumentError: the name is invalid.
    """
    if not _RUN.fullmatch(run):
        raise InvalidArgumentError(f"run {run!r}: use up to 100 letters, digits, '_', '.', '+' and '-'")
    return run


def gathered_count(folder: str) -> int | None:
    """Returns the number of traces in a folder of merged ranks from its name.

    It is None if no batch uses such a name.
    """
    found = _GATHERED.fullmatch(folder)
    return None if found is None else int(found[1])


def read_entry(line: bytes, lake: Path) -> Entry | None:
    """Returns the entry of a line of ``lake``, or None if it is damaged.

    Raises: InvalidArgumentError: a later version wrote it.
    """
    try:
        return entry_from(line)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{lake}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


class LogHead(NamedTuple):
    """The first line of a log.

    ``follows`` identifies the content of the manifest file that the log continues. ``arranged`` has, for each
    requested run, a digest of the data that determines the places of its traces, if they are in these places.
    """

    follows: str
    arranged: Mapping[str, str]

    def to_line(self) -> str:
        """The head as a line of JSON."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **self._asdict()}, sort_keys=True) + "\n"


def log_head(line: bytes, lake: Path) -> LogHead | None:
    """Returns the head of a log from its first line, or None if that is an entry.

    Raises: InvalidArgumentError: a later version wrote it.
    """
    try:
        value = json.loads(line)
        follows: object = value["follows"]
        arranged: dict[str, str] = dict(value.get("arranged", {}))
        check_version(int(value["schema_version"]), lake)
    except InvalidArgumentError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return LogHead(follows, arranged) if isinstance(follows, str) else None


def has_own_manifest(folder: Path) -> bool:
    """Returns whether ``folder`` has a manifest written by a batch: other programs use the same name."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - _FOOTER, 0))
            if SCHEMA_KEY.encode() in file.read():
                return True
    except OSError:
        pass
    try:
        with (folder / LOG).open("rb") as file:
            return any(
                log_head(line, folder) is not None or read_entry(line, folder) is not None
                for line in islice(file, _FIRST_LINES)
            )
    except InvalidArgumentError:
        return True
    except OSError:
        return False


def has_own_lock(lake: Path) -> bool:
    """Returns whether a batch has run in ``lake``, even if it was interrupted early."""
    try:
        return _HELD.fullmatch((lake / STAGING / LOCK).read_text(encoding="utf-8")) is not None
    except (OSError, ValueError):
        return False


def replace_file(lake: Path, path: Path, content: bytes) -> None:
    """Replaces a file of the lake atomically for readers."""
    waiting = staging(lake) / f"waiting-{uuid.uuid4().hex}"
    waiting.write_bytes(content)
    waiting.replace(path)


def staging(lake: Path) -> Path:
    """Returns the folder for unfinished data.

    Raises: InvalidArgumentError: a link is in its place, and the batch would empty its target.
    """
    folder = lake / STAGING
    refuse_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def refuse_link(path: Path) -> None:
    """Raises InvalidArgumentError if ``path``, in which a batch would write or delete, is a link."""
    if path.is_symlink():
        raise InvalidArgumentError(f"{path} is a link, but a lake contains only files of its own: remove it")


def workplace(lake: Path) -> Path:
    """Creates a new working directory for a batch.

    Workers of an interrupted batch on other machines may outlive it, and must not interfere with the next
    one.
    """
    folder = staging(lake) / f"work-{uuid.uuid4().hex}"
    folder.mkdir()
    return folder


def is_unfinished(name: str) -> bool:
    """Returns whether a name in the staging folder belongs to unfinished data of a batch."""
    return _UNFINISHED.fullmatch(name) is not None


def clear_staging(lake: Path) -> None:
    """Removes unfinished data of a killed batch, and nothing else."""
    for path in staging(lake).iterdir():
        if not is_unfinished(path.name):
            continue
        if path.name.startswith("discarded-"):
            remove_rank(path)
        elif path.is_dir() and not path.is_symlink():
            # Who still writes into it finds it gone, and cannot put files into a folder that is emptied.
            shutil.rmtree(path.rename(path.with_name(f"work-{uuid.uuid4().hex}")), ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove_rank(folder: Path) -> None:
    """Removes the hidden files of ranks, and their folder if it is otherwise empty."""
    for path in folder.iterdir():
        if path.name in (ENTRY, ENTRIES) or (path.suffix == ".parquet" and _TABLE.fullmatch(path.stem)):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextlib.contextmanager
def locked(lake: Path) -> Generator[None]:
    """Locks the lake during the context. The system releases the lock when its holder dies.

    Raises: LakeBusyError: another batch holds it.
    """
    path = staging(lake) / LOCK
    refuse_link(path)
    lock = locks.take(path)
    if lock is None:
        holder = path.read_text(encoding="utf-8", errors="replace").strip() or "another process"
        raise LakeBusyError(
            f"{lake}: {holder} is writing to this lake. Wait until it is done, choose another --out, "
            f"or remove {path} if that machine is lost"
        )
    with lock:
        lock.seek(0)
        if not _HELD.fullmatch(lock.read(1000)):
            raise InvalidArgumentError(
                f"{path} is not the lock of a batch: remove it, or choose another --out"
            )
        locks.sign(lock)
        try:
            yield
        finally:
            lock.truncate(0)
