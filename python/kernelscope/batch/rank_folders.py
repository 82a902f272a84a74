"""The folders of the ranks of a lake: the files that a batch wrote, and how ranks are moved in and out.

Other files may be anywhere in a lake: notes, or files of a file manager or a network file system. A batch
removes only the files named in the entry of a rank. If there are such files, a rank is moved into place file
by file, its entry first, so that the entry names all files of the batch even after an interruption.
"""

import contextlib
import os
import re
import stat
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelscope.batch.asides import is_aside
from kernelscope.batch.manifest import (
    ENTRY,
    LOCK,
    LOG,
    MANIFEST,
    STAGING,
    Entry,
    gathered_count,
    has_own_lock,
    has_own_manifest,
    is_unfinished,
    read_entry,
    refuse_link,
    remove_rank,
    staging,
)
from kernelscope.errors import InvalidArgumentError, RankTakenError

_RUN_FOLDER = re.compile(r"run=([A-Za-z0-9_][A-Za-z0-9_.+-]{0,99})")
_RANK_FOLDER = re.compile(r"rank=([0-9]{1,10})")
_WINDOW_FOLDER = re.compile(r"window=([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class RankFolder:
    """A folder named as a window of a rank: its entry, null if it cannot be read, and its files."""

    path: Path
    inside: str
    """Its path in the lake."""
    entry: Entry | None
    sizes: dict[str, int | None]
    """Size of every file in it except the entry; null if it is not a regular file."""
    written_ns: int
    """Time at which the entry was written."""

    def has_whole(self, entry: Entry) -> bool:
        """Returns whether files have their sizes: after a power failure, renamed files may be incomplete."""
        return all(self.sizes.get(f"{name}.parquet") == size for name, (_, size) in entry.files.items())


def rank_folders(
    lake: Path, strangers: list[str], listed: Mapping[str, Entry] | None = None
) -> Iterator[RankFolder]:
    """Returns the folders of ranks, in order.

    ``strangers`` collects names inside the lake that no batch wrote.

    ``listed`` has entries of the manifest by their folders. An entry with the length of the one in the folder
    is used in its place.

    Raises: InvalidArgumentError: there is a link where a batch removes files.
    """
    for run in _sorted(lake):
        if _RUN_FOLDER.fullmatch(run.name) is None or not run.is_dir(follow_symlinks=False):
            if _RUN_FOLDER.fullmatch(run.name) is not None:
                refuse_link(Path(run.path))
            if run.name not in (MANIFEST, LOG, STAGING):
                strangers.append(run.name)
            continue
        for rank in _named(run.path, _RANK_FOLDER, run.name, strangers):
            inside = f"{run.name}/{rank.name}"
            for window in _named(rank.path, _WINDOW_FOLDER, inside, strangers):
                where = f"{inside}/{window.name}"
                yield _look(Path(window.path), where, lake, (listed or {}).get(where))
    others = (found.name for found in _sorted(lake / STAGING) if found.name != LOCK)
    strangers.extend(f"{STAGING}/{name}" for name in others if not is_aside(name) and not is_unfinished(name))


def _named(
    folder: str, pattern: re.Pattern[str], inside: str, strangers: list[str]
) -> Iterator["os.DirEntry[str]"]:
    """The folders in one that are named as a batch names them."""
    for found in _sorted(folder):
        is_folder = found.is_dir(follow_symlinks=False)
        if is_folder and gathered_count(found.name) is not None and pattern is _RANK_FOLDER:
            continue
        if pattern.fullmatch(found.name) is None or not is_folder:
            strangers.append(f"{inside}/{found.name}")
        else:
            yield found


def _sorted(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []


def _look(path: Path, inside: str, lake: Path, listed: Entry | None) -> RankFolder:
    sizes: dict[str, int | None] = {}
    written_ns = 0
    for found in _sorted(path):
        status = found.stat(follow_symlinks=False)
        sizes[found.name] = status.st_size if stat.S_ISREG(status.st_mode) else None
        if found.name == ENTRY:
            written_ns = status.st_mtime_ns
    entry = None
    size = sizes.pop(ENTRY, None)
    if listed is not None and listed.outcome == "done" and size == len(listed.own_line().encode()):
        entry = listed
    elif size is not None:
        with contextlib.suppress(OSError):
            entry = read_entry((path / ENTRY).read_bytes(), lake)
    if entry is not None and entry.place.folder != inside:
        entry = None
    return RankFolder(path, inside, entry, sizes, written_ns)


def own_names(entry: Entry) -> set[str]:
    """Returns the files that a batch wrote for a rank."""
    return {ENTRY, *(f"{name}.parquet" for name in entry.files)}


def check_out(lake: Path, inputs: Collection[str]) -> None:
    """Refuses an ``--out`` in which a batch would write among other files.

    Raises: InvalidArgumentError: it is not a folder, contains other files, or is part of an input.
    """
    try:
        str(lake).encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            f"{lake}: the path of a lake must be UTF-8, otherwise no reader can open it"
        ) from None
    if os.path.lexists(lake) and not lake.is_dir():
        raise InvalidArgumentError(f"{lake} is a file. Pass a folder for the lake")
    for path in (lake / STAGING, lake / STAGING / LOCK):
        refuse_link(path)
    real = Path(os.path.realpath(lake))
    for given in inputs:
        folder = Path(os.path.realpath(given.removeprefix("file://")))
        if folder == real or folder in real.parents:
            raise InvalidArgumentError(
                f"{lake} is the input {given} or is inside it. Pass a folder outside it for the lake"
            )
    if not is_lake(lake) and any(_sorted(lake)):
        raise InvalidArgumentError(
            f"{lake} contains other files and is not a lake. Pass a new or an empty folder"
        )


def is_lake(folder: Path) -> bool:
    """Returns whether a batch created ``folder``."""
    if has_own_manifest(folder):
        return True
    if not has_own_lock(folder):
        return False
    # Of a batch that was stopped before it had any rank, or whose manifest is damaged.
    names = {found.name for found in _sorted(folder)} - {STAGING}
    return not names or not names.isdisjoint((MANIFEST, LOG))


def commit(lake: Path, folder: Path, entry: Entry, own: Collection[str]) -> None:
    """Moves the finished folder of a rank into place, atomically unless there are files of others.

    ``own`` has the names of the files that a batch wrote there earlier.

    Raises: RankTakenError: the place contains files that no batch wrote.
    """
    place = entry.folder(lake)
    above = place.parent.parent
    refuse_link(above)
    for path in (above, place.parent, place):
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
            raise RankTakenError(f"{path} was not created by a batch: move it elsewhere")
    place.parent.mkdir(parents=True, exist_ok=True)
    strangers = _strangers(place, own)
    in_the_way = sorted(strangers & own_names(entry))
    if in_the_way:
        raise RankTakenError(f"{place / in_the_way[0]} was not written by a batch: move it elsewhere")
    if not strangers:
        discard(lake, place, own)
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
        return
    _unlink(place, own, entry_too=False)
    (folder / ENTRY).replace(place / ENTRY)
    for path in folder.iterdir():
        path.rename(place / path.name)
    folder.rmdir()


def discard(lake: Path, place: Path, own: Collection[str]) -> None:
    """Removes the files ``own`` of a rank, and its folder: hidden in one step, then deleted.

    Files of others stay, together with the folder.
    """
    if _strangers(place, own):
        _unlink(place, own, entry_too=True)
    elif os.path.lexists(place):
        doomed = staging(lake) / f"discarded-{uuid.uuid4().hex}"
        place.rename(doomed)
        remove_rank(doomed)
        for folder in (place.parent, place.parent.parent):
            # The last window of a rank, the last rank of a run.
            with contextlib.suppress(OSError):
                folder.rmdir()


def _strangers(place: Path, own: Collection[str]) -> set[str]:
    return {
        found.name
        for found in _sorted(place)
        if found.name not in own or not found.is_file(follow_symlinks=False)
    }


def _unlink(place: Path, own: Collection[str], *, entry_too: bool) -> None:
    for name in sorted(own, key=lambda name: name == ENTRY):
        if (name != ENTRY or entry_too) and (place / name).is_file():
            (place / name).unlink()
