"""How the ranks of a lake divide the work: the place of each rank, and the schedule of each pipeline."""

from typing import Any, NamedTuple

import polars as pl

from kernelscope.analysis.training.pipelines import ranks_of_pipelines, slots_of, stages_of
from kernelscope.errors import NotRecordedError
from kernelscope.memo import per_trace
from kernelscope.report.parts.parallelism import (
    MOST_RANKS,
    NO_DIMENSION,
    NO_PIPELINE,
    group_table,
    has_dimensions,
    layout_table,
    stage_table,
    traffic_table,
    used_dimensions,
)
from kernelscope.report.parts.tables import Table
from kernelscope.view.choice import Choice
from kernelscope.view.cluster import asked_run, cluster_in, to_steps
from kernelscope.view.parameters import Parameters
from kernelscope.view.tables import Lead

_STAGES, _LAYOUT = "stages", "layout"
_OF_JOB = {"dimensions": group_table, "by-dimension": traffic_table, _LAYOUT: layout_table}
_MOST_SLOTS = 5_000
_MOST_STEPS = 1_000
_OF_STAGE = (
    "rank",
    "stage",
    "slots_ns",
    "bubble_ns",
    "bubble_transfer_ns",
    "bubble_share",
    "over_mean_share",
)


class _Pipeline(NamedTuple):
    """The slots of all steps of a pipeline, and its stages."""

    slots: pl.DataFrame
    stages: pl.DataFrame


def layout(choice: Choice, asked: Parameters) -> dict[str, Any]:
    """Returns the place of each rank in each dimension of parallelism that the job uses.

    ``ranks`` are their numbers, at most 1,024, ``open`` the numbers of their traces, and ``places`` has for
    each dimension the place of each of these ranks, or null. ``left`` is the number of omitted ranks.
    ``tables`` are the heads of the tables of this view.
    """
    _, run = asked_run(choice, asked)
    cluster = cluster_in(choice, run=run)
    if not has_dimensions(cluster):
        raise NotRecordedError(NO_DIMENSION)
    tables = _tables(choice, run=run)
    found = tables[_LAYOUT].frame
    shown = found.head(MOST_RANKS)
    numbers = _traces(choice, run=run)
    return {
        "ranks": shown["rank"].to_list(),
        "open": [numbers.get(rank) for rank in shown["rank"]],
        "places": {name: shown[name].to_list() for name in used_dimensions(found)},
        "left": found.height - shown.height,
        "tables": [table.head() for table in tables.values()],
    }


def pipeline(choice: Choice, asked: Parameters) -> dict[str, Any]:
    """Returns the schedule of a pipeline in a step. Only the ranks of this pipeline are read.

    ``pipeline`` is its first rank (default: the pipeline of the slowest rank), ``step`` a number (default:
    the longest). ``pipelines`` are the first ranks and the ranks of all. ``steps`` are numbers and durations
    in ns, at most 1,000. ``stages`` are rows of :func:`kernelscope.analysis.pipeline_stages` with ``open``
    (number of the trace). ``slots`` are columns, at most 5,000 in order of time: ``rank``, ``micro_batch``,
    ``stage``, ``direction``, ``start`` and ``length``; ``left`` is the number of omitted ones. ``table`` is
    the head of the table of all steps.
    """
    ranks, run = asked_run(choice, asked)
    pipelines = _pipelines(choice, run=run)
    first = _first(choice, run, asked)
    known = _pipeline(choice, run=run, first=first)
    if known.stages.is_empty():
        raise NotRecordedError(NO_PIPELINE)
    steps = known.stages.group_by("step").agg(pl.col("pipeline_ns").first()).sort("step", nulls_last=True)
    number = asked.whole("step", -1)
    chosen = steps.filter(step=number) if number >= 0 else steps.sort("pipeline_ns").tail(1)
    if chosen.is_empty():
        raise NotRecordedError(f"the pipeline has no step {number}")
    step, length = chosen.row(0)
    stages = known.stages.filter(pl.col("step").eq_missing(step))
    slots = known.slots.filter(pl.col("step").eq_missing(step)).sort("start_ns")
    start_ns = int(slots["start_ns"][0])
    shown = slots.head(_MOST_SLOTS)
    numbers = ranks.of_steps(run)
    schedule = stages.row(0, named=True)
    return {
        "pipeline": first,
        "pipelines": list(pipelines.items()),
        "step": step,
        "steps": steps.head(_MOST_STEPS).rows(),
        "length": length,
        **{name: schedule[name] for name in ("schedule", "micro_batches", "chunks", "ideal_share")},
        "stages": [
            {**row, "open": numbers.get((row["rank"], step))} for row in stages.select(_OF_STAGE).to_dicts()
        ],
        "slots": {
            **shown.select("rank", "micro_batch", "stage", "direction").to_dict(as_series=False),
            "start": (shown["start_ns"] - start_ns).to_list(),
            "length": shown["dur_ns"].to_list(),
        },
        "left": slots.height - shown.height,
        "table": _stages_table(choice, asked).head(),
    }


def table_of(choice: Choice, asked: Parameters) -> tuple[Table, Lead] | None:
    """Returns a table of these views and the targets of its rows; null if there is none with this name."""
    _, run = asked_run(choice, asked)
    name = asked.text("table")
    if name == _STAGES:
        return _stages_table(choice, asked), to_steps(choice, run)
    if name not in _OF_JOB:
        return None
    traces = _traces(choice, run=run)

    def of_ranks(rows: pl.DataFrame) -> list[dict[str, Any] | None]:
        known = [traces.get(rank) for rank in rows["rank"]] if name == _LAYOUT else [None] * rows.height
        return [None if number is None else {"open": number} for number in known]

    return _tables(choice, run=run)[name], of_ranks


def _stages_table(choice: Choice, asked: Parameters) -> Table:
    _, run = asked_run(choice, asked)
    return stage_table(_pipeline(choice, run=run, first=_first(choice, run, asked)).stages)


@per_trace
def _tables(choice: Choice, *, run: str) -> dict[str, Table]:
    cluster = cluster_in(choice, run=run)
    return {name: make(cluster) for name, make in _OF_JOB.items()}


def _first(choice: Choice, run: str, asked: Parameters) -> int:
    """The first rank of the pipeline that is asked for."""
    pipelines = _pipelines(choice, run=run)
    if not pipelines:
        raise NotRecordedError(NO_PIPELINE)
    first = asked.whole("pipeline", next(iter(pipelines)))
    if first not in pipelines:
        raise NotRecordedError(f"no pipeline begins with rank {first}")
    return first


@per_trace
def _pipelines(choice: Choice, *, run: str) -> dict[int, list[int]]:
    return ranks_of_pipelines(cluster_in(choice, run=run))


@per_trace
def _pipeline(choice: Choice, *, run: str, first: int) -> _Pipeline:
    ranks, _ = asked_run(choice, Parameters({"run": run}))
    cluster = cluster_in(choice, run=run)
    slots = slots_of(ranks.lake.of_run(run), cluster, ranks=_pipelines(choice, run=run)[first])
    return _Pipeline(slots, stages_of(slots, cluster))


@per_trace
def _traces(choice: Choice, *, run: str) -> dict[int, int]:
    """The number of the first trace of each rank."""
    ranks, _ = asked_run(choice, Parameters({"run": run}))
    known = cluster_in(choice, run=run).ranks.select("rank", "source")
    sources: dict[str, int] = {}
    for (source, _window), number in sorted(ranks.of_sources(run).items()):
        sources.setdefault(source, number)
    return {rank: sources[source] for rank, source in known.iter_rows() if source in sources}
