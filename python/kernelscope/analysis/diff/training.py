"""Changes of training between two traces: by phase, and by dimension of parallelism."""

import polars as pl

from kernelscope.analysis.diff.comparison import SIDES, Comparison, compare
from kernelscope.analysis.ranks.cluster import cluster_of
from kernelscope.analysis.ranks.collectives import rank_calls
from kernelscope.analysis.training.backward import in_backward
from kernelscope.analysis.training.dimensions import parallel_dimensions
from kernelscope.analysis.training.phases import training_phases
from kernelscope.trace import Trace

_OF_PHASE = ("device_ns", "host_ns")
_OF_DIMENSION = ("exposed_ns", "total_ns", "calls")


def diff_phases(before: Trace, after: Trace) -> pl.DataFrame:
    """Time of each phase of training per step in both traces, for phases that changed.

    Columns: ``phase`` (see :func:`training_phases`; null for GPU operations without an operator);
        ``device_ns_before`` and ``device_ns_after`` (GPU operations), ``host_ns_before`` and
        ``host_ns_after`` (own time of operators), ``device_delta_ns`` and ``host_delta_ns``. All are means of
        a step. Empty if neither trace has a backward pass.
    Units: ns.
    Order: by the size of the change on the device, then on the host, largest first.
    Raises: NotRecordedError: a trace contains nothing with a duration, or only one marks steps.
    """
    return phase_differences(compare(before, after))


def diff_dimensions(before: Trace, after: Trace) -> pl.DataFrame:
    """Communication of each dimension of parallelism per step in both traces, for dimensions that changed.

    Columns: ``dimension`` (see :func:`parallel_dimensions`; null if unknown); ``exposed_ns_*`` (while nothing
        computes), ``total_ns_*`` and ``calls_*`` of both traces, ``exposed_delta_ns``, ``total_delta_ns`` and
        ``calls_delta``. All are means of a step.
    Units: ns.
    Order: by the size of the exposed change, largest first.
    Raises: NotRecordedError: a trace contains nothing with a duration, or only one marks steps.
    """
    return dimension_differences(compare(before, after))


def phase_differences(both: Comparison) -> pl.DataFrame:
    """Returns the rows of :func:`diff_phases`."""
    trains = any(trace.ops.select(in_backward().any()).item() for trace in (both.before, both.after))
    sides = [training_phases(both.side(side)[0], by=("phase", "step")) for side in SIDES]
    return _changes(both, sides if trains else [side.clear() for side in sides], "phase", _OF_PHASE)


def dimension_differences(both: Comparison) -> pl.DataFrame:
    """Returns the rows of :func:`diff_dimensions`."""
    return _changes(both, [_calls(both.side(side)[0]) for side in SIDES], "dimension", _OF_DIMENSION)


def _calls(trace: Trace) -> pl.DataFrame:
    """Collectives of a trace by dimension and step."""
    cluster = cluster_of(trace)
    groups = parallel_dimensions(cluster).select("group", "dimension")
    calls = rank_calls(cluster).join(groups, on="group", how="left")
    sums = [pl.col("exposed_ns").sum(), pl.col("dur_ns").sum().alias("total_ns")]
    return calls.group_by("dimension", "step").agg(*sums, calls=pl.len().cast(pl.Int64))


def _changes(both: Comparison, sides: list[pl.DataFrame], key: str, figures: tuple[str, ...]) -> pl.DataFrame:
    """Means of a compared step side by side, where any of them changed."""
    means: list[pl.DataFrame] = []
    for side, table in zip(SIDES, sides, strict=True):
        steps = both.steps[f"step_{side}"]
        # A trace that is one step has no numbers.
        compared = table if steps.null_count() else table.filter(pl.col("step").is_in(steps.implode()))
        sums = compared.group_by(key).agg(pl.col(figures).sum() / both.steps.height)
        means.append(sums.rename({name: f"{name}_{side}" for name in figures}))
    table = means[0].join(means[1], on=key, how="full", coalesce=True, nulls_equal=True)
    columns = [f"{name}_{side}" for name in figures for side in SIDES]
    table = table.with_columns(pl.col(columns).fill_null(0))
    deltas = {
        name.replace("_ns", "_delta_ns") if name.endswith("_ns") else f"{name}_delta": (
            pl.col(f"{name}_after") - pl.col(f"{name}_before")
        )
        for name in figures
    }
    table = table.with_columns(**deltas).filter(pl.any_horizontal(pl.col(name) != 0 for name in deltas))
    order = [pl.col(name).abs() for name in deltas]
    descending = [*(True for _ in order), False]
    return table.select(key, *columns, *deltas).sort(*order, key, descending=descending, nulls_last=True)
