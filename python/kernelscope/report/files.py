"""Writes files so that a reader sees the old content or the new, never a part."""

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
    """Puts ``text`` out on standard output, or in place of the content of ``out``."""
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
    """Gives a new file to fill; when that is done, it takes the place of ``path``.

    A pipe or device is given as it is. Under a name that ends in ``.gz`` the file is compressed.

    Raises: what ``check_file`` raises.
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
    """Fails if no file can be written at ``path``, before the work whose result it would hold.

    Raises: InvalidArgumentError: it is a folder, or the name asks for another compression than gzip.
        OSError: its folder does not exist, or nothing may be written there.
    """
    if path is None:
        return
    if path.suffix in _OTHER_COMPRESSIONS:
        raise InvalidArgumentError(f"{path}: files are compressed with gzip only; name it {path.stem}.gz")
    if path.is_dir():
        raise InvalidArgumentError(f"{path} is a folder; name a file")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"cannot be written: there is no folder {folder}", str(path))
    if not path.exists() and not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, f"cannot be written: {folder} is closed to you", str(path))


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
    """Gives a new folder to fill; when that is done, its files take their places in ``path``.

    Other files in ``path`` stay.
    """
    final = path.resolve()
    if final.exists() and not final.is_dir():
        raise InvalidArgumentError(f"{path} is a file; name a folder")
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
