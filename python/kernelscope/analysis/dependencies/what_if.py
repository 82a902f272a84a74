"""Predictions of the time that a change saves."""

from collections.abc import Mapping
from concurrent.futures import Executor

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.dependencies.changes import check_matches, factors, of_step
from kernelscope.analysis.dependencies.graph import Dependencies, dependencies
from kernelscope.analysis.dependencies.ranks import at_least, what_if_ranks
from kernelscope.analysis.dependencies.segments import segments
from kernelscope.analysis.dependencies.steps import replayed_steps
from kernelscope.analysis.grouping import of_every
from kernelscope.analysis.ranks.cluster import Source, one_trace
from kernelscope.trace import Trace

_SCHEMA = {
    "step": pl.Int32,
    "before_ns": pl.Int64,
    "after_ns": pl.Int64,
    "after_max_ns": pl.Int64,
    "bound_by_after": pl.String,
}


def what_if(
    source: Source,
    changes: Mapping[str, float | str],
    step: int | None = None,
    *,
    executor: Executor | None = None,
) -> pl.DataFrame:
    """Predicts the duration of each step if some events took longer or shorter.

    ``changes`` maps events to a factor of their time: 0.5 halves it, 0 removes it.
    ``kernel:PATTERN``: kernels with a matching name. ``op:PATTERN``, ``range:``, ``python:`` and ``call:``:
    operators, NVTX ranges and annotations, Python frames and API calls, including everything inside them and
    the GPU operations launched there. ``module:``: calls of modules, with the gradients of their operators.
    ``launch``: the calls that launch GPU operations, and the time until these start. ``sync``: how long the
    host waits for the GPU. ``wait:PATTERN``, with the factor 0: others do not wait for GPU operations with a
    matching name until their next phase (forward, backward or optimizer), as if a collective ran on its own
    stream. ``dataloader``, ``communication`` and ``copy``: data loading, collectives, and copies and memsets.
    ``fuse:PATTERN``: the kernels inside each outermost operator, annotation, NVTX range or Python frame of
    this name become one on each stream. ``graph``, or ``graph:PATTERN``: the GPU operations of a step, or
    inside these, are launched by one call; the factor is for the rest of the host. ``gpu``, with the name of
    a GPU: kernels run on it, as far from its roofline as they were from their own.
    In a pattern, ``*`` matches any text and ``?`` one character, in upper or lower case.
    The factors of several changes of one event are multiplied.

    All other events take as long as recorded, and start when their dependencies are satisfied: see
    :func:`critical_path`. With ``step``, only events of that step change, which starts as recorded. Then less
    work never makes the step longer. Without it, the whole trace changes: a step may take longer if it then
    waits for an event that ran during an earlier step.

    ``source`` is a trace, or a list of traces or a lake of many ranks. Several ranks are replayed together: a
    collective ends its transfer time after the last rank has arrived. Changes then apply to all of them.
    ``rank:N``, ``host:PATTERN`` and ``stage:N`` (of a pipeline) change the time of some ranks:
    ``"median"`` makes each like the other rank with the median time of a step. ``link:PATTERN`` changes the
    transfer times of hosts. An ``executor`` reads several ranks at once.

    Columns: ``step`` (null in a trace without steps), ``before_ns``, ``after_ns``, ``after_max_ns`` (at
        least ``after_ns``: if waits whose cause was not recorded end no earlier than recorded; if operators
        whose kernels are fused still take time; if threads still take time outside of events around a graph;
        if kernels on another GPU gain no more than its memory does, or nothing if their cost is unknown),
        ``bound_by_after`` (the largest part of the critical path after the change; see
        :func:`critical_path`). Of several ranks: ``rank``, ``step``, ``before_ns``, ``after_ns``,
        ``after_max_ns``.
    Units: ns.
    Order: as ``trace.steps``; by rank.
    Raises: InvalidArgumentError: a change is unknown, matches nothing or has an impossible factor, there is
        no such step, or the peaks of one of the GPUs are unknown.

    Example: ``what_if(trace, {"kernel:*gemm*": 0.5, "launch": 0})``
    Example: ``what_if(trace, {"graph": 0, "gpu": "H200 SXM"})``
    Example: ``what_if(ks.scan("lake"), {"rank:3": "median"})``
    """
    trace = one_trace(source)
    if trace is None:
        return what_if_ranks(source, changes, step, executor)
    return _of_trace(trace, changes, step)


def _of_trace(trace: Trace, changes: Mapping[str, float | str], step: int | None) -> pl.DataFrame:
    graph = dependencies(trace)
    if graph.events.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    among = of_step(trace, graph, step)
    changed = factors(trace, graph, changes, among)
    check_matches(changed.missing)
    replay = graph.graph.replay(changed.likely)
    longest = graph.graph.replay(changed.most, keeps_unknown=True)
    before, after, at_most = (replayed_steps(trace, found) for found in (graph.replay, replay, longest))
    found = before.select(
        "step",
        before_ns=before["end_ns"] - before["start_ns"],
        after_ns=after["end_ns"] - after["start_ns"],
        after_max_ns=at_most["end_ns"] - at_most["start_ns"],
        bound_by_after=_bounds(graph, replay, after),
    )
    return at_least(found, step)


def _bounds(graph: Dependencies, replay: _traceparse.Replay, steps: pl.DataFrame) -> pl.Series:
    """The reason for most of the critical path of each step; null for a step without a duration."""
    path = segments(graph, replay, steps.select("start_ns", "end_ns").rows())
    sums = path.group_by("window", "bound_by").agg(pl.col("dur_ns").sum())
    sums = sums.sort("window", "dur_ns", "bound_by", descending=[False, True, True])
    largest = sums.unique("window", keep="first", maintain_order=True)
    return of_every(largest, "window", steps.height)["bound_by"]
