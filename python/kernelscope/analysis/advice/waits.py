"""Causes of each idle gap between GPU operations."""

from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.advice.record import rows_like
from kernelscope.analysis.grouping import positions
from kernelscope.analysis.intervals import Intervals
from kernelscope.analysis.launches.idle import with_launches, work_gaps
from kernelscope.trace import Trace

LONGEST_LAUNCH_NS = 1_000_000
"""Upper bound of the delay of a host that only launches: operators take microseconds to launch a kernel."""

REPLAYS = r"GraphLaunch"
"""Matches the names of calls that replay a graph."""

_OF_CALLS = ("row", "activity", "start_ns", "dur_ns")
_CAUSE = pl.Enum(["data", "sync", "launch", "host", "queue", "graph"])


class Gaps(NamedTuple):
    """Gaps of GPUs: ``all`` with few columns, and ``late``, those that wait for the host, with more."""

    all: pl.DataFrame
    late: pl.DataFrame

    def counted(self, inside: pl.Series, spans: pl.DataFrame) -> "Gaps":
        """Returns the gaps of ``all`` that are ``inside``, clipped to ``spans``.

        Columns: ``spans`` has ``start_ns`` and ``end_ns`` of separate intervals.
        """
        known = Intervals(spans, by=[])
        ends = self.all.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        lasting = known.hidden_ns(ends)
        late = self.late.with_columns(lasting.gather(self.late["place"]).alias("dur_ns"))
        every = self.all.with_columns(lasting.alias("dur_ns"))
        return Gaps(every.filter(inside), late.filter(inside.gather(late["place"])))


def classified_gaps(trace: Trace) -> Gaps:
    """Classifies each gap in which a GPU was idle between two operations by its cause.

    ``data``: the operation after the gap was launched in the gap, and data loading took most of the time
    before that.
    ``sync``: it was launched in the gap after the host had waited for the GPU to finish. ``launch``: it was
    launched in the gap because the host was late. ``host``: the same, but so late that the host must have
    been busy with other work. ``queue``: it had been launched before, and waited for an event, a copy,
    another stream, or only for its position in the queue. ``graph``: the same between the nodes of one graph
    replay, which the host does not influence. Null if the launch was not recorded.

    Columns: ``row`` (of the operation after the gap in ``gpu_ops``), ``device``, ``step`` (of that
        operation), ``start_ns``, ``dur_ns``, ``cause``; for the causes ``data``, ``sync``, ``launch`` and
        ``host`` also ``place`` (index in all), ``sync_row`` (of the call in ``launches`` that waited for the
        GPU until the gap began), ``launch_ns`` and ``track`` (of the launch).
    Units: ns.
    """
    gaps = work_gaps(trace, "row", "device", "step", "launch_row")
    gaps = gaps.with_columns(start_ns=trace.gpu_ops["start_ns"].gather(gaps["at"]) - gaps["dur_ns"])
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
    in_replay = pl.when(_are_in_replays(trace, gaps)).then(pl.lit("graph", _CAUSE))
    launched = in_replay.otherwise(pl.lit("queue", _CAUSE))
    causes = gaps.select(pl.when(~pl.col("is_late")).then(launched)).to_series()
    causes = causes.scatter(late["place"], late["cause"]).alias("cause")
    every = gaps.select("row", "device", "step", "start_ns", "dur_ns", causes)
    return Gaps(every, late.drop("data_row"))


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
    """Adds the call that waited for the GPU: it began before the gap and ended in it, before the launch."""
    calls = trace.launches.select(*_OF_CALLS)
    is_wait = (calls["activity"] == "wait").fill_null(value=False)
    calls = calls.filter(is_wait | _are_blocking_copies(trace))
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


def _are_in_replays(trace: Trace, gaps: pl.DataFrame) -> pl.Series:
    """Which gaps the replay of a graph has between its first work on the GPU and another.

    Columns: of ``gaps``, needs ``device``, ``launch_row`` (of the work after it), ``start_ns``.
    """
    replays = rows_like(trace, "launches", REPLAYS, "row")["row"]
    works = trace.gpu_ops.select("device", "launch_row", begins="start_ns")
    works = works.filter(pl.col("launch_row").is_in(replays.implode()))
    begins = works.group_by("device", "launch_row").agg(pl.col("begins").min())
    found = gaps.select("device", "launch_row").join(
        begins, on=["device", "launch_row"], how="left", nulls_equal=True, maintain_order="left"
    )
    return (found["begins"] <= gaps["start_ns"]).fill_null(value=False)


def _are_blocking_copies(trace: Trace) -> pl.Series:
    """Which rows of ``launches`` copy and return only when the copy is done, as from pageable memory."""
    copies = trace.gpu_ops.filter(pl.col("kind") == "memcpy")
    places = positions(trace.launches["row"], copies["launch_row"])
    calls = trace.launches["start_ns", "dur_ns"][places]
    ends = calls["start_ns"] + calls["dur_ns"]
    is_done = (copies["start_ns"] + copies["dur_ns"] <= ends).fill_null(value=False)
    marks = pl.repeat(value=False, n=trace.launches.height, eager=True)
    return marks.scatter(places.filter(is_done), values=True)


def longest_calls(trace: Trace, gaps: pl.DataFrame) -> pl.DataFrame:
    """Returns the longest runtime call in each gap, on the thread that launched the operation after it.

    Columns: ``gaps`` needs ``track``, ``start_ns`` and ``dur_ns``. The result has ``name`` and ``shared_ns``
        (time of the call inside the gap), null if there is no call.
    Order: as the gaps.
    """
    asked = gaps.select("track", "start_ns", until_ns=pl.col("start_ns") + pl.col("dur_ns"))
    calls = trace.launches.select(
        "row", pl.lit(None, pl.UInt32).alias("parent_row"), "track", "start_ns", "dur_ns"
    )
    found = pl.DataFrame(_traceparse.longest_spans(asked, calls, trace.steps[["row"]].clear()))
    return trace.launches.select("name")[found["at"]].hstack(found.select("shared_ns"))
