"""A trace in memory: one frame per table, and what is known of the file."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

import polars as pl

from kernelscope import _traceparse
from kernelscope.errors import InvalidArgumentError
from kernelscope.units import format_bytes, format_count, format_ns

_FLAGS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")


@dataclass(frozen=True, slots=True)
class TraceMeta:
    """What is known of the file as a whole; what the recorder did not store is null.

    ``base_time_ns`` is the epoch time of the trace's zero: add it to a ``start_ns``.
    ``seen`` counts the events of the file; each is either kept in one table or dropped, and
    ``diagnostics`` says why.
    """

    path: str
    format: str
    compression: str
    file_bytes: int
    content_bytes: int
    base_time_ns: int | None
    rank: int | None
    world_size: int | None
    backend: str | None
    host: str | None
    trace_id: str | None
    flags: Mapping[str, bool]
    """Which recorder options were on; a recorder without such options leaves this empty."""
    versions: Mapping[str, str]
    """Versions the recorder stored, such as ``cuda_runtime_version``."""
    seen: int
    kept: int
    dropped: int
    properties: Mapping[str, Any] = field(repr=False)
    """Everything that stands beside the events, as recorded."""


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """A trace: one Polars frame per table. ``kernelscope.schema`` documents every column.

    A table that the source does not have is empty and has all its columns. Times are int64
    nanoseconds on the trace's own clock; a missing value is null.
    """

    meta: TraceMeta
    ops: pl.DataFrame
    launches: pl.DataFrame
    gpu_ops: pl.DataFrame
    python: pl.DataFrame
    ranges: pl.DataFrame
    gpu_annotations: pl.DataFrame
    syncs: pl.DataFrame
    memory: pl.DataFrame
    collectives: pl.DataFrame
    counters: pl.DataFrame
    instants: pl.DataFrame
    flows: pl.DataFrame
    spans: pl.DataFrame
    metadata: pl.DataFrame
    extra_args: pl.DataFrame
    steps: pl.DataFrame
    devices: pl.DataFrame
    process_groups: pl.DataFrame
    threads: pl.DataFrame
    diagnostics: pl.DataFrame

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """Every frame by the name of its table."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "meta"}

    def __repr__(self) -> str:
        meta = self.meta
        rank = "" if meta.rank is None else f", rank {meta.rank} of {meta.world_size or '?'}"
        counts = [f"  {name}: {format_count(frame.height)}" for name, frame in self.tables.items() if frame.height]
        head = f"Trace {meta.path!r} ({meta.format}, {format_bytes(meta.content_bytes)}{rank}, spans {self._extent()})"
        return "\n".join([head, *counts])

    def _extent(self) -> str:
        """Time from the first start to the last end of host and GPU work."""
        timed = [frame for frame in (self.ops, self.launches, self.gpu_ops) if frame.height]
        if not timed:
            return "no time"
        start = min(cast(int, frame["start_ns"].min()) for frame in timed)
        end = max(cast(int, (frame["start_ns"] + frame["dur_ns"].fill_null(0)).max()) for frame in timed)
        return format_ns(end - start)


def read(
    path: str | os.PathLike[str],
    *,
    strict: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    step_range: str | None = None,
) -> Trace:
    """Reads a profiler trace, whatever its format, era and compression.

    A bad event is repaired or dropped and counted in ``trace.diagnostics``; with ``strict``
    the first loss raises instead. ``threads`` is the number of threads to parse with, all
    cores if null. ``progress`` is called about ten times a second with bytes done and bytes
    in all (0 while unknown); what it raises stops the reading. ``step_range`` names the
    annotation that delimits steps where there is no ``ProfilerStep#N``.

    Raises: TraceNotFoundError, TracePermissionError, NotAFileError: the path cannot be read.
        NotATraceError: the file is no trace of a known format.
        TraceFormatError: the trace is damaged beyond repair.
        StrictError: ``strict`` is set and something would be lost.

    Example: ``ks.read("rank0.pt.trace.json.gz").gpu_ops.filter(kind="kernel")``
    """
    if threads is not None and threads < 1:
        raise InvalidArgumentError(f"threads must be at least 1, not {threads}")
    raw = _traceparse.read(path, strict=strict, threads=threads, step_range=step_range, progress=progress)
    waiting = raw.take_tables()
    frames: dict[str, pl.DataFrame] = {}
    # Popped one by one: Polars copies the categorical columns, and the originals can go.
    for name in list(waiting):
        frames[name] = pl.DataFrame(waiting.pop(name))
    return Trace(meta=_meta(os.fspath(path), json.loads(raw.meta)), **frames)


def _meta(path: str, raw: dict[str, Any]) -> TraceMeta:
    properties: dict[str, Any] = raw["properties"]
    distributed: object = properties.get("distributedInfo")
    job: dict[str, Any] = cast("dict[str, Any]", distributed) if isinstance(distributed, dict) else {}
    return TraceMeta(
        path=path,
        format=raw["format"],
        compression=raw["compression"],
        file_bytes=raw["file_bytes"],
        content_bytes=raw["content_bytes"],
        base_time_ns=raw["base_time_ns"],
        rank=_integer(job.get("rank")),
        world_size=_integer(job.get("world_size")),
        backend=_text(job.get("backend")),
        host=_text(properties.get("host_name")),
        trace_id=_text(properties.get("trace_id")),
        flags={name: bool(properties.get(name)) for name in _FLAGS} if raw["format"] == "kineto" else {},
        versions={**_versions(properties), **_versions(job)},
        seen=raw["seen"],
        kept=raw["kept"],
        dropped=raw["dropped"],
        properties=properties,
    )


def _versions(properties: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: str(value)
        for key, value in properties.items()
        if key.endswith("_version") and isinstance(value, (int, float, str))
    }


def _integer(value: object) -> int | None:
    # The on-demand recorder may write a rank as text.
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
