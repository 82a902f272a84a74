"""State of a lake during a batch: the entry of each trace, the owner of each place, and waiting ranks."""

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from kernelscope.batch import gathering, manifest, manifest_file, rank_folders
from kernelscope.batch.asides import asides, set_aside
from kernelscope.batch.gathering import GatheredFolder
from kernelscope.batch.manifest import Entry, Key
from kernelscope.batch.manifest_file import Listed
from kernelscope.batch.rank_folders import RankFolder, own_names
from kernelscope.batch.reports import damage_notes, stranger_notes

_TICK_NS = 2_000_000_000
"""A change more recent than this before reading may hide another change within one tick of the file system,
in ns."""

_Where: TypeAlias = str
"""Folder of a place in the lake."""


class Aside(NamedTuple):
    """A trace that waits for its place, and the resources used for reading it."""

    folder: Path
    entry: Entry
    seconds: float | None = None
    peak_bytes: int | None = None


class Image(Protocol):
    """Updates required by a local image of a remote lake while ranks are merged."""

    def fetch(self, entry: Entry) -> None:
        """Downloads the tables of a trace into the image."""

    def send_gathered(self, inside: str) -> None:
        """Uploads a new folder."""

    def conclude(self) -> None:
        """Uploads the manifest, then deletes remote files that are no longer in the image."""


