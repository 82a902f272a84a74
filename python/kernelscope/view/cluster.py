"""The ranks of a lake side by side: each in each step, and the waits in each collective."""

from collections.abc import Callable
from typing import Any

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.ranks.cluster import Cluster
from kernelscope.analysis.ranks.collectives import calls_of
from kernelscope.analysis.ranks.parts import LEAST_MEMORY
from kernelscope.analysis.ranks.rank_views import rank_cells, sharing
from kernelscope.errors import InvalidArgumentError, NotRecordedError, did_you_mean
from kernelscope.memo import per_trace
from kernelscope.report.names import safe, short
from kernelscope.report.parts.columns import COLUMNS
from kernelscope.report.parts.tables import Table
from kernelscope.view.choice import Choice
from kernelscope.view.lake_ranks import LakeRanks
from kernelscope.view.parameters import Parameters
from kernelscope.view.places import SHORT
from kernelscope.view.tables import Lead

CELLS, COLLECTIVES = "cells", "collectives"
"""Tables of this view."""

_VALUES = {
    "own_ns": "Own time",
    "total_ns": "Wall time",
    "compute_ns": "Computing",
    "network_ns": "Network",
    "wait_ns": "Waiting",
    "data_ns": "Loading data",
    "launch_ns": "Launching",
}
"""Values of a cell of the heat map, with their titles."""
_MOST_CELLS = 300
"""Maximum rows and columns of the heat map."""
_MOST_CALLS = 2_000
_SPREADS, _USUAL_SPREAD, _LEAST_SPREAD = 4, 0.2, 0.05
"""Range of the colours around the median: this multiple of the interquartile range, or this share of the
median if that is larger, but at most the largest value if it exceeds the last share."""
_COLLECTIVE_COLUMNS = (
    "kind", "step", "wait_ns", "skew_ns", "transfer_ns", "first_rank", "last_rank", "message_bytes",
    "bus_bytes_per_s", "ranks_seen", "group",
)  # fmt: skip
_OF_COLLECTIVE = (
    "instance", "kind", "step", "ranks_seen", "group_size", "message_bytes", "skew_ns", "transfer_ns",
    "wait_ns", "bus_bytes_per_s", "first_rank", "last_rank",
)  # fmt: skip


def is_cluster(choice: Choice) -> bool:
    """Returns whether the traces are ranks on one clock."""
    return isinstance(choice.catalogue, LakeRanks) and bool(choice.catalogue.runs)


def cluster(choice: Choice, asked: Parameters) -> dict[str, Any]:
    """Returns properties of the ranks of a ``run`` (default: the first).

    ``values`` are the values for the heat map, as name, title and meaning; ``tables`` the heads of two
    tables.
    """
    ranks, run = asked_run(choice, asked)
    known = cluster_in(choice, run=run)
    return {
        "run": run,
        "runs": [[name, safe(name)] for name in ranks.runs],
        "ranks": known.ranks.height,
        "steps": _steps(choice, run=run)["step"].n_unique(),
        "values": [[name, title, COLUMNS[name].what] for name, title in _VALUES.items()],
        "tables": {name: _TABLES[name](choice, run).head() for name in _TABLES},
    }


def heat(choice: Choice, asked: Parameters) -> dict[str, Any]:
    """Returns a ``value`` of each rank in each step, in at most ``down`` rows and ``across`` columns.

    ``cells`` are columns: ``row``, ``column``, ``rank``, ``step``, ``value_ns``, ``median_ns`` (of the step
    over all ranks) and ``cause``, if the rank straggles. If neighbours share a cell, up to ``ranks`` by
    ``steps`` of them, it has their maximum. ``scale`` has the start of the colours, the median, and their
    end.
    """
    _, run = asked_run(choice, asked)
    value = asked.text("value", "own_ns")
    if value not in _VALUES:
        raise NotRecordedError(f"steps have no value {value[:40]!r}{did_you_mean(value[:40], _VALUES)}")
    down, across = (asked.between(name, 1, _MOST_CELLS, _MOST_CELLS) for name in ("down", "across"))
    steps = _steps(choice, run=run)
    cells = rank_cells(steps, value=value, most_ranks=down, most_steps=across)
    causes = _stragglers(choice, run=run).select("rank", "step", "cause")
    cells = cells.join(causes, on=["rank", "step"], how="left", maintain_order="left")
    ranks, numbers = (steps[name].unique().sort().to_list() for name in ("rank", "step"))
    together = sharing(len(ranks), down), sharing(len(numbers), across)
    return {
        "value": value,
        "cells": cells.with_columns(pl.col("median_ns").round().cast(pl.Int64)).to_dict(as_series=False),
        "ranks": {"first": ranks[:: together[0]], "last": ranks[-1:], "together": together[0]},
        "steps": {"first": numbers[:: together[1]], "last": numbers[-1:], "together": together[1]},
        "scale": _scale(steps[value]),
    }


