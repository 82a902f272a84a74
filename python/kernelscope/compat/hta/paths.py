"""Critical paths with the columns and terms of HolisticTraceAnalysis."""

import polars as pl

from kernelscope.analysis.dependencies.graph import Dependencies, dependencies
from kernelscope.analysis.dependencies.path import window_of
from kernelscope.analysis.dependencies.segments import segments
from kernelscope.analysis.grouping import gather_events, gather_rows
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

_TYPES = {
    "host": "critical_path_operator",
    "execution": "critical_path_operator",
    "launch": "critical_path_kernel_launch_delay",
    "stream": "critical_path_kernel_kernel_delay",
    "thread": "critical_path_dependency",
}
_WAITS = "critical_path_sync_dependency"
_BOUND = {
    "host": "cpu_bound",
    "data loading": "data_loading",
    "compute": "gpu_compute_bound",
    "copy": "gpu_compute_bound",
    "communication": "gpu_communication_bound",
    "queue": "gpu_kernel_kernel_overhead",
    "launch": "gpu_kernel_launch_overhead",
}


def critical_path(
    trace: Trace, annotation: str = "", instance: int | tuple[int, int] | None = None
) -> pl.DataFrame:
    """Returns the critical path as ``critical_path_analysis`` and ``get_critical_path_breakdown`` do.

    The window is the annotation whose name contains ``annotation``: of those of this name, the one with the
    number ``instance`` (default: the first), or those from the first to the last of two numbers. Without a
    name it is the whole trace.

    The path is that of :func:`kernelscope.analysis.critical_path`, without the time of a thread between
    outermost operators, which has no weight in HolisticTraceAnalysis.

    Columns: ``event_idx`` and ``index`` (row of the event), ``duration``, ``type`` (of the edge), ``s_name``,
        ``cat``, ``pid``, ``tid``, ``stream`` (-1 for the host) and ``bound_by`` (empty for waits).
    Units: microseconds. Order: by time.
    Raises: InvalidArgumentError: there is no such annotation.

    Example: ``critical_path(trace, "ProfilerStep", 1)``
    """
    graph = dependencies(trace)
    path = segments(graph, graph.replay, [_window(trace, graph, annotation, instance)])
    between = pl.col("kind").is_null() | pl.col("kind").is_in(["annotation", "frame", "range"])
    path = path.filter(~((pl.col("edge") == "host") & between))
    rows = path["row"]
    works = gather_rows(rows, trace.gpu_ops, "device", "stream", "category", "kind")
    places = gather_events(rows, trace, "track").join(
        trace.threads, on="track", how="left", maintain_order="left"
    )
    op = gather_rows(rows, trace.ops, "category")["category"].cast(pl.String)
    category = pl.coalesce(works["category"].cast(pl.String), works["kind"].cast(pl.String), op)
    # It knows no other cause of a gap of a stream, and the time of a call that launches is time of the host.
    is_gap = (pl.col("edge") == "unknown") & (pl.col("table") == "gpu_ops")
    edge = pl.when(is_gap).then(pl.lit("stream")).otherwise("edge")
    is_call = (pl.col("edge") == "host") & (pl.col("bound_by") == "launch")
    bound = pl.when(is_gap).then(pl.lit("queue")).when(is_call).then(pl.lit("host")).otherwise("bound_by")
    return path.select(
        event_idx="row",
        duration=pl.col("dur_ns") / 1000,
        type=edge.replace_strict(_TYPES, default=_WAITS),
        s_name=graph.events["name"].gather(path["event"]).cast(pl.String),
        cat=category.fill_null(pl.col("table")),
        pid=pl.coalesce(works["device"].cast(pl.Int64), places["pid"]),
        tid=pl.coalesce(works["stream"].cast(pl.Int64), places["tid"]),
        stream=works["stream"].cast(pl.Int64).fill_null(-1),
        index="row",
        bound_by=bound.replace_strict(_BOUND, default=""),
    )


def critical_path_summary(
    trace: Trace, annotation: str = "", instance: int | tuple[int, int] | None = None
) -> pl.DataFrame:
    """Returns the parts of :func:`critical_path` in percent, as ``CPGraph.summary`` does.

    Columns: ``bound_by`` and ``percentage``. Order: by share, largest first.
    Raises: InvalidArgumentError: there is no such annotation.

    Example: ``critical_path_summary(trace, "ProfilerStep", 1)``
    """
    path = critical_path(trace, annotation, instance)
    sums = path.group_by("bound_by").agg(pl.col("duration").sum())
    sums = sums.select("bound_by", percentage=100 * pl.col("duration") / pl.col("duration").sum())
    return sums.sort("percentage", "bound_by", descending=[True, False])


def _window(
    trace: Trace, graph: Dependencies, annotation: str, instance: int | tuple[int, int] | None
) -> tuple[int, int]:
    """The first and the last moment of the annotation, or of all activity."""
    if not annotation:
        return window_of(trace, graph, None, None, None, 0)
    is_named = pl.col("name").cast(pl.String).str.contains(annotation, literal=True)
    found = trace.ops.filter(is_named & pl.col("is_annotation")).sort("start_ns")
    first, last = instance if isinstance(instance, tuple) else (instance or 0, instance or 0)
    if not 0 <= first <= last < found.height:
        raise InvalidArgumentError(
            f"there is no annotation {annotation!r} number {last}: there are {found.height}"
        )
    chosen = found.slice(first, last - first + 1)
    return int(chosen["start_ns"][0]), int((chosen["start_ns"] + chosen["dur_ns"]).sort()[-1])
