"""Samples of GPU metrics: how long each is valid, and which are valid in given times."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from kernelscope.memo import per_trace
from kernelscope.trace import Trace

KEYS = ("device", "metric", "unit")
_MOST_INTERVALS = 2
"""Maximum validity of a sample, in usual intervals."""


def series_schema() -> dict[str, type[pl.DataType]]:
    """Columns that identify a metric of a GPU."""
    return {"device": pl.Int32, "metric": pl.String, "unit": pl.String}


class MetricSeries(NamedTuple):
    """Samples of one metric of one GPU that have a value, by time. ``key`` is device, metric and unit."""

    key: tuple[int, str, str | None]
    starts: pl.Series
    ends: pl.Series
    values: pl.Series
    interval_ns: int | None

    def is_sampled_with(self, other: "MetricSeries") -> bool:
        """Returns whether the samples of both are valid at the same times of one GPU."""
        is_same = self.key[0] == other.key[0] and self.starts.len() == other.starts.len()
        return is_same and self.starts.equals(other.starts) and self.ends.equals(other.ends)

    def pieces(self, times: pl.DataFrame) -> pl.DataFrame:
        """Returns the samples valid in each of ``times``; times without samples have one row.

        Columns: ``times`` needs ``group``, ``start_ns`` and ``end_ns``. The result has ``group``; ``at``, the
            position of the sample; ``is_taken``, whether it was taken in that time; ``held_ns``, the part of
            that time for which it is valid.
        """
        first = self.ends.search_sorted(times["start_ns"], side="right").cast(pl.Int64)
        # A sample that holds for no time ends before one that is taken at the same moment.
        taken = self.starts.search_sorted(times["start_ns"], side="left").cast(pl.Int64)
        last = self.starts.search_sorted(times["end_ns"], side="left").cast(pl.Int64)
        bounds = times.select("group", "start_ns", "end_ns").with_columns(
            first=pl.min_horizontal(first, taken), last=last
        )
        ranged = bounds.with_columns(at=pl.int_ranges("first", "last")).drop("first", "last")
        found = ranged.explode("at", empty_as_null=True)
        starts, ends = self.starts.gather(found["at"]), self.ends.gather(found["at"])
        held = pl.min_horizontal(ends, "end_ns") - pl.max_horizontal(starts, "start_ns")
        is_taken = (starts >= found["start_ns"]) & (starts < found["end_ns"])
        return found.select(
            "group",
            pl.col("at").cast(pl.UInt32),
            is_taken.fill_null(value=False).alias("is_taken"),
            held_ns=pl.when(pl.col("at").is_not_null()).then(held.clip(0)).otherwise(0),
        )


def all_series(trace: Trace, metrics: Sequence[str] | None = None) -> list[MetricSeries]:
    """Returns the samples of each metric of each GPU, by device and metric.

    ``metrics`` optionally selects metrics by prefix.
    """
    found = _every_series(trace)
    return found if metrics is None else [one for one in found if one.key[1].startswith(tuple(metrics))]


@per_trace
def _every_series(trace: Trace) -> list[MetricSeries]:
    samples = trace.counters.filter(pl.col("device").is_not_null())
    if samples.is_empty():
        return []
    # A sample of Kineto has no name beside that of the event.
    counter = pl.col("counter").cast(pl.String)
    named = samples.select("name", "counter").unique()
    named = named.with_columns(
        metric=pl.when(counter != "").then(counter).otherwise(pl.col("name").cast(pl.String)).fill_null("")
    )
    samples = samples.join(named, on=["name", "counter"], nulls_equal=True, maintain_order="left")
    parts = samples.select(
        "device", "metric", pl.col("unit").cast(pl.String), "start_ns", "row", "value"
    ).partition_by(*KEYS, as_dict=True)
    order = sorted(parts, key=lambda key: (key[0], key[1], key[2] or ""))
    series = [_series(key, parts[key]) for key in order]
    return [one for one in series if one.values.len()]


def _series(key: tuple[object, ...], samples: pl.DataFrame) -> MetricSeries:
    device, metric, unit = key
    ordered = samples.sort("start_ns", "row")
    starts = ordered["start_ns"]
    steps = starts.diff().drop_nulls()
    positive = steps.filter(steps > 0)
    usual = positive.quantile(0.5, interpolation="lower")
    interval = None if usual is None else int(usual)
    most = pl.col("start_ns") + _MOST_INTERVALS * (interval or 0)
    next_start = pl.col("start_ns").shift(-1).fill_null(pl.col("start_ns") + (interval or 0))
    ended = ordered.with_columns(end_ns=pl.min_horizontal(next_start, most))
    known = ended.filter(pl.col("value").is_finite())
    named = (int(str(device)), str(metric), None if unit is None else str(unit))
    return MetricSeries(named, known["start_ns"], known["end_ns"], known["value"], interval)
