"""Input files of commands, including standard input and URLs, and hints about other files."""

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Generator

from kernelscope import remote
from kernelscope.errors import (
    InvalidArgumentError,
    KernelscopeError,
    NotAFileError,
    NotATraceError,
    TraceFormatError,
)

STDIN = "-"
"""Name of standard input on the command line."""

STDIN_NAME = "standard input"
_SQLITE = b"SQLite format 3\0"
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_START_BYTES = 512
_RECORD = b"{'"
# What files begin with that are no traces, and what reads them.
_INSTEAD = {
    _RECORD: "contains records of kernelscope parse, which kernelscope prof reads",
    b"PAR1": "is a Parquet table, which Polars, DuckDB and pandas read",
    b"ARROW1": "is an Arrow table, which Polars, DuckDB and pandas read",
    b"<!DOCTYPE html": "is a page; open it in a browser",
}
_TAR = 257, b"ustar"
_NUMBER = re.compile(r" \(os error \d+\)$")


@contextlib.contextmanager
def on_disk(path: str, *, for_json: str | None = None) -> Generator[str]:
    """Returns ``path``, or for ``-`` and URLs a file with their content, removed at the end of the context.

    An error about the file suggests the right command, if there is one. A command that does not read JSON
    names the one that does with ``for_json``.
    """
    if remote.is_url(path):
        with remote.local_copy(path) as copy, _explained(str(copy), path):
            _check(str(copy), for_json)
            yield str(copy)
        return
    if path != STDIN:
        # Needs Polars, which the help does not wait for.
        from kernelscope.exports import as_database

        with as_database(path) as file, _explained(str(file), path):
            _check(str(file), for_json)
            yield str(file)
        return
    with tempfile.TemporaryDirectory(prefix="kernelscope-") as folder:
        # Databases are read here and there, and a pipe gives its bytes once and in order.
        copy = os.path.join(folder, "stdin")
        _spool(copy)
        with _explained(copy, STDIN_NAME):
            _check(copy, for_json)
            yield copy


def _spool(copy: str) -> None:
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - so it is where it was closed
        raise InvalidArgumentError("- is standard input, which is closed")
    if hasattr(sys.stdin, "buffer"):
        with open(copy, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
    else:
        # A program that calls this one may have text there.
        with open(copy, "w", encoding="utf-8") as file:
            shutil.copyfileobj(sys.stdin, file, 1 << 20)


@contextlib.contextmanager
def _explained(path: str, name: str) -> Generator[None]:
    """Names the file in errors as the user did."""
    try:
        yield
    except KernelscopeError as error:
        message = _NUMBER.sub("", str(error)).replace(path, name)
        if isinstance(error, (NotAFileError, NotATraceError, TraceFormatError)):
            instead = _instead(path)
            message = message if instead is None else f"{name}: {instead}"
        error.args = (message,)
        error.path = name if error.path == path else error.path
        raise


def _instead(path: str) -> str | None:
    """What a file or folder is that is no trace, and what reads it; None where that is not known."""
    if os.path.isdir(path):
        return _folder(path)
    start = _start(path)
    at, mark = _TAR
    if start[at:].startswith(mark):
        return "is an archive; kernelscope batch reads the traces in it"
    return next((what for magic, what in _INSTEAD.items() if start.startswith(magic)), None)


def _folder(path: str) -> str:
    with os.scandir(path) as entries:
        names = {entry.name for entry in entries}
    if not names.isdisjoint(("manifest.parquet", "manifest.jsonl")):
        return (
            "is a lake of many ranks: open it with kernelscope.scan, add ranks with kernelscope batch --out"
        )
    return "is a folder. Pass a trace file in it, or read all of them with kernelscope batch"


def _start(path: str) -> bytes:
    """The first bytes of a file; none of what gives its bytes once."""
    if not os.path.isfile(path):
        return b""
    with open(path, "rb") as file:
        return file.read(_START_BYTES)


def is_database(path: str) -> bool:
    """Returns whether a file is an SQLite database, regardless of its contents."""
    return _start(path).startswith(_SQLITE)


def is_json(path: str) -> bool:
    """Returns whether a file is JSON, compressed or not, like traces of the PyTorch profiler."""
    start = _start(path).removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith((b"{", b"[", *_PACKED)) and not start.startswith(_RECORD)


def _check(path: str, for_json: str | None) -> None:
    """Raises NotATraceError if a file is JSON and another command is for that."""
    if for_json is not None and is_json(path):
        raise NotATraceError(f"{path}: is JSON, not a database: use kernelscope {for_json}", path=path)
