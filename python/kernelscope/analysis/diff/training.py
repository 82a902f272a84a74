"""Changes of training between two traces: by phase, and by dimension of parallelism."""

import polars as pl

from kernelscope.analysis.diff.comparison import SIDES, Comparison, compare
from kernelscope.analysis.grouping import gather_rows
from kernelscope.analysis.ranks.cluster import cluster_of
from kernelscope.analysis.ranks.collectives import rank_calls
from kernelscope.analysis.training.backward import in_backward
from kernelscope.analysis.training.dimensions import with_dimension
from kernelscope.analysis.training.phases import phased, training_phases
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_OF_PHASE = ("device_ns", "host_ns")
_PHASES = {"phase": pl.String, "step": pl.Int32, **dict.fromkeys(_OF_PHASE, pl.Int64)}
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
    sides = [
        training_phases(both.side(side)[0], by=("phase", "step")) if trains else pl.DataFrame(schema=_PHASES)
        for side in SIDES
    ]
    return _changes(both, sides, "phase", _OF_PHASE)


def dimension_differences(both: Comparison) -> pl.DataFrame:
    """Returns the rows of :func:`diff_dimensions`."""
    sums = [pl.col("exposed_ns").sum(), pl.col("dur_ns").sum().alias("total_ns")]
    sides = [
        _calls(both.side(side)[0]).group_by("dimension", "step").agg(*sums, calls=pl.len().cast(pl.Int64))
        for side in SIDES
    ]
    return _changes(both, sides, "dimension", _OF_DIMENSION)


def rows_of_phase(trace: Trace, phase: str | None) -> pl.Series:
    """Returns the GPU operations in a phase of training, or if there are none, its operators, by ``row``."""
    ops = phased(trace)
    work = trace.gpu_ops.select("row").hstack(gather_rows(trace.gpu_ops["op_row"], ops, "phase"))
    here = pl.col("phase").eq_missing(pl.lit(phase, pl.String))
    found = work.filter(here)
    return (found if found.height else ops.filter(here))["row"]


def rows_of_dimension(trace: Trace, dimension: str | None) -> pl.Series:
    """Returns the collectives and transfers of a dimension of parallelism, by ``row``."""
    return _calls(trace).filter(pl.col("dimension").eq_missing(pl.lit(dimension, pl.String)))["row"]


@per_trace
def _calls(trace: Trace) -> pl.DataFrame:
    cluster = cluster_of(trace)
    return with_dimension(rank_calls(cluster), cluster)


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
