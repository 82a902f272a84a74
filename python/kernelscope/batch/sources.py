"""Finds the traces that a batch is about: files, folders, members of tar archives, and URLs."""

import contextlib
import gzip
import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from kernelscope import __version__
from kernelscope.batch import remote
from kernelscope.batch.manifest import MANIFEST, Entry, Outcome, staging
from kernelscope.errors import InvalidArgumentError, TraceNotFoundError

_TRACES = (".json", ".json.gz", ".json.zst", ".sqlite", ".sql", ".db")
_PACKED_ARCHIVES = (".tar.gz", ".tgz")
_ARCHIVES = (".tar", *_PACKED_ARCHIVES)
_TRUTHS = ".truth.json"
"""What ``kernelscope demo`` knows of its traces; no trace itself."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")

_SAMPLE = 64 * 1024
_SAMPLES = 16

_NAMED = re.compile(r"(?<!node_)(?<!node-)(?<!local_)(?<!local-)(?:rank|worker)[-_.=]?(\d+)", re.IGNORECASE)
# Not after another number, nor a year after a dash: those are dates and versions.
_LAST_NUMBER = re.compile(r"(?:^|(?<!\d)\.|(?<!\d)[-_](?!(?:19|20)\d\d$))(\d{1,6})$")
_SUFFIXES = re.compile(
    r"(\.(json|gz|zst|sqlite|sql|db|pt|trace|tar|tgz|nsys|nsys-rep|pytorch|chrome))+$", re.IGNORECASE
)

Kind = Literal["file", "member", "remote"]


@dataclass(frozen=True, slots=True)
class Source:
    """A trace that can be read: where it is, its size, and what shows whether it changed.

    ``name`` is unique and what people see; ``path`` is the file, the archive or the URL. A member of an
    archive begins at ``offset`` in it. ``mtime_ns`` and the fingerprint are null where nothing was looked up.
    """

    name: str
    path: str
    kind: Kind
    bytes: int
    mtime_ns: int | None = None
    offset: int = 0

    @property
    def base(self) -> str:
        """The file's own name."""
        return re.split(r"[/\\]|::", self.name)[-1]

    def fingerprint(self) -> str:
        """What identifies the content."""
        if self.kind == "remote":
            return remote.fingerprint(self.path)
        with open(self.path, "rb") as file:
            return fingerprint(file, self.bytes, offset=self.offset)

    def stamp(self) -> tuple[int, int | str]:
        """Size and time of change, now; an archive's for a member of it."""
        if self.kind == "remote":
            return self.bytes, remote.fingerprint(self.path)
        now = os.stat(self.path)
        return now.st_size, now.st_mtime_ns

    def entry(self, run: str, options: Mapping[str, Any], outcome: Outcome, **found: Any) -> Entry:
        """What became of the source, with what was ``found`` in it."""
        known: dict[str, Any] = {"bytes": self.bytes, "mtime_ns": self.mtime_ns, "version": __version__}
        return Entry(source=self.name, run=run, options=options, outcome=outcome, **known, **found)

    @contextlib.contextmanager
    def local(self, folder: Path) -> Generator[Path]:
        """A file with the content, in ``folder`` if it has to be made; it goes when the context ends."""
        if self.kind == "file":
            yield Path(self.path)
            return
        with tempfile.TemporaryDirectory(dir=folder, prefix="copy-") as place:
            copy = Path(place) / self.base
            if self.kind == "remote":
                remote.fetch(self.path, copy)
            else:
                self._unpack(copy)
            yield copy

    def _unpack(self, copy: Path) -> None:
        with open(self.path, "rb") as archive, copy.open("wb") as file:
            archive.seek(self.offset)
            left = self.bytes
            while left:
                block = archive.read(min(left, 1 << 20))
                if not block:
                    raise TraceNotFoundError(f"{self.name}: the archive ends before it", path=self.path)
                left -= file.write(block)


