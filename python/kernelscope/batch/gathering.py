"""Merges small ranks into files that contain a table of many ranks.

A lake of 100,000 ranks then has thousands of files.

Merged files are written next to the existing ones, then the manifest is updated, and then the old files are
removed. So a reader that uses the manifest finds each rank exactly once, even after an interruption. The next
batch removes files that the manifest does not name. Row groups are copied unchanged, so none contains rows of
two ranks.
"""

import json
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kernelscope import _traceparse
from kernelscope.batch.manifest import (
    ENTRIES,
    SCHEMA_VERSION,
    Entry,
    gathered_count,
    read_entry,
    refuse_link,
    remove_rank,
    staging,
)

TARGET_BYTES = 128 << 20
"""Maximum size of the largest table of a folder, in bytes."""
MOST_RANKS = 1024
"""Maximum number of ranks in a folder: the footer of a file grows with each."""


@dataclass(frozen=True, slots=True)
class GatheredFolder:
    """A folder of merged ranks in a lake."""

    path: Path
    inside: str
    """Its path in the lake."""
    sizes: Mapping[str, int]
    """Required size of each of its tables."""

    @property
    def is_whole(self) -> bool:
        """Returns whether all tables have their sizes."""
        try:
            return all(os.stat(self.path / f"{n}.parquet").st_size == size for n, size in self.sizes.items())
        except OSError:
            return False

    def entries(self) -> list[Entry | None]:
        """Returns the entries of the merged ranks, in order; None for damaged ones."""
        with (self.path / ENTRIES).open("rb") as file:
            return [read_entry(line, self.path) for line in islice(file, 1, None)]

    def remove(self, lake: Path) -> None:
        """Removes the files that a batch wrote, hiding them in one step unless there are files of others."""
        own = {ENTRIES, *(f"{name}.parquet" for name in self.sizes)}
        if own.issuperset(os.listdir(self.path)):
            doomed = staging(lake) / f"discarded-{uuid.uuid4().hex}"
            self.path.rename(doomed)
            remove_rank(doomed)
            return
        for name in sorted(own, key=lambda name: name == ENTRIES):
            (self.path / name).unlink(missing_ok=True)


def gathered_folders(lake: Path, strangers: list[str]) -> Iterator[GatheredFolder]:
    """Returns the folders of merged ranks in a lake.

    ``strangers`` collects files in them that no batch wrote.
    """
    for run in sorted(lake.glob("run=*")):
        if run.is_symlink() or not run.is_dir():
            continue
        for name in sorted(os.listdir(run)):
            path = run / name
            if gathered_count(name) is not None and path.is_dir() and not path.is_symlink():
                sizes = _sizes(path)
                if sizes is None:
                    strangers.append(f"{run.name}/{name}")
                else:
                    own = {ENTRIES, *(f"{table}.parquet" for table in sizes)}
                    strangers.extend(
                        f"{run.name}/{name}/{other}" for other in sorted({*os.listdir(path)} - own)
                    )
                    yield GatheredFolder(path, f"{run.name}/{name}", sizes)


def gathered_folder(lake: Path, inside: str) -> GatheredFolder | None:
    """Returns the folder of merged ranks at ``inside``, or None if no batch wrote one there."""
    sizes = _sizes(lake / inside)
    return None if sizes is None else GatheredFolder(lake / inside, inside, sizes)


