"""The records of a trace: every kernel with the ranges around its launch."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import polars as pl

from kernelscope.compat.pyprof.markers import Text, sort_markers
from kernelscope.compat.pyprof.record import KernelRecord
from kernelscope.compat.pyprof.sequences import CompatNumbering, Numbering, direction, functions
from kernelscope.trace import Trace

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


class _Open(NamedTuple):
    end: int
    text: Text


class _Enclosing:
    """Walks the ranges of one thread beside its launches, in order of time."""

    def __init__(self, ranges: Iterator[tuple[Any, ...]]) -> None:
        self._ranges = ranges
        self._next = next(ranges, None)
        self._open: list[_Open] = []
        self._limit = 64

    def around(self, start: int, end: int) -> list[Text]:
        """The ranges that begin before ``start`` and end after ``end``, outermost first."""
        while self._next is not None and self._next[0] < start:
            begin, duration, row, name, sequence, sizes = self._next
            # Who reads on can close only what is innermost; what lies below is cleared now and then.
            while self._open and self._open[-1].end <= begin:
                self._open.pop()
            self._open.append(_Open(begin + duration, Text(row, name or "", sequence, sizes)))
            if len(self._open) > self._limit:
                self._open = [entry for entry in self._open if entry.end > start]
                self._limit = 64 + 2 * len(self._open)
            self._next = next(self._ranges, None)
        return [entry.text for entry in self._open if entry.end > end]


def records(trace: Trace, *, compat: bool = False) -> Iterator[KernelRecord]:
    """The record of each kernel of a trace of NVTX ranges.

    Order: of the launches; with ``compat`` of the table of kernels, without those whose launch is not in
    the trace, as PyProf has it.

    Example: ``records(ks.read("report.sqlite", tables=NEEDED))``
    """
    kernels = _kernels(trace, compat=compat)
    around = _ranges_around(trace, kernels)
    # Names of kernels and sizes of launches repeat.
    names = lru_cache(maxsize=None)(compat_short_name if compat else short_name)
    compat_numbering, numbering = CompatNumbering(), Numbering()
    for kernel in kernels.iter_rows(named=True):
        markers = sort_markers(around.pop(kernel["row"], ()), compat=compat)
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
    launches = trace.launches.select(
        "track",
        "tid",
        launch_row="row",
        launch_pid="pid",
        launch_start="start_ns",
        launch_end=pl.col("start_ns") + pl.col("dur_ns").fill_null(0),
    )
    kernels = (
        trace.gpu_ops.filter(pl.col("kind") == "kernel")
        .join(launches, on="launch_row", how="inner" if compat else "left")
        .with_columns(pl.coalesce("launch_pid", "pid").alias("pid"))
    )
    order = ["row"] if compat else [pl.coalesce("launch_start", "start_ns"), pl.col("row")]
    return kernels.sort(order).select(
        *("row", "name", "device", "stream", "dur_ns", "grid", "block", "pid", "tid", "track"),
        *("launch_start", "launch_end"),
    )


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


def _ranges_around(trace: Trace, kernels: pl.DataFrame) -> dict[int, list[Text]]:
    """The ranges around the launch of each kernel, by the kernel's row."""
    launched = kernels.drop_nulls(["launch_start", "track"])
    if trace.ranges.is_empty() or launched.is_empty():
        return {}
    ranges = trace.ranges.filter((pl.col("kind") != "mark") & pl.col("dur_ns").is_not_null())
    ranges = _with_payloads(ranges, trace.extra_args)
    end = pl.col("start_ns") + pl.col("dur_ns")
    columns = ["start_ns", "dur_ns", "row", "name", "sequence", "sizes"]
    order = [pl.col("start_ns"), -end, pl.col("row")]
    around: dict[int, list[Text]] = {}
    for (track,), calls in launched.group_by("track"):
        own = ranges.filter(pl.col("track") == track).sort(order).select(columns)
        own = own.with_columns(pl.col("name", "sizes").cast(pl.String))
        enclosing = _Enclosing(own.iter_rows())
        for start, end_ns, row in (
            calls.sort("launch_start").select("launch_start", "launch_end", "row").iter_rows()
        ):
            around[row] = enclosing.around(start, end_ns)
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
