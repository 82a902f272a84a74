"""Utilisation of each GPU over time."""

from typing import cast

import polars as pl

from kernelscope.analysis.intervals import merged
from kernelscope.analysis.kernels.occupancy import LAUNCH_COLUMNS, launch_metrics
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

_SESSION = "PyTorch Profiler (0)"
_MICROSECOND = 1_000


def gpu_timeline(trace: Trace, *, parts: int = 100) -> pl.DataFrame:
    """Utilisation of each GPU over the recording, in parts of equal length.

    The length of a part is a power of ten microseconds, the smallest that gives at most ``parts`` of them.
    The last part may be shorter. The recording is the profiler's own span if it wrote one, otherwise it spans
    all host and GPU activity.

    Columns: ``device`` (those that ran a kernel), ``start_ns``, ``dur_ns``, ``utilisation`` (share of it with
        a kernel running) and ``sm_efficiency`` (mean share of multiprocessors with a block; null if no launch
        of the GPU is known).
    Units: ns; shares between 0 and 1.
    Order: by device, then by time.
    Raises: InvalidArgumentError: ``parts`` is below 1.
    Source: the counters that the TensorBoard plugin adds to a trace.
    """
    if parts < 1:
        raise InvalidArgumentError(f"parts must be at least 1, not {parts}")
    edges = _edges(trace, parts)
    kernels = _kernels(trace)
    busy = merged(kernels, by=["device"])
    filled = sm_segments(trace)
    tables = [_empty()]
    for device in busy["device"].unique().sort().to_list():
        own = busy.filter(pl.col("device") == device).with_columns(share=pl.lit(1.0))
        full = filled.filter(pl.col("device") == device).with_columns(share="sm_efficiency")
        length = edges.diff().drop_nulls()
        table = pl.DataFrame({"start_ns": edges[:-1], "dur_ns": length}).with_columns(
            pl.lit(device, pl.Int32).alias("device"),
            utilisation=_integral(own, edges) / length,
            sm_efficiency=_integral(full, edges) / length if full.height else pl.lit(None, pl.Float64),
        )
        tables.append(table.select(_empty().columns))
    return pl.concat(tables)


def sm_segments(trace: Trace) -> pl.DataFrame:
    """Returns the share of multiprocessors with a block, from each change to the next.

    Columns: ``device``, ``start_ns``, ``end_ns``, ``sm_efficiency``. Simultaneous events are one change.
    Units: ns; shares between 0 and 1.
    Formula: min(1, sum of blocks per SM over running kernels).
    """
    sized = launch_metrics(_kernels(trace), trace.devices).filter(pl.col("blocks_per_sm") > 0)
    starts = sized.select("device", time="start_ns", change="blocks_per_sm", number=pl.lit(1))
    ends = sized.select("device", time="end_ns", change=-pl.col("blocks_per_sm"), number=pl.lit(-1))
    moments = (
        pl.concat([starts, ends])
        .group_by("device", "time")
        .agg(pl.col("change").sum(), pl.col("number").sum())
        .sort("device", "time")
        .with_columns(
            running=pl.col("number").cum_sum().over("device"),
            blocks=pl.col("change").cum_sum().over("device"),
            end_ns=pl.col("time").shift(-1).over("device"),
        )
    )
    # Sums of floats do not come back to 0 by themselves.
    return (
        moments.filter((pl.col("running") > 0) & pl.col("end_ns").is_not_null())
        .select("device", "end_ns", start_ns="time", sm_efficiency=pl.col("blocks").clip(0.0, 1.0))
        .select("device", "start_ns", "end_ns", "sm_efficiency")
    )


def _empty() -> pl.DataFrame:
    schema = {"device": pl.Int32, "start_ns": pl.Int64, "dur_ns": pl.Int64}
    return pl.DataFrame(schema={**schema, "utilisation": pl.Float64, "sm_efficiency": pl.Float64})


def _kernels(trace: Trace) -> pl.DataFrame:
    kernels = trace.gpu_ops.filter((pl.col("kind") == "kernel") & pl.col("device").is_not_null())
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0).clip(lower_bound=0)
    return kernels.select("device", "start_ns", *LAUNCH_COLUMNS, end_ns=end)


def _edges(trace: Trace, parts: int) -> pl.Series:
    """Where the stretches begin, and where the last one ends."""
    session = trace.spans.filter(pl.col("name").cast(pl.String) == _SESSION)
    if session.height and session["dur_ns"][0]:
        start = cast(int, session["start_ns"][0])
        end = start + cast(int, session["dur_ns"][0])
    else:
        start, end = trace.extent() or (0, 0)
    if end <= start:
        return pl.Series([start], dtype=pl.Int64)
    length = _MICROSECOND
    while (end - start) // length > parts or (end - start) > length * parts:
        length *= 10
    count = max((end - start) // length, 1)
    return pl.Series([start + length * place for place in range(count)] + [end], dtype=pl.Int64)


def _integral(segments: pl.DataFrame, edges: pl.Series) -> pl.Series:
    """The time between the edges, weighted by the share that applies: segments do not overlap."""
    ordered = segments.sort("start_ns")
    weighted = (ordered["end_ns"] - ordered["start_ns"]) * ordered["share"]
    done = pl.concat([pl.Series([0.0]), weighted.cum_sum()])
    # The segment that an edge lies in, or the one before it.
    at = ordered["start_ns"].search_sorted(edges, side="right").cast(pl.Int64) - 1
    inside = at.clip(0)
    reached = pl.select(
        pl.min_horizontal(edges, ordered["end_ns"].gather(inside)) - ordered["start_ns"].gather(inside)
    ).to_series()
    until = pl.select(
        pl.when(at < 0).then(0.0).otherwise(done.gather(inside) + reached * ordered["share"].gather(inside))
    ).to_series()
    return until.diff().drop_nulls()
