"""Activity of GPUs that samples show and that no recorded work explains."""

import polars as pl

from kernelscope.analysis.gpu.metric_pieces import MetricSeries, all_series
from kernelscope.analysis.intervals import merged
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_ACTIVE = ("SMs Active", "SM Active")
"""How the names of the metric begin; other shares are above 0 on a GPU that does nothing."""
_LEAST_SHARE = 0.1


@per_trace
def unrecorded_activity(trace: Trace) -> pl.DataFrame:
    """The GPUs whose multiprocessors were active, as sampled, at times at which no recorded work ran on them.

    Work of another process, or of calls that the recorder does not know, is sampled and not recorded. Only
    samples count in whose interval, and for a usual one before and behind it, no recorded work runs: the
    clocks of samples and of work differ by a part of one. GPUs without any recorded work, and
    those with less than a tenth of the time of their recorded work, are left out.

    Columns: ``device``; ``metric``; ``active_ns`` (each sample's share of the time for which it holds);
        ``recorded_ns`` (in which recorded work runs).
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
