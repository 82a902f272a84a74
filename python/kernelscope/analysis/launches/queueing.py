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
    work = GpuWork(trace)
    streams = pl.lit(0, pl.UInt32) if work.streams is None else work.streams
    works = trace.gpu_ops.select(
        *_STREAM, "row", "launch_row", at_ns="start_ns", launch=work.calls, group=streams, change=pl.lit(-1)
    )
    first = works.filter(pl.col("launch").is_not_null()).sort("at_ns", maintain_order=True)
    first = first.unique(["group", "launch"], keep="first", maintain_order=True)
    launched = trace.launches["start_ns"].gather(first["launch"])
    calls = first.with_columns(at_ns=launched, row="launch_row", change=pl.lit(1))
    # One order after the other takes half of the time of both at once.
    changes = pl.concat([calls, first]).sort("at_ns", maintain_order=True).sort("group", maintain_order=True)
    length = pl.col("change").cast(pl.Int64).cum_sum().over("group")
    return changes.select(*_STREAM, "at_ns", queue_length=length, row="row")


def queue_summary(trace: Trace) -> pl.DataFrame:
    """What the queue of each stream was like.

    Columns: ``device``, ``stream``, ``changes``, ``mean`` (over time), ``p50`` and ``p90`` (over the
        changes), ``max``, ``empty_share`` (of the time between the first and the last change).
    """
    length, lasts = pl.col("queue_length"), pl.col("lasts_ns")
    span = lasts.sum()
    return (
        _lengths(trace)
        .group_by(_STREAM)
        .agg(
            pl.len().cast(pl.Int64).alias("changes"),
            pl.when(span > 0).then((length * lasts).sum() / span).alias("mean"),
            length.quantile(0.5, "linear").alias("p50"),
            length.quantile(0.9, "linear").alias("p90"),
            length.max().alias("max"),
            pl.when(span > 0).then(lasts.filter(length == 0).sum() / span).alias("empty_share"),
        )
        .sort(_STREAM)
    )


def queue_blocked(trace: Trace, *, limit: int = QUEUE_LIMIT) -> pl.DataFrame:
    """How long the queue of each stream was full, so that the host had to wait.

    Columns: ``device``, ``stream``, ``blocked_ns`` (``limit`` calls or more wait), ``share`` (of the time
        from the first to the last event of the trace). Streams that were never full are left out.
    Units: ns; shares between 0 and 1.
    """
    extent = trace.extent()
    whole = 0 if extent is None else extent[1] - extent[0]
    return (
        _lengths(trace)
        .filter(pl.col("queue_length") >= limit)
        .group_by(_STREAM)
        .agg(blocked_ns=pl.col("lasts_ns").sum())
        .with_columns(share=pl.col("blocked_ns") / whole if whole else pl.lit(None, pl.Float64))
        .sort(_STREAM)
    )


def _lengths(trace: Trace) -> pl.DataFrame:
    """The lengths of :func:`queue_length` with how long each lasts: ``lasts_ns``, 0 after the last change."""
    lasts = pl.col("at_ns").shift(-1).over(_STREAM) - pl.col("at_ns")
    return queue_length(trace).with_columns(lasts_ns=lasts.fill_null(0))
