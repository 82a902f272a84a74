"""Which operator's cost each piece of GPU work belongs to.

Every GPU op goes to the innermost operator on its way up that has a computed cost. So a wrapper such as
``aten::linear`` is not counted beside the ``aten::addmm`` inside it. Where no operator on the way up has a
cost, a gradient takes an estimate from its forward operator; else the work stays with the innermost operator
that has a model, or the innermost of all, and its cost is unknown.
"""

from typing import NamedTuple

import polars as pl

from kernelscope.analysis.calls import Places, nearest
from kernelscope.analysis.tree import subtree_sums
from kernelscope.costs.through_forward import FAMILIES

COMPUTED = ("exact", "estimate", "unknown_dtype")
"""The states of a cost that has FLOPs or bytes."""


class Tree(NamedTuple):
    """The calls by place, counted from 1: place 0 stands for none.

    ``parents`` and ``forwards`` are places; ``computed`` says which calls have a cost, ``modelled`` which
    have a model, ``composite`` which are wrappers and ``differentiable`` which costs tell what the gradient
    costs; ``products`` which have a model of such a family, with a cost or without. ``flops`` are 0 where
    they are not known.
    """

    parents: pl.Series
    forwards: pl.Series
    computed: pl.Series
    modelled: pl.Series
    composite: pl.Series
    differentiable: pl.Series
    products: pl.Series
    flops: pl.Series


def call_tree(calls: pl.DataFrame, places: Places, cost_ids: pl.Series, costs: pl.DataFrame) -> Tree:
    """The tree of ``calls``, whose columns are those of ``operator_calls``, with what their costs say."""
    nobody = pl.zeros(1, dtype=pl.UInt32, eager=True)
    products = pl.col("family").is_in(FAMILIES).fill_null(value=False)
    by_id = costs.select(
        computed=pl.col("status").is_in(COMPUTED),
        modelled=pl.col("model").is_not_null(),
        composite=pl.col("composite"),
        differentiable=pl.col("flops").is_not_null() & products,
        products=products,
    )
    none = pl.Series([False])

    def marked(column: str) -> pl.Series:
        return pl.concat([none, by_id[column].gather(cost_ids)])

    flops = costs["flops"].fill_null(0).gather(cost_ids)
    return Tree(
        parents=pl.concat([nobody, places.of(calls["parent_row"])]),
        forwards=pl.concat([nobody, places.of(calls["forward_row"])]),
        computed=marked("computed"),
        modelled=marked("modelled"),
        composite=marked("composite"),
        differentiable=marked("differentiable"),
        products=marked("products"),
        flops=pl.concat([pl.zeros(1, dtype=pl.Int64, eager=True), flops]),
    )


class Owners(NamedTuple):
    """For each anchor, the place of the call that it counts for, and of the forward whose cost is taken."""

    place: pl.Series
    forward: pl.Series


def owners(tree: Tree, anchors: pl.Series, *, outermost: bool) -> Owners:
    """The calls whose costs stand for the work launched in the calls at the places ``anchors``.

    ``outermost`` takes the outermost call with a cost instead of the innermost: so does a counter that does
    not look inside an operator.
    """
    own = nearest(tree.computed, tree.parents)
    if outermost:
        own = _outermost(tree, own)
    found = own.gather(anchors)
    zero = pl.zeros(anchors.len(), dtype=pl.UInt32, eager=True)
    # A gradient whose own cost is not known has its forward's.
    node = nearest(tree.forwards > 0, tree.parents).gather(anchors)
    known = nearest(tree.modelled, tree.parents).gather(anchors)
    # What a node calls may say that its work is of another kind, such as a copy.
    unknown = (found == 0) & ((known == 0) | tree.products.gather(known)) & (not outermost)
    forward = _costliest_within(tree, _where(unknown, tree.forwards.gather(node), zero))
    last = _where(known > 0, known, anchors)
    place = _where(found > 0, found, _where(forward > 0, node, last))
    return Owners(place, forward)


def _costliest_within(tree: Tree, forwards: pl.Series) -> pl.Series:
    """Of each forward call, itself or the costliest call inside it that tells the gradient's cost, or 0."""
    wanted = forwards.filter(forwards > 0).unique()
    if wanted.is_empty():
        return forwards
    marked = pl.repeat(False, tree.parents.len(), dtype=pl.Boolean, eager=True).scatter(wanted, True)
    frame = pl.DataFrame(
        {"within": nearest(marked, tree.parents), "flops": tree.flops, "ok": tree.differentiable}
    )
    best = (
        frame.with_row_index("place")
        .filter(pl.col("ok") & (pl.col("within") > 0))
        .group_by("within")
        .agg(pl.col("place").sort_by("flops", "place", descending=[True, False]).first())
    )
    asked = forwards.alias("within").to_frame()
    return asked.join(best, on="within", how="left", maintain_order="left")["place"].fill_null(0)


def _outermost(tree: Tree, own: pl.Series) -> pl.Series:
    """The place of the outermost call with a cost on the way up from each call."""
    above = own.gather(tree.parents)
    ends = tree.computed & (above == 0)
    return nearest(ends, _where(tree.computed, above, tree.parents))


def host_only(tree: Tree, works: pl.Series) -> pl.Series:
    """The places of the calls that count where nothing runs on a GPU.

    The outermost operators that are no wrappers count, and what they call is part of them. A wrapper counts
    where nothing inside it does. ``works`` says which calls have a cost that is not 0.
    """
    plain = tree.computed & ~tree.composite
    counted = plain & (nearest(plain, tree.parents).gather(tree.parents) == 0)
    frame = pl.DataFrame(
        {
            "row": pl.int_range(1, tree.parents.len(), dtype=pl.UInt32, eager=True),
            "parent_row": _where(tree.parents > 0, tree.parents, None)[1:],
            "inside": (counted & works).cast(pl.UInt32)[1:],
        }
    )
    inside = pl.concat([pl.zeros(1, dtype=pl.UInt32, eager=True), subtree_sums(frame, ["inside"])["inside"]])
    wrappers = tree.computed & tree.composite & (inside == 0)
    stands = counted | wrappers
    outer = nearest(stands, tree.parents).gather(tree.parents) == 0
    places = pl.int_range(tree.parents.len(), dtype=pl.UInt32, eager=True)
    return places.filter(stands & outer)


def enclosing(tree: Tree, counted: pl.Series) -> pl.Series:
    """The place of the nearest counted call around each of the places ``counted``; 0 for none."""
    marked = pl.repeat(False, tree.parents.len(), dtype=pl.Boolean, eager=True).scatter(counted, True)
    return nearest(marked, tree.parents).gather(tree.parents.gather(counted))


def _where(condition: pl.Series, yes: pl.Series, no: pl.Series | None) -> pl.Series:
    return pl.select(pl.when(condition).then(yes).otherwise(no)).to_series()
