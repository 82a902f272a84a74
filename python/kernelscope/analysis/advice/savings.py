"""Replays of a trace without the causes of recommendations."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.dependencies.launching import launching
from kernelscope.analysis.dependencies.steps import replayed_steps
from kernelscope.analysis.grouping import gather_rows, positions
from kernelscope.analysis.intervals import common
from kernelscope.trace import Trace

_FOREVER_NS = 2**62
_OWN = ("own", "waiting", "unknown")
_FACTORS = pl.DataFrame(schema={"event": pl.UInt32} | dict.fromkeys(_OWN, pl.Float64))
_PARTS = pl.DataFrame(schema=dict.fromkeys(("track", "start_ns", "end_ns"), pl.Int64))


class Change(NamedTuple):
    """The change that a recommendation asks for.

    Columns: ``factors`` has ``event`` (position among the events of the graph) and the factors ``own`` (of
        its own time), ``waiting`` (of its launch, or of its wait for the GPU) and ``unknown`` (of a wait
        whose cause was not recorded). ``skipped`` has parts of threads that take no time: ``track``,
        ``start_ns``, ``end_ns``. ``gone`` has the events of GPU operations that nothing launches.
    Units: ``cost_ns`` is the sum of the times that go, hidden or not, in ns.
    """

    factors: pl.DataFrame = _FACTORS
    skipped: pl.DataFrame = _PARTS
    gone: pl.Series = _FACTORS["event"]
    cost_ns: int = 0


def together(changes: Sequence[Change]) -> Change:
    """Returns several changes as one. If they concern one event, the smallest factors count."""
    factors = pl.concat(change.factors for change in changes)
    if len(changes) > 1:
        factors = factors.group_by("event").agg(pl.all().min())
    skipped = pl.concat(change.skipped for change in changes)
    gone = pl.concat(change.gone for change in changes)
    return Change(factors, skipped, gone, sum(change.cost_ns for change in changes))


class Savings:
    """Changes of a trace, and the savings."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._graph = dependencies(trace)
        self._of_host = self._graph.events.height - trace.gpu_ops.height
        self._recorded_ns = self._total_ns(self._graph.replay)

    def of(self, change: Change) -> int:
        """Returns the reduction of the time of complete steps by a change; 0 if they would take longer.

        Units: ns.
        """
        events, count = change.factors["event"], self._graph.events.height
        dense = {
            name: pl.repeat(1.0, count, eager=True).scatter(events, change.factors[name]) for name in _OWN
        }
        if change.gone.len():
            dense["own"].scatter(launching(self._trace, change.gone).arg_true(), 0.0)
        dense["waiting"].scatter(change.gone, 0.0)
        replay = self._graph.graph.replay(pl.DataFrame(dense), change.skipped)
        return max(0, self._recorded_ns - self._total_ns(replay))

    def faster(self, works: pl.DataFrame, saved: str = "dur_ns", *, launched: bool = True) -> Change:
        """Operations of a GPU each take ``saved`` less.

        ``launched``: whether the host still launches those that take less.

        Columns: ``works`` needs ``row``, ``dur_ns`` and ``saved``.
        """
        works = works.filter(pl.col("dur_ns") > 0)
        own = (1 - works[saved] / works["dur_ns"]).clip(0)
        events = self._works(works["row"])
        change = _change(int(works[saved].sum()), events, own=own)
        return change if launched else change._replace(gone=events.filter(works[saved] > 0))

    def sooner(self, gaps: pl.DataFrame, but: pl.DataFrame) -> Change:
        """Operations after gaps do not wait for the host, which takes no time in the gaps but for ``but``.

        One that had been launched before waits for nothing that was not recorded.

        Columns: ``gaps`` needs ``row`` (of the operation after each), ``start_ns``, ``dur_ns``, and ``track``
            of a launch in the gap. ``but`` has ``start_ns`` and ``end_ns`` of separate intervals.
        """
        after = gather_rows(gaps["row"], self._trace.gpu_ops, "op_row", "start_ns")
        # The thread of the operator, also if the profiler numbers those of its calls differently.
        owner = gather_rows(after["op_row"], self._trace.ops, "track")["track"]
        track = owner.zip_with(owner.is_not_null() & gaps["track"].is_not_null(), gaps["track"])
        parts = gaps.select(track.alias("track"), "start_ns", end_ns=after["start_ns"]).drop_nulls()
        others = pl.DataFrame(
            {"start_ns": [-_FOREVER_NS, *but["end_ns"]], "end_ns": [*but["start_ns"], _FOREVER_NS]}
        )
        waits = _change(int(gaps["dur_ns"].sum()), self._works(gaps["row"]), waiting=0, unknown=0)
        return waits._replace(skipped=self.idle(common(parts, others)).skipped)

    def idle(self, parts: pl.DataFrame) -> Change:
        """Threads take no time for parts of the recording, nor do those that work for them or wait for them.

        Columns: ``parts`` has ``track``, ``start_ns``, ``end_ns``.
        """
        pairs = self._trace.ops.select("track", other="caller_track").drop_nulls().unique()
        pairs = pl.concat([pairs, pairs.select(track="other", other="track")])
        others = parts.join(pairs, on="track").select("start_ns", "end_ns", track="other")
        skipped = pl.concat(part.select(_PARTS.columns).cast(pl.Int64) for part in (parts, others))
        return Change(skipped=skipped, cost_ns=int((parts["end_ns"] - parts["start_ns"]).sum()))

    def launched(self, works: pl.Series, parts: pl.DataFrame) -> Change:
        """Operations with these row numbers do not wait for their launches, and threads skip ``parts``.

        Columns: ``parts`` has ``track``, ``start_ns``, ``end_ns``.
        """
        idle = self.idle(parts)
        return idle._replace(factors=_change(0, self._works(works), waiting=0).factors)

    def without(self, calls: pl.DataFrame) -> Change:
        """Events of the host go, with all that is inside them or was launched there.

        Columns: ``calls`` needs ``row`` and ``dur_ns``.
        """
        marked = self._graph.events["row"].is_in(calls["row"].implode())
        events = self._graph.within(marked).arg_true()
        return _change(int(calls["dur_ns"].sum()), events, own=0, waiting=0, unknown=0)

    def unwaited(self, calls: pl.DataFrame) -> Change:
        """Calls of the host do not wait for the GPU.

        Columns: ``calls`` needs ``row`` and ``dur_ns``.
        """
        events = positions(self._graph.events["row"], calls["row"])
        return _change(int(calls["dur_ns"].sum()), events, waiting=0, unknown=0)

    def _total_ns(self, replay: _traceparse.Replay) -> int:
        steps = replayed_steps(self._trace, replay).filter(~self._trace.steps["is_partial"])
        return int((steps["end_ns"] - steps["start_ns"]).sum())

    def _works(self, rows: pl.Series) -> pl.Series:
        """The events of operations of a GPU."""
        return positions(self._trace.gpu_ops["row"], rows) + self._of_host


def _change(cost_ns: int, events: pl.Series, **factors: "pl.Series | float") -> Change:
    columns = [pl.lit(factors.get(name, 1.0)).cast(pl.Float64).alias(name) for name in _OWN]
    return Change(pl.select(events.cast(pl.UInt32).alias("event"), *columns), cost_ns=cost_ns)
