"""Lead of the host over the GPU: calls that wait in each stream's queue."""

import polars as pl

from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.trace import Trace

QUEUE_LIMIT = 1024
"""Number of calls that a CUDA stream accepts before the next one blocks."""

_STREAM = ["device", "stream"]


def queue_length(trace: Trace) -> pl.DataFrame:
    """Number of waiting calls in the queue of each stream, at every change.

    A call enters the queue when it starts and leaves it when its first operation on the stream starts. A
    graph with many nodes counts as one call.

    Columns: ``device``, ``stream``, ``at_ns``, ``queue_length`` (from then on), ``row`` (of the call in
        ``launches``, or of the operation in ``gpu_ops``).
    Units: ns on the trace's clock.
    Order: by device and stream, then time; at one instant calls enter before others leave.
    """
    work = GpuWork(trace)
    changes = work.queues
    works = trace.gpu_ops.select(*_STREAM, "row", "launch_row", "start_ns")
    works = works.with_columns(launched=trace.launches["start_ns"].gather(work.calls))[changes["at"]]
    enters = pl.when(changes["enters"])
    return works.select(
        *_STREAM,
        at_ns=enters.then("launched").otherwise("start_ns"),
        queue_length=changes["length"].cast(pl.Int64),
        row=enters.then("launch_row").otherwise("row"),
    )


def queue_summary(trace: Trace) -> pl.DataFrame:
    """Statistics of the queue of each stream.

    Columns: ``device``, ``stream``, ``changes``, ``mean`` (over time), ``p50`` and ``p90`` (over the
        changes), ``max``, ``empty_share`` (of the time between the first and the last change).
    """
    length, lasts = pl.col("length"), pl.col("lasts_ns")
    span = lasts.sum()
    return _by_stream(
        trace,
        pl.len().cast(pl.Int64).alias("changes"),
        pl.when(span > 0).then((length * lasts).sum() / span).alias("mean"),
        length.quantile(0.5, "linear").alias("p50"),
        length.quantile(0.9, "linear").alias("p90"),
        length.max().cast(pl.Int64).alias("max"),
        pl.when(span > 0).then(lasts.filter(length == 0).sum() / span).alias("empty_share"),
    )


def queue_blocked(trace: Trace, *, limit: int = QUEUE_LIMIT) -> pl.DataFrame:
    """Time for which the queue of each stream was full, so that the host had to wait.

    Columns: ``device``, ``stream``, ``blocked_ns`` (``limit`` calls or more wait), ``share`` (of the time
        from the first to the last event of the trace). Streams that were never full are left out.
    Units: ns; shares between 0 and 1.
    """
    extent = trace.extent()
    whole = 0 if extent is None else extent[1] - extent[0]
    is_full = pl.col("length") >= limit
    blocked = pl.col("lasts_ns").filter(is_full).sum()
    full = _by_stream(trace, blocked.alias("blocked_ns"), is_full.any().alias("is_full"))
    share = pl.col("blocked_ns") / whole if whole else pl.lit(None, pl.Float64)
    return full.filter("is_full").drop("is_full").with_columns(share=share)


def _by_stream(trace: Trace, *figures: pl.Expr) -> pl.DataFrame:
    """Figures of the changes of each queue, behind the device and number of its stream."""
    work = GpuWork(trace)
    changes = work.queues
    group = pl.lit(0) if work.streams is None else work.streams.gather(changes["at"])
    found = (
        changes.with_columns(group=group).group_by("group").agg(pl.col("at").first(), *figures).sort("group")
    )
    return trace.gpu_ops.select(_STREAM)[found["at"]].hstack(found.drop("at", "group"))
