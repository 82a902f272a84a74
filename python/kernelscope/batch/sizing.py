"""Estimates the memory for reading a trace before it is read."""

import os
import sys
from pathlib import Path

from kernelscope import remote
from kernelscope.batch.manifest import Entry
from kernelscope.batch.sources import Source

WORKER_BYTES = 110_000_000
"""Memory of a worker before it reads, in bytes: the interpreter, Polars, the reader, and small tables."""
JSON_SHARE = 0.5
"""Peak of reading and writing, in bytes per byte of JSON: the measured maximum is 0.48, for compact files."""
_DATABASE_SHARE = 1.2
"""The same per byte of an nsys or nvprof database: the measured maximum is 1.07."""
_PATIENCE_S = 300.0
_SLOWEST = 1_000_000
"""Throughput of the slowest supported storage, in bytes per second.

A disk is several hundred times faster.
"""
_GZIP, _ZSTD, _SQLITE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SQLite format 3\0"
_USUAL_RATIO = 12
"""Typical compression ratio of profiler JSON, if the file does not record its size."""
_WRAPS_FROM = 2**28
"""Compressed size from which the length in a gzip trailer may have wrapped around at 4 GiB."""


def expected_peak(source: Source) -> int:
    """Returns the upper bound of a worker's resident memory while it reads ``source``, in bytes."""
    head, tail = _ends(source)
    if head.startswith(_SQLITE):
        return WORKER_BYTES + round(source.bytes * _DATABASE_SHARE)
    return WORKER_BYTES + round(_content_bytes(source.bytes, head, tail) * JSON_SHARE)


def time_limit(size: int) -> float:
    """Returns the default time limit for reading ``size`` bytes, in seconds."""
    return _PATIENCE_S + size / _SLOWEST


def moving_peak(entry: Entry) -> int:
    """Returns the upper bound of a worker's resident memory while it rewrites data, in bytes."""
    return WORKER_BYTES + round((entry.meta.get("content_bytes") or entry.bytes) * _DATABASE_SHARE)


def _content_bytes(size: int, head: bytes, tail: bytes) -> int:
    if head.startswith(_GZIP):
        content = int.from_bytes(tail[-4:], "little")
        if size >= _WRAPS_FROM:
            while content < 6 * size:
                content += 2**32
        # Of several members only the last one's length stands at the end.
        return content if content >= 2 * size else _USUAL_RATIO * size
    if head.startswith(_ZSTD):
        return _zstd_content_bytes(head) or _USUAL_RATIO * size
    return size


def _zstd_content_bytes(head: bytes) -> int | None:
    """The size that the frame's header names, if it does (RFC 8878, 3.1.1.1)."""
    if len(head) < 18:
        return None
    descriptor = head[4]
    single_segment = bool(descriptor & 0x20)
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    begin = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
    if width == 0:
        return None
    return int.from_bytes(head[begin : begin + width], "little") + (256 if width == 2 else 0)


def _ends(source: Source) -> tuple[bytes, bytes]:
    if source.kind == "remote":
        return remote.read_ends(source.path, source.bytes, 32, 4)
    with open(source.path, "rb") as file:
        file.seek(source.offset)
        head = file.read(min(32, source.bytes))
        file.seek(source.offset + max(source.bytes - 4, 0))
        return head, file.read(min(4, source.bytes))


def default_memory() -> int:
    """Returns 80 % of the free memory of the machine, or of the control group."""
    free = _available()
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        free = min(free, max(limit - used, 0))
    return free * 4 // 5


def _available() -> int:
    if sys.platform == "linux":
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def cores() -> int:
    """Returns the number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
