"""The critical path: the events that must be faster for a step to end sooner."""

from concurrent.futures import Executor

import polars as pl

from kernelscope.analysis.dependencies.changes import rows_named
from kernelscope.analysis.dependencies.graph import Dependencies, dependencies
from kernelscope.analysis.dependencies.rank_path import check_alone, path_of_ranks
from kernelscope.analysis.dependencies.segments import segments
from kernelscope.analysis.dependencies.steps import step_row
from kernelscope.analysis.ranks.cluster import Source, one_trace
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace


def critical_path(
    source: Source,
    step: int | None = None,
    *,
    window_ns: tuple[int, int] | None = None,
    annotation: str | None = None,
    instance: int = 0,
    executor: Executor | None = None,
) -> pl.DataFrame:
    """Returns the critical path of a step, a window, an annotation or the whole trace.

    ``annotation`` is the name of an annotation, operator or NVTX range, in which ``*`` matches any text and
    ``?`` one character, in upper or lower case. ``instance`` counts those of this name from 0, in order of
    time.

    The path leads back from the end of the window: from each event to the event for which it waited last.
    Only a shorter event of the path makes the step end sooner.

    ``source`` is a trace, or a list of traces or a lake of many ranks. The path of a step over several ranks
    leads from the last rank that ends it to the first that starts it; without ``step``, it is the path of all
    steps. Where it reaches a collective, it moves to the rank that arrived last: the time before is not
    waiting, but the cause of the wait. An ``executor`` reads several ranks at once.

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
        ``dur_ns``, ``edge``, ``bound_by``. The segments fill the window. Of several ranks, ``rank`` is first.
    Units: ns on the trace's clock; of several ranks, on the common clock from the earliest base time.
    Order: by time.
    Raises: InvalidArgumentError: the trace has no such step or annotation, or several are given; or a window
        or an annotation of several ranks.
    """
    trace = one_trace(source)
    if trace is None:
        check_alone(window_ns, annotation)
        return path_of_ranks(source, step, executor)
    graph = dependencies(trace)
    window = window_of(trace, graph, step, window_ns, annotation, instance)
    return segments(graph, graph.replay, [window]).drop("window", "event")


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
