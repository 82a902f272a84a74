"""Calls that can have a cost, and their costs, computed once per class of equal calls."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from kernelscope.analysis.costs.hints import NOTHING, ExternalHints
from kernelscope.costs import CONVENTIONS, ConventionName, cost_of
from kernelscope.trace import Trace

FIGURES = ("flops", "bytes_read", "bytes_written")
"""Columns of a cost that can be summed."""

_SCHEMA = {
    "model": pl.String,
    "family": pl.String,
    "composite": pl.Boolean,
    "flops": pl.Int64,
    "bytes_read": pl.Int64,
    "bytes_written": pl.Int64,
    "dtype": pl.String,
    "peak": pl.String,
    "status": pl.String,
    "note": pl.String,
}
_NO_MODEL = (None, None, False, None, None, None, None, None, "unknown_op", "no model")
INPUTS = ("input_dims", "input_types", "input_strides", "concrete_inputs")
"""Columns with the recorded inputs of a call."""


def class_costs(
    representatives: pl.DataFrame, *, convention: ConventionName, external_hints: Mapping[int, ExternalHints]
) -> pl.DataFrame:
    """Returns the cost of each class of calls, computed for its representative.

    Columns: ``representatives`` needs ``name`` and ``INPUTS``, and may have ``entry``: the index in
        ``external_hints`` of inputs known from other records. The result has the columns of
        :func:`kernelscope.analysis.costs` that do not depend on the GPU, and ``composite``.
    """
    modelled = _modelled(representatives["name"], convention)
    asked = representatives.filter(modelled).with_columns(pl.col(pl.Categorical).cast(pl.String))
    rows = [_NO_MODEL, *(_row(call, convention, external_hints) for call in asked.iter_rows(named=True))]
    costs = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    numbers = modelled.cast(pl.UInt32).cum_sum()
    at = pl.select(pl.when(modelled).then(numbers).otherwise(0)).to_series()
    return pl.concat([representatives.select("name"), costs[at]], how="horizontal")


def _modelled(names: pl.Series, convention: ConventionName) -> pl.Series:
    """Which of ``names`` have a model."""
    rules = CONVENTIONS[convention]
    distinct = names.unique().drop_nulls()
    found = [rules.find(text) is not None for text in distinct.cast(pl.String)]
    known = distinct.filter(pl.Series(found, dtype=pl.Boolean)).to_physical()
    return names.to_physical().is_in(known.implode()).fill_null(value=False)


def _row(
    call: Mapping[str, Any], convention: ConventionName, external_hints: Mapping[int, ExternalHints]
) -> tuple[object, ...]:
    name: str = call["name"]
    known = external_hints.get(call.get("entry") or 0, NOTHING)
    cost = cost_of(
        name,
        *(call[column] for column in INPUTS),
        convention=convention,
        list_dtype=known.list_dtype,
        output_dims=known.output_dims,
        hints=dict(known.hints),
    )
    model = CONVENTIONS[convention].find(name)
    status, note = cost.status, cost.note
    if known.note and status == "exact":
        status = "estimate"
    note = "; ".join(part for part in (note, known.note) if part) if status == "estimate" else note
    dtype = cost.dtype
    return (
        cost.model,
        model.family if model else None,
        model is not None and model.composite,
        cost.flops,
        cost.bytes_read,
        cost.bytes_written,
        dtype.name if dtype else None,
        dtype.peak if dtype else None,
        status,
        note,
    )


def operator_calls(trace: Trace) -> pl.DataFrame:
    """Returns operators and annotations, or NVTX ranges if the trace has them, which include its operators.

    PyTorch's ``emit_nvtx`` writes an operator's name and sizes into a range, but neither types nor strides.

    Columns: ``row``, ``parent_row``, ``forward_row``, ``name``, and ``INPUTS``.
    """
    if not trace.ranges.height:
        return trace.ops.select("row", "parent_row", "forward_row", "name", *INPUTS)
    unread = pl.lit(None, trace.ops.schema["input_types"])
    return trace.ranges.filter(pl.col("kind") == "push_pop").select(
        "row",
        "parent_row",
        pl.lit(None, pl.UInt32).alias("forward_row"),
        "name",
        pl.col("sizes").alias("input_dims"),
        *(unread.alias(column) for column in INPUTS[1:]),
    )