def _scale(values: pl.Series) -> list[float]:
    """Where colours begin, the median, where they end: one slow step does not make all others look alike."""
    known = values.to_frame("ns").select(
        middle=pl.col("ns").median(),
        half=pl.col("ns").quantile(0.75) - pl.col("ns").quantile(0.25),
        most=pl.col("ns").max(),
    )
    middle, half, most = (float(figure or 0) for figure in known.row(0))
    furthest = max(most - middle, _LEAST_SPREAD * middle)
    spread = min(max(_SPREADS * half, _USUAL_SPREAD * middle) or furthest, furthest)
    return [max(middle - spread, 0.0), middle, middle + spread]


def opening(choice: Choice, asked: Parameters) -> dict[str, Any]:
    """Returns ``open``, the number of the trace with a ``step`` of a ``rank``."""
    _, run = asked_run(choice, asked)
    rank, step = asked.whole("rank"), asked.whole("step")
    number = _of_steps(choice, run=run).get((rank, step))
    if number is None:
        ranks = {other for other, _ in _of_steps(choice, run=run)}
        what = (
            f"rank {rank} has no step {step}"
            if rank in ranks
            else f"rank {rank} does not exist or has no steps"
        )
        raise NotRecordedError(f"{what} in run {safe(run)[:40]}")
    return {"open": number, "step": step}


def collective(choice: Choice, asked: Parameters) -> dict[str, Any]:
    """Returns the ranks of a collective on one clock, from the arrival of the first.

    Without a number ``instance``, it is the one with the longest wait. ``calls`` are columns, by rank:
    ``rank``, ``open`` (the number of its trace), ``row`` (of the event), ``start``, ``length``, ``wait``
    (null for kinds that do not wait for all) and ``offset`` (of its clock). ``left`` is the number of omitted
    ranks.
    """
    ranks, run = asked_run(choice, asked)
    instances = _instances(choice, run=run)
    if instances.is_empty():
        raise NotRecordedError("no trace of this lake has communication")
    number = asked.whole("instance", int(instances["instance"][0]))
    calls = calls_of(cluster_in(choice, run=run), number).join(
        _clocks(choice, run=run), on="rank", how="left"
    )
    zero = int(calls.select(pl.col("start_ns").min()).item())
    numbers = ranks.of_sources(run)
    shown = calls.head(_MOST_CALLS)
    places = shown.select("source", "window").iter_rows()
    known = instances.filter(instance=number).row(0, named=True)
    return {
        **{name: known[name] for name in _OF_COLLECTIVE},
        "name": safe(known["name"]),
        "group": short(known["group"], SHORT),
        "length": int(calls.select((pl.col("start_ns") + pl.col("dur_ns")).max()).item()) - zero,
        "calls": {
            "rank": shown["rank"].to_list(),
            "open": [numbers.get(place) for place in places],
            "row": shown["row"].to_list(),
            "start": (shown["start_ns"] - zero).to_list(),
            "length": shown["dur_ns"].to_list(),
            "wait": shown["wait_ns"].to_list(),
            "offset": shown["offset_ns"].to_list(),
        },
        "left": calls.height - shown.height,
    }


def table_of(choice: Choice, asked: Parameters) -> tuple[Table, Lead]:
    """Returns a table of this view, and the targets of its rows.

    Raises: NotRecordedError: there is none with this name.
    """
    _, run = asked_run(choice, asked)
    name = asked.text("table")
    if name not in _TABLES:
        raise NotRecordedError(f"there is no list {name[:40]!r}")
    lead = _to_collectives if name == COLLECTIVES else to_steps(choice, run)
    return _TABLES[name](choice, run), lead


