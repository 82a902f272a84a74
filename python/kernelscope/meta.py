"""Properties of a trace file as a whole."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

# User metadata may end in _version, too.
_VERSIONED = ("cuda_", "cupti_", "hip_", "nccl_", "roc", "xpu_", "mtia_")
PLACES = ("dp", "ep", "pp", "cp", "tp")
"""Places of a rank in data, expert, pipeline, context and tensor parallelism."""
LARGEST_RANK = 2**31 - 1
"""Largest rank: ranks and world sizes are C ints in torch, NCCL and MPI."""
# The most digits that a number of 64 bits has, and more than a float has.
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_MOST_DIGITS = 400
_FLAGS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")


@dataclass(frozen=True, slots=True)
class TraceMeta:
    """Properties of the file as a whole. Values that the profiler did not store are null.

    ``base_time_ns`` is the epoch time of the trace's zero: add it to a ``start_ns``. ``seen`` counts the
    events of the file. Each is either kept in one table or dropped, and ``diagnostics`` gives the reason.
    """

    path: str
    format: str
    compression: str
    file_bytes: int
    content_bytes: int
    recorder: str | None
    """Profiler that wrote the file, with its approximate date, if the file contains them."""
    base_time_ns: int | None
    rank: int | None
    world_size: int | None
    backend: str | None
    host: str | None
    trace_id: str | None
    flags: Mapping[str, bool]
    """Profiler options that the file stores, such as ``with_stack``. A missing option was off, or the
    profiler did not store it."""
    versions: Mapping[str, str]
    """Versions that the profiler stored, such as ``cuda_runtime_version``."""
    seen: int
    kept: int
    dropped: int
    properties: Mapping[str, Any] = field(repr=False)
    """All other contents of the file outside its events, as recorded."""
    ranks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict[int, Mapping[str, Any]])
    """Ranks of a merged file, each with its ``label`` and the ``PLACES`` in it; empty for the file of one
    rank."""


def meta_from_raw(path: str, text: str) -> TraceMeta:
    """Returns the metadata of the file at ``path``, from the JSON of the reader."""
    raw: dict[str, Any] = json.loads(text, parse_int=_number)
    properties: dict[str, Any] = raw["properties"]
    distributed: object = properties.get("distributedInfo")
    job: dict[str, Any] = cast("dict[str, Any]", distributed) if isinstance(distributed, dict) else {}
    return TraceMeta(
        path=path,
        format=raw["format"],
        compression=raw["compression"],
        file_bytes=raw["file_bytes"],
        content_bytes=raw["content_bytes"],
        recorder=_recorder(raw["format"], properties),
        base_time_ns=raw["base_time_ns"],
        rank=_rank(job.get("rank")) if raw["rank"] is None else raw["rank"],
        world_size=_rank(job.get("world_size")),
        backend=_text(job.get("backend")),
        host=_text(properties.get("host_name")),
        trace_id=_text(properties.get("trace_id")),
        flags={name: bool(properties[name]) for name in _FLAGS if name in properties},
        versions={**_versions(properties), **_versions(job)},
        seen=raw["seen"],
        kept=raw["kept"],
        dropped=raw["dropped"],
        properties=properties,
        ranks={rank["rank"]: {"label": rank["label"], **rank["parts"]} for rank in raw["ranks"]},
    )


def places_of(meta: TraceMeta) -> dict[str, Any]:
    """Returns the known ``PLACES`` of the rank of a trace."""
    return {name: place for name, place in meta.ranks.get(meta.rank or 0, {}).items() if name in PLACES}


def rank_text(meta: TraceMeta, rank: int) -> str:
    """Returns one of the ranks of a merged file as text, with its label."""
    label = meta.ranks[rank]["label"]
    return str(rank) if label is None else f"{rank} ({label})"


def _recorder(trace_format: str, properties: Mapping[str, Any]) -> str | None:
    """Kineto stores no version of its own, but the month in which each key came is known."""
    if trace_format == "nsys":
        version = properties.get("nsys_version", "of unknown version")
        return f"Nsight Systems {version}, schema {properties.get('nsys_schema_version', 'unknown')}"
    if trace_format != "kineto":
        return None
    if "schemaVersion" not in properties:
        return "unknown: the file has no schemaVersion"
    if "cupti_version" in properties or "roctracer_version" in properties:
        return "Kineto of September 2024 or later"
    if "baseTimeNanoseconds" in properties:
        return "Kineto of May 2024 or later"
    if "displayTimeUnit" in properties:
        return "Kineto of March to May 2024"
    return "Kineto before March 2024, or a file rewritten by another tool"


def _versions(properties: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: str(value)
        for key, value in properties.items()
        if key.startswith(_VERSIONED) and key.endswith("_version") and isinstance(value, (int, float, str))
    }


def _number(digits: str) -> int | str:
    """A whole number of JSON; one of thousands of digits, which Python may refuse to read, stays text."""
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


def _integer(value: object) -> int | None:
    # The on-demand recorder may write a rank as text.
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -(2**63) <= value < 2**63 else None


def _rank(value: object) -> int | None:
    """A rank or their number; what no recorder can have counted is unknown. -1 is of a job without ranks."""
    rank = _integer(value)
    return rank if rank is None or -1 <= rank <= LARGEST_RANK else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