class LakeState:
    """The ranks of a lake, and changes to them."""

    def __init__(self, lake: Path, image: Image | None = None) -> None:
        self.lake = lake
        self._image = image
        self.entries: dict[Key, Entry] = {}
        """What the manifest has."""
        self.asides: dict[Key, Aside] = {}
        self.notes: list[str] = []
        """What is odd about the lake, a sentence each."""
        self._holders: dict[_Where, Key] = {}
        self._own: dict[_Where, set[str]] = {}
        """Names of the files that a batch wrote there."""
        self._written_ns: dict[Key, int] = {}
        """When the traces in the lake were put there, by earlier batches."""
        self._gathered: dict[_Where, GatheredFolder] = {}
        self._saved: list[Entry] | None = None
        """What the file of the manifest has, if it has all."""
        self._arranged: dict[str, str] = {}
        """For each run that was asked for, what its traces have their places from."""
        self._saved_arranged: dict[str, str] = {}

    def load(self, sources: Collection[str]) -> None:
        """Reads the contents of the lake, even after an interrupted batch."""
        listed = manifest_file.read_manifest(self.lake)
        if listed.is_plain:
            self._saved = listed.entries
        self._arranged, self._saved_arranged = dict(listed.arranged), dict(listed.arranged)
        # An archive or folder that could not be looked into is no source once it can be.
        opened = {name.partition("::")[0] for name in sources if "::" in name}
        opened |= {os.path.dirname(name) for name in sources}
        opened -= set(sources)
        self.entries = {e.key: e for e in listed.entries if e.outcome == "failed" and e.source not in opened}
        strangers: list[str] = []
        self._take_gathered(listed, strangers)
        by_place = {entry.place.folder: entry for entry in listed.entries if entry.rank is not None}
        loose = {where: entry for where, entry in by_place.items() if entry.gathered is None}
        for folder in rank_folders.rank_folders(self.lake, strangers, loose):
            self._look(folder, by_place.get(folder.inside), sources, strangers)
        for path, entry in asides(self.lake):
            # Of a trace that was being moved when a batch was stopped there are two.
            self.drop_aside(entry.key)
            self.asides[entry.key] = Aside(path, entry)
        self.notes = [*damage_notes(listed.lines, is_torn=listed.is_torn), *stranger_notes(strangers)]
        self.save()
        self._remove_unnamed()

    def save(self) -> None:
        """Writes the manifest again if it does not have exactly these entries."""
        order = manifest_file.in_order(self.entries.values())
        if (order, self._arranged) != (self._saved, self._saved_arranged):
            manifest_file.rewrite(self.lake, order, self._arranged)
            self._saved, self._saved_arranged = order, dict(self._arranged)

    def _take_gathered(self, listed: Listed, strangers: list[str]) -> None:
        """Takes up what the manifest says was gathered; if that is damaged, what the folders say, too."""
        members: dict[_Where, list[Entry]] = {}
        for entry in listed.entries:
            if entry.outcome == "done" and entry.gathered is not None:
                members.setdefault(entry.home, []).append(entry)
        known = {entry.key for entry in listed.entries}
        for folder in gathering.gathered_folders(self.lake, strangers):
            self._gathered[folder.inside] = folder
            inside = members.get(folder.inside, [])
            if listed.is_damaged:
                more = (entry for entry in folder.entries() if entry is not None and entry.key not in known)
                inside = [*inside, *(replace(entry, gathered=folder.path.name) for entry in more)]
            is_whole = folder.is_whole
            for entry in inside:
                if is_whole:
                    self._holders[entry.place.folder] = entry.key
                    self.entries[entry.key] = entry
                else:
                    self.entries[entry.key] = _damaged(entry, folder.path)

    def _remove_unnamed(self) -> None:
        """Removes the folders of gathered ranks that no entry names any more."""
        named = {entry.home for entry in self.entries.values() if entry.gathered is not None}
        for inside in self._gathered.keys() - named:
            self._gathered.pop(inside).remove(self.lake)

    def _look(
        self, folder: RankFolder, listed: Entry | None, sources: Collection[str], strangers: list[str]
    ) -> None:
        """Takes up what the lake has in a folder, unless no batch wrote it."""
        entry = folder.entry
        if entry is None and listed is not None and listed.gathered is None:
            entry = listed
        own = set[str]() if entry is None else own_names(entry)
        strangers.extend(f"{folder.inside}/{name}" for name in folder.sizes if name not in own)
        if entry is None:
            return
        is_whole = folder.has_whole(entry)
        if not self._is_newer(folder, entry, is_whole=is_whole):
            rank_folders.discard(self.lake, folder.path, own)
            return
        self._own[folder.inside] = own
        if is_whole and folder.entry is None and entry.source not in sources:
            # Only the entry in the folder is damaged, and nobody can read the source instead.
            entry = replace(entry, outcome="done", error=None, error_kind=None)
            self._write_entry(entry)
        elif not is_whole or folder.entry is None:
            entry = _damaged(entry, folder.path)
        if listed is not None and (listed.key, listed.fingerprint) == (entry.key, entry.fingerprint):
            entry = replace(entry, settled=listed.settled)
        other = self.entries.get(entry.key)
        if entry.outcome == "done":
            self._holders[folder.inside] = entry.key
            self._written_ns[entry.key] = folder.written_ns
        if other is not None and other.outcome == "done":
            # A batch was stopped while it moved the trace in a storage.
            self._discard(entry)
        else:
            self.entries[entry.key] = entry

    def _is_newer(self, folder: RankFolder, entry: Entry, *, is_whole: bool) -> bool:
        """Whether what is in a folder counts, and not what the lake has gathered; that is forgotten then."""
        there = (self.entries.get(self._holders.get(folder.inside, entry.key)), self.entries.get(entry.key))
        gathered = [other for other in there if other is not None and other.home in self._gathered]
        gathered = [other for other in gathered if other.outcome == "done"]
        if any(not is_whole or _is_same(entry, other) for other in gathered):
            # A batch was stopped before it removed what it had gathered.
            return False
        for other in gathered:
            self._holders.pop(other.place.folder, None)
            self.entries.pop(other.key, None)
        return True

    def done(self, run: str) -> dict[Key, Entry]:
        """Returns the traces in the lake that were requested as ``run``."""
        return {
            key: entry for key, entry in self.entries.items() if entry.outcome == "done" and key[0] == run
        }

    def latest(self, key: Key) -> Entry | None:
        """Returns the latest entry of a source; a waiting entry is newer than one in place."""
        aside = self.asides.get(key)
        return self.entries.get(key) if aside is None else aside.entry

    def settle(self, run: str) -> None:
        """Records that the traces of a run are in their final places."""
        for key, entry in self.done(run).items():
            if not entry.settled:
                self.entries[key] = replace(entry, settled=True)
        self._arranged[run] = self._origin(run)

    def is_settled(self, run: str) -> bool:
        """Returns whether an earlier batch found exactly these traces of a run in their final places."""
        if any(key[0] == run for key in self.asides) or any(e.error for e in self.done(run).values()):
            return False
        return run in self._arranged and self._arranged[run] == self._origin(run)

    def _origin(self, run: str) -> str:
        """A digest of what the places of a run's traces follow from. What was read anew is not settled."""
        lines = [
            "\0".join(map(str, (e.source, e.place, e.fingerprint, e.version, e.settled)))
            for e in self.done(run).values()
        ]
        whole = "\n".join([*sorted(lines), *sorted(self.other_runs(run))])
        return hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def is_surely_unchanged(self, entry: Entry, ctime_ns: int | None) -> bool:
        """Returns whether the file system shows no change of a source, including its timestamps, since the
        lake has it."""
        if ctime_ns is None or entry.ctime_ns != ctime_ns:
            return False
        # Of what is gathered, only a time that is sure was kept.
        return entry.gathered is not None or self._written_ns.get(entry.key, 0) - ctime_ns > _TICK_NS

    def is_free(self, entry: Entry) -> bool:
        """Returns whether no other known trace owns the place of ``entry``."""
        return entry.rank is not None and self._holders.get(entry.place.folder) in (None, entry.key)

    def commit(self, folder: Path, entry: Entry) -> None:
        """Moves the finished folder of a trace to its place, and removes its previous data from the lake.

        Raises: RankTakenError: the place contains files that no batch wrote.
        """
        where = entry.place.folder
        rank_folders.commit(self.lake, folder, entry, self._own.get(where, ()))
        old = self.entries.get(entry.key)
        if old is not None and old.place.folder != where:
            self._discard(old)
        self._own[where] = own_names(entry)
        self._holders[where] = entry.key
        self.record(entry)

    def record(self, entry: Entry) -> None:
        """Records the result of a source."""
        self._saved = None
        manifest_file.append(self.lake, [entry])
        self.entries[entry.key] = entry

    def wait(self, aside: Aside) -> None:
        """Lets a trace that was read or rewritten wait for its place."""
        waiting = aside._replace(folder=set_aside(aside.folder))
        self.drop_aside(aside.entry.key)
        self.asides[aside.entry.key] = waiting

    def drop_aside(self, key: Key) -> None:
        """Removes the waiting data of a source."""
        aside = self.asides.pop(key, None)
        if aside is not None:
            manifest.remove_rank(aside.folder)

    def leave(self, key: Key) -> None:
        """Removes a trace that waits for another place from its current one."""
        there = self.entries.get(key)
        if there is not None and there.place.folder != self.asides[key].entry.place.folder:
            self._discard(there)

    def forget(self, entry: Entry) -> None:
        """Removes a trace from the lake."""
        self.drop_aside(entry.key)
        self._discard(entry)
        self.entries.pop(entry.key, None)

    def rename(self, old: Entry, new: Entry) -> None:
        """Records the new location of the source of a trace."""
        if new.gathered is None:
            self._write_entry(new)
        del self.entries[old.key]
        self.entries[new.key] = new
        self._holders[new.place.folder] = new.key

    def _discard(self, entry: Entry) -> None:
        """Removes what an entry has in its place, unless another one has taken it."""
        where = entry.place.folder
        if self._holders.get(where) != entry.key:
            return
        if entry.gathered is None:
            rank_folders.discard(self.lake, entry.folder(self.lake), self._own.pop(where, ()))
        del self._holders[where]

    def _write_entry(self, entry: Entry) -> None:
        path = entry.folder(self.lake) / manifest.ENTRY
        manifest.replace_file(self.lake, path, entry.own_line().encode())

    def gather(self, share: Sequence[Entry]) -> None:
        """Merges the tables of some ranks into shared files."""
        if self._image is not None:
            for entry in share:
                self._image.fetch(entry)
        names = gathering.write_share(self.lake, share, self._gathered)
        for entry, name in zip(share, names, strict=True):
            ctime_ns = entry.ctime_ns if self._is_sure(entry) else None
            self.entries[entry.key] = replace(entry, gathered=name, ctime_ns=ctime_ns)
        homes = {self.entries[entry.key].home for entry in share}
        for home in sorted(homes):
            folder = gathering.gathered_folder(self.lake, home)
            if folder is not None:
                self._gathered[home] = folder
            if self._image is not None:
                self._image.send_gathered(home)
        self.save()
        for entry in share:
            if entry.gathered is None:
                own = self._own.pop(entry.place.folder, ())
                rank_folders.discard(self.lake, entry.folder(self.lake), own)
        self._remove_unnamed()
        if self._image is not None:
            self._image.conclude()

    def _is_sure(self, entry: Entry) -> bool:
        """Whether the time of a source's last change was long past when it was read."""
        if entry.gathered is not None or entry.ctime_ns is None:
            return True
        written_ns = os.stat(entry.folder(self.lake) / manifest.ENTRY).st_mtime_ns
        return written_ns - entry.ctime_ns > _TICK_NS

    def other_runs(self, run: str) -> set[str]:
        """Returns the names of runs that contain traces requested under other runs."""
        return {entry.run for key, entry in self.entries.items() if entry.outcome == "done" and key[0] != run}


def _damaged(entry: Entry, folder: Path) -> Entry:
    error = f"{entry.source}: rank {entry.rank} is damaged in the lake, see {folder}"
    return replace(entry, outcome="failed", error=error, error_kind="LakeDamagedError")


def _is_same(entry: Entry, other: Entry) -> bool:
    """Whether two entries are about the same tables of one trace."""
    return all(getattr(entry, name) == getattr(other, name) for name in _SAME)


_SAME = "key place fingerprint version options files".split()
