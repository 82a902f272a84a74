"""The records of a trace, a kernel and the ranges around its launch each, and files of them as PyProf writes.

A file has one Python dictionary per line, as text. Only literals are read, never code: a trace is untrusted.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import polars as pl

from kernelscope.analysis.ranges.projection import enclosing_pairs
from kernelscope.compat.pyprof.markers import (
    CompatNumbering,
    Numbering,
    Text,
    direction,
    functions,
    parse_literal,
    sort_markers,
)
from kernelscope.errors import TraceFormatError
from kernelscope.trace import Trace

# The keys of a record in the order in which they stand there.
_KEYS: dict[str, str] = {
    "kShortName": "short_name",
    "kDuration": "duration_ns",
    "layer": "layers",
    "trace": "trace",
    "reprMarkers": "repr_markers",
    "marker": "markers",
    "seqMarker": "sequence_markers",
    "seqId": "sequence_ids",
    "subSeqId": "sub",
    "altSeqId": "alternate_ids",
    "dir": "direction",
    "mod": "mods",
    "op": "ops",
    "tid": "tid",
    "device": "device",
    "stream": "stream",
    "grid": "grid",
    "block": "block",
    "kLongName": "long_name",
}
_TEXTS = frozenset({"short_name", "direction", "long_name"})
_TEXT_LISTS = frozenset({"layers", "trace", "repr_markers", "markers", "sequence_markers", "mods", "ops"})
_NUMBER_LISTS = frozenset({"sequence_ids", "alternate_ids", "grid", "block"})
_NULLABLE = frozenset({"duration_ns", "tid", "device", "stream"})


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A kernel with the NVTX markers around the call that launched it, outermost first.

    ``sequence_ids`` are autograd's sequence numbers; ``sub`` counts the kernels of one operator from 0.
    Not part of a file of records, and empty there: ``pid``; ``calls``, the rows of the ranges that
    ``markers`` stand for; ``node``, the row of the range whose kernels ``sub`` counts.
    """

    short_name: str
    duration_ns: int | None
    layers: list[str]
    trace: list[str]
    repr_markers: list[str]
    markers: list[str]
    sequence_markers: list[str]
    sequence_ids: list[int]
    sub: int
    alternate_ids: list[int]
    direction: str
    mods: list[str]
    ops: list[str]
    tid: int | None
    device: int | None
    stream: int | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    long_name: str
    pid: int | None = None
    calls: tuple[int, ...] = ()
    node: int | None = None

    @property
    def is_backward(self) -> bool:
        """Whether the kernel belongs to the backward pass."""
        return self.direction == "bprop"


def format_record(record: KernelRecord) -> str:
    """The line of a record, without its line feed."""
    return repr({key: getattr(record, name) for key, name in _KEYS.items()})


def parse_record(line: str) -> KernelRecord:
    """The record of a line.

    Raises: ValueError: the line is no record; the message says why.
    """
    value = parse_literal(line.strip())
    if not isinstance(value, dict):
        raise ValueError("it is no dictionary")
    fields = cast("dict[object, Any]", value)
    missing = [key for key in _KEYS if key not in fields]
    if missing:
        raise ValueError(f"it has no {', '.join(map(repr, missing))}")
    return KernelRecord(**{name: _checked(key, name, fields[key]) for key, name in _KEYS.items()})


