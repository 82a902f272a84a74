"""Finds the traces of a batch: files, folders, members of tar archives, and URLs."""

import contextlib
import errno
import gzip
import hashlib
import os
import re
import shutil
import stat
import tarfile
import uuid
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

from kernelscope import __version__, captures, remote
from kernelscope.batch.manifest import ENTRY, Entry, Outcome, Place, has_own_manifest, staging
from kernelscope.errors import (
    InvalidArgumentError,
    KernelscopeError,
    NotAFileError,
    TraceNotFoundError,
    TraceReadError,
)

_TRACES = (".json", ".json.gz", ".json.zst", ".sqlite", ".sql", ".db")
_PACKED_ARCHIVES = (".tar.gz", ".tgz")
_ARCHIVES = (".tar", *_PACKED_ARCHIVES)
_TRUTHS = ".truth.json"
"""Suffix of files in which ``kernelscope demo`` stores the correct answers; they are not traces."""

_SAMPLE = 64 * 1024
_SAMPLES = 16

_PART = re.compile(r"::(process|rank)=-?[0-9]+$")
"""Suffix of the name of a merged file for one of its ranks."""

Kind = Literal["file", "member", "remote"]


class Part(NamedTuple):
    """The part of a file that is one rank: in a database, processes, the one with GPU operations first.

    The first of several ranks also has the processes without GPU operations, and events of no process. A file
    of merged ranks records the ``rank`` of each event, and names no processes here.
    """

    processes: tuple[int, ...] = ()
    has_rest: bool = False
    rank: int | None = None

    @property
    def name(self) -> str:
        """Name of the part within its file."""
        return f"process={self.processes[0]}" if self.rank is None else f"rank={self.rank}"


@dataclass(frozen=True, slots=True)
class Source:
    """A readable trace: its location, its size, and properties that reveal changes.

    ``name`` is unique and shown to users: for a file its path without links, so that every spelling is one
    source. ``path`` is the file, the archive or the URL as passed, whose name may contain the rank. A member
    of an archive begins at ``offset``. ``mtime_ns`` and ``ctime_ns`` are null if unknown. ``inside`` is its
    path relative to the input folder, whose folders may contain the rank, too. ``part`` is the part of a
    database, one of its ``parts``; null for the whole. ``error`` is the reason why there is nothing to read,
    if already known.
    """

    name: str
    path: str
    kind: Kind
    bytes: int
    mtime_ns: int | None = None
    offset: int = 0
    inside: str = ""
    ctime_ns: int | None = None
    error: KernelscopeError | None = None
    part: Part | None = None
    parts: tuple[Part, ...] = ()

    def split(self, parts: tuple[Part, ...]) -> "list[Source]":
        """Returns one source for each rank of the file."""
        return [replace(self, name=f"{self.name}::{part.name}", part=part, parts=parts) for part in parts]

    @property
    def base(self) -> str:
        """Name of the file itself; for a link, the name of the link."""
        return re.split(r"[/\\]|::", self.path if self.kind == "file" else self.name)[-1]

    def fingerprint(self) -> str:
        """Returns a value that identifies the content."""
        if self.kind == "remote":
            return remote.fingerprint(self.path)
        with open(self.path, "rb") as file:
            return fingerprint(file, self.bytes, offset=self.offset)

    def stamp(self) -> tuple[int, int | str]:
        """Returns the current size and time of change.

        For a member of an archive, size and time of the archive.
        """
        if self.kind == "remote":
            return self.bytes, remote.fingerprint(self.path)
        now = os.stat(self.path)
        return now.st_size, now.st_mtime_ns

    def entry(self, place: Place, options: Mapping[str, Any], outcome: Outcome, **found: Any) -> Entry:
        """Returns the result of the source, with the properties ``found`` in it."""
        known: dict[str, Any] = {"bytes": self.bytes, "mtime_ns": self.mtime_ns, "ctime_ns": self.ctime_ns}
        known |= {"version": __version__, **place._asdict()}
        return Entry(source=self.name, options=options, outcome=outcome, **known, **found)

    @contextlib.contextmanager
    def local(self, folder: Path) -> Generator[Path]:
        """Provides a local file with the content, created in ``folder`` if needed and removed at the end of
        the context."""
        if self.kind == "file":
            yield Path(self.path)
            return
        place = folder / f"copy-{uuid.uuid4().hex}"
        place.mkdir()
        try:
            if self.kind == "remote":
                with remote.local_copy(self.path, place) as copy:
                    yield copy
                return
            copy = place / self.base
            self._unpack(copy)
            yield copy
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _unpack(self, copy: Path) -> None:
        with open(self.path, "rb") as archive, copy.open("wb") as file:
            archive.seek(self.offset)
            left = self.bytes
            while left:
                block = archive.read(min(left, 1 << 20))
                if not block:
                    raise TraceNotFoundError(
                        f"{self.name}: the archive ends before this file", path=self.path
                    )
                left -= file.write(block)


def database_of(name: str) -> str:
    """Returns the name of the source that contains a rank."""
    return _PART.sub("", name)


def find(inputs: Iterable[str | os.PathLike[str]], lake: Path) -> list[Source]:
    """Returns the traces in ``inputs``, once each, in order of their names.

    A folder includes all files below it with the suffix of a trace, except hidden ones and ``lake``. A file
    that cannot be accessed is a source with an error, and does not affect the others.

    Raises: TraceNotFoundError: an input does not exist. InvalidArgumentError: the inputs contain nothing that
        can be read.
    """
    found: dict[str, Source] = {}
    for given in inputs:
        for source in _expand(os.fspath(given), lake):
            # What was appended to an archive later replaces what has the same name.
            if source.kind == "member" or source.name not in found:
                found[source.name] = source
    if not found:
        raise InvalidArgumentError(f"found no trace: no name ends in {', '.join(_TRACES)}")
    errors = [source.error for source in found.values()]
    if errors[0] is not None and None not in errors:
        raise InvalidArgumentError(str(errors[0]))
    return [found[name] for name in sorted(found)]


