"""Changes between two traces: by owner, and operators and kernels side by side."""

from collections.abc import Mapping, Sequence

import polars as pl

from kernelscope.analysis.costs.limits import limited_work, work_rows
from kernelscope.analysis.diff.comparison import SIDES, Comparison, compare
from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.analysis.ops.table import ops
from kernelscope.trace import Trace

KEYS = ("category", "module", "op", "name")
"""Groupings that :func:`diff` accepts."""

_RENAMED = ("module", "op", "name")


def diff(before: Trace, after: Trace, *, by: str | Sequence[str] = KEYS) -> pl.DataFrame:
    """Changes that make the steps of ``after`` slower or faster than those of ``before``, the largest first.

    Steps are paired by number (by position if no number occurs in both). Within them, operators are paired by
    a longest common subsequence of module, name, depth and shapes, and within those, GPU operations by name
    and order. So a renumbered module, or a kernel that replaced another, is compared with its predecessor. A
    kernel without a counterpart is compared with one of the same name, independent of the demangler. Each
    moment of a step has one owner: the first running category of kernel, copy, memset, communication, runtime
    call, data loading and other host work, and in it the activity that began last. A moment without a
    recorded activity belongs to the category ``other``. So the deltas sum to the difference of the mean step
    times, and host time hidden by a running kernel does not count. Unchanged rows are left out: a trace
    compared with itself gives an empty table.

    ``by`` accepts ``category``, ``module``, ``op`` and ``name`` (of a kernel, copy, call or operator).

    Columns: the columns of ``by``, with the names in ``after`` or, if absent there, in ``before``;
        ``module_before``, ``op_before`` and ``name_before`` (earlier names, if different); ``calls_before``,
        ``calls_after``, ``before_ns``, ``after_ns``, ``delta_ns`` (means of a step); ``spread_ns`` (the root
        of the summed variances of single steps in both traces; null for a single step) and ``is_noise``
        (whether the delta is within the spread).
    Units: ns.
    Order: by the size of the delta, largest first.
    Raises: InvalidArgumentError: ``by`` is unknown. NotRecordedError: a trace contains nothing with a
        duration, or only one marks steps.
    Example: ``diff(old, new).filter(pl.col("delta_ns") > 0).head(10)``
    """
    return differences(compare(before, after), by=by)


def diff_operators(
    before: Trace, after: Trace, *, by: str | Sequence[str] = ("op",), costs: bool = True
) -> pl.DataFrame:
    """Costs of operators per step in both traces, for operators that changed.

    Operators are paired as in :func:`diff`. Times are the operators' own, hidden or not, so they do not sum
    to the difference of the steps. ``by`` accepts ``op`` and ``module``. Without ``costs``, FLOPs are not
    computed.

    Columns: the columns of ``by``; ``op_before`` or ``module_before`` (the earlier name, if different); for
        each trace ``calls_*``, ``host_ns_*`` (own time on the host), ``device_ns_*`` (GPU operations that it
        launched itself), ``flops_*``, ``attained_pct_*`` (minimum GPU time relative to measured time, if both
        are known); then ``calls_delta``, ``host_delta_ns``, ``device_delta_ns``, ``flops_delta`` and
        ``attained_delta_pct``. All but the percentages are means of a step. FLOPs are null if none are known.
    Units: ns; FLOP; percent.
    Order: by the size of the change on the device, then on the host, largest first.
    Raises: InvalidArgumentError: ``by`` is unknown. NotRecordedError: a trace contains nothing with a
        duration, or only one marks steps.
    """
    return operator_differences(compare(before, after), by=by, costs=costs)


def diff_kernels(before: Trace, after: Trace, *, costs: bool = True) -> pl.DataFrame:
    """Costs of kernels per step in both traces, for kernels that changed, paired as in :func:`diff`.

    Columns: ``name``, ``name_before`` (the earlier name, if different); for each trace ``calls_*``,
        ``total_ns_*``, ``mean_ns_*`` (of a call), ``flops_*``, ``attained_pct_*``; then ``calls_delta``,
        ``total_delta_ns``, ``mean_delta_ns``, ``flops_delta`` and ``attained_delta_pct``. Calls, totals and
        FLOPs are means of a step.
    Units: ns; FLOP; percent.
    Order: by the size of the change in total, largest first.
    Raises: NotRecordedError: a trace contains nothing with a duration, or only one marks steps.
    """
    return kernel_differences(compare(before, after), costs=costs)


