"""A trace whose GPU work has been given to operators, with their costs: what costs and rooflines build on."""

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from kernelscope.analysis.calls import Places, operator_calls
from kernelscope.analysis.costing.attribution import Owners, call_tree, enclosing, host_only, owners
from kernelscope.analysis.costing.hints import known_elsewhere
from kernelscope.analysis.costing.unique_costs import cost_calls
from kernelscope.costs import ConventionName, Cost
from kernelscope.costs.dtypes import find_dtype
from kernelscope.costs.through_forward import gradient_cost

if TYPE_CHECKING:
    from kernelscope.trace import Trace

# Conventions of tools that do not look inside an operator that they count.
_OUTERMOST = frozenset({"torch", "tracelens"})
_FIGURES = ("flops", "bytes_read", "bytes_written")


class Costed(NamedTuple):
    """``ops``: a row per operator that counts. ``work``: a row per GPU op, with its operator.

    Columns of ``ops``: ``op_row``, ``name``, ``model``, ``family``, ``flops``, ``bytes_read``,
    ``bytes_written``, ``dtype``, ``peak``, ``status``, ``note``. Columns of ``work``: ``row``,
    ``op_row`` (null for none).
    """

    ops: pl.DataFrame
    work: pl.DataFrame


def costed_trace(
    trace: "Trace", *, convention: ConventionName, anchors: pl.DataFrame | None = None
) -> Costed:
    """The operators that count in ``trace`` with their costs, and which of them each GPU op belongs to.

    ``anchors`` may name other work than the GPU ops: its ``row`` and, as ``anchor``, the operator or range
    that launched it.

    Raises: KeyError: there is no such convention.
    """
    calls = operator_calls(trace)
    places = Places(calls["row"])
    elsewhere, elsewhere_ids = known_elsewhere(trace, calls, places)
    cost_ids, costs = cost_calls(
        calls, convention=convention, elsewhere=elsewhere, elsewhere_ids=elsewhere_ids
    )
    tree = call_tree(calls, places, cost_ids, costs)
    if anchors is None:
        anchors = trace.gpu_ops.select("row", anchor=pl.coalesce("op_row", "range_row"))
    if anchors.height:
        own = owners(tree, places.of(anchors["anchor"]), outermost=convention in _OUTERMOST)
        owned = _distinct(own, calls.height + 1)
        rows = pl.concat([pl.Series([None], dtype=pl.UInt32), calls["row"].cast(pl.UInt32)])
        work = anchors.select("row").with_columns(op_row=rows.gather(own.place))
    else:
        works = pl.concat([pl.Series([False]), _works(costs).gather(cost_ids)])
        owned = pl.DataFrame({"place": host_only(tree, works)})
        owned = owned.with_columns(forward=pl.lit(0, pl.UInt32))
        work = pl.DataFrame(schema={"row": pl.UInt32, "op_row": pl.UInt32})
    ids = pl.select(
        pl.when(owned["forward"] > 0).then(owned["forward"]).otherwise(owned["place"])
    ).to_series()
    cost_id = cost_ids.gather(ids - 1)
    costs, cost_id = _with_gradients(costs, cost_id, owned["forward"] > 0)
    at = owned["place"] - 1
    ops = pl.DataFrame(
        {"op_row": calls["row"].gather(at), "name": calls["name"].gather(at), "cost_id": cost_id}
    )
    ops = ops.join(costs, on="cost_id", how="left", maintain_order="left")
    if convention == "kernelscope" and ops.height:
        ops = _net(ops, enclosing(tree, owned["place"]), calls)
    return Costed(ops.drop("cost_id", "composite"), work)


def _distinct(own: Owners, size: int) -> pl.DataFrame:
    """Each place that owns work once, in order, with the forward whose cost it takes."""
    forwards = pl.zeros(size, dtype=pl.UInt32, eager=True).scatter(own.place, own.forward)
    marked = pl.zeros(size, dtype=pl.UInt8, eager=True).scatter(own.place, 1).scatter(0, 0)
    place = (marked > 0).arg_true().cast(pl.UInt32)
    return pl.DataFrame({"place": place, "forward": forwards.gather(place)})


def _works(costs: pl.DataFrame) -> pl.Series:
    """Which costs are known and not 0."""
    return costs.select(pl.any_horizontal(pl.col(column).fill_null(0) > 0 for column in _FIGURES)).to_series()


def _with_gradients(
    costs: pl.DataFrame, cost_ids: pl.Series, through: pl.Series
) -> tuple[pl.DataFrame, pl.Series]:
    """Replaces the costs of forward operators by those of their gradients where ``through`` says so."""
    wanted = cost_ids.filter(through).unique()
    if wanted.is_empty():
        return costs, cost_ids
    rows: list[dict[str, object]] = []
    for row in costs.filter(pl.col("cost_id").is_in(wanted.implode())).iter_rows(named=True):
        dtype = find_dtype(row["dtype"]) if row["dtype"] else None
        forward = Cost(row["flops"], row["bytes_read"], row["bytes_written"], dtype)
        cost = gradient_cost(forward, row["family"] or "")
        figures = (cost.flops, cost.bytes_read, cost.bytes_written) if cost else (None, None, None)
        note = cost.note if cost else f"a gradient through a forward operator of family {row['family']}"
        status = cost.status if cost else "unknown_op"
        new = {"cost_id": row["cost_id"] + costs.height, "status": status, "note": note, "composite": False}
        rows.append({**row, **new, **dict(zip(_FIGURES, figures, strict=True))})
    ids = pl.select(pl.when(through).then(cost_ids + costs.height).otherwise(cost_ids)).to_series()
    return pl.concat([costs, pl.DataFrame(rows, schema=costs.schema)]), ids


def _net(ops: pl.DataFrame, outer: pl.Series, calls: pl.DataFrame) -> pl.DataFrame:
    """Takes from an operator the cost of those inside it that count for themselves and do part of its work.

    Those are operators of the same family, and all of them if the outer one is a wrapper.
    """
    inner = ops.filter(outer > 0).select("family", *_FIGURES)
    inner = inner.with_columns(op_row=calls["row"].gather(outer.filter(outer > 0) - 1))
    if inner.is_empty():
        return ops
    around = ops.select("op_row", outer_family="family", composite="composite")
    part = inner.join(around, on="op_row", how="inner").filter(
        pl.col("composite") | pl.col("family").eq_missing(pl.col("outer_family"))
    )
    parts = part.group_by("op_row").agg(pl.col(_FIGURES).sum().name.prefix("_less_"))
    less = [(pl.col(c) - pl.col(f"_less_{c}").fill_null(0)).clip(0).alias(c) for c in _FIGURES]
    return ops.join(parts, on="op_row", how="left", maintain_order="left").select(
        *(c for c in ops.columns if c not in _FIGURES), *less
    )
