"""Steps of a replay."""

from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.grouping import positions, taken
from kernelscope.memo import per_trace
from kernelscope.trace import Trace


class _Boundaries(NamedTuple):
    """The events that decide when steps start and end.

    Columns: ``steps`` has ``step``, ``first_ns`` and ``last_ns`` (of the host), and ``event`` (position of
        the annotation; null for a step that was found in the launches). ``works`` has ``event`` (position of
        a GPU operation) and ``group`` (a step starts after the operations of its own group, and ends with
        those of the group ``steps.height`` further on).
    """

    steps: pl.DataFrame
    works: pl.DataFrame


@per_trace
def _boundaries(trace: Trace) -> _Boundaries:
    events = dependencies(trace).events
    steps = trace.steps.with_row_index("at").select(
        "step", "at", "start_ns", end_ns=pl.col("start_ns") + pl.col("total_ns"),
        first_ns="host_start_ns", last_ns=pl.col("host_start_ns") + pl.col("host_dur_ns"),
        event=positions(events["row"], trace.steps["row"]),
    )  # fmt: skip
    first = events.height - trace.gpu_ops.height
    works = trace.gpu_ops.with_row_index("event", offset=first)
    works = works.select(
        "event", "step", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    )
    # Several steps may have one number.
    limits = steps.select("step", "at", since="start_ns", until="end_ns")
    inside = works.join(limits, on="step", nulls_equal=True).filter(
        (pl.col("start_ns") >= pl.col("since")) & (pl.col("end_ns") <= pl.col("until"))
    )
    # A step starts when the work before it has ended, also if that belongs to no step.
    before = works.join(steps.select("at", end_ns="start_ns"), on="end_ns")
    parts = [
        inside.select("event", group=pl.col("at") + steps.height),
        inside.filter(pl.col("at") + 1 < steps.height).select("event", group=pl.col("at") + 1),
        before.select("event", group="at"),
    ]
    works = pl.concat(parts).cast(pl.UInt32)
    return _Boundaries(steps.select("step", "first_ns", "last_ns", "event"), works)


def replayed_steps(trace: Trace, replay: _traceparse.Replay) -> pl.DataFrame:
    """Returns when each step of a replay starts and ends.

    Columns: ``step``, ``start_ns``, ``end_ns``.
    Units: ns on the trace's clock.
    Order: as ``trace.steps``.
    """
    steps, works = _boundaries(trace)
    latest = taken(replay.latest_ends(works, 2 * steps.height), "end_ns")
    marks = pl.DataFrame(replay.times_of(steps.select("event")))
    found = steps.select("step")
    for name, moment, of_gpu in (
        ("start_ns", "first_ns", latest.head(steps.height)),
        ("end_ns", "last_ns", latest.tail(steps.height)),
    ):
        reached = taken(replay.moments(steps[moment].to_list()), "at_ns")
        host = marks[name].zip_with(marks[name].is_not_null(), reached)
        found = found.with_columns(pl.select(pl.max_horizontal(host, of_gpu)).to_series().alias(name))
    return found.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
