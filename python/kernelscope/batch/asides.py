"""Ranks that wait in the staging folder for their place, which is unknown until all traces of a job are read.

They survive an interrupted batch, so their traces are not read again.
"""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from kernelscope.batch.manifest import ENTRY, Entry, read_entry, remove_rank, staging

_ASIDE = re.compile(r"aside-[0-9a-f]{32}")


def is_aside(name: str) -> bool:
    """Returns whether a folder of the staging folder has such a name."""
    return _ASIDE.fullmatch(name) is not None


def set_aside(folder: Path) -> Path:
    """Moves the finished folder of a rank next to its batch's working directory.

    The next batch finds it there.
    """
    return folder.rename(folder.parent.with_name(f"aside-{uuid.uuid4().hex}"))


def asides(lake: Path) -> Iterator[tuple[Path, Entry]]:
    """Returns the waiting ranks with their folders.

    Incomplete folders left after a power failure are removed.

    A folder without an entry written by a batch belongs to someone else, because a waiting rank has an entry
    from the start.
    """
    for folder in sorted(staging(lake).iterdir()):
        if not is_aside(folder.name) or folder.is_symlink() or not (folder / ENTRY).is_file():
            continue
        entry = read_entry((folder / ENTRY).read_bytes(), lake)
        if entry is None:
            continue
        if _is_whole(folder, entry):
            yield folder, entry
        else:
            remove_rank(folder)


def _is_whole(folder: Path, entry: Entry) -> bool:
    try:
        sizes = {name: (folder / f"{name}.parquet").stat().st_size for name in entry.files}
    except OSError:
        return False
    return sizes == {name: size for name, (_, size) in entry.files.items()}
