"""A trace whose GPU operations are assigned to operators with costs: the basis of costs and rooflines.

Every GPU operation is assigned to the innermost enclosing operator with a computed cost. So a wrapper such as
``aten::linear`` is not counted in addition to the ``aten::addmm`` inside it. If no enclosing operator has a
cost, a gradient takes an estimate from its forward operator. Otherwise the operation stays with the innermost
operator that has a model, or the innermost operator, and its cost is unknown. The cost of kernels that a
compiled region launched without an operator is unknown, too, because its kernels cannot be assigned to the
operators inside it.
"""

from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.costs.hints import find_external_hints
from kernelscope.analysis.costs.unique_costs import FIGURES, INPUTS, class_costs, operator_calls
from kernelscope.analysis.grouping import Classes, classes_of, positions, taken
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.costs import ConventionName, Cost, find_dtype
from kernelscope.costs.through_forward import FAMILIES, MODELS, gradient_cost
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

# AOTAutograd's node for the gradient of a whole compiled graph.
_COMPILED_GRADIENT = r"\bCompiledFunctionBackward"
# Conventions of tools that do not look inside an operator that they count.
_OUTERMOST = frozenset({"torch", "tracelens"})
# The model of `fill_` and `zero_`.
_FILL = "fill"
KNOWN = ("exact", "estimate", "unknown_dtype")
"""Cost states with known FLOPs."""


class Costed(NamedTuple):
    """Operators with their costs, and the GPU operations of each.

    Columns of ``ops``, one row per operator that counts, in order of recording: ``op_row`` and ``kind``.
    ``kinds`` has one row per kind of these: ``name``, ``model``, ``family``, ``flops``, ``bytes_read``,
    ``bytes_written``, ``dtype``, ``peak``, ``status``, ``note``. ``work`` has the index in ``ops`` of the
    operator of each GPU operation; null for none.
    """

    ops: pl.DataFrame
    kinds: pl.DataFrame
    work: pl.Series


@per_trace
def costed_trace(trace: Trace, *, convention: ConventionName = "kernelscope") -> Costed:
    """Returns the operators that count in ``trace`` with their costs, and the GPU operations of each.

    Raises: KeyError: the convention does not exist.
    """
    trace = with_replayed_ops(trace)
    anchors = None
    if trace.gpu_ops.height:
        anchors = trace.gpu_ops.select(pl.coalesce("op_row", "range_row")).to_series()
    return cost_operators(trace, anchors, convention=convention)


def operator_flops(trace: Trace) -> pl.DataFrame:
    """Returns the FLOPs of every operator that counts: ``op_row`` and ``flops``."""
    costed = costed_trace(trace)
    return costed.ops.select("op_row").with_columns(costed.kinds["flops"].gather(costed.ops["kind"]))


def cost_operators(trace: Trace, anchors: pl.Series | None, *, convention: ConventionName) -> Costed:
    """Returns the operators that count with their costs, and the operator of each GPU operation.

    ``anchors`` are the operators or ranges that launched the operations; None if there are none.

    Raises: KeyError: the convention does not exist.
    """
    calls = operator_calls(trace)
    links = ["forward_row"] if calls["forward_row"].null_count() < calls.height else []
    classes = classes_of(calls.select("name", *INPUTS))
    external_hints, entries = find_external_hints(trace, calls, classes)
    classes = set_apart(classes, positions(calls["row"], entries["row"]), entries["entry"])
    costs = class_costs(classes.keys, convention=convention, external_hints=external_hints)
    linked = calls.select("row", "parent_row", *links, classes.of.alias("class"))
    if links:
        in_compiled = pl.col("name").cast(pl.String).str.contains(_COMPILED_GRADIENT).fill_null(value=False)
        linked = linked.with_columns(
            forward_row=pl.when(~classes.spread(classes.keys.select(in_compiled).to_series())).then(
                "forward_row"
            )
        )
    launched = None if anchors is None else anchors.alias("anchor").to_frame()
    work, owners = _traceparse.cost_owners(linked, _traits(costs), launched, convention in _OUTERMOST)
    owned = pl.DataFrame(owners)
    kinds = classes_of(
        pl.DataFrame(
            {"class": classes.of.gather(owned["at"]), "forward_class": classes.of.gather(owned["forward"])}
        )
    )
    of_kinds = _costs_of_kinds(costs, kinds.keys)
    counted = owned.select(calls["row"].gather(owned["at"]).alias("op_row"), kinds.of.alias("kind"), "outer")
    if convention == "kernelscope":
        counted, of_kinds = _net(counted, of_kinds)
    return Costed(counted.drop("outer"), of_kinds.drop("composite"), taken(work, "op"))


