"""The critical path: the events that must be faster for a step to end sooner."""

from collections.abc import Sequence

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.dependencies.changes import rows_named
from kernelscope.analysis.dependencies.graph import Dependencies, dependencies
from kernelscope.analysis.dependencies.steps import step_row
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

# What the edges are bound by that are not an event itself.
_OF_EDGES = {
    "stream": "queue",
    "queue": "queue",
    "launch": "launch",
    "synchronisation": "synchronisation",
    "event": "synchronisation",
    "thread": "host",
    "unknown": "unknown",
}


def critical_path(
    trace: Trace,
    step: int | None = None,
    *,
    window_ns: tuple[int, int] | None = None,
    annotation: str | None = None,
    instance: int = 0,
) -> pl.DataFrame:
    """Returns the critical path of a step, a window, an annotation or the whole trace.

    ``annotation`` is the name of an annotation, operator or NVTX range, in which ``*`` matches any text and
    ``?`` one character, in upper or lower case. ``instance`` counts those of this name from 0, in order of
    time.

    The path leads back from the end of the window: from each event to the event for which it waited last.
    Only a shorter event of the path makes the step end sooner.

    ``edge`` is the kind of dependency. ``host``: the thread ran the event, or nothing that was recorded.
    ``execution``: the GPU ran it. ``stream``: a GPU operation waited for the one before it on its stream.
    ``launch``: it started after its launch. ``synchronisation``: an API call waited for a GPU operation.
    ``queue``: a launch waited for a place in the queue of its stream.
    ``event``: a GPU operation waited for one of another stream. ``thread``: a thread waited for another one,
    as for the backward pass. ``unknown``: the cause of the wait was not recorded.

    ``bound_by`` summarises it: ``host``, ``data loading``, ``launch``, ``queue``, ``compute``,
    ``communication``, ``copy``, ``synchronisation`` or ``unknown``.

    Columns: ``row`` and ``table`` (of the event; null while a thread runs nothing that was recorded),
        ``kind`` (operator, annotation, call, frame, range, kernel, memcpy, memset or graph), ``start_ns``,
        ``dur_ns``, ``edge``, ``bound_by``. The segments fill the window.
    Units: ns on the trace's clock.
    Order: by time.
    Raises: InvalidArgumentError: the trace has no such step or annotation, or several are given.
    """
    graph = dependencies(trace)
    window = window_of(trace, graph, step, window_ns, annotation, instance)
    return segments(graph, graph.replay, [window]).drop("window", "event")


def segments(
    graph: Dependencies, replay: _traceparse.Replay, windows: Sequence[tuple[int, int]]
) -> pl.DataFrame:
    """Returns the critical paths of windows of a replay; see :func:`critical_path`.

    Columns: as there, ``window`` (index) and ``event`` (position in ``graph.events``).
    """
    found = pl.DataFrame(replay.critical_paths(windows))
    events = graph.events.select("row", "table", "kind", "class")[found["event"]]
    edges = pl.Series(graph.graph.edge_names(), dtype=pl.String)[found["edge"]].alias("edge")
    # A thread outside of any event runs something that was not recorded.
    bound = pl.coalesce(pl.col("edge").replace_strict(_OF_EDGES, default=None), "class", pl.lit("host"))
    path = found.with_columns(edges).hstack(events).with_columns(bound.alias("bound_by"))
    columns = ("row", "table", "kind", "start_ns", "dur_ns", "edge", "bound_by", "window", "event")
    return path.select(columns).cast({pl.Enum: pl.String})


def window_of(
    trace: Trace,
    graph: Dependencies,
    step: int | None,
    window_ns: tuple[int, int] | None,
    annotation: str | None,
    instance: int,
) -> tuple[int, int]:
    """Returns the first and the last moment of a step, a window, an annotation, or all activity.

    Raises: InvalidArgumentError: as :func:`critical_path`.
    """
    if sum(given is not None for given in (step, window_ns, annotation)) > 1:
        raise InvalidArgumentError("critical_path takes one of step=, window_ns= and annotation=")
    if annotation is not None:
        return _window_of_annotation(trace, graph, annotation, instance)
    if window_ns is not None:
        start_ns, end_ns = window_ns
        if start_ns > end_ns:
            raise InvalidArgumentError(f"window_ns= ends at {end_ns:,} before it starts at {start_ns:,}")
        return start_ns, end_ns
    if step is None:
        times = graph.times.select(pl.col("start_ns").min(), pl.col("end_ns").max())
        # Python frames, and ranges next to others, last as long as the recording.
        return trace.extent() or times.fill_null(0).row(0)
    row = step_row(trace, step)
    return row["start_ns"], row["start_ns"] + row["total_ns"]


def _window_of_annotation(
    trace: Trace, graph: Dependencies, annotation: str, instance: int
) -> tuple[int, int]:
    is_named = graph.events["row"].is_in(rows_named(trace, "range", annotation).implode())
    found = graph.times.filter(is_named).sort("start_ns", "end_ns")
    if not 0 <= instance < found.height:
        known = f"there are {found.height}" if found.height else "the trace has none"
        raise InvalidArgumentError(f"there is no annotation {annotation!r} number {instance}: {known}")
    return found.row(instance)
