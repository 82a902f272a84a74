"""Files behind URLs, through fsspec and its installed file systems."""

import contextlib
import errno
import hashlib
import importlib
import re
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from kernelscope.errors import (
    InvalidArgumentError,
    KernelscopeError,
    StorageError,
    TraceNotFoundError,
    TracePermissionError,
    naming,
)

T = TypeVar("T")

PATIENCE_S = 60.0
"""Time without an answer or data after which a storage counts as failed, in seconds. File systems retry
within it."""

BY_ITS_ENDS = "ends-"
"""Prefix of the fingerprint of a file without a version or a time in its storage."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::[A-Za-z][A-Za-z0-9+.-]+:/)")
_LOOK_S = 0.5
_LISTING_S = 600.0
"""Time limit for listing a million files, in seconds."""
_SLOWEST = 1_000_000
"""Bytes per second below which an upload counts as failed."""
_END = 64 * 1024
# What storages say of a file's content, and when it was changed; each has names of its own.
_CONTENT = "ETag etag md5Hash content_md5 Content-MD5 Digest crc32c generation VersionId version_id checksum"
_CHANGED = "LastModified last_modified Last-Modified mtime updated modified modify"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_TEXT_MOST = 300
_GONE, _REFUSED = (404, 410), (401, 403)
"""Status codes of HTTP."""


def is_url(path: object) -> TypeGuard[str]:
    """Returns whether ``path`` is a URL. A ``Path`` never is."""
    return isinstance(path, str) and _URL.match(path) is not None


def is_storage(path: object) -> TypeGuard[str]:
    """Returns whether ``path`` is the URL of something other than a local file."""
    return is_url(path) and not path.startswith("file:")


def local_path(url: str) -> Path | None:
    """Returns the file of a ``file://`` URL, or None for other URLs."""
    return Path(url.removeprefix("file://")).absolute() if url.startswith("file://") else None


def find(url: str, is_trace: Callable[[str], bool]) -> Iterator[tuple[str, str, int]]:
    """Returns the URL, path below ``url`` and size of every trace in it.

    It is a file, a folder with all files below it, or a pattern.

    A name with pattern characters is a file or folder, if it exists. URLs start with the canonical name of
    their storage. The path of a file outside any folder is its name.

    Raises: TraceNotFoundError: there is nothing. TracePermissionError, StorageError: the storage does not
        answer, or refuses access.
    """
    files, path = _open(url)
    try:
        found = _ask(url, lambda: _found(files, path, is_trace))
    except TraceNotFoundError:
        found = {}
    if not found:
        raise TraceNotFoundError(f"{url}: no trace at this address", path=url)
    top = path.rstrip("/") + "/"
    for name, size in found.items():
        below = name.removeprefix(top) if name.startswith(top) else name.rpartition("/")[2]
        yield files.unstrip_protocol(name), below, size


def _found(files: Any, path: str, is_trace: Callable[[str], bool]) -> dict[str, int]:
    """The files below a folder that are traces, the file itself, or what the pattern names."""
    try:
        if _is_folder(files, path, is_trace):
            found = {name: info for name, info in files.find(path, detail=True).items() if is_trace(name)}
        else:
            found = {path: files.info(path)}
    except FileNotFoundError:
        if not any(sign in path for sign in "*?["):
            raise
        found = files.glob(path, detail=True)
    sizes: dict[str, int] = {}
    for name, info in found.items():
        if info.get("type", "file") == "file":
            # The pages that list a folder on the web have no sizes.
            size = info.get("size")
            sizes[name] = int((files.info(name).get("size") if size is None else size) or 0)
    return sizes


def _is_folder(files: Any, path: str, is_trace: Callable[[str], bool]) -> bool:
    if _is_web(files):
        # To list what is no folder would load it.
        return not is_trace(path.partition("?")[0]) and files.info(path).get("mimetype") == "text/html"
    return files.isdir(path)


def _is_web(files: Any) -> bool:
    return "http" in files.protocol


