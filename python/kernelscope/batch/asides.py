"""Ranks that wait in the staging folder for their place: until all traces of a job are read, nobody knows it.

They outlive a batch that is stopped, and their traces need not be read again.
"""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from kernelscope.batch.manifest import ENTRY, Entry, read_entry, remove_rank, staging

_ASIDE = re.compile(r"aside-[0-9a-f]{32}")


def is_aside(name: str) -> bool:
    """Whether a folder of the staging folder has this name."""
    return _ASIDE.fullmatch(name) is not None


def set_aside(folder: Path) -> Path:
    """Lets the finished folder of a rank wait beside its batch's workplace, where the next one finds it."""
    return folder.rename(folder.parent.with_name(f"aside-{uuid.uuid4().hex}"))


def asides(lake: Path) -> Iterator[tuple[Path, Entry]]:
    """The ranks that wait, with their folders. What a machine that lost power left of others is removed.

    A folder without an entry that a batch wrote is of somebody else: a rank that waits has one from the
    first.
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
