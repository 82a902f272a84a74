"""Steps of a replay."""

from typing import Any

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.grouping import positions, taken
from kernelscope.errors import InvalidArgumentError
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_MARK = {"group": pl.UInt32, "event": pl.UInt32, "is_end": pl.Boolean, "at_ns": pl.Int64}


@per_trace
def step_marks(trace: Trace) -> pl.DataFrame:
    """Returns what decides when steps start and end: annotations of the host, and GPU operations.

    Columns: as for ``Replay.latest_marks``. Group ``i`` is the start of step ``i``, and group ``steps.height
        + i`` its end.
    """
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
    is_end, count = pl.lit(value=True), steps.height
    parts = [
        # A step that was found in the launches has no annotation.
        steps.select("event", is_end=pl.lit(value=False), group="at", at_ns="first_ns"),
        steps.select("event", is_end=is_end, group=pl.col("at") + count, at_ns="last_ns"),
        inside.select("event", is_end=is_end, group=pl.col("at") + count),
        inside.filter(pl.col("at") + 1 < count).select("event", is_end=is_end, group=pl.col("at") + 1),
        before.select("event", is_end=is_end, group="at"),
    ]
    marks = pl.concat(parts, how="diagonal")
    return marks.select(pl.col(name).cast(dtype) for name, dtype in _MARK.items())


def replayed_steps(trace: Trace, replay: _traceparse.Replay) -> pl.DataFrame:
    """Returns when each step of a replay starts and ends.

    Columns: ``step``, ``start_ns``, ``end_ns``.
    Units: ns on the trace's clock.
    Order: as ``trace.steps``.
    """
    count = trace.steps.height
    latest = taken(replay.latest_marks(step_marks(trace), 2 * count), "at_ns")
    found = trace.steps.select("step", start_ns=latest.head(count), end_ns=latest.tail(count))
    return found.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))


def step_row(trace: Trace, step: int) -> dict[str, Any]:
    """Returns the row of ``trace.steps`` of a step, the first one of this number.

    Raises: InvalidArgumentError: there is no such step.
    """
    return numbered(trace.steps, step).row(0, named=True)


def numbered(steps: pl.DataFrame, step: int) -> pl.DataFrame:
    """Returns the rows of a step.

    Raises: InvalidArgumentError: there are none.
    """
    found = steps.filter(pl.col("step") == step)
    if found.is_empty():
        known = steps["step"].drop_nulls()
        numbers = f"steps are {known.min()} to {known.max()}" if known.len() else "none was recorded"
        raise InvalidArgumentError(f"there is no step {step}: {numbers}")
    return found
