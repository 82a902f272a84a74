"""Writes files atomically: a reader sees the old content or the new, never a part."""

import contextlib
import errno
import gzip
import os
import secrets
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

from kernelscope.errors import InvalidArgumentError

_OTHER_COMPRESSIONS = (".zst", ".bz2", ".xz", ".lz4", ".zip")
_GZIP_LEVEL = 6


def print_or_write(text: str, out: Path | None) -> None:
    """Prints ``text`` on standard output, or replaces the content of ``out``."""
    if out is None:
        sys.stdout.write(text)
    else:
        write_text(out, text)


def write_text(path: Path, text: str) -> None:
    """Replaces the content of ``path``. A pipe or device is written to directly."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, *pieces: bytes) -> None:
    """Replaces the content of ``path`` with ``pieces``. A pipe or device is written to directly."""
    with filled_file(path) as waiting, waiting.open("wb") as file:
        file.writelines(pieces)


@contextlib.contextmanager
def filled_file(path: Path) -> Generator[Path]:
    """Provides a new file to fill, which replaces ``path`` at the end.

    A pipe or device is passed unchanged. With a name that ends in ``.gz``, the file is compressed.

    Raises: as ``check_file``.
    """
    check_file(path)
    if path.exists() and not path.is_file():
        yield path
        return
    # Renaming onto a link would replace the link.
    final = path.resolve()
    waiting = _temporary(final)
    packed = waiting.with_name(f"{waiting.name}.gz")
    try:
        yield waiting
        if path.suffix == ".gz":
            _compress(waiting, packed)
            packed.replace(final)
        else:
            waiting.replace(final)
    finally:
        waiting.unlink(missing_ok=True)
        packed.unlink(missing_ok=True)


def check_file(path: Path | None) -> None:
    """Fails if no file can be written at ``path``, before the work on its content.

    Raises: InvalidArgumentError: it is a folder, or the suffix is a compression other than gzip. OSError: its
        folder does not exist, or is not writable.
    """
    if path is None:
        return
    if path.suffix in _OTHER_COMPRESSIONS:
        raise InvalidArgumentError(
            f"{path}: only gzip is supported for compressed files; name it {path.stem}.gz"
        )
    if path.is_dir():
        raise InvalidArgumentError(f"{path} is a folder. Pass a file")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, f"cannot be written: the folder {folder} does not exist", str(path)
        )
    if not path.exists() and not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, f"cannot be written: no permission for {folder}", str(path))


def _compress(plain: Path, packed: Path) -> None:
    """Writes ``plain`` with gzip, without a name or time, so that equal content gives equal bytes."""
    with (
        plain.open("rb") as source,
        packed.open("wb") as target,
        gzip.GzipFile("", "wb", _GZIP_LEVEL, target, mtime=0) as file,
    ):
        shutil.copyfileobj(source, file, 1 << 20)


@contextlib.contextmanager
def filled_folder(path: Path) -> Generator[Path]:
    """Provides a new folder to fill, whose files are moved into ``path`` at the end.

    Other files in ``path`` stay.
    """
    final = path.resolve()
    if final.exists() and not final.is_dir():
        raise InvalidArgumentError(f"{path} is a file. Pass a folder")
    waiting = _temporary(final)
    waiting.mkdir(parents=True)
    try:
        yield waiting
        if final.exists():
            for source in sorted(p for p in waiting.rglob("*") if p.is_file()):
                target = final / source.relative_to(waiting)
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)
        else:
            waiting.rename(final)
    finally:
        shutil.rmtree(waiting, ignore_errors=True)


def _temporary(final: Path) -> Path:
    """A name beside ``final`` that no other process uses, nor guesses to put a link there."""
    return final.with_name(f".{final.name}.{secrets.token_hex(8)}.tmp")
