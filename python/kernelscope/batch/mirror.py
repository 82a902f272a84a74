"""Remote lakes: a batch fills a local folder, and finished ranks are uploaded.

The folder is an image of the lake. Existing ranks have their entries and empty files with the sizes of their
tables, so that a batch resumes as with any lake. A storage cannot rename a folder. So a rank exists as soon
as its entry does, which is uploaded last, and deleted first when a rank is replaced. Merged files are
uploaded before the manifest that names them, and the files they replace are deleted afterwards.
"""

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

from kernelscope import locks
from kernelscope.batch.gathering import gathered_folder
from kernelscope.batch.manifest import (
    ENTRIES,
    ENTRY,
    LOCK,
    LOG,
    MANIFEST,
    STAGING,
    Entry,
    gathered_count,
    read_entry,
)
from kernelscope.batch.manifest_file import read_manifest, rewrite
from kernelscope.batch.reports import BatchReport, RankReport
from kernelscope.errors import InvalidArgumentError, LakeBusyError, StorageError, TraceNotFoundError
from kernelscope.remote import Storage

_MANIFEST_EVERY_S = 30.0
_RANK_FOLDER = re.compile(r"run=[^/]+/rank=\d+/window=\d+")
_RUN_FOLDER = re.compile(r"run=[^/]+")
_LOCK = f"{STAGING}/{LOCK}"

OnRank = Callable[[RankReport, BatchReport], object]


