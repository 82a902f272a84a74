"""Reduces the number of files of a lake."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kernelscope import remote
from kernelscope.batch import gathering, manifest, rank_folders
from kernelscope.batch.lake_state import Image, LakeState
from kernelscope.batch.mirror import mirrored
from kernelscope.errors import TraceNotFoundError


class Compaction(NamedTuple):
    """Result of a compaction: the number of rank windows, of merged windows, and of their folders.

    ``notes`` describe oddities of the lake, one sentence each.
    """

    ranks: int
    gathered: int
    folders: int
    notes: list[str]


def compact(
    lake: str | os.PathLike[str], *, on_share: Callable[[int, int], object] | None = None
) -> Compaction:
    """Merges the small ranks of a lake: the tables of up to 1,024 ranks into files of at most about 128 MB.

    A batch merges ranks while it runs, but leaves those that do not fill a file. The contents of the lake do
    not change, and readers that use the manifest find every rank exactly once at any moment. An interrupted
    call is resumed by the next one. ``lake`` may be a URL. ``on_share`` is called with the number of shares
    done and in total.

    Raises: TraceNotFoundError: there is no lake. LakeBusyError: a batch is writing to it. StorageError: the
        storage does not answer; call again to resume.

    Example: ``ks.batch.compact("lake/")``
    """
    if remote.is_storage(lake):
        with mirrored(lake, None, is_new=False) as mirror:
            return _compact(mirror.folder, on_share, mirror)
    path = (remote.local_path(os.fspath(lake)) or Path(lake)).absolute()
    if not rank_folders.is_lake(path):
        raise TraceNotFoundError(f"{path}: is not a lake; create one with kernelscope batch", path=str(path))
    return _compact(path, on_share, None)


def _compact(lake: Path, on_share: Callable[[int, int], object] | None, image: Image | None) -> Compaction:
    with manifest.locked(lake):
        manifest.clear_staging(lake)
        state = LakeState(lake, image)
        state.load(())
        shares = gathering.all_shares(state.entries.values())
        for number, share in enumerate(shares, 1):
            state.gather(share)
            if on_share is not None:
                on_share(number, len(shares))
    there = [entry for entry in state.entries.values() if entry.outcome == "done"]
    homes = [entry.home for entry in there if entry.gathered is not None]
    return Compaction(len(there), len(homes), len(set(homes)), state.notes)
