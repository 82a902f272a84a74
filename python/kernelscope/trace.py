"""A trace in memory: one frame per table, and properties of the file."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, TypeVar, cast

import polars as pl

from kernelscope.errors import InvalidArgumentError
from kernelscope.escaping import for_html
from kernelscope.memo import Memo, per_trace
from kernelscope.meta import TraceMeta
from kernelscope.schema import TABLES
from kernelscope.units import format_bytes, format_count, format_ns

DTYPES: dict[str, pl.DataType] = {
    str(dtype): dtype
    for dtype in (
        pl.Array(pl.Int32(), 3),
        pl.Boolean(),
        pl.Categorical(),
        pl.Float64(),
        pl.Int32(),
        pl.Int64(),
        pl.UInt32(),
        pl.UInt64(),
    )
}
"""Types of columns by their names in ``kernelscope.schema``."""


_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trace:
    """A trace: one Polars frame per table. ``kernelscope.schema`` documents every column.

    A table that the source does not have is empty with all its columns. Times are int64 nanoseconds on the
    trace's own clock. Missing values are null.
    """

    meta: TraceMeta
    ops: pl.DataFrame
    launches: pl.DataFrame
    gpu_ops: pl.DataFrame
    untimed_gpu_ops: pl.DataFrame
    untimed_events: pl.DataFrame
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
    gpu_steps: pl.DataFrame
    devices: pl.DataFrame
    process_groups: pl.DataFrame
    captured_graphs: pl.DataFrame
    captured_ops: pl.DataFrame
    captured_nodes: pl.DataFrame
    threads: pl.DataFrame
    diagnostics: pl.DataFrame
    memo: Memo = field(default_factory=Memo, init=False, compare=False)
    """Answers of questions; see :func:`kernelscope.memo.per_trace`."""
    parts: "tuple[Trace, ...]" = field(default=(), compare=False)
    """The trace of each rank, if the file contains several: every table then has a column ``rank``."""

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """Every frame by the name of its table."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name in TABLES}

    def __repr__(self) -> str:
        meta = self.meta
        rank = "" if meta.rank is None else f", rank {meta.rank} of {meta.world_size or '?'}"
        rank = f", ranks {', '.join(map(str, meta.ranks))}" if self.parts else rank
        counts = [
            f"  {name}: {format_count(frame.height)}" for name, frame in self.tables.items() if frame.height
        ]
        extent = self.extent()
        time = "" if extent is None else f", {format_ns(extent[1] - extent[0])}"
        head = f"Trace {meta.path!r} ({meta.format}, {format_bytes(meta.content_bytes)}{rank}{time})"
        return "\n".join([head, *counts])

    def _repr_html_(self) -> str:
        """The trace in a notebook: the file, and every table that has rows."""
        head, *_ = repr(self).split("\n")
        rows = "".join(
            f"<tr><td>{name}</td><td>{format_count(frame.height)}</td><td>{for_html(TABLES[name].doc)}</td></tr>"
            for name, frame in self.tables.items()
            if frame.height
        )
        return f"<p>{for_html(head)}</p><table><tr><th>table</th><th>rows</th><th></th></tr>{rows}</table>"

    def of_rank(self, rank: int) -> "Trace":
        """Returns the trace of one of several ranks in the file, as if it had been recorded alone.

        Raises: InvalidArgumentError: there is no such rank.
        """
        found = next((part for part in self.parts or (self,) if part.meta.rank == rank), None)
        if found is None:
            known = ", ".join(map(str, self.meta.ranks)) or self.meta.rank
            raise InvalidArgumentError(
                f"{self.meta.path}: no event belongs to rank {rank}; there are {known}"
            )
        return found

    @per_trace
    def extent(self) -> tuple[int, int] | None:
        """First start and last end of host and GPU activity, or of NVTX ranges; null if there is none.

        Units: ns on the trace's clock.
        """
        timed = [frame for frame in (self.ops, self.launches, self.gpu_ops) if frame.height]
        # Ranges can be open to the end of a session that lasts long after the work.
        timed = timed or [frame for frame in (self.ranges,) if frame.height]
        if not timed:
            return None
        start = min(cast(int, frame["start_ns"].min()) for frame in timed)
        end = max(cast(int, (frame["start_ns"] + frame["dur_ns"].fill_null(0)).max()) for frame in timed)
        return start, end


