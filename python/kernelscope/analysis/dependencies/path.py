"""The critical path: what would have to be faster for a step to end sooner."""

import polars as pl

from kernelscope.analysis.dependencies.graph import HOST_CLASSES, dependencies
from kernelscope.analysis.grouping import gather_rows
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

BOUNDS = (
    "host", "data loading", "launch", "queue", "compute", "communication", "copy", "synchronisation",
    "unknown",
)  # fmt: skip
"""What a segment of a critical path is bound by."""

_OF_EDGES = {
    "stream": "queue",
    "launch": "launch",
    "synchronisation": "synchronisation",
    "event": "synchronisation",
    "thread": "host",
    "unknown": "unknown",
}


def critical_path(
    trace: Trace, step: int | None = None, *, window_ns: tuple[int, int] | None = None
) -> pl.DataFrame:
    """Returns the critical path of a step, a window or the whole trace.

    The path leads back from the end of the window: from each event to what it waited for last. Only a shorter
    event of the path makes the step end sooner.

    ``edge`` is the kind of dependency. ``host``: the thread ran the event, or nothing that was recorded.
    ``execution``: the GPU ran it. ``stream``: a GPU operation waited for the one before it on its stream.
    ``launch``: it started after its launch. ``synchronisation``: an API call waited for a GPU operation.
    ``event``: a GPU operation waited for one of another stream. ``thread``: a thread waited for another one,
    as for the backward pass. ``unknown``: the cause of the wait was not recorded.

    ``bound_by`` summarises it: ``host``, ``data loading``, ``launch``, ``queue``, ``compute``,
    ``communication``, ``copy``, ``synchronisation`` or ``unknown``.

    Columns: ``row`` and ``table`` (of the event; null while a thread runs nothing that was recorded),
        ``kind`` (operator, annotation, call, frame, range, kernel, memcpy, memset or graph), ``start_ns``,
        ``dur_ns``, ``edge``, ``bound_by``. The segments fill the window.
    Units: ns on the trace's clock.
    Order: by time.
    Raises: InvalidArgumentError: there is no such step, or ``step`` and ``window_ns`` are both given.
    """
    graph, events = dependencies(trace)
    start_ns, end_ns = _window(trace, step, window_ns, events)
    found = pl.DataFrame(graph.critical_path(start_ns, end_ns))
    columns = events.select("row", "table", "kind")[found["event"]]
    edges = pl.Series(graph.edge_names())[found["edge"]].alias("edge")
    path = columns.hstack(found.select("start_ns", "dur_ns", "class")).with_columns(edges)
    communicates = gather_rows(path["row"], trace.gpu_ops, "is_communication")["is_communication"]
    host = pl.Series(HOST_CLASSES)[found["class"]]
    return path.select(
        "row", "table", "kind", "start_ns", "dur_ns", "edge",
        bound_by=pl.when(pl.col("edge") == "host")
        .then(host)
        .when(pl.col("edge") != "execution")
        .then(pl.col("edge").replace(_OF_EDGES))
        .when(communicates)
        .then(pl.lit("communication"))
        .when(pl.col("kind").is_in(["memcpy", "memset"]))
        .then(pl.lit("copy"))
        .otherwise(pl.lit("compute")),
    )  # fmt: skip


def _window(
    trace: Trace, step: int | None, window_ns: tuple[int, int] | None, events: pl.DataFrame
) -> tuple[int, int]:
    """The first and the last moment."""
    if step is not None and window_ns is not None:
        raise InvalidArgumentError("critical_path takes step= or window_ns=, not both")
    if window_ns is not None:
        start_ns, end_ns = window_ns
        if start_ns > end_ns:
            raise InvalidArgumentError(f"window_ns= ends at {end_ns:,} before it starts at {start_ns:,}")
        return start_ns, end_ns
    if step is None:
        # Python frames last as long as the recording.
        counted = events.filter(pl.col("table") != "python") if events["table"].n_unique() > 1 else events
        end_ns = pl.col("start_ns") + pl.col("dur_ns")
        return counted.select(start_ns=pl.col("start_ns").min(), end_ns=end_ns.max()).fill_null(0).row(0)
    found = trace.steps.filter(pl.col("step") == step)
    if found.is_empty():
        known = trace.steps["step"].drop_nulls()
        numbers = f"steps are {known.min()} to {known.max()}" if known.len() else "the trace has no steps"
        raise InvalidArgumentError(f"there is no step {step}: {numbers}")
    start_ns = int(found["start_ns"][0])
    return start_ns, start_ns + int(found["total_ns"][0])
