"""The traces in which the graphs were captured that a trace replays."""

import contextlib
import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TypeAlias

from kernelscope import remote
from kernelscope.errors import TraceNotFoundError

CaptureOption: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None"
"""A capture or several, or folders of them; null for what lies beside the trace."""

FOLDER = "capture_traces"
"""The folder beside a trace whose files are its captures."""

_ENDINGS = (".json", ".json.gz", ".json.zst", ".sqlite", ".sqlite3", ".db")


@contextlib.contextmanager
def capture_files(trace: str | os.PathLike[str], capture: CaptureOption) -> Generator[list[str]]:
    """The files that ``capture`` names, or those that lie in ``capture_traces`` beside ``trace``.

    A folder stands for the traces in it, a URL for a copy that goes when the context ends.

    Raises: TraceNotFoundError: a capture does not exist, or a folder has no traces.
        StorageError: a URL cannot be read.
    """
    if capture is None:
        beside = Path(trace).parent / FOLDER
        yield _in_folder(beside) if beside.is_dir() else []
        return
    given = [capture] if isinstance(capture, str | os.PathLike) else capture
    with contextlib.ExitStack() as copies:
        files: list[str] = []
        for path in given:
            if remote.is_url(path):
                files.append(str(copies.enter_context(remote.local_copy(path))))
            elif os.path.isdir(path):
                files += _in_folder(Path(path))
                if not files:
                    raise TraceNotFoundError(
                        f"{os.fspath(path)}: no trace in this folder", path=os.fspath(path)
                    )
            else:
                files.append(os.fspath(path))
        yield files


def _in_folder(folder: Path) -> list[str]:
    return sorted(str(file) for file in folder.iterdir() if file.name.endswith(_ENDINGS) and file.is_file())