def find(inputs: Iterable[str | os.PathLike[str]], lake: Path) -> list[Source]:
    """The traces that ``inputs`` name, in order of their names; each once.

    A folder stands for all files below it whose names end as traces do, hidden ones and ``lake`` apart.

    Raises: TraceNotFoundError: an input does not exist.
        InvalidArgumentError: the inputs name no trace.
    """
    found: dict[str, Source] = {}
    for given in inputs:
        for source in _expand(os.fspath(given), lake):
            found[source.name] = source
    if not found:
        raise InvalidArgumentError(f"found no trace: none of the names ends in {', '.join(_TRACES)}")
    return [found[name] for name in sorted(found)]


def _expand(given: str, lake: Path) -> Iterator[Source]:
    if _URL.match(given):
        for path, size in remote.find(given, _is_trace):
            yield Source(path, path, "remote", size)
        return
    path = Path(given).absolute()
    if path.is_dir():
        for file in _below(path, lake):
            yield from _file(file, lake)
    elif path.exists():
        yield from _file(path, lake)
    else:
        raise TraceNotFoundError(f"{given}: no such file or folder", path=given)


def _below(folder: Path, lake: Path) -> Iterator[Path]:
    inside = lake.resolve()
    for root, folders, files in os.walk(folder, followlinks=True):
        here = Path(root)
        # Other lakes hold no traces either, and a link to a folder above would never end.
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and (here / name).resolve() != inside
            and not (here / name / MANIFEST).exists()
            and (here / name).resolve() not in [*here.resolve().parents, here.resolve()]
        )
        for name in sorted(files):
            if _is_trace(name) or name.endswith(_ARCHIVES):
                yield here / name


def _is_trace(name: str) -> bool:
    base = name.rsplit("/", 1)[-1]
    return base.endswith(_TRACES) and not base.startswith(".") and not base.endswith(_TRUTHS)


def _file(path: Path, lake: Path) -> Iterator[Source]:
    if path.name.endswith(_ARCHIVES):
        yield from _members(path, lake)
        return
    stat = path.stat()
    yield Source(str(path), str(path), "file", stat.st_size, stat.st_mtime_ns)


def _members(path: Path, lake: Path) -> Iterator[Source]:
    archive = _plain(path, lake) if path.name.endswith(_PACKED_ARCHIVES) else path
    mtime_ns = path.stat().st_mtime_ns
    try:
        with tarfile.open(archive, mode="r:") as tar:
            for member in tar:
                if member.isreg() and _is_trace(member.name):
                    name = f"{path}::{member.name}"
                    at = member.offset_data
                    yield Source(name, str(archive), "member", member.size, mtime_ns, at)
                # Or the archive would keep a record of every member.
                cast("Any", tar).members.clear()
    except tarfile.TarError as error:
        raise InvalidArgumentError(f"{path}: {error}") from None


def _plain(path: Path, lake: Path) -> Path:
    """The archive without its compression, which would have to be undone anew for every member."""
    stat = path.stat()
    plain = staging(lake) / f"unpacked-{stat.st_dev}-{stat.st_ino}.tar"
    try:
        with gzip.open(path) as packed, plain.open("wb") as file:
            shutil.copyfileobj(cast("BinaryIO", packed), file, 1 << 20)
    except (EOFError, gzip.BadGzipFile) as error:
        raise InvalidArgumentError(f"{path}: {error}") from None
    return plain


def fingerprint(file: BinaryIO, size: int, *, offset: int = 0) -> str:
    """A hash of the size and of up to 16 samples of 64 KiB, evenly spread from start to end.

    A file of up to 1 MiB is hashed whole. Time of modification and size are compared besides, so that only
    a file whose time was set back after an edit between the samples could pass for what it was.
    ``offset`` is where the content begins in ``file``.
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


def rank_from_name(name: str) -> int | None:
    """Returns the rank in a file's name; None if there is none.

    ``rank12.pt.trace.json.gz``, ``trace_rank-3.json`` and ``report.7.sqlite`` do; the numbers of times,
    dates, versions and processes do not.
    """
    stem = _SUFFIXES.sub("", name)
    named = _NAMED.findall(stem)
    if named:
        # The last one, since names grow from the outside in: worker0_rank3.
        return int(named[-1])
    last = _LAST_NUMBER.search(stem)
    return int(last[1]) if last else None
