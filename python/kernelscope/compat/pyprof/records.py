"""Records of a trace, each a kernel with the ranges around its launch, and files of them in PyProf's format.

A file has one Python dictionary per line, as text. Only literals are parsed and no code runs, because a trace
is untrusted.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import polars as pl

from kernelscope.analysis.grouping import classes_of
from kernelscope.compat.pyprof.around import NO_NUMBERS, OF_RANGES, list_column
from kernelscope.compat.pyprof.kernels import Kernels, kernels_of
from kernelscope.compat.pyprof.markers import Meaning, parse_literal
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

    ``sequence_ids`` are autograd's sequence numbers; ``sub`` counts the kernels of one operator from 0. The
    following are not part of a file of records, and empty there: ``pid``; ``calls``, the rows of the ranges
    of ``markers``; ``node``, the row of the range whose kernels ``sub`` counts.
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
        """Returns whether the kernel belongs to the backward pass."""
        return self.direction == "bprop"


def parse_record(line: str) -> KernelRecord:
    """Parses the record in a line.

    Raises: ValueError: the line is not a record; the message gives the reason.
    """
    value = parse_literal(line.strip())
    if not isinstance(value, dict):
        raise ValueError("it is not a dictionary")
    fields = cast("dict[object, Any]", value)
    missing = [key for key in _KEYS if key not in fields]
    if missing:
        raise ValueError(f"it has no {', '.join(map(repr, missing))}")
    return KernelRecord(**{name: _checked(key, name, fields[key]) for key, name in _KEYS.items()})


def _checked(key: str, name: str, value: Any) -> Any:
    """The value of a field. Raises: ValueError: it is of another kind."""
    items = list(cast("list[object]", value)) if type(value) in (list, tuple) else None
    if name in _TEXTS:
        fits = _is_text(value)
    elif name in _TEXT_LISTS:
        fits = items is not None and all(map(_is_text, items))
    elif name in _NUMBER_LISTS:
        fits = items is not None and all(map(_is_whole, items))
    else:
        fits = _is_whole(value) or (value is None and name in _NULLABLE)
    if not fits:
        raise ValueError(f"{key!r} is {_clipped(value)}")
    return value if items is None else tuple(items) if name in ("grid", "block") else items


def _is_whole(value: object) -> bool:
    return type(value) is int and -_LIMIT <= value < _LIMIT


_LIMIT = 1 << 63


def _is_text(value: object) -> bool:
    # Half a surrogate pair is in no text that can be written.
    return isinstance(value, str) and (value.isascii() or not _SURROGATE.search(value))


_SURROGATE = re.compile("[\ud800-\udfff]")


def _clipped(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."


_MOST_FOREIGN = 100


def read_records(
    lines: Iterable[str], *, name: str = "the input", on_loss: Callable[[int, str], object] | None = None
) -> Iterator[KernelRecord]:
    """Reads the records in the lines of a file. Empty lines are skipped.

    ``on_loss`` is called with the number of each line that is not a record, and the reason. Without it, the
    first such line is an error.

    Raises: TraceFormatError: a line is not a record, and ``on_loss`` is null; or no line is one.
    """
    found = False
    foreign: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = parse_record(line)
        except ValueError as error:
            if on_loss is None:
                message = f"{name}: line {number} is not a record of a kernel: {error}"
                raise TraceFormatError(message, path=name) from None
            if found:
                on_loss(number, str(error))
                continue
            foreign.append((number, str(error)))
            # A file that begins like this is another.
            if len(foreign) == _MOST_FOREIGN:
                break
            continue
        found = True
        for loss in foreign:
            cast("Callable[[int, str], object]", on_loss)(*loss)
        foreign.clear()
        yield record
    if foreign:
        number, why = foreign[0]
        raise TraceFormatError(
            f"{name}: is not a trace, and contains no kernel records of kernelscope parse: line "
            f"{number}: {why}",
            path=name,
        )


NEEDED: dict[str, list[str]] = {
    "gpu_ops": [
        *("row", "kind", "name", "device", "stream", "start_ns", "dur_ns", "grid", "block", "launch_row"),
        "pid",
    ],
    "launches": ["row", "pid", "tid", "start_ns", "dur_ns", "track"],
    "ranges": [*OF_RANGES],
    "extra_args": ["row", "key", "value"],
    "devices": [],
}
"""Tables and columns of a database that ``records`` uses, for ``kernelscope.read``."""

NEEDED_OF_PROFILER: dict[str, list[str]] = {
    "gpu_ops": [*NEEDED["gpu_ops"], "op_row"],
    "launches": NEEDED["launches"],
    "ops": [
        *("row", "parent_row", "name", "track", "start_ns", "dur_ns", "sequence"),
        *("input_dims", "input_types", "concrete_inputs"),
    ],
    "devices": [],
}
"""Tables and columns of a PyTorch profiler trace."""


def records(trace: Trace, *, compat: bool = False) -> Iterator[KernelRecord]:
    """Records of the kernels of a trace of NVTX ranges, or of the operators of the PyTorch profiler.

    Order: of the launches; with ``compat`` of the table of kernels, without those whose launch is not in the
    trace, as in PyProf.

    Example: ``records(ks.read("report.sqlite", tables=NEEDED))``
    """
    kernels = kernels_of(trace, compat=compat)
    for part in kernels.frame.iter_slices(_PART_ROWS):
        for kernel in part.iter_rows(named=True):
            yield _record(kernel, kernels)


def _record(kernel: Mapping[str, Any], kernels: Kernels) -> KernelRecord:
    of, first = cast("int", kernel["meaning"]), cast("int", kernel["first"])
    meaning = kernels.meanings[of]

    def row(place: int) -> int:
        return kernels.rows[first + place]

    return KernelRecord(
        short_name=kernel["short_name"],
        duration_ns=kernel["dur_ns"],
        layers=list(meaning.layers),
        trace=list(meaning.trace),
        repr_markers=list(meaning.reprs),
        markers=list(meaning.arguments),
        sequence_markers=_sequence_markers(meaning, kernel["numbers"]),
        sequence_ids=kernel["seq"],
        sub=kernel["sub"],
        alternate_ids=kernel["altseq"],
        direction=meaning.direction,
        mods=list(meaning.mods),
        ops=list(meaning.ops),
        tid=kernel["tid"],
        device=kernel["device"],
        stream=kernel["stream"],
        grid=tuple(kernel["grid"] or ()),
        block=tuple(kernel["block"] or ()),
        long_name=kernel["long_name"],
        pid=kernel["pid"],
        calls=tuple(map(row, meaning.calls)),
        node=None if meaning.node is None else row(meaning.node),
    )


def _sequence_markers(meaning: Meaning, numbers: Sequence[int]) -> list[str]:
    # Records that were read have their numbers in the texts.
    own: Sequence[object] = numbers or [()] * len(meaning.sequences)
    return [text % number for text, number in zip(meaning.sequences, own, strict=True)]


def gathered(source: Iterable[KernelRecord]) -> Kernels:
    """Returns the kernels of records as columns."""
    codes: dict[Meaning, int] = {}
    rows: list[int] = []
    parts: list[pl.DataFrame] = []
    taken = iter(source)
    while part := list(islice(taken, _PART_ROWS)):
        meanings: list[int] = []
        first: list[int] = []
        for record in part:
            meanings.append(codes.setdefault(_meaning(record), len(codes)))
            first.append(len(rows))
            rows += record.calls
        parts.append(_columns(part, meanings, first))
    return Kernels(pl.concat(parts or [_columns([], [], [])]), list(codes), pl.Series(rows, dtype=pl.UInt32))


def _meaning(record: KernelRecord) -> Meaning:
    return Meaning(
        layers=tuple(record.layers),
        trace=tuple(record.trace),
        reprs=tuple(record.repr_markers),
        arguments=tuple(record.markers),
        sequences=tuple(text.replace("%", "%%") for text in record.sequence_markers),
        direction=record.direction,
        mods=tuple(record.mods),
        ops=tuple(record.ops),
        calls=tuple(range(len(record.calls))),
    )


def _columns(part: Sequence[KernelRecord], meanings: Sequence[int], first: Sequence[int]) -> pl.DataFrame:
    def values(field: str) -> list[Any]:
        return [getattr(record, field) for record in part]

    names = ("short_name", "long_name")
    return pl.DataFrame(
        [
            *(pl.Series(name, values(name), pl.String).cast(pl.Categorical) for name in names),
            *(pl.Series(column, values(field), pl.Int64) for column, field in _NUMBERS.items()),
            *(list_column(column, values(field)) for column, field in _LISTS.items()),
            list_column("numbers", [()] * len(part)),
            pl.Series("meaning", meanings, pl.UInt32),
            pl.Series("first", first, pl.UInt32),
        ]
    )


_NUMBERS = {
    "dur_ns": "duration_ns", **{name: name for name in ("pid", "tid", "device", "stream", "sub")},
}  # fmt: skip
_LISTS = {"seq": "sequence_ids", "altseq": "alternate_ids", "grid": "grid", "block": "block"}
_PART_ROWS = 1 << 14


def record_lines(kernels: Kernels) -> Iterator[str]:
    """Yields the line of each kernel in a file of records, without its line feed."""
    frame, meanings = kernels.frame, kernels.meanings
    names = {name: classes_of(frame.select(name)) for name in ("short_name", "long_name")}
    literals = {name: _literals(found.keys[name].cast(pl.String)) for name, found in names.items()}
    literals |= {name: _literals(map(part, meanings)) for name, part in _OF_MEANING.items()}
    sequences = [repr([*meaning.sequences]) for meaning in meanings]
    for first in range(0, frame.height, _PART_ROWS):
        part = frame.slice(first, _PART_ROWS)
        of = dict.fromkeys(_OF_MEANING, part["meaning"])
        of |= {name: found.of.slice(first, _PART_ROWS) for name, found in names.items()}
        numbered = part.select("meaning", "numbers").iter_rows()
        texts = [
            *(literals[name][codes].alias(name) for name, codes in of.items()),
            pl.Series("sequence_markers", [sequences[at] % tuple(own) for at, own in numbered], pl.String),
            *(part.select(_literal(column).alias(name)).to_series() for name, column in _OF_KERNEL.items()),
        ]
        yield from pl.DataFrame(texts).select(pl.format(_LINE, *_KEYS.values())).to_series()


def format_record(record: KernelRecord) -> str:
    """Returns the line of a record, without its line feed."""
    return next(record_lines(gathered([record])))


def _literals(values: Iterable[object]) -> pl.Series:
    return pl.Series(list(map(repr, values)), dtype=pl.String)


def _literal(column: str) -> pl.Expr:
    """A number or a list of numbers as Python writes it; launch sizes are tuples."""
    if column not in _LISTS:
        return pl.col(column).cast(pl.String).fill_null("None")
    items = pl.col(column).cast(pl.List(pl.Int64)).fill_null(NO_NUMBERS)
    joined = items.cast(pl.List(pl.String)).list.join(", ")
    if column not in ("grid", "block"):
        return pl.format("[{}]", joined)
    comma = pl.when(items.list.len() == 1).then(pl.lit(",")).otherwise(pl.lit(""))
    return pl.format("({}{})", joined, comma)


_OF_MEANING: dict[str, Callable[[Meaning], object]] = {
    "layers": lambda meaning: [*meaning.layers],
    "trace": lambda meaning: [*meaning.trace],
    "repr_markers": lambda meaning: [*meaning.reprs],
    "markers": lambda meaning: [*meaning.arguments],
    "direction": lambda meaning: meaning.direction,
    "mods": lambda meaning: [*meaning.mods],
    "ops": lambda meaning: [*meaning.ops],
}
_OF_KERNEL = {field: column for column, field in (_NUMBERS | _LISTS).items() if column != "pid"}
# Braces of a format are doubled.
_LINE = "{{" + ", ".join(f"{key!r}: {{}}" for key in _KEYS) + "}}"
