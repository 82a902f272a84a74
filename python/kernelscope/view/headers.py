"""Headers of traces from their start and end, so that a folder of thousands can be listed immediately."""

import contextlib
import json
import os
import re
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from kernelscope.batch.launch_environment import launch_of
from kernelscope.errors import NotATraceError
from kernelscope.meta import LARGEST_RANK

_ENDS = 1 << 17
"""Number of bytes read at the start of a file, and at its end."""
_UNPACKED = 1 << 18
_SQLITE, _GZIP, _ZSTD = b"SQLite format 3\0", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_EVENTS = re.compile(r'"traceEvents"\s*:')
_KEYS = {name: re.compile(rf'"{name}"\s*:\s*') for name in ("distributedInfo", "deviceProperties")}
_PROFILER = re.compile(r'"cat"\s*:\s*"Trace"[^{}]*"PyTorch Profiler \([^{}]*')
_DURATION = re.compile(r'"dur"\s*:\s*([0-9]{1,15})(?:\.([0-9]{1,3}))?')
_MOST_NAMES = 8
_GPUS = "SELECT DISTINCT name FROM TARGET_INFO_GPU WHERE typeof(name) = 'text' LIMIT 9"
_RECORDED = "SELECT duration FROM ANALYSIS_DETAILS WHERE typeof(duration) = 'integer' LIMIT 1"


class Header(NamedTuple):
    """Contents of the start and the end of a trace; null if not found."""

    rank: int | None = None
    gpu_names: str | None = None
    recorded_ns: int | None = None


def header_of(path: str, *, offset: int = 0, size: int | None = None) -> Header:
    """Reads the header of the file at ``path``, or of the ``size`` bytes from ``offset`` in an archive.

    Raises: OSError: it cannot be read. NotATraceError: it does not begin like a trace.
    """
    whole = os.stat(path).st_size if size is None else size
    with open(path, "rb") as file:
        file.seek(offset)
        head = file.read(min(_ENDS, whole))
        file.seek(offset + max(whole - _ENDS, 0))
        tail = file.read(min(_ENDS, whole))
    if not head:
        raise NotATraceError(f"{path}: is empty", path=path)
    if head.startswith(_SQLITE):
        return _of_database(Path(path)) if size is None else Header()
    if head.startswith(_ZSTD):
        return Header()
    if head.startswith(_GZIP):
        head, is_all = _unpacked(head, is_whole=whole <= _ENDS)
        tail = head if is_all else b""
    if not head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
        raise NotATraceError(f"{path}: does not begin like a trace", path=path)
    return _of_json(head.decode("utf-8", "replace"), tail.decode("utf-8", "replace"))


def _unpacked(head: bytes, *, is_whole: bool) -> tuple[bytes, bool]:
    """The start of what is packed, and whether that is all."""
    packed = zlib.decompressobj(wbits=31)
    try:
        text = packed.decompress(head, _UNPACKED)
    except zlib.error as error:
        raise NotATraceError(f"is damaged: {error}") from None
    return text, is_whole and packed.eof


def _of_json(head: str, tail: str) -> Header:
    """What stands before the events, or after them; names inside the events are no header."""
    events = _EVENTS.search(head)
    before = head[: events.start()] if events else head
    job, devices = _value(before, "distributedInfo"), _value(before, "deviceProperties")
    if job is None or devices is None:
        # Some recorders write them last; the last of that name is outside the events.
        job = _value(tail, "distributedInfo", last=True) if job is None else job
        devices = _value(tail, "deviceProperties", last=True) if devices is None else devices
    rank: object = cast("dict[str, Any]", job).get("rank") if isinstance(job, dict) else None
    is_rank = isinstance(rank, int) and not isinstance(rank, bool)
    known = rank if is_rank and 0 <= cast("int", rank) <= LARGEST_RANK else None
    listed = cast("list[Any]", devices) if isinstance(devices, list) else []
    names = [cast("dict[str, Any]", one).get("name") for one in listed if isinstance(one, dict)]
    return Header(cast("int | None", known), _joined(names), _recorded_ns(tail))


def _value(text: str, name: str, *, last: bool = False) -> Any:
    found = list(_KEYS[name].finditer(text))
    if not found:
        return None
    try:
        return json.JSONDecoder().raw_decode(text, found[-1 if last else 0].end())[0]
    except (ValueError, RecursionError):
        # Cut off, or no JSON.
        return None


def _recorded_ns(tail: str) -> int | None:
    """How long the profiler says that it recorded, in an event that it writes last."""
    spans = _PROFILER.findall(tail)
    found = _DURATION.search(spans[-1]) if spans else None
    if found is None:
        return None
    return int(found[1]) * 1000 + int((found[2] or "").ljust(3, "0"))


def _of_database(path: Path) -> Header:
    rank = launch_of(path, None).rank
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True)) as opened:
        names = [name for (name,) in _rows(opened, _GPUS)]
        recorded = next((duration for (duration,) in _rows(opened, _RECORDED)), None)
    is_known = isinstance(recorded, int) and 0 < recorded < 2**53
    return Header(rank, _joined(names), recorded if is_known else None)


def _rows(database: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    # The table is not there, has other columns, or is damaged.
    with contextlib.suppress(sqlite3.Error):
        yield from database.execute(query)


def _joined(names: list[Any]) -> str | None:
    known = list(dict.fromkeys(name for name in names if isinstance(name, str) and name))
    return ", ".join(known[:_MOST_NAMES]) or None