def _expand(given: str, lake: Path) -> Iterator[Source]:
    if given == "-":
        raise InvalidArgumentError("a batch cannot resume standard input; pass files or folders")
    if remote.is_url(given):
        for path, inside, size in remote.find(given, _is_trace):
            yield Source(path, path, "remote", size, inside=inside)
        return
    path = Path(given).absolute()
    if has_own_manifest(path):
        raise InvalidArgumentError(f"{given}: is a lake already. Pass the traces that it was made from")
    if path.is_dir():
        yield from _below(path, lake)
    elif path.exists():
        yield from _file(str(path), os.path.realpath(path), path.name, lake)
    else:
        raise TraceNotFoundError(f"{given}: no such file or folder", path=given)


def _below(top: Path, lake: Path) -> Iterator[Source]:
    """The sources of a folder. What several links lead to is looked into once."""
    seen = {_real(lake)}
    folders = [top]
    while folders:
        folder = folders.pop()
        real = _real(folder)
        if real in seen or (folder != top and has_own_manifest(folder)):
            continue
        seen.add(real)
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield _unreadable(folder, real, error)
            continue
        inside = [entry for entry in entries if not _is_passed_over(entry.name) and _is_folder(entry)]
        folders.extend(Path(entry.path) for entry in reversed(inside))
        above = "" if folder == top else f"{folder.relative_to(top)}/"
        for entry in entries:
            if (_is_trace(entry.name) or entry.name.endswith(_ARCHIVES)) and not _is_folder(entry):
                itself = os.path.realpath(entry.path) if entry.is_symlink() else f"{real}/{entry.name}"
                yield from _file(entry.path, itself, f"{above}{entry.name}", lake)


def _is_passed_over(folder: str) -> bool:
    """Whether a folder has no traces of ranks: a hidden one, or one with what the traces beside it replay."""
    return folder.startswith(".") or folder == captures.FOLDER


def _real(path: Path) -> Path:
    """The path without links; one that leads in a circle stays."""
    return Path(os.path.realpath(path))


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link to itself.
        return False


def _is_trace(name: str) -> bool:
    base = name.rsplit("/", 1)[-1]
    if base == ENTRY:
        # Of a lake in a storage, where traces may lie beside it.
        return False
    return base.endswith(_TRACES) and not base.startswith(".") and not base.endswith(_TRUTHS)


def _file(path: str, real: str, inside: str, lake: Path) -> Iterator[Source]:
    """The sources in a file, whose path without links is ``real``."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            # Whoever opens a pipe or a device may wait for ever, or have what is no file.
            raise NotAFileError(f"{path}: is a pipe, a socket or a device, not a file")
        if not path.endswith(_ARCHIVES):
            yield Source(
                real,
                path,
                "file",
                status.st_size,
                mtime_ns=status.st_mtime_ns,
                inside=inside,
                ctime_ns=status.st_ctime_ns,
            )
            return
        plain = staging(lake) / f"unpacked-{status.st_dev}-{status.st_ino}.tar"
        is_packed = path.endswith(_PACKED_ARCHIVES)
        # What of an archive is there is read, and the archive says that there was more.
        cut = _unpacked(path, plain) if is_packed else None
        yield from _members(plain if is_packed else path, real, status, inside)
        if cut is not None:
            raise cut
    except (OSError, tarfile.TarError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        yield _unreadable(path, real, error)


def _unreadable(path: str | Path, real: str | Path, error: Exception) -> Source:
    if not isinstance(error, KernelscopeError):
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        error = TraceReadError(f"{path}: {reason}", path=str(path))
    return Source(str(real), str(path), "file", 0, error=error)


def _members(archive: str | Path, real: str, status: os.stat_result, inside: str) -> Iterator[Source]:
    with tarfile.open(archive, mode="r:") as tar:
        for member in tar:
            if member.isreg() and _is_trace(member.name):
                yield Source(
                    f"{real}::{member.name}",
                    str(archive),
                    "member",
                    member.size,
                    mtime_ns=status.st_mtime_ns,
                    offset=member.offset_data,
                    inside=f"{inside}::{member.name}",
                    ctime_ns=status.st_ctime_ns,
                )
            # Or the archive would keep a record of every member.
            cast("Any", tar).members.clear()


def _unpacked(path: str, plain: Path) -> Exception | None:
    """Writes an archive without its compression, which would have to be undone anew for every member.

    Gives the error that it ended with.
    """
    try:
        with gzip.open(path) as packed, plain.open("wb") as file:
            # A block at a time as it comes: a larger read would lose what stands before the cut.
            while block := packed.read1(1 << 20):
                file.write(block)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        return ValueError(str(error))
    return None


def fingerprint(file: BinaryIO, size: int, *, offset: int = 0) -> str:
    """Returns a hash of the size and of up to 16 samples of 64 KiB, evenly spaced from start to end.

    A file of up to 1 MiB is hashed completely. Modification time and size are compared in addition, so a
    change goes unnoticed only if it is between the samples, keeps the size, and the time was reset.
    ``offset`` is the start of the content in ``file``.
    """
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    if size <= _SAMPLE * _SAMPLES:
        file.seek(offset)
        digest.update(file.read(size))
        return digest.hexdigest()
    for number in range(_SAMPLES):
        file.seek(offset + (size - _SAMPLE) * number // (_SAMPLES - 1))
        digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
