"""What is known of a kernel before its costs are counted, and files of such records as PyProf writes them.

A file has one Python dictionary per line, as text. Only literals are read, never code: a trace is untrusted.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from kernelscope.errors import TraceFormatError

# A record holds a call stack and the arguments of a call; a line beyond this is none.
MAX_LINE_CHARS = 4 << 20

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


def parse_literal(text: str) -> object:
    """The value of a Python literal.

    Raises: ValueError: the text is no literal, or too long or too deep for one.
    """
    if len(text) > MAX_LINE_CHARS:
        raise ValueError(f"it is longer than {MAX_LINE_CHARS} characters")
    try:
        with warnings.catch_warnings():
            # An unknown escape sequence is read as it stands.
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("it is no literal") from error


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
