"""Costs of many calls, computed once per distinct operator and inputs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from kernelscope.analysis.calls import INPUTS
from kernelscope.analysis.costing.hints import NOTHING, Elsewhere
from kernelscope.costs import CONVENTIONS, ConventionName, cost_of

_LARGEST_KEY = 2**62

_SCHEMA = {
    "cost_id": pl.UInt32,
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


class CostedCalls(NamedTuple):
    """Which cost each call has: ``cost_ids`` by the order of the calls (0 for no model), and the costs.

    ``costs`` has a row per distinct call; its first, of id 0, is that of operators without a model.
    """

    cost_ids: pl.Series
    costs: pl.DataFrame


def cost_calls(
    calls: pl.DataFrame,
    *,
    convention: ConventionName,
    elsewhere: Mapping[int, Elsewhere],
    elsewhere_ids: pl.Series,
) -> CostedCalls:
    """The costs of ``calls``, whose columns are those of :func:`operator_calls`.

    ``elsewhere_ids`` says for each call which entry of ``elsewhere`` holds what is known of its inputs from
    other records; 0 for nothing.
    """
    keys, count = _modelled(calls["name"], convention)
    numbered = calls.select(INPUTS).with_columns(_elsewhere=elsewhere_ids)
    key = _packed([(keys, count), *(_dense(numbered[column]) for column in numbered.columns)])
    # Calls without a model need no distinguishing.
    key = pl.select(pl.when(keys > 0).then(key + 1).otherwise(0)).to_series().alias("key")
    frame = calls.select("name", *INPUTS).with_columns(key, elsewhere_ids.alias("_elsewhere"))
    firsts = frame.group_by("key").agg(pl.all().first()).sort("key")
    firsts = firsts.with_columns(pl.col(pl.Categorical).cast(pl.String))
    if firsts.is_empty() or firsts["key"][0] != 0:
        firsts = pl.concat([firsts.clear(1), firsts], how="vertical").with_columns(pl.col("key").fill_null(0))
    ids = firsts.select("key", cost_id=pl.int_range(pl.len(), dtype=pl.UInt32))
    rows = [_row(0, {"name": None, "_elsewhere": 0}, convention, elsewhere)]
    rows += [
        _row(index, row, convention, elsewhere)
        for index, row in enumerate(firsts.iter_rows(named=True))
        if index
    ]
    costs = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    cost_ids = key.to_frame().join(ids, on="key", how="left", maintain_order="left")["cost_id"]
    return CostedCalls(cost_ids, costs)


def _modelled(names: pl.Series, convention: ConventionName) -> tuple[pl.Series, int]:
    """A number for each name that has a model, 0 for the others."""
    rules = CONVENTIONS[convention]
    distinct = names.unique().drop_nulls()
    texts = distinct.cast(pl.String).to_list()
    found = [rules.find(text) is not None for text in texts]
    kept = distinct.filter(pl.Series(found, dtype=pl.Boolean)).to_physical()
    codes = names.to_physical()
    largest = codes.max()
    if not isinstance(largest, int):
        return pl.zeros(names.len(), dtype=pl.UInt32, eager=True), 1
    numbers = pl.zeros(largest + 1, dtype=pl.UInt32, eager=True)
    numbers = numbers.scatter(kept, pl.int_range(1, kept.len() + 1, dtype=pl.UInt32, eager=True))
    return numbers.gather(codes).fill_null(0), kept.len() + 1


def _dense(column: pl.Series) -> tuple[pl.Series, int]:
    """The values of a column numbered without gaps, null as 0, and how many numbers there are."""
    codes = column.to_physical().cast(pl.UInt32)
    largest = codes.max()
    if not isinstance(largest, int):
        return pl.zeros(column.len(), dtype=pl.UInt32, eager=True), 1
    seen = pl.zeros(largest + 1, dtype=pl.UInt32, eager=True).scatter(codes.drop_nulls(), 1)
    numbers = seen.cum_sum()
    last = numbers[-1]
    return numbers.gather(codes).fill_null(0), int(last) + 1


def _packed(columns: list[tuple[pl.Series, int]]) -> pl.Series:
    """One number per row, equal where all columns are."""
    key, size = columns[0][0].cast(pl.UInt64), columns[0][1]
    for codes, count in columns[1:]:
        if size > _LARGEST_KEY // count:
            key, size = _renumbered(key)
        key, size = key * count + codes, size * count
    return key


def _renumbered(key: pl.Series) -> tuple[pl.Series, int]:
    """Large numbers made small: distinct ones stay distinct."""
    frame = key.alias("key").to_frame()
    numbers = frame.unique().with_columns(_number=pl.int_range(pl.len(), dtype=pl.UInt64))
    return frame.join(numbers, on="key", how="left", maintain_order="left")["_number"], numbers.height


def _row(
    cost_id: int, call: Mapping[str, Any], convention: ConventionName, elsewhere: Mapping[int, Elsewhere]
) -> tuple[object, ...]:
    name: str | None = call["name"]
    if name is None:
        return (cost_id, None, None, False, None, None, None, None, None, "unknown_op", "no model")
    known = elsewhere.get(call["_elsewhere"], NOTHING)
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
        cost_id,
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
