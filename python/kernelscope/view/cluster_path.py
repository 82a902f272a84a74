"""The critical path over the ranks of a lake: on which rank it is during a step, and why."""

from typing import Any, NamedTuple

import polars as pl

from kernelscope.analysis.dependencies.rank_path import path_of_job
from kernelscope.analysis.dependencies.ranks import job_of
from kernelscope.errors import NotRecordedError
from kernelscope.memo import per_trace
from kernelscope.report.parts.path_bars import MOST_RANKS, TOO_MANY, path_bars, step_windows
from kernelscope.view.choice import Choice
from kernelscope.view.cluster import asked_run, cluster_in
from kernelscope.view.parameters import Parameters

_MOST_STEPS = 1_000


class _Paths(NamedTuple):
    """The critical path of all steps, when each step is, and the ranks."""

    path: pl.DataFrame
    steps: pl.DataFrame


def rank_path(choice: Choice, asked: Parameters) -> dict[str, Any]:
    """Returns the critical path during a ``step`` of all ranks (default: the longest).

    ``steps`` are their numbers (null for one without) and durations in ns, at most 1,000. ``ranks`` are those
    on the path: ``rank``, ``open`` (the number of its trace) and ``ns``. ``bars`` are columns, in order of
    time: ``rank``, ``reason``, ``row`` (of the event, or null), ``start`` and ``length``. ``parts`` (reason
    and ns) sum to ``length``, the duration of the step.
    """
    ranks, run = asked_run(choice, asked)
    paths = _paths(choice, run=run)
    steps = paths.steps.with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
    number = asked.whole("step", -1)
    chosen = steps.filter(step=number) if number >= 0 else steps.sort("length", "start_ns").tail(1)
    if chosen.is_empty():
        raise NotRecordedError(f"no rank has a step {number}")
    step, start_ns, end_ns, length = chosen.row(0)
    bars = path_bars(paths.path, start_ns, end_ns).with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    of_ranks = bars.group_by("rank").agg(pl.col("ns").sum()).sort("rank")
    parts = bars.group_by("bound_by").agg(pl.col("ns").sum())
    numbers = ranks.of_steps(run)
    return {
        "step": step,
        "length": length,
        "steps": steps.select("step", "length").head(_MOST_STEPS).rows(),
        "ranks": [
            {"rank": rank, "ns": ns, "open": numbers.get((rank, step))} for rank, ns in of_ranks.iter_rows()
        ],
        "bars": {
            "rank": bars["rank"].to_list(),
            "reason": bars["bound_by"].to_list(),
            "row": bars["row"].to_list(),
            "start": (bars["start_ns"] - start_ns).to_list(),
            "length": bars["ns"].to_list(),
        },
        "parts": parts.sort("ns", "bound_by", descending=[True, False]).rows(),
    }


@per_trace
def _paths(choice: Choice, *, run: str) -> _Paths:
    cluster = cluster_in(choice, run=run)
    if cluster.ranks.height > MOST_RANKS:
        raise NotRecordedError(TOO_MANY)
    ranks, _ = asked_run(choice, Parameters({"run": run}))
    job = job_of(ranks.lake.of_run(run), {}, cluster=cluster)
    if job.steps.is_empty():
        raise NotRecordedError("no step is recorded in any rank, so that there is no path over them")
    return _Paths(path_of_job(job), step_windows(job))
