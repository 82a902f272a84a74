"""Rules of ``nsys analyze``: idle GPUs, blocking calls, copies from pageable memory."""

import itertools
from collections.abc import Iterator
from functools import partial

import polars as pl

from kernelscope.compat.nsys.api_calls import versioned_name
from kernelscope.compat.nsys.report import GRAPH, KERNEL, MEMORY, RUNTIME, Question, Report, parse_fields
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

_PLACE = ["pid", "device", "context"]
_ROWS = 50
_GAP_MS = 500
_THRESHOLD_PCT = 50
_CHUNKS = 30
COUNT_OVERHEAD = ("gpu_gaps", "gpu_time_util")
"""Rules that count profiler overhead as operations of the GPUs of its process."""

# A copy of fewer bytes to the device is staged by the driver and does not block for long.
_SMALL_COPY_BYTES = 64_000


def _number(question: Question, name: str, default: int) -> int:
    text = question.arguments.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(f"{name}={text} is not a whole number") from None


def _first_rows(frame: pl.DataFrame, question: Question) -> pl.DataFrame:
    rows = _number(question, "rows", _ROWS)
    return frame if rows < 0 else frame.head(rows)


def _busy(trace: Trace) -> Iterator[pl.DataFrame]:
    """Disjoint intervals in which a GPU works for a process, in order; a frame for each of both."""
    spans = trace.spans.select("category", "pid", "start_ns", "dur_ns")
    # The recorder holds a process up: that is no idleness of its GPUs.
    overhead = spans.filter((pl.col("category") == "profiler_overhead") & (pl.col("dur_ns") >= 0))
    work = trace.gpu_ops.select(*_PLACE, "start_ns", "dur_ns")
    del trace, spans
    # Each column by itself has few values, and finding them needs no index of all rows.
    pids, devices = (work[name].unique().sort() for name in _GPU)
    for pid, device in itertools.product(pids, devices):
        same = [pl.col("pid").eq_missing(pid), pl.col("device").eq_missing(device)]
        is_here = work.select(pl.all_horizontal(*same, pl.col("dur_ns") >= 0)).to_series()
        if not is_here.any():
            continue
        held = overhead.filter(pl.col("pid").eq_missing(pid))
        first = work[int(is_here.arg_max() or 0)]
        times = work.select("start_ns", "dur_ns").filter(is_here)
        merged = union_of(pl.concat([times, held.select(times.columns)]) if held.height else times)
        del times
        yield merged.with_columns(**{name: pl.lit(first[name][0], work.schema[name]) for name in _PLACE})


def union_of(times: pl.DataFrame) -> pl.DataFrame:
    """Returns the intervals of ``times``, with overlapping or adjacent ones merged."""
    times = times if times["start_ns"].is_sorted() else times.sort("start_ns")
    start, reach = times["start_ns"], (times["start_ns"] + times["dur_ns"]).cum_max()
    del times
    begins = (start > reach.shift(1)).fill_null(value=True)
    # An interval ends where the next begins, or with the last.
    ends = begins.shift(-1, fill_value=True)
    return pl.DataFrame({"start_ns": start.filter(begins), "end_ns": reach.filter(ends)})


_GPU = ["pid", "device"]


def _gaps(trace: Trace, question: Question) -> pl.DataFrame:
    least_ns = _number(question, "gap", _GAP_MS) * 1_000_000
    before = pl.col("end_ns").shift(1)
    gap = pl.col("start_ns") - before
    parts = [
        busy.select(*_PLACE, start_ns=before, dur_ns=gap).filter(pl.col("dur_ns") > least_ns)
        for busy in _busy(trace)
    ]
    gaps = pl.concat([_no_spans(), *parts])
    gaps = gaps.sort("dur_ns", "start_ns", descending=[True, False])
    return _first_rows(gaps.with_row_index("number", offset=1), question)


def _no_spans() -> pl.DataFrame:
    place = {"pid": pl.Int64, "device": pl.Int32, "context": pl.Int32}
    return pl.DataFrame(schema={**place, "start_ns": pl.Int64, "dur_ns": pl.Int64})