class Mirror:
    """The image of a lake in ``folder``, and its state in the storage."""

    def __init__(self, storage: Storage, folder: Path, on_rank: OnRank | None) -> None:
        self._storage = storage
        self.folder = folder
        self._on_rank = on_rank
        self._there: dict[str, Entry] = {}
        """The entry of each rank in the storage that has a folder of its own, by that."""
        self._gathered: dict[str, list[str]] = {}
        """The files of each folder of gathered ranks in the storage."""
        self._hollow: set[str] = set()
        """Files of the image that have only their sizes."""
        self._sent: tuple[int, int] | None = None
        """Size and time of the manifest's file that was sent last."""
        self._sent_at = time.monotonic()

    def load(self, *, is_new: bool) -> None:
        """Creates the image. With ``is_new``, the lake may not exist yet.

        Raises: InvalidArgumentError: the location is not a lake. TraceNotFoundError: nothing is there, and it
            may not be new.
        """
        sizes = self._storage.sizes()
        self._fetch_manifest(sizes, is_new=is_new)
        folders = [
            place
            for place, _, name in (known.rpartition("/") for known in sizes)
            if name == ENTRY and _RANK_FOLDER.fullmatch(place)
        ]
        listed = {
            _place(entry): entry
            for entry in read_manifest(self.folder).entries
            if entry.rank is not None and entry.gathered is None
        }
        changed = [place for place in folders if not _is_whole(listed.get(place), sizes)]
        listed |= self._entries_of(changed)
        for place in folders:
            if place in listed:
                self._imitate(place, listed[place], sizes)
        for inside in {name.rpartition("/")[0] for name in sizes}:
            run, _, name = inside.rpartition("/")
            if _RUN_FOLDER.fullmatch(run) and gathered_count(name) is not None:
                self._imitate_gathered(inside, sizes)
        if not any((self.folder / name).exists() for name in (LOG, MANIFEST)):
            # A batch that was killed has sent ranks, and no manifest yet.
            rewrite(self.folder, self._there.values(), {})

    def _fetch_manifest(self, sizes: dict[str, int], *, is_new: bool) -> None:
        there = [name for name in (LOG, MANIFEST) if name in sizes]
        if there:
            # An empty one, of a batch that was stopped before its first rank, is none to a batch.
            for name in there:
                if content := self._storage.read(name):
                    (self.folder / name).write_bytes(content)
        elif any(not name.startswith(f"{STAGING}/") for name in sizes):
            raise InvalidArgumentError(
                f"{self._storage.url}: contains files but is not a lake. Choose a new location for the lake"
            )
        elif not is_new:
            raise TraceNotFoundError(
                f"{self._storage.url}: is not a lake; create one with kernelscope batch",
                path=self._storage.url,
            )
        else:
            self._storage.write(LOG, b"")

    def _entries_of(self, places: list[str]) -> dict[str, Entry]:
        """The entries beside the tables: a batch that was killed has not sent its manifest."""
        lines = (self._storage.read(f"{place}/{ENTRY}") for place in places)
        read = (read_entry(line, self.folder) for line in lines)
        return {_place(entry): entry for entry in read if entry is not None}

    def _imitate(self, place: str, entry: Entry, sizes: dict[str, int] | None = None) -> None:
        """Makes the folder of a rank; ``sizes`` are those of files, if not all may be there."""
        folder = self.folder / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ENTRY).write_text(entry.own_line(), encoding="utf-8")
        # When it was written here says nothing about when it was read.
        os.utime(folder / ENTRY, ns=(0, 0))
        for table, (_, size) in entry.files.items():
            name = f"{place}/{table}.parquet"
            if sizes is None or name in sizes:
                self._hollow_out(name, size if sizes is None else sizes[name])
        self._there[place] = entry

    def _imitate_gathered(self, inside: str, sizes: dict[str, int]) -> None:
        """Makes a folder of gathered ranks; one whose entries are not there yet is none."""
        if f"{inside}/{ENTRIES}" not in sizes:
            return
        (self.folder / inside).mkdir(parents=True, exist_ok=True)
        (self.folder / inside / ENTRIES).write_bytes(self._storage.read(f"{inside}/{ENTRIES}"))
        found = gathered_folder(self.folder, inside)
        if found is None:
            return
        tables = [f"{inside}/{table}.parquet" for table in found.sizes]
        for name in tables:
            if name in sizes:
                self._hollow_out(name, sizes[name])
        self._gathered[inside] = [*tables, f"{inside}/{ENTRIES}"]

    def _hollow_out(self, name: str, size: int) -> None:
        with (self.folder / name).open("wb") as file:
            file.truncate(size)
        self._hollow.add(name)

    def note(self, rank: RankReport, batch: BatchReport) -> None:
        """Uploads a finished rank."""
        batch.lake = self._storage.url
        entry = rank.entry
        place = _place(entry)
        there = self._there.get(place)
        if entry.gathered is not None:
            # Its tables were sent with those of others.
            pass
        elif rank.status == "done" or (rank.status == "unchanged" and not _is_of(there, entry)):
            self._send(place, entry)
        elif rank.status == "unchanged" and there != entry:
            # Its source has moved.
            self._send_entry(place, entry)
        if time.monotonic() - self._sent_at > _MANIFEST_EVERY_S:
            self._send_manifest()
        if self._on_rank is not None:
            self._on_rank(rank, batch)

    def _send(self, place: str, entry: Entry) -> None:
        old = self._there.pop(place, None)
        if old is not None:
            self._remove(place, old, entry_first=True)
        names = [f"{place}/{name}.parquet" for name in entry.files]
        self._storage.send({name: self.folder / name for name in names})
        self._send_entry(place, entry)
        # The tables are there, and need no room here.
        self._imitate(place, entry)

    def fetch(self, entry: Entry) -> None:
        """Downloads the tables of a rank, and of the ranks merged with it, into the image."""
        for table in entry.files:
            name = f"{entry.home}/{table}.parquet"
            if name in self._hollow:
                (self.folder / name).write_bytes(self._storage.read(name))
                self._hollow.discard(name)

    def send_gathered(self, inside: str) -> None:
        """Uploads a new folder of merged ranks.

        Their entries come first, so that the tables have owners even if the manifest is never uploaded.
        """
        paths = {f"{inside}/{path.name}": path for path in sorted((self.folder / inside).iterdir())}
        entries = paths.pop(f"{inside}/{ENTRIES}")
        self._storage.write(f"{inside}/{ENTRIES}", entries.read_bytes())
        self._storage.send(paths)
        for name, path in paths.items():
            self._hollow_out(name, path.stat().st_size)
        self._gathered[inside] = [*paths, f"{inside}/{ENTRIES}"]

    def _send_entry(self, place: str, entry: Entry) -> None:
        self._storage.write(f"{place}/{ENTRY}", entry.own_line().encode())
        self._there[place] = entry

    def _remove(self, place: str, entry: Entry, *, entry_first: bool) -> None:
        """Removes what a batch wrote for a rank, and nothing else that may lie beside it."""
        own, tables = [f"{place}/{ENTRY}"], [f"{place}/{name}.parquet" for name in entry.files]
        self._storage.remove([*own, *tables] if entry_first else [*tables, *own])

    def _send_manifest(self) -> None:
        status = (self.folder / MANIFEST).stat()
        now = status.st_size, status.st_mtime_ns
        if now != self._sent:
            self._storage.send({MANIFEST: self.folder / MANIFEST})
            self._sent = now
        self._storage.write(LOG, (self.folder / LOG).read_bytes())
        self._sent_at = time.monotonic()

    def conclude(self) -> None:
        """Uploads the manifest, and deletes data that the batch removed from the lake."""
        self._send_manifest()
        for place in [place for place in self._there if not (self.folder / place).exists()]:
            # The entry says until the end whose the tables are.
            self._remove(place, self._there.pop(place), entry_first=False)
        for inside in [inside for inside in self._gathered if not (self.folder / inside).exists()]:
            self._storage.remove(self._gathered.pop(inside))