def fingerprint(url: str) -> str:
    """Returns a value that identifies a file's content.

    It consists of version data of the storage, otherwise also of the first and last bytes.

    If a web server provides neither ETag nor digest, a change only in the middle of a file, with the same
    length and within the same second, goes unnoticed.

    Raises: TraceNotFoundError, TracePermissionError, StorageError: the storage does not provide it.
    """
    files, path = _open(url)
    info: dict[str, Any] = _ask(url, lambda: files.info(path))
    known = [f"{name}={info[name]}" for name in (_CONTENT + " " + _CHANGED).split() if info.get(name)]
    size = int(info.get("size") or 0)
    digest = hashlib.blake2b("\n".join([url, str(size), *known]).encode(), digest_size=16)
    if not any(info.get(name) for name in _CONTENT.split()):
        for end in read_ends(url, size, _END, _END):
            digest.update(end)
    return digest.hexdigest() if known else BY_ITS_ENDS + digest.hexdigest()


def read_ends(url: str, size: int, head: int, tail: int) -> tuple[bytes, bytes]:
    """Returns the first and the last bytes of a file.

    The last ones are missing if a web server sends only whole files.
    """
    files, path = _open(url)
    if _is_web(files):
        return _ask(url, lambda: _web_ends(files, path, size, head, tail))
    # By their names: in between, file systems have arguments of their own.
    start = _ask(url, lambda: files.cat_file(path, start=0, end=min(head, size)))
    return start, _ask(url, lambda: files.cat_file(path, start=max(size - tail, 0), end=size))


def _web_ends(files: Any, path: str, size: int, head: int, tail: int) -> tuple[bytes, bytes]:
    with files.open(path, "rb", cache_type="none") as file:
        start = file.read(head)
        try:
            file.seek(max(size - tail, 0))
            return start, file.read(tail)
        except ValueError:
            return start, b""


@contextlib.contextmanager
def local_copy(url: str, folder: Path | None = None) -> Generator[Path]:
    """Provides a local copy that is removed at the end of the context.

    It is in ``folder`` or the folder for temporary files.

    A ``file://`` URL is the file itself. Errors about the copy name the URL.

    Raises: TraceNotFoundError, TracePermissionError, StorageError: the storage does not provide the whole
        file. OSError: there is no space for the copy.
    """
    there = local_path(url)
    if there is not None:
        yield there
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix="copy-") as place:
        copy = Path(place) / "trace"
        _fetch(url, copy)
        with naming(str(copy), url):
            yield copy


def _fetch(url: str, copy: Path) -> None:
    files, path = _open(url)
    size = int(_ask(url, lambda: files.info(path)).get("size") or 0)

    def arrived() -> int:
        return copy.stat().st_size if copy.exists() else 0

    _ask(url, lambda: files.get_file(path, str(copy)), progress=arrived)
    # More than the storage says is what a web server had compressed.
    if arrived() < size:
        raise StorageError(f"{url}: received only {arrived()} of {size} bytes", path=url)


