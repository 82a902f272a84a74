"""Writes files so that a reader sees the old content or the new, never a part."""

import contextlib
import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

from kernelscope.errors import InvalidArgumentError


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

    A pipe or device is given as it is.
    """
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise InvalidArgumentError(f"{path} is a folder; name a file")
        yield path
        return
    # Renaming onto a link would replace the link.
    final = path.resolve()
    waiting = _temporary(final)
    try:
        yield waiting
        waiting.replace(final)
    finally:
        waiting.unlink(missing_ok=True)


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
    """A name beside ``final`` that no other process uses."""
    return final.with_name(f".{final.name}.{os.getpid()}.tmp")
