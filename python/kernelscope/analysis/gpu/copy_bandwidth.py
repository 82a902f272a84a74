"""Bandwidth of copies and memsets."""

import polars as pl

from kernelscope.analysis.grouping import as_text, by_name
from kernelscope.analysis.intervals import covered_ns
from kernelscope.trace import Trace

_KIND = ["device", "name"]


def memory_bandwidth(trace: Trace) -> pl.DataFrame:
    """Bandwidth of copies and memsets of each kind, at every change.

    Columns: ``device``, ``name`` (of the copies, such as ``Memcpy HtoD``, without the kind of memory in
        parentheses), ``at_ns``, ``bytes_per_s`` (from then on, of all running copies).
    Units: ns on the trace's clock; bytes per second.
    Formula: each copy has ``bytes / duration`` while it runs, or the recorded bandwidth if its bytes are
        unknown. A copy with no duration, or with neither value, is ignored.
    Order: by device and name, then time.
    """
    copies = _copies(trace).drop_nulls("rate").filter(pl.col("end_ns") > pl.col("start_ns"))
    changes = pl.concat(
        [
            copies.select(*_KIND, at_ns="start_ns", change="rate"),
            copies.select(*_KIND, at_ns="end_ns", change=-pl.col("rate")),
        ]
    )
    # What begins and ends at one instant is one change, and rates are whole, so that sums come back to 0.
    changes = as_text(changes.group_by(*_KIND, "at_ns").agg(pl.col("change").sum())).sort(*_KIND, "at_ns")
    return changes.select(*_KIND, "at_ns", bytes_per_s=pl.col("change").cum_sum().over(_KIND))


def memory_bandwidth_summary(trace: Trace) -> pl.DataFrame:
    """Size and bandwidth of copies and memsets of each kind.

    Columns: ``device``, ``name``, ``copies``, ``bytes`` (null if any of them is unknown), ``busy_ns`` (at
        least one of them runs), ``bytes_per_s`` (bytes over that time), ``bytes_per_s_p50`` and
        ``bytes_per_s_max`` (of single copies).
    Units: ns; bytes; bytes per second. Order: by time, longest first.
    """
    copies = _copies(trace)
    busy = covered_ns(copies, by=_KIND).rename({"covered_ns": "busy_ns"})
    table = copies.group_by(_KIND).agg(
        pl.len().cast(pl.Int64).alias("copies"),
        pl.when(pl.col("bytes").is_not_null().all()).then(pl.col("bytes").sum()).alias("bytes"),
        pl.col("rate").median().alias("bytes_per_s_p50"),
        pl.col("rate").max().cast(pl.Float64).alias("bytes_per_s_max"),
    )
    table = table.join(busy, on=_KIND, how="left", nulls_equal=True).with_columns(
        pl.col("busy_ns").fill_null(0)
    )
    rate = pl.when(pl.col("busy_ns") > 0).then(pl.col("bytes") * 1e9 / pl.col("busy_ns"))
    table = table.select(
        *_KIND, "copies", "bytes", "busy_ns", rate.alias("bytes_per_s"), "bytes_per_s_p50", "bytes_per_s_max"
    )
    return as_text(table).sort("busy_ns", *_KIND, descending=[True, False, False])


def _copies(trace: Trace) -> pl.DataFrame:
    """Copies and memsets: kind, bytes, times, and ``rate`` in whole bytes a second."""
    duration = pl.col("dur_ns")
    counted = pl.when(duration > 0).then(pl.col("bytes") * 1e9 / duration)
    recorded = pl.col("bandwidth_gb_per_s") * 1e9
    kind = pl.col("kind")
    columns = ("kind", "device", "name", "bytes", "start_ns", "dur_ns", "bandwidth_gb_per_s")
    copies = trace.gpu_ops.select(columns).filter((kind == "memcpy") | (kind == "memset"))
    copies = copies.select(
        "device",
        "name",
        "bytes",
        "start_ns",
        end_ns=pl.col("start_ns") + duration.fill_null(0),
        # A size that no memory has may give a rate that no whole number holds.
        rate=pl.coalesce(counted, recorded).round().cast(pl.Int64, strict=False),
    )
    short = pl.col("text").str.replace(r" ?\(.*$", "").cast(pl.Categorical)
    return by_name(copies, short=short).drop("name").rename({"short": "name"})
