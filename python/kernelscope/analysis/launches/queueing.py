"""How far the host is ahead of the GPU: calls that wait in each stream's queue."""

import polars as pl

from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.trace import Trace

QUEUE_LIMIT = 1024
"""Calls that a stream of CUDA takes before the next one waits."""

_STREAM = ["device", "stream"]


def queue_length(trace: Trace) -> pl.DataFrame:
    """How many calls wait in the queue of each stream, at every change.

    A call enters the queue when it starts and leaves it when the first work that it started on the stream
    begins: a graph, whose nodes are many, waits as one.

    Columns: ``device``, ``stream``, ``at_ns``, ``queue_length`` (from then on), ``row`` (of the call in
        ``launches``, or of the work in ``gpu_ops``).
    Units: ns on the trace's clock.
    Order: by device and stream, then time; at one instant calls enter before others leave.
    """
    changes = _changes(trace)
    works = trace.gpu_ops.select(*_STREAM, "row", "launch_row")[changes["at"]]
    rows = pl.when(changes["change"] > 0).then("launch_row").otherwise("row")
    length = changes["queue_length"].cast(pl.Int64)
    return works.select(*_STREAM, changes["at_ns"], length, row=rows)


def _changes(trace: Trace) -> pl.DataFrame:
    """The changes of :func:`queue_length` in its order, by the number of the stream.

    Columns: ``at`` (of the work in ``gpu_ops``), ``group`` (of the stream), ``at_ns``, ``change`` (1 or -1),
        ``queue_length``.
    """
    # One order after the other takes half of the time of both at once.
    changes = _unordered(trace).sort("at_ns", maintain_order=True).sort("group", maintain_order=True)
    # What enters a queue leaves it, so that every stream begins at 0.
    return changes.with_columns(queue_length=pl.col("change").cast(pl.Int32).cum_sum())


def _unordered(trace: Trace) -> pl.DataFrame:
    """When calls enter the queue of each stream, and then when they leave it."""
    work, starts = GpuWork(trace), trace.gpu_ops["start_ns"]
    at = trace.gpu_ops.select(at=pl.arg_sort_by("start_ns", maintain_order=True)).to_series()
    # Stream and call as one number take a third of the memory that two take.
    key = work.calls.gather(at)
    if work.streams is not None:
        key += work.streams.gather(at).cast(pl.UInt64) * trace.launches.height
    at = at.filter(key.is_not_null() & key.is_first_distinct())
    group = pl.repeat(0, at.len(), dtype=pl.UInt32) if work.streams is None else work.streams.gather(at)
    left = pl.select(at, group=group, at_ns=starts.gather(at), change=pl.lit(-1, pl.Int8))
    launched = trace.launches["start_ns"].gather(work.calls.gather(at))
    return pl.concat([left.with_columns(at_ns=launched, change=pl.lit(1, pl.Int8)), left])


def queue_summary(trace: Trace) -> pl.DataFrame:
    """What the queue of each stream was like.

    Columns: ``device``, ``stream``, ``changes``, ``mean`` (over time), ``p50`` and ``p90`` (over the
        changes), ``max``, ``empty_share`` (of the time between the first and the last change).
    """
    length, lasts = pl.col("queue_length"), pl.col("lasts_ns")
    span = lasts.sum()
    found = (
        _lengths(trace)
        .group_by("group")
        .agg(
            pl.col("at").first(),
            pl.len().cast(pl.Int64).alias("changes"),
            pl.when(span > 0).then((length * lasts).sum() / span).alias("mean"),
            length.quantile(0.5, "linear").alias("p50"),
            length.quantile(0.9, "linear").alias("p90"),
            length.max().cast(pl.Int64).alias("max"),
            pl.when(span > 0).then(lasts.filter(length == 0).sum() / span).alias("empty_share"),
        )
        .sort("group")
    )
    return _with_streams(trace, found)


def queue_blocked(trace: Trace, *, limit: int = QUEUE_LIMIT) -> pl.DataFrame:
    """How long the queue of each stream was full, so that the host had to wait.

    Columns: ``device``, ``stream``, ``blocked_ns`` (``limit`` calls or more wait), ``share`` (of the time
        from the first to the last event of the trace). Streams that were never full are left out.
    Units: ns; shares between 0 and 1.
    """
    extent = trace.extent()
    whole = 0 if extent is None else extent[1] - extent[0]
    full = _lengths(trace).filter(pl.col("queue_length") >= limit)
    found = (
        full.group_by("group").agg(pl.col("at").first(), blocked_ns=pl.col("lasts_ns").sum()).sort("group")
    )
    share = pl.col("blocked_ns") / whole if whole else pl.lit(None, pl.Float64)
    return _with_streams(trace, found).with_columns(share=share)


def _lengths(trace: Trace) -> pl.DataFrame:
    """The lengths of :func:`_changes` with how long each lasts: ``lasts_ns``, 0 after the last change."""
    is_last = pl.col("group") != pl.col("group").shift(-1)
    lasts = pl.when(~is_last).then(pl.col("at_ns").shift(-1) - pl.col("at_ns"))
    return _changes(trace).select("at", "group", "queue_length", lasts_ns=lasts.fill_null(0))


def _with_streams(trace: Trace, found: pl.DataFrame) -> pl.DataFrame:
    """What was found of each stream behind its device and number."""
    streams = trace.gpu_ops.select(_STREAM)[found["at"]]
    return streams.hstack(found.drop("at", "group"))