def set_apart(classes: Classes, places: pl.Series, entries: pl.Series) -> Classes:
    """Divides classes of calls by the entries of the calls at some ``places``.

    The keys get the column ``entry``.

    A call without an entry has 0. If a call occurs several times, the last entry counts.
    """
    known = places.is_not_null()
    entry = pl.repeat(0, classes.of.len(), dtype=pl.UInt32, eager=True)
    entry = entry.scatter(places.filter(known), entries.filter(known))
    divided = classes_of(pl.DataFrame({"class": classes.of, "entry": entry}))
    keys = classes.keys[divided.keys["class"]].with_columns(divided.keys["entry"])
    return Classes(divided.of, keys)


def _traits(costs: pl.DataFrame) -> pl.DataFrame:
    """What the attribution must know of each class."""
    products = pl.col("family").is_in(FAMILIES).fill_null(value=False)
    known = products | pl.col("model").is_in(MODELS).fill_null(value=False)
    computed = pl.col("status").is_in(KNOWN)
    return costs.select(
        is_computed=computed,
        is_modelled=pl.col("model").is_not_null(),
        is_wrapper=pl.col("composite"),
        tells_gradient=pl.col("flops").is_not_null() & known,
        is_product=products,
        works=pl.any_horizontal(pl.col(column).fill_null(0) > 0 for column in FIGURES),
        flops=pl.col("flops").fill_null(0),
    )


def _costs_of_kinds(costs: pl.DataFrame, kinds: pl.DataFrame) -> pl.DataFrame:
    """The cost of each kind: that of its class, or of the gradient of its forward operator's class."""
    through = kinds["forward_class"].is_not_null()
    found = costs[pl.select(pl.coalesce(kinds["forward_class"], kinds["class"])).to_series()]
    found = found.with_columns(costs["name"].gather(kinds["class"]))
    if not through.any():
        return found
    rows: list[dict[str, object]] = []
    for row in found.filter(through).iter_rows(named=True):
        dtype = find_dtype(row["dtype"]) if row["dtype"] else None
        forward = Cost(row["flops"], row["bytes_read"], row["bytes_written"], dtype)
        cost = gradient_cost(forward, row["family"] or "", row["model"] or "")
        figures = (cost.flops, cost.bytes_read, cost.bytes_written) if cost else (None, None, None)
        note = cost.note if cost else f"a gradient through a forward operator of family {row['family']}"
        status = cost.status if cost else "unknown_op"
        new = {"status": status, "note": note, "composite": False}
        rows.append({**row, **new, **dict(zip(FIGURES, figures, strict=True))})
    gradients = pl.DataFrame(rows, schema=found.schema)
    at = pl.int_range(found.height, dtype=pl.UInt32, eager=True)
    taken = at.scatter(through.arg_true(), pl.int_range(found.height, found.height + len(rows), eager=True))
    return pl.concat([found, gradients])[taken]


def _net(ops: pl.DataFrame, kinds: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Takes from an operator the cost of those inside it that count for themselves and do part of its work.

    Those are operators of the same family, all of them if the outer one is a wrapper, and one that fills as
    many bytes as the outer one writes: the result, to which the rest is added.
    """
    inner = ops.select("kind", "outer").filter(pl.col("outer").is_not_null())
    family = kinds["family"].cast(pl.Categorical).to_physical()
    around = ops["kind"].gather(inner["outer"])
    same = family.gather(inner["kind"]).eq_missing(family.gather(around))
    fills = (kinds["model"] == _FILL).fill_null(value=False).gather(inner["kind"])
    written = kinds["bytes_written"]
    fills &= (written.gather(inner["kind"]) == written.gather(around)).fill_null(value=False)
    inner = inner.filter(kinds["composite"].gather(around) | same | fills)
    if inner.is_empty():
        return ops, kinds
    figures = {f"less_{column}": kinds[column].gather(inner["kind"]) for column in FIGURES}
    parts = inner.select("outer").with_columns(**figures).group_by("outer").agg(pl.all().sum())
    parts = parts.with_columns(kind=ops["kind"].gather(parts["outer"]))
    by = ["kind", *figures]
    distinct = (
        parts.select(by)
        .unique()
        .with_columns(net=pl.int_range(kinds.height, kinds.height + pl.len(), dtype=pl.UInt32))
    )
    less = [(pl.col(column) - distinct[f"less_{column}"]).clip(0).alias(column) for column in FIGURES]
    net = kinds[distinct["kind"]].with_columns(less)
    parts = parts.join(distinct, on=by, how="left", maintain_order="left")
    changed = ops["kind"].scatter(parts["outer"], parts["net"])
    return ops.with_columns(changed.alias("kind")), pl.concat([kinds, net])