def to_steps(choice: Choice, run: str) -> Lead:
    """Returns the targets of rows with a ``rank`` and a ``step``: the trace of the rank at the step."""
    numbers = _of_steps(choice, run=run)

    def lead(rows: pl.DataFrame) -> list[dict[str, Any] | None]:
        places = rows.select("rank", "step").iter_rows()
        return [{"open": numbers[place], "step": place[1]} if place in numbers else None for place in places]

    return lead


def _to_collectives(rows: pl.DataFrame) -> list[dict[str, Any] | None]:
    return [{"collective": instance} for instance in rows["instance"].to_list()]


def _cells_table(choice: Choice, run: str) -> Table:
    what = (
        "One row per step and rank, the largest deviation from the median of its step first. Click "
        "to open it."
    )
    columns = ("rank", "step", "over_median_ns", *_VALUES, "cause")
    return Table(
        CELLS, "Steps of all ranks", what, _rows(choice, run=run), columns,
        titles={"total_ns": "Wall time", "compute_ns": "Computing", "cause": "Late by"},
    )  # fmt: skip


def _collectives_table(choice: Choice, run: str) -> Table:
    what = "The longest waits first, summed over the ranks. Click a row to show its ranks."
    titles = {"wait_ns": "Waiting", "kind": "Collective"}
    return Table(
        COLLECTIVES, "All collectives", what, _instances(choice, run=run), _COLLECTIVE_COLUMNS, titles=titles
    )


_TABLES: dict[str, Callable[[Choice, str], Table]] = {CELLS: _cells_table, COLLECTIVES: _collectives_table}


def asked_run(choice: Choice, asked: Parameters) -> tuple[LakeRanks, str]:
    """Returns the ranks of the lake, and the run that is asked for.

    Raises: NotRecordedError: these are no ranks of a lake, or there is no such run.
    """
    choice.check()
    ranks = choice.catalogue
    if not isinstance(ranks, LakeRanks):
        raise NotRecordedError(
            "traces of a folder have no common clock: create a lake with kernelscope batch"
        )
    if not ranks.runs:
        raise NotRecordedError("no rank of this lake could be read")
    run = asked.text("run", ranks.runs[0])
    if run not in ranks.runs:
        raise NotRecordedError(f"the lake has no run {safe(run)[:40]!r}")
    return ranks, run


@per_trace
def cluster_in(choice: Choice, *, run: str) -> Cluster:
    """Returns the small frames of all ranks of a run; much communication lies in files."""
    ranks = choice.catalogue
    if not isinstance(ranks, LakeRanks):
        raise InvalidArgumentError("only the ranks of a lake have a common clock")
    return analysis.cluster_of(ranks.lake.of_run(run), memory=max(choice.most_bytes, LEAST_MEMORY))


@per_trace
def _steps(choice: Choice, *, run: str) -> pl.DataFrame:
    return analysis.rank_steps(cluster_in(choice, run=run)).drop_nulls("step")


@per_trace
def _stragglers(choice: Choice, *, run: str) -> pl.DataFrame:
    return analysis.stragglers(cluster_in(choice, run=run)).drop_nulls("step")


@per_trace
def _rows(choice: Choice, *, run: str) -> pl.DataFrame:
    """Each step of each rank, how far it is over the median, and what made it late."""
    steps = _steps(choice, run=run)
    middle = pl.col("own_ns").median().over("step").round().cast(pl.Int64)
    causes = _stragglers(choice, run=run).select("rank", "step", "cause")
    found = steps.with_columns(over_median_ns=pl.col("own_ns") - middle).join(
        causes, on=["rank", "step"], how="left", maintain_order="left"
    )
    return found.sort("over_median_ns", "step", "rank", descending=[True, False, False], nulls_last=True)


@per_trace
def _instances(choice: Choice, *, run: str) -> pl.DataFrame:
    found = analysis.collective_instances(cluster_in(choice, run=run))
    return found.sort("wait_ns", "instance", descending=[True, False], nulls_last=True)


@per_trace
def _clocks(choice: Choice, *, run: str) -> pl.DataFrame:
    """The source of each rank, and how far its clock was ahead."""
    known = cluster_in(choice, run=run)
    offsets = analysis.clock_offsets(known).select("rank", "offset_ns")
    return known.ranks.select("rank", "source").join(offsets, on="rank", how="left")


@per_trace
def _of_steps(choice: Choice, *, run: str) -> dict[tuple[int, int], int]:
    ranks = choice.catalogue
    return ranks.of_steps(run) if isinstance(ranks, LakeRanks) else {}
