"""Traces behind URLs, through fsspec: whatever file systems the user installed for it."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernelscope.errors import InvalidArgumentError, TraceNotFoundError, TraceReadError


def _open(url: str) -> tuple[Any, str]:
    try:
        core: Any = importlib.import_module("fsspec.core")
    except ImportError:
        raise InvalidArgumentError(f"{url}: URLs need fsspec; pip install 'kernelscope[remote]'") from None
    try:
        return core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        # The message says which package has the file system.
        raise InvalidArgumentError(f"{url}: {error}") from None


def find(url: str, is_trace: Callable[[str], bool]) -> Iterator[tuple[str, int]]:
    """URL and size of every trace that ``url`` names: a file, a pattern, or a folder and all below it.

    Raises: TraceNotFoundError: there is nothing.
        TraceReadError: the file system does not answer.
    """
    files, path = _open(url)
    try:
        if any(sign in path for sign in "*?["):
            found: dict[str, Any] = files.glob(path, detail=True)
        elif files.isdir(path):
            found = {name: info for name, info in files.find(path, detail=True).items() if is_trace(name)}
        else:
            found = {path: files.info(path)}
    except FileNotFoundError:
        found = {}
    except OSError as error:
        raise TraceReadError(f"{url}: {error}", path=url) from None
    if not found:
        raise TraceNotFoundError(f"{url}: no trace there", path=url)
    for name, info in found.items():
        if info.get("type", "file") == "file":
            yield files.unstrip_protocol(name), int(info.get("size") or 0)


def fingerprint(url: str) -> str:
    """What the file system has to identify a file's content, such as an ETag."""
    files, path = _open(url)
    try:
        files.invalidate_cache()
        return str(files.ukey(path))
    except FileNotFoundError:
        raise TraceNotFoundError(f"{url}: no such file", path=url) from None


def fetch(url: str, copy: Path) -> None:
    """Copies the file to ``copy``.

    Raises: TraceNotFoundError: it is gone.
    """
    files, path = _open(url)
    try:
        files.get_file(path, str(copy))
    except FileNotFoundError:
        raise TraceNotFoundError(f"{url}: no such file", path=url) from None


def read_ends(url: str, size: int, head: int, tail: int) -> tuple[bytes, bytes]:
    """The first and the last bytes of a file."""
    files, path = _open(url)
    return files.cat_file(path, 0, head), files.cat_file(path, max(size - tail, 0), size)
