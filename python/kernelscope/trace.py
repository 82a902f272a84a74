"""A trace in memory: one frame per table, and what is known of the file."""

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, TypeVar, cast

import polars as pl

from kernelscope import _traceparse, exports, remote
from kernelscope.captures import CaptureOption, capture_files
from kernelscope.errors import InvalidArgumentError, did_you_mean
from kernelscope.escaping import for_html
from kernelscope.memo import Memo, per_trace
from kernelscope.meta import TraceMeta, meta_from_raw
from kernelscope.schema import TABLES
from kernelscope.units import format_bytes, format_count, format_ns, parse_time_range

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
"""The types of columns by their names in ``kernelscope.schema``."""


_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trace:
    """A trace: one Polars frame per table. ``kernelscope.schema`` documents every column.

    A table that the source does not have is empty and has all its columns. Times are int64
    nanoseconds on the trace's own clock; a missing value is null.
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
    """What questions have found out: see :func:`kernelscope.memo.per_trace`."""
    parts: "tuple[Trace, ...]" = field(default=(), compare=False)
    """The trace of each rank, where the file holds several: every table then has a column ``rank``."""

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
        """The trace of one of several ranks in the file, as if it had been recorded alone.

        Raises: InvalidArgumentError: there is no such rank.
        """
        found = next((part for part in self.parts or (self,) if part.meta.rank == rank), None)
        if found is None:
            known = ", ".join(map(str, self.meta.ranks)) or self.meta.rank
            raise InvalidArgumentError(f"{self.meta.path}: no event is of the rank {rank}; there are {known}")
        return found

    @per_trace
    def extent(self) -> tuple[int, int] | None:
        """First start and last end of host and GPU work, or of NVTX ranges; null if there is none.

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
    """A public function of ``package`` that takes traces, with a check that it gets them; else ``value``.

    A lake has lazy frames of many ranks under the names of a trace's tables, so that a question about one
    trace would fail in the middle of it.
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
                    f"{package}.{value.__name__} is about one trace, as kernelscope.read gives it, not about"
                    f" a {type(given).__name__}; docs/analyses.md lists what a lake answers"
                )
        if any(map(_has_several, (*args, *options.values()))) and not getattr(value, "knows_ranks", False):
            return _of_each_rank(value, signature.bind(*args, **options), expected)
        return value(*args, **options)

    checked.__module__ = package
    return checked


def knows_ranks(function: _Function) -> _Function:
    """Marks a function that takes a trace of several ranks as it is: see :func:`about_a_trace`."""
    vars(function)["knows_ranks"] = True
    return function


def every_rank(traces: Trace | Sequence[Trace]) -> list[Trace]:
    """The trace of each rank in ``traces``, of which some may be of several."""
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
            f"{trace.meta.path}: holds the ranks {', '.join(map(str, trace.meta.ranks))}, and"
            f" {function.__name__} is about one: read it with rank=, or take one with Trace.of_rank"
        )
    answers: list[pl.DataFrame] = []
    for part in trace.parts:
        given.arguments[name] = part
        answer: pl.DataFrame = function(*given.args, **given.kwargs)
        rank = pl.lit(part.meta.rank, pl.Int32()).alias("rank")
        answers.append(answer.select(rank, pl.exclude("rank")))
    return pl.concat(answers, how="vertical_relaxed")


def read(
    path: str | os.PathLike[str],
    *,
    strict: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    step_range: str | None = None,
    tables: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    capture: CaptureOption = None,
    filter_time: str | tuple[int | None, int | None] | None = None,
    filter_nvtx: str | None = None,
    process: int | Sequence[int] | None = None,
    device: int | Sequence[int] | None = None,
    rank: int | None = None,
) -> Trace:
    """Reads a profiler trace, whatever its format, era and compression.

    ``path`` may be a URL, such as ``s3://bucket/rank0.json``: it is copied to a temporary file first. It may
    be the folder that ``nsys export --type parquetdir`` or ``arrowdir`` wrote, and a report (``.nsys-rep``)
    where nsys is installed: either becomes a temporary SQLite database first.

    A bad event is repaired or dropped and counted in ``trace.diagnostics``; with ``strict``
    the first loss raises instead. ``threads`` is the number of threads to parse with, all
    cores if null. ``progress`` is called about ten times a second with bytes done and bytes
    in all (0 while unknown); what it raises stops the reading. ``step_range`` names the
    annotation or NVTX range that delimits steps in place of ``ProfilerStep#N`` and of those of serving
    engines; ``*`` stands for any text and ``?`` for any character, as in ``execute_*``, and what stands
    between two ``/`` is a regular expression that a part of the name matches. ``found`` finds the periods
    of what is launched where nothing is called so; ``confidence`` of ``steps`` says how sure they are.
    ``tables`` names the tables that are wanted, and may map each to the columns that are: the others are
    empty, other columns may be null, links to tables that are not wanted are null, and a database is read
    only where it feeds what is wanted.

    ``capture`` names the traces, or folders of them, in which the CUDA or HIP graphs were captured that this
    trace replays: replayed work then has the operators of the capture. Captures in the trace itself and, if
    it is null, in a folder ``capture_traces`` beside the trace are found; none is read for a trace that
    replays nothing.

    Filters leave events out before anything is linked, so that the trace is as if nothing else had been
    recorded; how many is the finding ``filtered``. ``filter_time`` is first and last moment on the trace's
    clock, in ns or as text such as ``1s/2s``, either open; an event that reaches in stays whole.
    ``filter_nvtx`` names an NVTX range or annotation as ``range[@domain][/index]``, the first without an
    index: what its thread did in it stays, and the GPU work that this launched; of a range that was started
    and not pushed what all threads of the process did. ``process`` and ``device`` are numbers of processes
    and GPUs; of the host's calls those whose work is all on other GPUs go.

    A file into which several ranks were merged gives tables with a column ``rank``, ids and links of each
    rank for themselves, and ``parts``, the trace of each; ``meta.ranks`` lists them. ``rank`` reads one, as
    if it had been recorded alone. Questions about one trace are answered for each rank.

    Raises: TraceNotFoundError, TracePermissionError, NotAFileError: the path cannot be read.
        NotATraceError: the file is no trace of a known format.
        TraceFormatError: the trace is damaged beyond repair.
        StrictError: ``strict`` is set and something would be lost.
        InvalidArgumentError: nothing is called ``step_range`` or ``filter_nvtx``; there is no such process,
            GPU, rank, table or column; or ``filter_time`` is none.

    Example: ``ks.read("rank0.pt.trace.json.gz").gpu_ops.filter(kind="kernel")``
    Example: ``ks.read("report.sqlite", tables={"gpu_ops": ["name", "dur_ns"]})``
    Example: ``ks.read("decode.json.gz", capture="captures/decode_bs32.json.gz")``
    Example: ``ks.read("report.sqlite", filter_nvtx="train_step/3", device=0)``
    """
    local = remote.local_copy(path) if remote.is_url(path) else exports.as_database(path)
    with local as file:
        trace = read_part(
            file, strict=strict, threads=threads, progress=progress, step_range=step_range, tables=tables,
            capture=capture, filter_time=filter_time, filter_nvtx=filter_nvtx, process=process, device=device,
            rank=rank,
        )  # fmt: skip
    return replace(trace, meta=replace(trace.meta, path=os.fspath(path)))


def read_part(path: str | os.PathLike[str], **options: Any) -> Trace:
    """Reads what a report on GPU work needs, with the ``options`` of :func:`read_ranks`. Not public."""
    traces = read_ranks(path, **options)
    if len(traces) == 1:
        return traces[0]
    from kernelscope.merged import merge

    return merge(traces)


def read_ranks(
    path: str | os.PathLike[str],
    *,
    strict: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    step_range: str | None = None,
    tables: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    only_launching: bool = False,
    capture: CaptureOption = None,
    filter_time: str | tuple[int | None, int | None] | None = None,
    filter_nvtx: str | None = None,
    process: int | Sequence[int] | None = None,
    of_no_process: bool = False,
    device: int | Sequence[int] | None = None,
    rank: int | None = None,
) -> list[Trace]:
    """Reads the trace of each rank in a file, as a rule of one; see :func:`read`. Not public.

    With ``only_launching`` only API calls that launched GPU work are wanted, and NVTX ranges that enclose one
    of them. A database is read without the others; other formats may have them. With ``of_no_process`` what
    belongs to none stays beside ``process``.
    """
    if threads is not None and threads < 1:
        raise InvalidArgumentError(f"threads must be at least 1, not {threads}")
    window = parse_time_range(filter_time) if isinstance(filter_time, str) else filter_time
    with capture_files(path, capture) as captures:
        found = _traceparse.read(
            path,
            strict=strict,
            threads=threads,
            step_range=step_range,
            tables=None if tables is None else _wanted(tables),
            only_launching=only_launching,
            filter_time=window or (None, None),
            filter_nvtx=filter_nvtx,
            filter_processes=_numbers(process),
            filter_of_no_process=of_no_process,
            filter_devices=_numbers(device),
            rank=rank,
            captures=captures,
            captures_are_found=capture is None,
            progress=progress,
        )
    traces = [_trace(path, raw) for raw in found]
    if step_range is not None and (tables is None or _FOR_STEPS.issubset(tables)):
        for trace in traces:
            _check_steps(trace, step_range)
    return traces


def _trace(path: str | os.PathLike[str], raw: _traceparse.RawTrace) -> Trace:
    tables = raw.take_tables()
    frames: dict[str, Any] = {name: _take_frame(tables, name) for name in list(tables)}
    return Trace(meta=meta_from_raw(os.fspath(path), raw.meta), **frames)


def _numbers(given: int | Sequence[int] | None) -> list[int]:
    """What is asked for; nothing for all."""
    if given is None:
        return []
    return [given] if isinstance(given, int) else list(given)


# Without one of them steps are not looked for.
_FOR_STEPS = frozenset(("ops", "ranges", "launches", "gpu_ops", "steps"))
_NAMES_LISTED = 8
_NAMES_COMPARED = 1000


def _check_steps(trace: Trace, name: str) -> None:
    """Raises InvalidArgumentError if nothing called ``name`` marks a step, and says what there is."""
    # The whole trace has no number.
    if trace.steps["step"].count():
        return
    marks = pl.concat(
        [
            trace.ops.filter("is_annotation").select(pl.col("name").cast(pl.String)),
            trace.ranges.filter(pl.col("kind") != "mark").select(pl.col("name").cast(pl.String)),
        ]
    )
    counts = marks.drop_nulls().group_by("name").len().sort("len", "name", descending=[True, False])
    names = counts["name"].to_list()
    listed = ", ".join(map(repr, names[:_NAMES_LISTED])) or "none"
    more = f" and {len(names) - _NAMES_LISTED} more" if len(names) > _NAMES_LISTED else ""
    if name == "found":
        raise InvalidArgumentError(
            f"{trace.meta.path}: what is launched has no periods that are sure; there are {listed}{more} to"
            " delimit steps",
            path=trace.meta.path,
        )
    raise InvalidArgumentError(
        f"{trace.meta.path}: no annotation or range is called {name!r}; there are {listed}{more}"
        f"{did_you_mean(name, names[:_NAMES_COMPARED])}",
        path=trace.meta.path,
    )


def _wanted(tables: Sequence[str] | Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The wanted columns of each wanted table; none for all of them."""
    if isinstance(tables, Mapping):
        return {name: list(columns) for name, columns in tables.items()}
    return {name: [] for name in tables}


def _take_frame(tables: dict[str, _traceparse.ArrowTable], name: str) -> pl.DataFrame:
    """Takes a table out of ``tables``, with a column of nulls for every column that holds no value.

    Most optional columns are empty in most traces. Built eagerly: the lazy engine would cost
    more memory than a small trace.
    """
    dtypes = {c.name: DTYPES[c.dtype] for c in TABLES[name].columns}
    rows = len(tables[name])
    if rows == 0:
        return pl.DataFrame(schema=dtypes)
    # Column by column: those of one stream keep one another alive, and Polars copies categoricals.
    columns = tables.pop(name).columns()
    filled: dict[str, pl.Series] = {}
    while columns:
        series = pl.DataFrame(columns.pop()).to_series()
        filled[series.name] = series
    missing = {dtype for column, dtype in dtypes.items() if column not in filled}
    nulls = {dtype: pl.Series([None], dtype=dtype).new_from_index(0, rows) for dtype in missing}
    return pl.DataFrame(
        [
            filled[column] if column in filled else nulls[dtype].alias(column)
            for column, dtype in dtypes.items()
        ]
    )