def _sizes(folder: Path) -> dict[str, int] | None:
    """The sizes of tables by the first line of the entries; null if no batch wrote it."""
    try:
        with (folder / ENTRIES).open("rb") as file:
            head = json.loads(file.readline())
        sizes = {str(name): int(size) for name, size in head["tables"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return sizes if all(name.isidentifier() for name in sizes) else None


@dataclass(slots=True)
class Heap:
    """Number of ranks, and their maximum total size in one table."""

    ranks: int = 0
    bytes: int = 0

    def add(self, entry: Entry) -> None:
        """Counts a rank."""
        self.ranks += 1
        self.bytes += _largest([entry])

    @property
    def is_enough(self) -> bool:
        """Returns whether they can fill a folder."""
        return self.ranks >= MOST_RANKS or self.bytes >= TARGET_BYTES


def full_shares(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Returns the ranks to merge while more ranks arrive: only enough at a time to fill a folder."""
    return [share for share, is_full in _shares(e for e in entries if e.gathered is None) if is_full]


def swept_shares(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Returns the remaining ranks of folders from which some were replaced or removed."""
    return [living for home, living in _by_home(entries).items() if len(living) < _count(home)]


def all_shares(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Returns the ranks to merge so that a lake has as few files as possible, and no small folders."""
    entries = list(entries)
    homes = _by_home(entries)
    loose = [entry for entry in entries if entry.outcome == "done" and entry.gathered is None]
    unfinished = [
        entry
        for home, living in homes.items()
        if len(living) < _count(home) or not _fills_half(living)
        for entry in living
    ]
    shares = [share for share, _ in _shares([*loose, *unfinished])]
    return [share for share in shares if not _is_gathered(share) and len(share) > 1]


def _by_home(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    homes: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.outcome == "done" and entry.gathered is not None:
            homes[entry.home].append(entry)
    return homes


def _count(home: str) -> int:
    return gathered_count(home.rpartition("/")[2]) or 0


def _is_gathered(share: Sequence[Entry]) -> bool:
    """Whether a share is what one folder has already."""
    return len({entry.home for entry in share}) == 1 and len(share) == _count(share[0].home)


def _fills_half(entries: Sequence[Entry]) -> bool:
    return 2 * len(entries) > MOST_RANKS or 2 * _largest(entries) > TARGET_BYTES


def _largest(entries: Iterable[Entry]) -> int:
    sums: dict[str, int] = defaultdict(int)
    for entry in entries:
        for name, (_, size) in entry.files.items():
            sums[name] += size
    return max(sums.values(), default=0)


def _shares(entries: Iterable[Entry]) -> Iterator[tuple[list[Entry], bool]]:
    """Small ranks, divided in their order into what fills a folder; and whether one is full.

    What other versions of kernelscope wrote may have other columns, and is a share of its own.
    """
    small = (e for e in entries if e.outcome == "done" and e.files and 2 * _largest([e]) <= TARGET_BYTES)
    share: list[Entry] = []
    sums: dict[str, int] = defaultdict(int)
    for entry in sorted(small, key=lambda e: (e.run, e.version, e.rank or 0, e.window)):
        is_other = bool(share) and (share[0].run, share[0].version) != (entry.run, entry.version)
        fits = all(sums[name] + size <= TARGET_BYTES for name, (_, size) in entry.files.items())
        if share and (is_other or not fits or len(share) == MOST_RANKS):
            yield share, not is_other
            share, sums = [], defaultdict(int)
        share.append(entry)
        for name, (_, size) in entry.files.items():
            sums[name] += size
    if share:
        yield share, len(share) == MOST_RANKS


def write_share(lake: Path, share: Sequence[Entry], folders: Mapping[str, GatheredFolder]) -> list[str]:
    """Merges ranks of one run into new folders of it, and returns the folder of each.

    ``folders`` are those that contain some of the ranks already. There are several new folders if the tables
    do not all have the same columns.

    Raises: OSError: the tables cannot be read or written.
    """
    waiting = staging(lake) / f"rank-{uuid.uuid4().hex}"
    waiting.mkdir()
    try:
        fitting = _write(lake, share, folders, waiting)
        if fitting < len(share):
            parts = share[:fitting], share[fitting:]
            return [name for part in parts for name in write_share(lake, part, folders)]
        name = f"gathered-{len(share)}-{uuid.uuid4().hex}"
        place = lake / f"run={share[0].run}" / name
        refuse_link(place.parent)
        tables = {path.stem: path.stat().st_size for path in sorted(waiting.iterdir())}
        head = json.dumps({"schema_version": SCHEMA_VERSION, "tables": tables}) + "\n"
        lines = [head, *(entry.own_line() for entry in share)]
        (waiting / ENTRIES).write_text("".join(lines), encoding="utf-8")
        # Or a machine that loses power may have removed the former files, and never written these.
        for path in (*waiting.iterdir(), waiting):
            _sync(path)
        waiting.rename(place)
        _sync(place.parent)
        return [name] * len(share)
    finally:
        shutil.rmtree(waiting, ignore_errors=True)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _write(lake: Path, share: Sequence[Entry], folders: Mapping[str, GatheredFolder], waiting: Path) -> int:
    """Writes the tables of a share; gives how many of the first ranks have the same columns."""
    begins = _begins(share, folders)
    for table in sorted({name for entry in share for name in entry.files}):
        having = [number for number, entry in enumerate(share) if table in entry.files]
        parts = [
            (
                str(share[number].folder(lake) / f"{table}.parquet"),
                begins.get((share[number].place.folder, table), 0),
                share[number].files[table][0],
                share[number].run,
                share[number].rank or 0,
                share[number].window,
            )
            for number in having
        ]
        try:
            _traceparse.gather_row_groups(parts, waiting / f"{table}.parquet")
        except ValueError as differs:
            return having[int(str(differs))]
    return len(share)


def _begins(share: Sequence[Entry], folders: Mapping[str, GatheredFolder]) -> dict[tuple[str, str], int]:
    """Before which row of a gathered table the rows of a rank begin."""
    begins: dict[tuple[str, str], int] = {}
    for home in {entry.home for entry in share if entry.gathered is not None}:
        seen: dict[str, int] = defaultdict(int)
        for entry in folders[home].entries():
            if entry is None:
                raise OSError(f"{folders[home].path / ENTRIES} is damaged")
            for table, (rows, _) in entry.files.items():
                begins[entry.place.folder, table] = seen[table]
                seen[table] += rows
    return begins
