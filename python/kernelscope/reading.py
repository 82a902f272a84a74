"""Reads a trace file into frames."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from kernelscope import _traceparse, exports, remote
from kernelscope.captures import CaptureOption, capture_files
from kernelscope.errors import InvalidArgumentError, did_you_mean
from kernelscope.merged import merge
from kernelscope.meta import meta_from_raw
from kernelscope.schema import TABLES
from kernelscope.trace import DTYPES, Trace
from kernelscope.units import parse_time_range


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
    """Reads a profiler trace of any supported format, version and compression.

    ``path`` may be a URL, such as ``s3://bucket/rank0.json``, which is copied to a temporary file first. It
    may be a folder written by ``nsys export --type parquetdir`` or ``arrowdir``, or a report (``.nsys-rep``)
    if nsys is installed. Both are converted to a temporary SQLite database first.

    A bad event is repaired or dropped and counted in ``trace.diagnostics``; with ``strict`` the first loss
    raises instead. ``threads`` is the number of parser threads (default: all cores). ``progress`` is called
    about ten times a second with the bytes read and the total (0 while unknown). An exception in it stops the
    read. ``step_range`` names the annotation or NVTX range that delimits steps, instead of ``ProfilerStep#N``
    and serving engines' steps. ``*`` matches any text and ``?`` any character, as in ``execute_*``. A
    text between two ``/`` is a regular expression that matches part of the name. ``found`` uses the periods
    of the launches if there are no such names; ``confidence`` in ``steps`` rates them. ``tables`` selects
    tables, and may map each to its required columns. The other tables are empty, other columns may be null,
    links to unselected tables are null, and only the required parts of a database are read.

    ``capture`` names the traces, or folders of traces, with the captures of the CUDA or HIP graphs that this
    trace replays: replayed operations then have the operators of the capture. Captures in the trace itself
    and, by default, in a folder ``capture_traces`` next to the trace are found automatically. None is read
    for a trace without replays.

    Filters exclude events before linking, as if nothing else had been recorded. The diagnostic ``filtered``
    counts them. ``filter_time`` is the first and last moment on the trace's clock, in ns or as text such as
    ``1s/2s``; either may be open. An event that overlaps it is kept whole. ``filter_nvtx`` names an NVTX
    range or annotation as ``range[@domain][/index]`` (default: the first). It keeps the activity of its
    thread inside it, and the GPU operations launched by that; for a start/end range, the activity of all
    threads of the process. ``process`` and ``device`` are numbers of processes and GPUs. Host calls whose
    operations are all on other GPUs are excluded.

    A file of several merged ranks gives tables with a column ``rank``, with separate ids and links per rank,
    and ``parts``, the trace of each; ``meta.ranks`` lists them. ``rank`` reads one of them, as if it had been
    recorded alone. Questions about one trace are answered for each rank.

    Raises: TraceNotFoundError, TracePermissionError, NotAFileError: the path cannot be read. NotATraceError:
        the file is not a trace of a known format. TraceFormatError: the trace is damaged beyond repair.
        StrictError: ``strict`` is set and something would be lost. InvalidArgumentError: nothing has the name
        ``step_range`` or ``filter_nvtx``; the process, GPU, rank, table or column does not exist; or
        ``filter_time`` is invalid.

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
    """Reads the data for a report on GPU operations, with the ``options`` of :func:`read_ranks`.

    Not public.
    """
    traces = read_ranks(path, **options)
    return traces[0] if len(traces) == 1 else merge(traces)


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
    """Reads the trace of each rank in a file (usually one); see :func:`read`. Not public.

    ``only_launching`` requests only API calls that launched GPU operations, and NVTX ranges that enclose such
    calls. A database is read without the others; other formats may contain them. ``of_no_process`` keeps
    events of no process in addition to ``process``.
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
            f"{trace.meta.path}: the launches have no reliable periods; {listed}{more} can delimit steps",
            path=trace.meta.path,
        )
    raise InvalidArgumentError(
        f"{trace.meta.path}: no annotation or range has the name {name!r}; there are "
        f"{listed}{more}{did_you_mean(name, names[:_NAMES_COMPARED])}",
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