def differences(both: Comparison, *, by: str | Sequence[str] = KEYS) -> pl.DataFrame:
    """Returns the differences by the columns ``by``; see :func:`diff`."""
    columns = check_by(by, KEYS)
    figures = ("before_ns", "after_ns", "calls_before", "calls_after")
    renamed = [f"{c}_before" for c in columns if c in _RENAMED]
    count = both.steps.height
    of_step = both.parts.group_by(*columns, "pair").agg(
        pl.col(figures).sum(), *(pl.col(c).drop_nulls().first() for c in renamed)
    )
    table = of_step.group_by(columns).agg(
        *(pl.col(c).drop_nulls().first() for c in renamed),
        *((pl.col(c).sum() / count).alias(c) for c in figures),
        spread_ns=(_variance("before_ns", count) + _variance("after_ns", count)).sqrt(),
    )
    table = as_text(table.with_columns(delta_ns=pl.col("after_ns") - pl.col("before_ns")))
    changed = (pl.col("delta_ns") != 0) | (pl.col("calls_before") != pl.col("calls_after"))
    ordered = table.filter(changed).sort(
        [pl.col("delta_ns").abs(), *columns], descending=[True, *(False for _ in columns)], nulls_last=True
    )
    return ordered.select(
        *columns,
        *renamed,
        "calls_before",
        "calls_after",
        "before_ns",
        "after_ns",
        "delta_ns",
        "spread_ns",
        is_noise=pl.col("delta_ns").abs() <= pl.col("spread_ns"),
    )


def operator_differences(
    both: Comparison, *, by: str | Sequence[str] = ("op",), costs: bool = True
) -> pl.DataFrame:
    """Returns the rows of :func:`diff_operators`."""
    columns = check_by(by, ("op", "module"))
    sides = [_operators(both, side, columns, costs=costs) for side in SIDES]
    table = _side_by_side(sides, columns, ("calls", "host_ns", "device_ns"), ("flops", "attained_pct"))
    return _changed(table, ("device_delta_ns", "host_delta_ns", "calls_delta"), columns)


def kernel_differences(both: Comparison, *, costs: bool = True) -> pl.DataFrame:
    """Returns the rows of :func:`diff_kernels`."""
    sides = [_kernels(both, side, costs=costs) for side in SIDES]
    table = _side_by_side(sides, ["name"], ("calls", "total_ns"), ("mean_ns", "flops", "attained_pct"))
    return _changed(table, ("total_delta_ns", "calls_delta"), ["name"])


def _operators(both: Comparison, side: str, by: list[str], *, costs: bool) -> pl.DataFrame:
    trace = both.side(side)[0]
    calls = ops(trace, collapse=False).select("row", "step", "host_self_ns", "device_self_ns")
    count, device = both.steps.height, pl.col("device_self_ns")
    figures = {
        "host_ns": pl.col("host_self_ns").sum() / count,
        # Unknown, and not 0, in a trace without GPU work.
        "device_ns": pl.when(device.is_not_null().any()).then(device.sum() / count),
    }
    work = _work(trace, costs=costs).drop("row").rename({"op_row": "row"})
    return _summed(both, side, by, calls, work, figures)


def _kernels(both: Comparison, side: str, *, costs: bool) -> pl.DataFrame:
    trace = both.side(side)[0]
    kernels = trace.gpu_ops.filter(pl.col("kind") == "kernel").select("row", "step", "dur_ns")
    duration = pl.col("dur_ns")
    figures = {"total_ns": duration.sum() / both.steps.height, "mean_ns": duration.mean()}
    return _summed(both, side, ["name"], kernels, _work(trace, costs=costs), figures)


