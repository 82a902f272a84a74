"""What GPUs waited for in each gap between their works."""

from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.intervals import Intervals
from kernelscope.analysis.launches.idle import with_launches, work_gaps
from kernelscope.trace import Trace

LONGEST_LAUNCH_NS = 1_000_000
"""A host that only launches is never later than this: operators take microseconds to launch a kernel."""

_OF_CALLS = ("row", "activity", "start_ns", "dur_ns")
_CAUSE = pl.Enum(["data", "sync", "launch", "host", "queue"])


class Gaps(NamedTuple):
    """Gaps of GPUs: ``all`` of them in few columns, and in more those that wait for the host, ``late``."""

    all: pl.DataFrame
    late: pl.DataFrame


def classified_gaps(
    trace: Trace, inside: Callable[[pl.DataFrame], pl.DataFrame], spans: pl.DataFrame | None
) -> Gaps:
    """Each gap in which a GPU idled between two works, and what it waited for.

    ``data``: the work after the gap was launched in it, and loading data took most of the time until then.
    ``sync``: it was launched in it after the host had waited for the GPU to be done. ``launch``: it was
    launched in it, as the host was late; ``host``: the same, but so late that the host must have done
    something else than to launch. ``queue``: it had been launched before, and waited for an event, a copy,
    another stream, or only for its turn. Null where the launch was not recorded. ``inside`` picks the gaps
    that count, by the ``step`` of the work after them, and of these only what lies in ``spans``, the time of
    steps as parts that do not touch, if they are given.

    Columns: ``row`` (of the work after the gap in ``gpu_ops``), ``device``, ``dur_ns``, ``cause``; of those
        whose cause is ``data``, ``sync``, ``launch`` or ``host`` also ``start_ns``, ``sync_row`` (of the call
        in ``launches``, for ``sync``), ``launch_ns`` and ``track`` (of the launch).
    Units: ns.
    """
    gaps = inside(work_gaps(trace, "row", "device", "step"))
    # Only what was launched in the gap can have waited for the host.
    places = gaps["is_late"].arg_true()
    late = with_launches(trace, gaps.select("at", "row", "device", "dur_ns")[places])
    late = late.drop("at").with_columns(place=places)
    late = _with_syncs(_with_data(late, trace), trace)
    late = late.with_columns(
        cause=pl.when(pl.col("data_row").is_not_null())
        .then(pl.lit("data", _CAUSE))
        .when(pl.col("sync_row").is_not_null())
        .then(pl.lit("sync", _CAUSE))
        .when(pl.col("dur_ns") > LONGEST_LAUNCH_NS)
        .then(pl.lit("host", _CAUSE))
        .otherwise(pl.lit("launch", _CAUSE))
    )
    causes = gaps.select(pl.when(~pl.col("is_late")).then(pl.lit("queue", _CAUSE))).to_series()
    causes = causes.scatter(late["place"], late["cause"]).alias("cause")
    # What happens between steps says why a gap is there, and is no time of theirs.
    lasting = gaps["dur_ns"] if spans is None else _within(spans, trace, gaps)
    late = late.with_columns(lasting.gather(late["place"]))
    return Gaps(gaps.select("row", "device", lasting, causes), late.drop("place", "data_row"))


def _within(spans: pl.DataFrame, trace: Trace, gaps: pl.DataFrame) -> pl.Series:
    """How much of each gap lies in the spans."""
    ends = trace.gpu_ops["start_ns"].gather(gaps["at"])
    places = pl.DataFrame({"start_ns": ends - gaps["dur_ns"], "end_ns": ends})
    return Intervals(spans, by=[]).hidden_ns(places).alias("dur_ns")


def _with_data(gaps: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Adds the call that loaded data in the gap, if that took more than half of the time until the launch."""
    loads = trace.ops.select(*_OF_CALLS).filter(pl.col("activity") == "data_loading")
    if loads.is_empty():
        return gaps.with_columns(data_row=pl.lit(None, pl.UInt32))
    loads = loads.select(
        data_row="row", _load="start_ns", _load_end=pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    ).sort("_load")
    # The last that began before the launch.
    found = gaps.sort("launch_ns").join_asof(
        loads, left_on="launch_ns", right_on="_load", strategy="backward"
    )
    shared = pl.min_horizontal("_load_end", "launch_ns") - pl.max_horizontal("_load", "start_ns")
    mostly = 2 * shared > pl.col("launch_ns") - pl.col("start_ns")
    return found.with_columns(data_row=pl.when(mostly).then("data_row")).drop("_load", "_load_end")


def _with_syncs(gaps: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Adds the blocking call that began before the gap and ended in it, before the launch."""
    calls = trace.launches.select(*_OF_CALLS).filter(pl.col("activity") == "wait")
    if calls.is_empty():
        return gaps.with_columns(sync_row=pl.lit(None, pl.UInt32))
    calls = calls.select(
        sync_row="row", _sync="start_ns", _sync_end=pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    ).sort("_sync_end")
    # The first that ended after the GPU had run empty.
    found = gaps.sort("start_ns").join_asof(
        calls, left_on="start_ns", right_on="_sync_end", strategy="forward"
    )
    waited = (pl.col("_sync") <= pl.col("start_ns")) & (pl.col("_sync_end") <= pl.col("launch_ns"))
    return found.with_columns(sync_row=pl.when(waited).then("sync_row")).drop("_sync", "_sync_end")
