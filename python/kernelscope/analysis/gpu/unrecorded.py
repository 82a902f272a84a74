"""Sampled activity of GPUs that no recorded operation explains."""

import polars as pl

from kernelscope.analysis.gpu.metric_pieces import MetricSeries, all_series
from kernelscope.analysis.intervals import merged
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_ACTIVE = ("SMs Active", "SM Active")
"""Prefix of the metric's name. Other metrics are above 0 on an idle GPU."""
_LEAST_SHARE = 0.1


@per_trace
def unrecorded_activity(trace: Trace) -> pl.DataFrame:
    """Returns GPUs whose multiprocessors were active according to samples while no recorded operation ran.

    Operations of another process, or of calls that the profiler does not record, are sampled but not
    recorded. A sample counts only if no recorded operation runs in its interval, and for one usual interval
    before and after it, because the clocks of samples and operations differ by a fraction of an interval.
    GPUs without recorded operations, and those with less than a tenth of the time of their recorded
    operations, are left out.

    Columns: ``device``; ``metric``; ``active_ns`` (validity of each sample times its value); ``recorded_ns``
        (time of recorded operations).
    Units: ns.
    Order: by device.
    """
    end = pl.col("start_ns") + pl.col("dur_ns")
    work = trace.gpu_ops.select("device", "start_ns", end_ns=end).drop_nulls()
    parts = merged(work, by=["device"]).partition_by("device", as_dict=True)
    recorded = {key[0]: own for key, own in parts.items()}
    rows: dict[int, tuple[int, str, int, int]] = {}
    for series in all_series(trace, _ACTIVE):
        device, metric, unit = series.key
        own = recorded.get(device)
        # Before 2024 names had no unit, and nsys wrote shares only.
        is_share = unit == "%" or (unit is None and not metric.rstrip().endswith("]"))
        if own is None or device in rows or not is_share:
            continue
        active, busy = _active_alone(series, own), int((own["end_ns"] - own["start_ns"]).sum())
        if active > _LEAST_SHARE * busy:
            rows[device] = (device, metric, active, busy)
    schema = {"device": pl.Int32, "metric": pl.String, "active_ns": pl.Int64, "recorded_ns": pl.Int64}
    return pl.DataFrame(list(rows.values()), schema=schema, orient="row")


def _active_alone(series: MetricSeries, work: pl.DataFrame) -> int:
    """The activity, ns, of samples around which none of ``work`` runs, which is disjoint and in order."""
    margin = series.interval_ns or 0
    begun = work["start_ns"].search_sorted(series.ends + margin, side="left").cast(pl.Int64)
    over = work["end_ns"].search_sorted(series.starts - margin, side="right").cast(pl.Int64)
    active = (series.values * (series.ends - series.starts) / 100).filter(begun == over)
    return round(active.sum())
