"""Traces with the captures of the graphs that a trace replays."""

import contextlib
import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TypeAlias

from kernelscope import remote
from kernelscope.errors import TraceNotFoundError

CaptureOption: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None"
"""One or several captures, or folders of them; null for the default location next to the trace."""

FOLDER = "capture_traces"
"""Folder next to a trace with its captures."""

_ENDINGS = (".json", ".json.gz", ".json.zst", ".sqlite", ".sqlite3", ".db")


@contextlib.contextmanager
def capture_files(trace: str | os.PathLike[str], capture: CaptureOption) -> Generator[list[str]]:
    """Returns the files in ``capture``, or those in ``capture_traces`` next to ``trace``.

    A folder includes the traces in it. A URL is copied to a file that is removed at the end of the context.

    Raises: TraceNotFoundError: a capture does not exist, or a folder contains no traces. StorageError: a URL
        cannot be read.
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