def _place(entry: Entry) -> str:
    return entry.place.folder


def _is_of(there: Entry | None, entry: Entry) -> bool:
    """Whether the storage has the tables of an entry in its place."""
    return there is not None and (there.fingerprint, there.files) == (entry.fingerprint, entry.files)


def _is_whole(entry: Entry | None, sizes: dict[str, int]) -> bool:
    """Whether the storage has the tables of an entry, as large as it says."""
    if entry is None or entry.outcome != "done":
        return False
    place = _place(entry)
    return all(sizes.get(f"{place}/{name}.parquet") == size for name, (_, size) in entry.files.items())


@contextlib.contextmanager
def mirrored(url: str, on_rank: OnRank | None, *, is_new: bool = True) -> Generator[Mirror]:
    """Locks the lake at ``url`` during the context and returns its image.

    Raises: LakeBusyError: another batch holds the lake. InvalidArgumentError: the location is not a lake.
        TraceNotFoundError: nothing is there, and the lake may not be new. StorageError: the storage does not
        answer; the next batch resumes.
    """
    storage = Storage(url)
    _lock(storage)
    root = Path(tempfile.mkdtemp(prefix="kernelscope-lake-"))
    try:
        (root / "lake").mkdir()
        mirror = Mirror(storage, root / "lake", on_rank)
        mirror.load(is_new=is_new)
        try:
            yield mirror
        except StorageError:
            raise
        except BaseException:
            # Stopped, or the disk is full: what was sent is there.
            with contextlib.suppress(OSError):
                mirror.conclude()
            raise
        mirror.conclude()
    finally:
        shutil.rmtree(root, ignore_errors=True)
        with contextlib.suppress(OSError):
            storage.remove([_LOCK])


def _lock(storage: Storage) -> None:
    holder = locks.this_process()
    if storage.create(_LOCK, holder.encode()):
        return
    other = storage.read(_LOCK).decode(errors="replace")[:200]
    if not locks.has_ended(other):
        raise LakeBusyError(
            f"{storage.url}: {other} is writing to this lake. Wait until it is done, or remove "
            f"{storage.url}/{_LOCK} if it no longer exists"
        )
    storage.write(_LOCK, holder.encode())