def _summed(
    both: Comparison,
    side: str,
    by: list[str],
    calls: pl.DataFrame,
    work: pl.DataFrame,
    figures: Mapping[str, pl.Expr],
) -> pl.DataFrame:
    """Calls and their ``figures``, and what their ``work`` had to do, summed over those that agree in ``by``.

    Only those count whose steps are compared: all in a trace that is one step.
    """
    names, count = both.side(side)[1], both.steps.height
    steps = both.steps[f"step_{side}"]
    if not steps.null_count():
        calls, work = (rows.filter(pl.col("step").is_in(steps.implode())) for rows in (calls, work))
    calls, work = (rows.join(names, on="row", how="inner") for rows in (calls, work))
    renamed = [f"{c}_before" for c in by if f"{c}_before" in names.columns]
    table = calls.group_by(by).agg(
        *(pl.col(c).drop_nulls().first() for c in renamed), calls=pl.len() / count, **figures
    )
    known = pl.col("attainable_ns").is_not_null()
    needed, taken = pl.col("attainable_ns").sum(), pl.col("dur_ns").filter(known).sum()
    costs = work.group_by(by).agg(
        flops=pl.when(pl.col("flops").is_not_null().any()).then(pl.col("flops").sum() / count),
        attained_pct=pl.when(taken > 0).then(100.0 * needed / taken),
    )
    return table.join(costs, on=by, how="left", nulls_equal=True)


def _work(trace: Trace, *, costs: bool) -> pl.DataFrame:
    """GPU work with its share of what its operator had to do."""
    if not costs:
        schema = {"row": pl.UInt32, "op_row": pl.UInt32, "step": pl.Int32, "dur_ns": pl.Int64}
        return pl.DataFrame(schema={**schema, "flops": pl.Float64, "attainable_ns": pl.Float64})
    return work_rows(trace, limited_work(trace))


def _side_by_side(
    sides: list[pl.DataFrame], by: list[str], counted: tuple[str, ...], others: tuple[str, ...]
) -> pl.DataFrame:
    """Both sides with their figures and these' deltas; what one side does not have at all is 0 if counted."""
    kept = [*by, *(f"{c}_before" for c in by)]
    named = [
        side.rename({c: f"{c}_{name}" for c in side.columns if c not in kept})
        for side, name in zip(sides, SIDES, strict=True)
    ]
    named = [as_text(side) for side in named]
    joined = named[0].join(named[1], on=by, how="full", coalesce=True, nulls_equal=True)
    has_gpu = {
        f"{c}_{name}": side[c].null_count() < side.height
        for side, name in zip(sides, SIDES, strict=True)
        for c in counted
    }
    joined = joined.with_columns(pl.col(c).fill_null(0) for c, known in has_gpu.items() if known)
    return joined.with_columns(map(_delta, (*counted, *others)))


def _delta(column: str) -> pl.Expr:
    """The change of a figure, such as ``host_delta_ns`` of ``host_ns``."""
    stem, *unit = column.split("_")
    return (pl.col(f"{column}_after") - pl.col(f"{column}_before")).alias("_".join([stem, "delta", *unit]))


def _changed(table: pl.DataFrame, deltas: tuple[str, ...], by: list[str]) -> pl.DataFrame:
    """The rows in which any of ``deltas`` is not 0, the largest first."""
    order = [pl.col(c).abs() for c in deltas]
    first = [*by, *(f"{c}_before" for c in by)]
    return (
        table.filter(pl.any_horizontal((pl.col(c) != 0).fill_null(value=False) for c in deltas))
        .sort([*order, *by], descending=[*(True for _ in order), *(False for _ in by)], nulls_last=True)
        .select(*first, pl.exclude(first))
    )


def _variance(column: str, count: int) -> pl.Expr:
    """The variance over ``count`` steps of what a group has in some of them; it has none in the others."""
    if count < 2:
        return pl.lit(None, pl.Float64)
    value = pl.col(column).cast(pl.Float64)
    mean = value.sum() / count
    around = ((value - mean) ** 2).sum() + (count - pl.len()) * mean**2
    return around / (count - 1)