def _checked(key: str, name: str, value: Any) -> Any:
    """The value of a field. Raises: ValueError: it is of another kind."""
    items = list(cast("list[object]", value)) if type(value) in (list, tuple) else None
    if name in _TEXTS:
        fits = isinstance(value, str)
    elif name in _TEXT_LISTS:
        fits = items is not None and all(isinstance(item, str) for item in items)
    elif name in _NUMBER_LISTS:
        fits = items is not None and all(map(_is_whole, items))
    else:
        fits = _is_whole(value) or (value is None and name in _NULLABLE)
    if not fits:
        raise ValueError(f"{key!r} is {_clipped(value)}")
    return value if items is None else tuple(items) if name in ("grid", "block") else items


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _clipped(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."


def read_records(lines: Iterable[str], *, name: str = "the input") -> Iterator[KernelRecord]:
    """The records of the lines of a file; empty lines are passed by.

    Raises: TraceFormatError: a line is no record; the message has its number.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield parse_record(line)
        except ValueError as error:
            message = f"{name}: line {number} is no record of a kernel: {error}"
            raise TraceFormatError(message, path=name) from None


NEEDED: dict[str, list[str]] = {
    "gpu_ops": [
        *("row", "kind", "name", "device", "stream", "start_ns", "dur_ns", "grid", "block", "launch_row"),
        "pid",
    ],
    "launches": ["row", "pid", "tid", "start_ns", "dur_ns", "track"],
    "ranges": ["row", "name", "domain", "kind", "track", "start_ns", "dur_ns", "sequence", "sizes"],
    "extra_args": ["row", "key", "value"],
}
"""The tables and columns that ``records`` looks at, for ``kernelscope.read``."""


# The NVTX domain of kernelscope.capture.
_DOMAIN = "kernelscope"

_COMPAT_REMOVED = ("void ", "at::", "cuda::", "native::", "(anonymous namespace)::")
_NAMESPACES = re.compile(r"\b(?:at|cuda|native)::|\(anonymous namespace\)::|<unnamed>::")
# Wrappers whose only template argument of interest is the kernel itself.
_WRAPPER = re.compile(r"^(?:cutlass::(?:device_)?[Kk]ernel\d*|cutlass::Kernel\d*)$")


def records(trace: Trace, *, compat: bool = False) -> Iterator[KernelRecord]:
    """The record of each kernel of a trace of NVTX ranges.

    Order: of the launches; with ``compat`` of the table of kernels, without those whose launch is not in
    the trace, as PyProf has it.

    Example: ``records(ks.read("report.sqlite", tables=NEEDED))``
    """
    kernels = _kernels(trace, compat=compat)
    around = _ranges_around(trace)
    # Names of kernels and sizes of launches repeat.
    names = lru_cache(maxsize=None)(compat_short_name if compat else short_name)
    compat_numbering, numbering = CompatNumbering(), Numbering()
    for kernel in kernels.iter_rows(named=True):
        markers = sort_markers(around.get(kernel["launch_row"], ()), compat=compat)
        way = direction(markers, compat=compat)
        mods, ops = functions(markers, compat=compat)
        if compat:
            place = compat_numbering.place(markers.ids, ops, mods, way)
        else:
            place = numbering.place((kernel["pid"], kernel["tid"]), markers.ids, markers.node, way)
        name = kernel["name"] or ""
        yield KernelRecord(
            short_name=names(name),
            duration_ns=kernel["dur_ns"],
            layers=markers.layers,
            trace=markers.trace,
            repr_markers=markers.reprs,
            markers=markers.arguments,
            sequence_markers=markers.sequences,
            sequence_ids=place.ids,
            sub=place.sub,
            alternate_ids=place.alternate,
            direction=way,
            mods=mods,
            ops=ops,
            tid=kernel["tid"],
            device=kernel["device"],
            stream=kernel["stream"],
            grid=tuple(kernel["grid"] or ()),
            block=tuple(kernel["block"] or ()),
            long_name=name,
            pid=kernel["pid"],
            calls=markers.calls,
            node=markers.node,
        )


def _kernels(trace: Trace, *, compat: bool) -> pl.DataFrame:
    """The kernels, with the thread and time of their launches."""
    launches = trace.launches.select("tid", launch_row="row", launch_pid="pid", launch_start="start_ns")
    kernels = (
        trace.gpu_ops.filter(pl.col("kind") == "kernel")
        .join(launches, on="launch_row", how="inner" if compat else "left")
        .with_columns(pl.coalesce("launch_pid", "pid").alias("pid"))
    )
    order = ["row"] if compat else [pl.coalesce("launch_start", "start_ns"), pl.col("row")]
    return kernels.sort(order)


def _with_payloads(ranges: pl.DataFrame, extra_args: pl.DataFrame) -> pl.DataFrame:
    """Gives ranges of ``kernelscope.capture`` the sequence numbers that are their payloads."""
    is_ours = pl.col("domain").cast(pl.String) == _DOMAIN
    if extra_args.is_empty() or not ranges.select(is_ours.any()).item():
        return ranges
    numbers = extra_args.filter(pl.col("key").cast(pl.String) == "int64Value").select(
        "row", _payload=pl.col("value").cast(pl.String).cast(pl.Int64, strict=False)
    )
    joined = ranges.join(numbers, on="row", how="left", maintain_order="left")
    return joined.with_columns(sequence=pl.coalesce("sequence", pl.when(is_ours).then("_payload")))


def _ranges_around(trace: Trace) -> dict[int, list[Text]]:
    """The ranges of its thread that begin before and end after each launch, outermost first, by its row."""
    ranges = trace.ranges.filter((pl.col("kind") != "mark") & pl.col("dur_ns").is_not_null())
    if ranges.is_empty():
        return {}
    ranges = _with_payloads(ranges, trace.extra_args).with_columns(crosses_threads=pl.lit(value=False))
    columns = pl.col("name", "sizes").cast(pl.String)
    texts = ranges.with_columns(columns).select("row", pl.col("name").fill_null(""), "sequence", "sizes")
    # Work without a duration was launched, too.
    work = trace.gpu_ops.with_columns(pl.col("dur_ns").fill_null(0))
    pairs = enclosing_pairs(replace(trace, gpu_ops=work), ranges).select("range", "launch_row")
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    extents = ranges.select("row", "start_ns", end_ns=end)[pairs["range"]]
    calls = trace.launches.select(launch_row="row", launch_start="start_ns", launch_end=end)
    pairs = pl.concat([pairs, extents], how="horizontal").join(calls, on="launch_row")
    inside = (pl.col("start_ns") < pl.col("launch_start")) & (pl.col("end_ns") > pl.col("launch_end"))
    pairs = pairs.filter(inside).sort("start_ns", -pl.col("end_ns"), "row")
    known = [Text(*values) for values in texts.iter_rows()]
    around: dict[int, list[Text]] = {}
    for launch, at in zip(pairs["launch_row"].to_list(), pairs["range"].to_list(), strict=True):
        around.setdefault(launch, []).append(known[int(at)])
    return around


def compat_short_name(name: str) -> str:
    """The short name as PyProf cuts it: empty or ambiguous for much of what is written today."""
    text = name.partition("<")[0]
    for part in _COMPAT_REMOVED:
        text = text.replace(part, "")
    return text.partition("(")[0]


def short_name(name: str) -> str:
    """The name of a kernel without return type, template arguments, parameters and PyTorch's namespaces.

    Example: ``void <unnamed>::softmax_warp_forward<float, 5>(float*)`` is ``softmax_warp_forward``.
    """
    bare, first = _without_arguments(_NAMESPACES.sub("", name))
    # What stands before the last space outside of brackets is the return type.
    bare = bare.strip().rpartition(" ")[2] if not bare.startswith("operator") else bare
    if _WRAPPER.match(bare) and first:
        inner = re.match(r"[\w:]+", first.strip())
        bare = inner[0] if inner else bare
    return bare or name


def _without_arguments(text: str) -> tuple[str, str]:
    """``text`` up to its parameters and without what stands in angle brackets; and the first bracket."""
    kept: list[str] = []
    first: list[str] = []
    depth = brackets = 0
    for character in text:
        if character == "<":
            depth += 1
            brackets += depth == 1
            if depth == 1:
                continue
        elif character == ">" and depth:
            depth -= 1
            continue
        if depth == 0:
            if character == "(":
                break
            kept.append(character)
        elif brackets == 1:
            first.append(character)
    return "".join(kept), "".join(first)