def about_a_trace(value: Any, package: str) -> Any:
    """Wraps a public function of ``package`` that takes traces with a check of its arguments.

    Other values are returned unchanged.

    A lake has lazy frames of many ranks under the names of a trace's tables, so a question about one trace
    would fail halfway through.
    """
    if not inspect.isfunction(value):
        return value
    expected: dict[str, tuple[type, ...]] = {}
    for name, parameter in inspect.signature(value).parameters.items():
        annotation = parameter.annotation
        if annotation in (Trace, "Trace"):
            expected[name] = (Trace,)
        elif re.search(r"\bTrace\b", str(annotation)) and "Lake" not in str(annotation):
            expected[name] = (Trace, Iterable)
    if not expected:
        return value
    signature = inspect.signature(value)
    names = list(signature.parameters)

    @wraps(value)
    def checked(*args: Any, **options: Any) -> Any:
        for name, given in (*zip(names, args, strict=False), *options.items()):
            if name in expected and (isinstance(given, str) or not isinstance(given, expected[name])):
                raise InvalidArgumentError(
                    f"{package}.{value.__name__} needs one trace, as returned by kernelscope.read, "
                    f"not a {type(given).__name__}; docs/analyses.md lists the questions that a lake "
                    "answers"
                )
        if any(map(_has_several, (*args, *options.values()))) and not getattr(value, "knows_ranks", False):
            return _of_each_rank(value, signature.bind(*args, **options), expected)
        return value(*args, **options)

    checked.__module__ = package
    return checked


def knows_ranks(function: _Function) -> _Function:
    """Marks a function that accepts a trace of several ranks; see :func:`about_a_trace`."""
    vars(function)["knows_ranks"] = True
    return function


def every_rank(traces: Trace | Sequence[Trace]) -> list[Trace]:
    """Returns the trace of each rank in ``traces``, some of which may contain several."""
    traces = [traces] if isinstance(traces, Trace) else traces
    return [part for trace in traces for part in trace.parts or (trace,)]


def _has_several(given: object) -> bool:
    traces = cast("Sequence[object]", given) if isinstance(given, (list, tuple)) else (given,)
    return any(isinstance(trace, Trace) and trace.parts for trace in traces)


def _of_each_rank(
    function: Callable[..., Any], given: inspect.BoundArguments, expected: Mapping[str, tuple[type, ...]]
) -> Any:
    """What ``function`` answers about each rank of a trace of several, in one frame with a column ``rank``.

    Where it takes several traces the ranks are such.
    """
    for name, types in expected.items():
        if Iterable in types and isinstance(given.arguments.get(name), Trace | Sequence):
            given.arguments[name] = every_rank(given.arguments[name])
    several = {
        name: trace for name, trace in given.arguments.items() if isinstance(trace, Trace) and trace.parts
    }
    if not several:
        return function(*given.args, **given.kwargs)
    name, trace = next(iter(several.items()))
    if len(several) > 1 or "DataFrame" not in str(inspect.signature(function).return_annotation):
        raise InvalidArgumentError(
            f"{trace.meta.path}: contains the ranks {', '.join(map(str, trace.meta.ranks))}, but "
            f"{function.__name__} needs one: read it with rank=, or select one with Trace.of_rank"
        )
    answers: list[pl.DataFrame] = []
    for part in trace.parts:
        given.arguments[name] = part
        answer: pl.DataFrame = function(*given.args, **given.kwargs)
        rank = pl.lit(part.meta.rank, pl.Int32()).alias("rank")
        answers.append(answer.select(rank, pl.exclude("rank")))
    return pl.concat(answers, how="vertical_relaxed")