class Storage:
    """The files below a URL, by their relative names, and operations on them.

    Raises: TracePermissionError, StorageError: the storage does not answer, or refuses access.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._root = _open(self.url)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def sizes(self) -> dict[str, int]:
        """Returns every file with its size."""
        try:
            found: dict[str, Any] = _ask(
                self.url, lambda: self._files.find(self._root, detail=True), patience_s=_LISTING_S
            )
        except TraceNotFoundError:
            return {}
        begin = len(self._root) + 1
        return {name[begin:]: int(info.get("size") or 0) for name, info in found.items()}

    def read(self, name: str) -> bytes:
        """Returns the content of a file."""
        return _ask(f"{self.url}/{name}", lambda: self._files.cat_file(self._path(name)))

    def write(self, name: str, content: bytes) -> None:
        """Writes a file atomically for readers."""
        _ask(f"{self.url}/{name}", lambda: self._files.pipe_file(self._path(name), content))

    def create(self, name: str, content: bytes) -> bool:
        """Writes a file if it does not exist. Returns whether it was written."""

        def create() -> bool:
            try:
                self._files.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
            return True

        try:
            return _ask(f"{self.url}/{name}", create)
        except TraceNotFoundError:
            raise StorageError(f"{self.url}: the bucket does not exist", path=self.url) from None

    def send(self, names: Mapping[str, Path]) -> None:
        """Uploads local files, several at a time."""
        here, there = [str(path) for path in names.values()], [self._path(name) for name in names]
        most_s = PATIENCE_S + sum(path.stat().st_size for path in names.values()) / _SLOWEST
        if names:
            _ask(self.url, lambda: self._files.put(here, there), patience_s=most_s)

    def remove(self, names: Sequence[str]) -> None:
        """Deletes files. Missing files are not an error."""

        def remove() -> None:
            # Not all by one call, which takes names for patterns.
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._files.rm_file(self._path(name))

        _ask(self.url, remove)


def _open(url: str) -> tuple[Any, str]:
    try:
        core: Any = importlib.import_module("fsspec.core")
    except ImportError:
        raise InvalidArgumentError(f"{url}: URLs need fsspec; pip install 'kernelscope[remote]'") from None
    try:
        files, path = core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        # The message says which package has the file system.
        raise InvalidArgumentError(f"{url}: {error}") from None
    except Exception as error:  # noqa: BLE001 - some look for credentials already, and fail in their own way
        raise _explained(url, error) from None
    # Or what was listed earlier in this process would hide what changed since.
    files.invalidate_cache()
    return files, path


def _ask(
    url: str,
    call: Callable[[], T],
    *,
    progress: Callable[[], int] = lambda: 0,
    patience_s: float | None = None,
) -> T:
    """What ``call`` gives, which may take as long as ``progress`` grows, else ``patience_s``.

    Raises: TraceNotFoundError, TracePermissionError, StorageError: what went wrong, in one sentence.
        OSError: the disk here is full.
    """
    answer: list[T] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            answer.append(call())
        except Exception as error:  # noqa: BLE001 - file systems raise what their libraries do
            failure.append(error)

    # It cannot be stopped; a daemon does not keep the program from ending.
    thread = threading.Thread(target=run, daemon=True, name="kernelscope-remote")
    thread.start()
    limit = PATIENCE_S if patience_s is None else patience_s
    grown, at = 0, time.monotonic()
    while thread.is_alive():
        thread.join(_LOOK_S)
        now = progress()
        if now != grown:
            grown, at = now, time.monotonic()
        elif thread.is_alive() and time.monotonic() - at > limit:
            raise StorageError(f"{url}: the storage has not answered for {limit:.0f} s", path=url)
    if failure:
        raise _explained(url, failure[0]) from None
    return answer[0]


def _explained(url: str, error: Exception) -> Exception:
    """The error of a file system or of its library as one of ours."""
    if isinstance(error, KernelscopeError) or getattr(error, "errno", None) in _FULL:
        return error
    if url.startswith(("http://", "https://")) and isinstance(error.__cause__, Exception):
        # The file system for the web says that there is no file, whatever was in the way.
        error = error.__cause__
    text = " ".join((str(error) or type(error).__name__).split())[:_TEXT_MOST]
    # The status code of HTTP, as aiohttp or as Azure's library calls it.
    status: object = getattr(error, "status", getattr(error, "status_code", None))
    if isinstance(error, FileNotFoundError) or status in _GONE:
        return TraceNotFoundError(f"{url}: no such file", path=url)
    if (
        isinstance(error, PermissionError)
        or status in _REFUSED
        or "credential" in f"{type(error).__name__} {text}".lower()
    ):
        return TracePermissionError(
            f"{url}: the storage refused access ({text}); credentials come from the environment", path=url
        )
    return StorageError(f"{url}: the storage failed ({text})", path=url)
