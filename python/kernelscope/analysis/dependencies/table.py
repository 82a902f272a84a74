"""The critical path by operator, module, kernel, Python line or step, and the slack of everything else."""

from collections.abc import Sequence
from concurrent.futures import Executor

import polars as pl

from kernelscope.analysis.dependencies.described import COLUMNS, described
from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.dependencies.path import window_of
from kernelscope.analysis.dependencies.rank_path import check_alone, path_of_ranks
from kernelscope.analysis.dependencies.segments import segments
from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.analysis.ranks.cluster import Source, one_trace
from kernelscope.analysis.steps.breakdown import step_times
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

BY = (*COLUMNS, "bound_by")
"""Columns by which a critical path can be summed."""


def critical_path_table(
    source: Source,
    by: str | Sequence[str] = ("name",),
    step: int | None = None,
    *,
    window_ns: tuple[int, int] | None = None,
    annotation: str | None = None,
    instance: int = 0,
    executor: Executor | None = None,
) -> pl.DataFrame:
    """Sums the critical path of a part of the trace, or of all of it, and finds the slack of all else.

    The part is chosen as for :func:`critical_path`.

    ``by`` accepts ``name``, ``kind`` and ``table`` of the event (an operator, an API call, a Python frame, a
    range, a kernel or a copy), ``bound_by`` (see :func:`critical_path`), ``op`` (the innermost operator that
    ran or launched it), ``module`` and ``phase`` (of that operator), ``category`` (of the kernel) and
    ``python`` (the innermost line of Python). Waits count for the event that waited. Of several ranks it also
    accepts ``rank``.

    Columns: the columns of ``by``; ``path_ns`` (time on the critical path), ``share`` (of the window),
        ``segments``, ``events`` (of the group in the window, also those that are not on the path) and
        ``slack_ns`` (least time by which one of the others could end later without the window ending later;
        null if there are none). Of several ranks there are no ``events`` and ``slack_ns``.
    Units: ns; shares between 0 and 1.
    Order: by time on the path, longest first, then by slack.
    Raises: InvalidArgumentError: ``by`` contains an unknown column, there is no such step or annotation, or
        several are given.

    Example: ``critical_path_table(trace, by="op", step=3)``
    """
    trace = one_trace(source)
    if trace is None:
        check_alone(window_ns, annotation)
        return path_and_table(source, by, step, executor)[1]
    columns = check_by(by, BY)
    graph = dependencies(trace)
    start_ns, end_ns = window_of(trace, graph, step, window_ns, annotation, instance)
    path = segments(graph, graph.replay, [(start_ns, end_ns)])
    events = described(trace, graph, columns)
    on_path = events[path["event"]].with_columns(path["dur_ns"], path["bound_by"])
    sums = on_path.group_by(columns).agg(path_ns=pl.col("dur_ns").sum(), segments=pl.len().cast(pl.Int64))
    slack = pl.DataFrame(graph.replay.slack(end_ns)).to_series()
    is_other = ~pl.int_range(events.height, eager=True).is_in(path["event"].drop_nulls().implode())
    is_inside = graph.times["end_ns"].is_between(start_ns, end_ns)
    others = events.with_columns(slack_ns=pl.when(is_other).then(slack)).filter(is_inside)
    rest = others.group_by(columns).agg(pl.len().cast(pl.Int64).alias("events"), pl.col("slack_ns").min())
    table = sums.join(rest, on=columns, how="full", nulls_equal=True, coalesce=True)
    path_ns = pl.col("path_ns").fill_null(0)
    length = end_ns - start_ns
    table = as_text(table).select(
        *columns,
        path_ns,
        share=path_ns / length if length else pl.lit(None, pl.Float64),
        segments=pl.col("segments").fill_null(0),
        events=pl.col("events").fill_null(0),
        slack_ns="slack_ns",
    )
    order = ["path_ns", "slack_ns", *columns]
    return table.sort(order, descending=[True, *(False for _ in order[1:])], nulls_last=True)


def path_and_table(
    source: Source, by: str | Sequence[str], step: int | None, executor: Executor | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the critical path of several ranks, and its table, for which they are read once."""
    columns = check_by(by, ("rank", *BY))
    own = [column for column in columns if column in COLUMNS and column not in ("kind", "table")]
    path = path_of_ranks(source, step, executor, own)
    sums = as_text(path).group_by(columns)
    sums = sums.agg(path_ns=pl.col("dur_ns").sum(), segments=pl.len().cast(pl.Int64)).select(
        *columns, "path_ns", share=pl.col("path_ns") / pl.col("path_ns").sum(), segments="segments"
    )
    order = [True, *(False for _ in columns)]
    return path.drop(own), sums.sort("path_ns", *columns, descending=order, nulls_last=True)


@per_trace
def step_paths(trace: Trace) -> pl.DataFrame:
    """Returns the critical paths of all complete steps; see :func:`segments`."""
    graph = dependencies(trace)
    steps = step_times(trace).select("start_ns", end_ns=pl.col("start_ns") + pl.col("total_ns"))
    return segments(graph, graph.replay, steps.rows())


@per_trace
def step_bounds(trace: Trace) -> pl.DataFrame:
    """Sums the critical paths of all complete steps by what bounds them.

    Columns: ``bound_by`` (see :func:`critical_path`), ``path_ns`` (on the critical paths; its sum is the time
        of the steps), ``share`` (of that time) and ``segments``.
    Units: ns; shares between 0 and 1.
    Order: by time, longest first.

    Example: ``step_bounds(trace)``
    """
    sums = (
        step_paths(trace)
        .group_by("bound_by")
        .agg(path_ns=pl.col("dur_ns").sum(), segments=pl.len().cast(pl.Int64))
    )
    sums = sums.sort("path_ns", "bound_by", descending=[True, False])
    return sums.select(
        "bound_by", "path_ns", share=pl.col("path_ns") / pl.col("path_ns").sum(), segments="segments"
    )
