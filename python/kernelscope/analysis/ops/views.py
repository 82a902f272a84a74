"""Operators as shares of the whole, and the GPU work below each."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.call_tree import collapse_repeats
from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.ops.table import op_table
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

MEASURES = ("device_self_ns", "device_total_ns", "host_self_ns", "host_total_ns")
"""What operators are compared by."""

# Operators nest a dozen deep; a wrapper further up than this does not count the work.
_MOST_LEVELS = 1_000


def op_shares(
    trace: Trace,
    by: str | Sequence[str] = ("name",),
    *,
    top: int | None = None,
) -> pl.DataFrame:
    """How operators share the four totals of time: own and total, on the device and on the host.

    ``by`` groups as in :func:`kernelscope.analysis.op_table`. With ``top`` only so many rows of each total
    are given, and one without a name for all others together.

    Columns: ``measure`` (``device_self_ns`` ...), those of ``by``, ``value_ns``, ``share`` (of the measure's
        sum) and ``is_rest`` (true for the row of all others). Operators that took no time are left out.
    Units: ns; shares between 0 and 1. Totals of operators count what runs inside them, too, so that such a
        sum is more than the time that passed.
    Order: by measure, then by value, largest first.
    Raises: InvalidArgumentError: ``by`` names no column of ``ops``, or ``top`` is below 1.
    Source: the four pies of the operator view of the TensorBoard plugin.
    """
    if top is not None and top < 1:
        raise InvalidArgumentError(f"top must be at least 1, not {top}")
    columns = [by] if isinstance(by, str) else list(by)
    table = op_table(trace, by=columns)
    parts = [_shares(table, measure, columns, top) for measure in MEASURES]
    return pl.concat(parts)


def _shares(table: pl.DataFrame, measure: str, columns: list[str], top: int | None) -> pl.DataFrame:
    used = table.filter(pl.col(measure) > 0).sort(
        [measure, *columns], descending=[True, *(False for _ in columns)], nulls_last=True
    )
    total = int(used[measure].sum())
    rows = used.select(
        pl.lit(measure).alias("measure"), *columns, value_ns=measure, is_rest=pl.lit(value=False)
    )
    if top is not None and rows.height > top:
        rest = int(rows["value_ns"][top:].sum())
        last = pl.DataFrame({"measure": [measure], "value_ns": [rest], "is_rest": [True]})
        rows = pl.concat([rows.head(top), last], how="diagonal")
    return rows.select(
        "measure", *columns, "value_ns", share=pl.col("value_ns") / (total or None), is_rest="is_rest"
    )


def op_kernels(trace: Trace, *, collapse: bool = True) -> pl.DataFrame:
    """The GPU work that ran for each operator, by name: what one sees when one opens an operator.

    Work counts for the operator that launched it and for every one around that, as in the totals of
    :func:`kernelscope.analysis.op_table`, whose ``collapse`` this is.

    Columns: ``op``, ``kind`` (kernel, memcpy, memset, graph), ``name``, ``calls``, ``total_ns``, ``self_ns``
        (of that, what the operator launched itself), ``min_ns``, ``max_ns`` and ``share`` (of the operator's
        device time).
    Units: ns; shares between 0 and 1.
    Order: by operator, then by total time, longest first.
    """
    ops = trace.ops.select("row", "parent_row", "name")
    kept = collapse_repeats(ops) if collapse else ops.select("row", kept="row")
    parents = ops.join(kept, on="row", how="inner").filter(pl.col("row") == pl.col("kept"))
    above = kept.select(parent_row="row", _parent="kept")
    parents = parents.join(above, on="parent_row", how="inner").select("row", "_parent")
    linked = trace.gpu_ops.select("op_row", "kind", "name", "dur_ns").join(
        kept.select(op_row="row", row="kept"), on="op_row", how="inner"
    )
    duration = pl.col("dur_ns")
    level = linked.group_by("row", "kind", "name").agg(
        pl.len().cast(pl.Int64).alias("calls"),
        duration.sum().alias("total_ns"),
        duration.sum().alias("self_ns"),
        duration.min().alias("min_ns"),
        duration.max().alias("max_ns"),
    )
    levels = [level]
    # Of an operator around the one that launched it, work is not the own.
    level = level.with_columns(self_ns=pl.lit(0, pl.Int64))
    while level.height and len(levels) < _MOST_LEVELS:
        climbed = level.join(parents, on="row", how="inner")
        level = _merged(climbed, [pl.col("_parent").alias("row"), "kind", "name"])
        levels.append(level)
    named = pl.concat(levels).join(ops.select("row", op="name"), on="row", how="inner")
    table = _merged(named, ["op", "kind", "name"]).with_columns(
        share=pl.col("total_ns") / pl.col("total_ns").sum().over("op")
    )
    return (
        as_text(table)
        .select("op", "kind", "name", "calls", "total_ns", "self_ns", "min_ns", "max_ns", "share")
        .sort(["op", "total_ns", "name", "kind"], descending=[False, True, False, False], nulls_last=True)
    )


def _merged(frame: pl.DataFrame, keys: "Sequence[str | pl.Expr]") -> pl.DataFrame:
    sums = pl.col("calls", "total_ns", "self_ns").sum()
    return frame.group_by(keys).agg(sums, pl.col("min_ns").min(), pl.col("max_ns").max())
