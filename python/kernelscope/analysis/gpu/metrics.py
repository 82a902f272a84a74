"""Sampled GPU metrics by GPU, kernel, operator, range and step."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import polars as pl

from kernelscope.analysis.gpu.metric_pieces import KEYS, MetricSeries, all_series, series_schema
from kernelscope.analysis.gpu.metric_times import PLACES, times_of
from kernelscope.analysis.grouping import as_text
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

_FIGURES = {"mean_value": pl.Float64, "peak_value": pl.Float64, "samples": pl.Int64, "covered_ns": pl.Int64}


def gpu_metrics(trace: Trace, *, metrics: Sequence[str] | None = None) -> pl.DataFrame:
    """Statistics of the samples of each metric of each GPU.

    A sample is valid until the next one of its metric and GPU, for at most two usual intervals, and the last
    sample for one. The usual interval is the median between two samples. Longer intervals are pauses of the
    profiler without data. Samples without a value are valid for as long but carry no data.

    ``metrics`` selects metrics by the prefix of their names (default: all).

    Columns: ``device``, ``metric`` (the name as recorded), ``unit`` (null if the name has none),
        ``mean_value`` (weighted by time; for a single sample, its value), ``min_value`` and ``peak_value``
        (minimum and maximum), ``samples``, ``covered_ns`` (time with valid samples), ``interval_ns`` (the
        usual interval; null for a single sample), ``start_ns`` and ``end_ns`` (of the first and the last
        sample).
    Units: values in ``unit``; ns. Order: by device, then metric.
    Source: NVIDIA Nsight Systems User Guide, GPU metrics.
    Example: ``gpu_metrics(trace, metrics=["SMs Active", "Tensor Active"])``
    """
    rows = [_of_whole(series) for series in all_series(trace, metrics)]
    figures = {
        "mean_value": pl.Float64,
        "min_value": pl.Float64,
        "peak_value": pl.Float64,
        "samples": pl.Int64,
    }
    times = dict.fromkeys(("covered_ns", "interval_ns", "start_ns", "end_ns"), pl.Int64)
    return pl.DataFrame(rows, schema={**series_schema(), **figures, **times}, orient="row")


def _of_whole(series: MetricSeries) -> tuple[object, ...]:
    held = series.ends - series.starts
    covered = int(held.sum())
    mean = (series.values * held).sum() / covered if covered else series.values.mean()
    bounds = (series.values.min(), series.values.max(), series.values.len())
    return (*series.key, mean, *bounds, covered, series.interval_ns, series.starts.min(), series.starts.max())


def gpu_metric_table(
    trace: Trace, by: str = "kernel", *, metrics: Sequence[str] | None = None
) -> pl.DataFrame:
    """Statistics of metric samples during the time in which something ran on each GPU.

    ``by`` is ``kernel``, ``op``, ``range``, ``host_range`` or ``step``. A kernel has the time in which
    kernels of its name run. An operator has the time in which operations run that it or an operator inside it
    launched. A range has, for each call and GPU, the time from the first start to the last end of the
    operations launched in it. A host range has the time from its own start to its end, and a step its wall
    time, for each sampled GPU. Overlaps count once. A sample describes the whole GPU in its interval. So
    short or concurrent operations include the effect of others, and the operations of a range may run after
    its end on the host.

    See :func:`gpu_metrics` for ``metrics`` and the validity of samples.

    Columns: ``name``, preceded by ``domain`` for ranges and ``step`` for steps; ``device``, ``metric``,
        ``unit``; ``mean_value`` (weighted by the validity of each sample) and ``peak_value`` (maximum of the
        valid samples), both null without samples; ``samples`` taken during that time; ``covered_ns``, the
        part of ``time_ns`` with valid samples; ``time_ns``.
    Units: values in ``unit``; ns. Order: by longest time (steps: by number), then name, device and metric.
    Raises: InvalidArgumentError: ``by`` has another value.
    Source: ``gpu_metric_util_sum`` of ``nsys recipe``, which omits rows without samples.
    Example: ``gpu_metric_table(trace, by="step", metrics=["SMs Active"])``
    """
    if by not in PLACES:
        raise InvalidArgumentError(f"by={by!r} is not one of {', '.join(PLACES)}")
    series = all_series(trace, metrics)
    places = dict(PLACES[by])
    devices = list(dict.fromkeys(one.key[0] for one in series))
    groups, times = times_of(trace, by, devices)
    tables = [pl.DataFrame(schema={"group": pl.UInt32, **series_schema(), **_FIGURES})]
    for own, pieces in _with_pieces(series, times):
        tables.append(_figures(own, pieces))
    lengths = times.group_by("group", "device").agg(time_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    table = pl.concat(tables).join(lengths, on=["group", "device"])
    table = as_text(table.hstack(groups[table["group"]]))
    order = ["step"] if by == "step" else ["time_ns"]
    names = [*places, *KEYS]
    flags = [by != "step", *(False for _ in names)]
    table = table.sort([*order, *names], descending=flags, nulls_last=True)
    return table.select(*places, *KEYS, *_FIGURES, "time_ns")


def gpu_metric_timeline(
    trace: Trace,
    *,
    parts: int = 100,
    metrics: Sequence[str] | None = None,
    window: tuple[int, int] | None = None,
) -> pl.DataFrame:
    """Curve of each metric and GPU over equal parts of the time from the first to the last sample.

    ``window`` is another time to divide: its start and end, ns. See :func:`gpu_metrics` for ``metrics`` and
    the validity of samples.

    Columns: ``device``, ``metric``, ``unit``; ``bin``, ``start_ns`` and ``dur_ns`` of the part;
        ``mean_value`` (weighted by time) and ``peak_value`` of its valid samples, null without any;
        ``samples`` taken in it; ``covered_ns``.
    Units: values in ``unit``; ns. Order: by device, metric and time.
    Raises: InvalidArgumentError: ``parts`` is below 1, or ``window`` ends before it starts.
    """
    if parts < 1:
        raise InvalidArgumentError(f"parts must be at least 1, not {parts}")
    if window is not None and window[0] >= window[1]:
        raise InvalidArgumentError(f"window must end after it starts, not {window}")
    series = all_series(trace, metrics)
    bins = {"group": pl.UInt32, "bin": pl.Int64, "start_ns": pl.Int64, "dur_ns": pl.Int64}
    schema = {**series_schema(), "bin": pl.Int64, "start_ns": pl.Int64, "dur_ns": pl.Int64, **_FIGURES}
    if not series:
        return pl.DataFrame(schema=schema)
    first = min(_whole(one.starts.min()) for one in series)
    last = max(max(_whole(one.ends.max()), _whole(one.starts.max()) + 1) for one in series)
    first, last = (first, last) if window is None else window
    edges = [first + (last - first) * at // parts for at in range(parts + 1)]
    rows = [(at, at, start, end - start) for at, (start, end) in enumerate(pairwise(edges))]
    stretches = pl.DataFrame(rows, schema=bins, orient="row").filter(pl.col("dur_ns") > 0)
    times = stretches.select("group", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    devices = pl.DataFrame(
        {"device": list(dict.fromkeys(one.key[0] for one in series))}, {"device": pl.Int32}
    )
    tables = [
        stretches.join(_figures(own, pieces, gated=False), on="group", maintain_order="left")
        for own, pieces in _with_pieces(series, devices.join(times, how="cross"))
    ]
    return as_text(pl.concat(tables)).select(list(schema))


def _whole(value: object) -> int:
    return int(value)  # pyright: ignore[reportArgumentType] - of integers


def _with_pieces(
    series: Sequence[MetricSeries], times: pl.DataFrame
) -> Iterator[tuple[MetricSeries, pl.DataFrame]]:
    """Each of ``series`` with its pieces in ``times``, found once for all that were sampled together."""
    known: MetricSeries | None = None
    pieces = pl.DataFrame()
    for one in series:
        if known is None or not one.is_sampled_with(known):
            pieces, known = one.pieces(times.filter(pl.col("device") == one.key[0])), one
        yield one, pieces


def _figures(series: MetricSeries, pieces: pl.DataFrame, *, gated: bool = True) -> pl.DataFrame:
    """Mean, peak, samples and covered time by group; where ``gated``, null for groups without a sample."""
    device, metric, unit = series.key
    sampled = pieces.select("group", "is_taken", "held_ns", value=series.values.gather(pieces["at"]))
    held = pl.col("held_ns").sum()
    weighted = (pl.col("value") * pl.col("held_ns")).sum()
    # A sample without a second has no interval to hold for.
    alone = pl.col("value").filter("is_taken").mean()
    is_known = (pl.col("is_taken").sum() > 0) if gated else pl.lit(value=True)
    return sampled.group_by("group", maintain_order=True).agg(
        device=pl.lit(device, pl.Int32),
        metric=pl.lit(metric, pl.String),
        unit=pl.lit(unit, pl.String),
        mean_value=pl.when(is_known).then(pl.when(held > 0).then(weighted / held).otherwise(alone)),
        peak_value=pl.when(is_known).then(
            pl.col("value").filter((pl.col("held_ns") > 0) | pl.col("is_taken")).max()
        ),
        samples=pl.col("is_taken").sum().cast(pl.Int64),
        covered_ns=held,
    )