def _utilisation(trace: Trace, question: Question) -> pl.DataFrame:
    threshold, chunks = _number(question, "threshold", _THRESHOLD_PCT), _number(question, "chunks", _CHUNKS)
    if chunks < 1:
        raise InvalidArgumentError("chunks must be at least 1")
    found = [_low_spans(part, chunks=chunks, threshold=threshold) for part in _busy(trace)]
    nothing = _no_spans().with_columns(busy_pct=pl.lit(None, pl.Float64))
    table = pl.concat([nothing, *found]).sort("busy_pct", "start_ns", descending=[True, False])
    return _first_rows(table.with_row_index("number", offset=1), question)


def _low_spans(busy: pl.DataFrame, *, chunks: int, threshold: int) -> pl.DataFrame:
    """Stretches of equal parts of a GPU's time in which it is busy for less than ``threshold`` percent."""
    first, last = busy["start_ns"][0], busy["end_ns"].max()
    size = max((last - first) // chunks, 1)
    bounds = pl.DataFrame({"from": [first + size * k for k in range(chunks)]}).with_columns(
        to=pl.when(pl.int_range(pl.len()) == chunks - 1).then(last).otherwise(pl.col("from") + size)
    )
    inside = bounds.join_where(
        busy.select("start_ns", "end_ns"),
        pl.col("start_ns") < pl.col("to"),
        pl.col("end_ns") > pl.col("from"),
    )
    covered = pl.min_horizontal("end_ns", "to") - pl.max_horizontal("start_ns", "from")
    per_chunk = inside.group_by("from").agg(covered.sum().alias("busy_ns"))
    low = (
        bounds.join(per_chunk, on="from", how="left")
        .with_columns(pl.col("busy_ns").fill_null(0))
        .sort("from")
    )
    length = pl.col("to") - pl.col("from")
    is_low = 100 * pl.col("busy_ns") < threshold * length
    low = low.with_columns(is_low=is_low, group=(is_low != is_low.shift(1)).fill_null(value=True).cum_sum())
    stretches = (
        low.filter("is_low")
        .group_by("group")
        .agg(
            pl.col("from").min().alias("start_ns"),
            (pl.col("to").max() - pl.col("from").min()).alias("dur_ns"),
            pl.col("busy_ns").sum(),
        )
    )
    place = {name: pl.lit(busy[name][0], busy.schema[name]) for name in _PLACE}
    return stretches.select(
        **place, start_ns="start_ns", dur_ns="dur_ns", busy_pct=100.0 * pl.col("busy_ns") / pl.col("dur_ns")
    )


_COPY = (
    "dur_ns", "start_ns", "source_memory", "destination_memory", "bytes", "pid", "device", "context",
    "green_context", "stream",
)  # fmt: skip


def _with_calls(trace: Trace, kind: str) -> pl.DataFrame:
    """Copies or memsets with the call that launched each, of its own process, as ``api``."""
    work = trace.gpu_ops.select(*_COPY, "copy_kind", "kind", "launch_row").filter(pl.col("kind") == kind)
    calls = trace.launches.select(launch_row="row", api=versioned_name(trace.launches))
    return work.join(calls, on="launch_row", how="inner", maintain_order="left")


_IS_ASYNC = pl.col("api").str.contains("Async", literal=True)


def _longest(frame: pl.DataFrame, question: Question) -> pl.DataFrame:
    return _first_rows(frame.sort("dur_ns", descending=True, maintain_order=True), question)


def _pageable_copies(trace: Trace, question: Question) -> pl.DataFrame:
    """Copies that were asked to be asynchronous and are not: one side is pageable."""
    pageable = (pl.col("source_memory") == "Pageable") | (pl.col("destination_memory") == "Pageable")
    return _longest(_with_calls(trace, "memcpy").filter(pageable & _IS_ASYNC), question)


def _synchronous_copies(trace: Trace, question: Question) -> pl.DataFrame:
    """Copies that block the host, without those that are too small to matter or stay on the device."""
    small = (pl.col("copy_kind") == "Host-to-Device") & (pl.col("bytes") <= _SMALL_COPY_BYTES)
    local = pl.col("copy_kind") == "Device-to-Device"
    return _longest(_with_calls(trace, "memcpy").filter(~small & ~local & ~_IS_ASYNC), question)


def _synchronous_memsets(trace: Trace, question: Question) -> pl.DataFrame:
    return _longest(_with_calls(trace, "memset").filter(~_IS_ASYNC), question)


def _blocking_calls(trace: Trace, question: Question) -> pl.DataFrame:
    """API calls that wait for the GPU."""
    calls = trace.launches.select("dur_ns", "start_ns", "pid", "tid", "name", "api_version")
    names = calls["name"].unique().cast(pl.String)
    waiting = names.filter(names.str.contains("Synchronize", literal=True))
    calls = calls.filter(pl.col("name").is_in(waiting.cast(pl.Categorical).implode()))
    return _longest(calls.with_columns(api=versioned_name(calls)), question)


_COPY_FIELDS = parse_fields(
    "Duration (ns): dur_ns, Start (ns): start_ns, Src Kind: source_memory, Dst Kind: destination_memory",
    "Bytes (MB): bytes, PID: pid, Device ID: device, Context ID: context, Green Context ID: green_context",
    "Stream ID: stream, API Name: api",
)
_IDLE = "Duration (ns): dur_ns, Start (ns): start_ns, PID: pid, Device ID: device, Context ID: context"
_BUSY = {"gpu_ops": (*_PLACE, "start_ns", "dur_ns"), "spans": ("category", "start_ns", "dur_ns")}
_COPIES = {"gpu_ops": (*_COPY, "kind", "copy_kind", "launch_row"), "launches": ("name", "api_version")}

_idle_rule = partial(Report, sources=(KERNEL, *MEMORY, GRAPH), tables=_BUSY, linked=False)
_copy_rule = partial(Report, tables=_COPIES, only_launching=True, arguments=("rows",))

REPORTS = (
    _idle_rule(
        name="gpu_gaps",
        doc="Times when a GPU is idle, of at least gap=MS",
        fields=parse_fields("Row#: number", _IDLE),
        build=_gaps,
        arguments=("gap", "rows"),
    ),
    _idle_rule(
        name="gpu_time_util",
        doc="GPU busy for less than threshold=PERCENT; chunks=N",
        fields=parse_fields("Row#: number, In-Use (%): busy_pct", _IDLE),
        build=_utilisation,
        arguments=("threshold", "chunks", "rows"),
    ),
    _copy_rule(
        name="cuda_memcpy_async",
        doc="Asynchronous copies with pageable memory, which block",
        fields=_COPY_FIELDS,
        build=_pageable_copies,
        sources=MEMORY[:1],
        kinds=("memcpy",),
    ),
    _copy_rule(
        name="cuda_memcpy_sync",
        doc="Copies that block the host",
        fields=_COPY_FIELDS,
        build=_synchronous_copies,
        sources=MEMORY[:1],
        kinds=("memcpy",),
    ),
    _copy_rule(
        name="cuda_memset_sync",
        doc="Memsets that block the host",
        fields=(*_COPY_FIELDS[:2], *parse_fields("Mem Kind: destination_memory"), *_COPY_FIELDS[4:]),
        build=_synchronous_memsets,
        sources=MEMORY[1:],
        kinds=("memset",),
    ),
    Report(
        name="cuda_api_sync",
        doc="API calls that wait for the GPU",
        fields=parse_fields("Duration (ns): dur_ns, Start (ns): start_ns, PID: pid, TID: tid, API Name: api"),
        build=_blocking_calls,
        sources=(RUNTIME,),
        tables={"launches": ("name", "api_version", "start_ns", "dur_ns")},
        arguments=("rows",),
    ),
)
