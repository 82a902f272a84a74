"""What a lake says of each of its sources.

A rank that is done is one folder, ``run=NAME/rank=N``, which holds its tables and its entry, and which
takes its place with a single rename. ``manifest.jsonl`` repeats the entries of all ranks, and has those of
the sources that failed: it is appended to while a batch runs, and written anew, in order, when it ends.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernelscope.errors import InvalidArgumentError, LakeBusyError

ENTRY = "_entry.json"
MANIFEST = "manifest.jsonl"
LOCK = "lock"
STAGING = ".batch"
"""Folder of a lake for what is not finished; nobody but a batch looks into it."""

_RANK_FOLDER = re.compile(r"rank=(\d+)")

Outcome = Literal["done", "failed"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of a source. What is not known, such as the rank of a broken file, is null.

    ``bytes``, ``mtime_ns``, ``fingerprint`` and ``version`` say whether a source must be read again.
    ``files`` has rows and bytes of each table's file; a table without rows has no file.
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

    @property
    def key(self) -> tuple[str, str]:
        """A source has one entry in each run."""
        return self.run, self.source

    def to_line(self) -> str:
        """The entry as a line of JSON."""
        return json.dumps(asdict(self), sort_keys=True) + "\n"

    def place(self, lake: Path) -> Path:
        """The folder of the rank."""
        return lake / f"run={self.run}" / f"rank={self.rank}"


def entry_from(value: Mapping[str, Any]) -> Entry:
    """The entry that ``to_line`` wrote."""
    files = {name: (rows, size) for name, (rows, size) in value["files"].items()}
    fields: dict[str, Any] = {**value, "files": files, "steps": tuple(value["steps"])}
    return Entry(**fields)


def check_run(run: str) -> str:
    """The name of a run, which becomes the name of a folder.

    Raises: InvalidArgumentError: it cannot be one.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}", run):
        raise InvalidArgumentError(f"run {run!r}: use up to 100 letters, digits, '_', '.', '+' and '-'")
    return run


def read_manifest(lake: Path) -> list[Entry]:
    """The entries as the manifest has them, the last one of each source; none if there is no manifest."""
    entries: dict[tuple[str, str], Entry] = {}
    try:
        with (lake / MANIFEST).open("rb") as file:
            for line in file:
                # A process that was killed may have left half a line at the end.
                if line.endswith(b"\n"):
                    entry = entry_from(json.loads(line))
                    entries[entry.key] = entry
    except FileNotFoundError:
        return []
    return list(entries.values())


def finished_ranks(lake: Path) -> Iterator[Entry]:
    """The entries of the folders of ranks. One whose files are not all there whole is removed."""
    for run in sorted(lake.glob("run=*")):
        for folder in sorted(run.iterdir()):
            if not _RANK_FOLDER.fullmatch(folder.name):
                continue
            entry = _read_entry(folder)
            if entry is not None and _is_whole(folder, entry) and folder == entry.place(lake):
                yield entry
            else:
                discard(lake, folder)


def _read_entry(folder: Path) -> Entry | None:
    try:
        return entry_from(json.loads((folder / ENTRY).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_whole(folder: Path, entry: Entry) -> bool:
    """Whether the files have their sizes: a machine that lost power may have renamed what it never wrote."""
    sizes = {f"{name}.parquet": size for name, (_, size) in entry.files.items()}
    with os.scandir(folder) as found:
        actual = {file.name: file.stat().st_size for file in found if file.name != ENTRY}
    return sizes == actual


def append(lake: Path, entry: Entry) -> None:
    """Adds an entry; the last one of a source counts."""
    with (lake / MANIFEST).open("ab", buffering=0) as file:
        file.write(entry.to_line().encode())


def rewrite(lake: Path, entries: Iterable[Entry]) -> None:
    """Writes all entries anew, in order of run, rank and source."""
    waiting = staging(lake) / MANIFEST
    with waiting.open("w", encoding="utf-8") as file:
        for entry in sorted(entries, key=lambda e: (e.run, e.rank is None, e.rank or 0, e.source)):
            file.write(entry.to_line())
    waiting.replace(lake / MANIFEST)


def staging(lake: Path) -> Path:
    """The folder for what is not finished."""
    folder = lake / STAGING
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def commit(lake: Path, folder: Path, entry: Entry) -> None:
    """Puts the finished folder of a rank into its place, in one step."""
    place = entry.place(lake)
    place.parent.mkdir(exist_ok=True)
    if place.exists():
        discard(lake, place)
    folder.rename(place)


def discard(lake: Path, folder: Path) -> None:
    """Removes a folder of a rank: out of sight in one step, then from the disk."""
    doomed = staging(lake) / f"discarded-{folder.parent.name}-{folder.name}-{os.getpid()}"
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def clear_staging(lake: Path) -> None:
    """Removes what a killed batch left unfinished, but for the lock."""
    for path in staging(lake).iterdir():
        if path.name == LOCK:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(lake: Path) -> Generator[None]:
    """Holds the lake while the context lasts. The system lets go of the lock when its holder dies.

    Raises: LakeBusyError: another batch holds it.
    """
    path = staging(lake) / LOCK
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise LakeBusyError(
                f"{lake}: {holder} is writing into this lake; wait for it, or choose another --out"
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
