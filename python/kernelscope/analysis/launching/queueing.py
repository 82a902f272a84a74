"""How far the host is ahead of the GPU: calls that wait in each stream's queue."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.hta.answers import described, hta_queue_length
from kernelscope.analysis.hta.events import check_compat

if TYPE_CHECKING:
    from kernelscope.trace import Trace

QUEUE_LIMIT = 1024
"""Calls that a stream of CUDA takes before the next one waits."""

_STREAM = ["device", "stream"]


def queue_length(trace: "Trace", *, compat: str | None = None) -> pl.DataFrame:
    """How many calls wait in the queue of each stream, at every change.

    A call enters the queue when it starts and leaves it when the first work that it started on the stream
    begins: a graph, whose nodes are many, waits as one.

    Columns: ``device``, ``stream``, ``at_ns``, ``queue_length`` (from then on), ``row`` (of the call in
        ``launches``, or of the work in ``gpu_ops``).
    Units: ns on the trace's clock.
    Order: by device and stream, then time; at one instant calls enter before others leave.
    ``compat="hta"``, ``"hta-unrounded"``: ``get_queue_length_time_series`` of HolisticTraceAnalysis; it knows
        twelve calls and no graphs.
    Raises: InvalidArgumentError: there is no such ``compat``.
    """
    mode = check_compat(compat)
    if mode is not None:
        return hta_queue_length(trace, mode)
    work = trace.gpu_ops.select("row", "launch_row", *_STREAM, "start_ns").drop_nulls("launch_row")
    first = work.sort("start_ns", "row").unique(["launch_row", *_STREAM], keep="first", maintain_order=True)
    calls = trace.launches.select(launch_row="row", called_ns="start_ns")
    pairs = first.join(calls, on="launch_row", how="inner")
    changes = pl.concat(
        [
            pairs.select(*_STREAM, at_ns="called_ns", row="launch_row", change=1),
            pairs.select(*_STREAM, at_ns="start_ns", row="row", change=-1),
        ]
    ).sort(*_STREAM, "at_ns", "change", "row", descending=[False, False, False, True, False])
    length = pl.col("change").cum_sum().over(_STREAM).cast(pl.Int64)
    return changes.select(*_STREAM, "at_ns", "row", queue_length=length).select(
        *_STREAM, "at_ns", "queue_length", "row"
    )


def queue_summary(trace: "Trace", *, compat: str | None = None) -> pl.DataFrame:
    """What the queue of each stream was like.

    Columns: ``device``, ``stream``, ``changes``, ``mean`` (over time), ``p50`` and ``p90`` (over the
        changes), ``max``, ``empty_share`` (of the time between the first and the last change).
    ``compat="hta"``, ``"hta-unrounded"``: ``get_queue_length_summary`` of HolisticTraceAnalysis: count, mean,
        std, min, quartiles and max over the changes, by stream.
    Raises: InvalidArgumentError: there is no such ``compat``.
    """
    mode = check_compat(compat)
    if mode is not None:
        return described(hta_queue_length(trace, mode), "queue_length", by=["stream"])
    series = queue_length(trace)
    lasts = (pl.col("at_ns").shift(-1).over(_STREAM) - pl.col("at_ns")).fill_null(0)
    length = pl.col("queue_length")
    span = pl.col("lasts").sum()
    return (
        series.with_columns(lasts=lasts)
        .group_by(_STREAM)
        .agg(
            pl.len().cast(pl.Int64).alias("changes"),
            pl.when(span > 0).then((length * pl.col("lasts")).sum() / span).alias("mean"),
            length.median().alias("p50"),
            length.quantile(0.9, interpolation="linear").alias("p90"),
            length.max().alias("max"),
            pl.when(span > 0).then(pl.col("lasts").filter(length == 0).sum() / span).alias("empty_share"),
        )
        .sort(_STREAM)
    )


def queue_blocked(trace: "Trace", *, limit: int = QUEUE_LIMIT) -> pl.DataFrame:
    """How long the queue of each stream was full, so that the host had to wait.

    Columns: ``device``, ``stream``, ``blocked_ns`` (``limit`` calls or more wait), ``share`` (of the time
        from the first to the last event of the trace). Streams that were never full are left out.
    Units: ns; shares between 0 and 1.
    """
    series = queue_length(trace)
    lasts = (pl.col("at_ns").shift(-1).over(_STREAM) - pl.col("at_ns")).fill_null(0)
    extent = trace.extent()
    whole = 0 if extent is None else extent[1] - extent[0]
    return (
        series.with_columns(blocked_ns=lasts)
        .filter(pl.col("queue_length") >= limit)
        .group_by(_STREAM)
        .agg(pl.col("blocked_ns").sum())
        .with_columns(share=pl.col("blocked_ns") / whole if whole else pl.lit(None, pl.Float64))
        .sort(_STREAM)
    )
