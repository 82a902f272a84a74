"""Position of modules in the network: the enclosing modules, from the root."""

import re
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.call_tree import CallTree
from kernelscope.analysis.grouping import classes_of

SEPARATOR = "/"
"""Separator of modules in a path."""

# Networks nest a dozen deep; what lies deeper counts for the module around it.
_MOST_LEVELS = 200
# One part of TorchScript's hierarchy: name(Type)::function.
_PART = re.compile(r"(?P<name>[^.()]+)\((?P<type>[^()]*)\)::[^.]*\.?")
_PATHS = {
    "path_id": pl.UInt32,
    "parent_id": pl.UInt32,
    "path": pl.String,
    "parent_path": pl.String,
    "depth": pl.UInt32,
    "module": pl.String,
    "class": pl.String,
}


class Placed(NamedTuple):
    """``members`` with their ``path_id``, and the paths in tree order.

    Columns of ``paths``: ``path_id``, ``parent_id`` (null for roots), ``path``, ``parent_path``, ``depth``,
    ``module``, ``class`` (null if unknown) and ``order``.
    """

    members: pl.DataFrame
    paths: pl.DataFrame


def with_paths(calls: pl.DataFrame) -> Placed:
    """Returns the calls of modules with their paths.

    Columns: ``calls`` needs ``row``, ``parent_row``, ``name`` and ``start_ns``; adds ``path_id`` and
        ``has_path`` (false for a call that is nested too deep, which has the path of the last ancestor that
        is not).
    """
    names = classes_of(calls.select("name"))
    instances = classes_of(_instances(names.keys))
    path_of, paths = CallTree(calls).paths(names.spread(instances.of), most_levels=_MOST_LEVELS)
    members = calls.with_columns(path_of.alias("path_id"))
    starts = members.group_by("path_id").agg(pl.col("start_ns").min())
    known = paths.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("path_id"),
        pl.col("parent").alias("parent_id"),
        instances.keys["module"].gather(paths["name"]),
        instances.keys["class"].gather(paths["name"]),
    ).join(starts, on="path_id", how="left", maintain_order="left")
    table = _ordered(known)
    return Placed(_with_depth(members, is_deep=(table["depth"] == _MOST_LEVELS - 1).any()), table)


def _with_depth(members: pl.DataFrame, *, is_deep: bool) -> pl.DataFrame:
    """Adds ``has_path``."""
    if not is_deep:
        return members.with_columns(has_path=pl.lit(value=True))
    around = members.select(parent_row="row", _around="path_id")
    around = members.select("parent_row").join(around, on="parent_row", how="left", maintain_order="left")
    # A call inside one of the same path lies too deep for one of its own.
    return members.with_columns(has_path=members["path_id"].ne_missing(around["_around"]))


def _instances(names: pl.DataFrame) -> pl.DataFrame:
    """The instance and the class that each of ``names`` tells, as ``module`` and ``class``."""
    text = pl.col("name").cast(pl.String)
    frame = text.str.strip_prefix("nn.Module: ")
    lightning = text.str.strip_prefix("[pl][module]")
    is_lightning = text.str.starts_with("[pl][module]")
    is_range = text.str.starts_with("layer:")
    split = lightning.str.splitn(": ", 2)
    return names.select(
        pl.when(is_range)
        .then(text.str.strip_prefix("layer:"))
        .when(is_lightning)
        .then(pl.coalesce(split.struct.field("field_1"), lightning))
        .otherwise(frame)
        .fill_null("unnamed")
        .alias("module"),
        pl.when(is_lightning)
        .then(split.struct.field("field_0"))
        .when(~is_range)
        .then(frame.str.replace(r"_\d+$", ""))
        .alias("class"),
    )


def _ordered(paths: pl.DataFrame) -> pl.DataFrame:
    """The paths in the order of a tree, those of one module by their first calls, with their texts.

    Columns: of ``paths``, needs ``path_id``, ``parent_id``, ``module``, ``class`` and ``start_ns``.
    """
    inner: dict[int | None, list[tuple[int, str, str | None]]] = {}
    # The last is the next to be placed.
    order = paths.sort("start_ns", "module", "class", descending=True, nulls_last=True)
    for path, parent, module, kind in order.select("path_id", "parent_id", "module", "class").iter_rows():
        inner.setdefault(parent, []).append((path, module, kind))
    rows: list[tuple[object, ...]] = []
    waiting: list[tuple[tuple[int, str, str | None], int | None, str | None, int]]
    waiting = [(path, None, None, 0) for path in inner.get(None, [])]
    while waiting:
        (path, module, kind), parent, above, depth = waiting.pop()
        text = module if above is None else f"{above}{SEPARATOR}{module}"
        rows.append((path, parent, text, above, depth, module, kind))
        waiting.extend((inside, path, text, depth + 1) for inside in inner.get(path, []))
    return pl.DataFrame(rows, schema=_PATHS, orient="row").with_row_index("order")


def hierarchy_calls(ops: pl.DataFrame) -> Placed:
    """Returns operators for which TorchScript recorded the enclosing modules, and the paths of these.

    Columns: the members have ``row``, ``phase``, ``self_ns`` and ``path_id``.
    """
    tree = CallTree(ops)
    tree.put_own_time(ops, into="self_ns")
    inside = ops.select("row", "phase", text="module_hierarchy").hstack(tree.columns(["self_ns"]))
    inside = inside.drop_nulls("text").with_columns(pl.col("text").cast(pl.String))
    ids: dict[tuple[str, ...], int] = {}
    rows: list[tuple[object, ...]] = []
    of_text: list[tuple[str, int]] = []
    for text in inside["text"].unique(maintain_order=True):
        parts = [(m["name"], m["type"]) for m in _PART.finditer(text) if m["name"] != "SELF"][:_MOST_LEVELS]
        for depth in range(len(parts)):
            chain = tuple(name for name, _ in parts[: depth + 1])
            if chain not in ids:
                above = SEPARATOR.join(chain[:-1]) if depth else None
                ids[chain] = len(rows)
                name, kind = parts[depth]
                rows.append(
                    (len(rows), ids.get(chain[:-1]), SEPARATOR.join(chain), above, depth, name, kind or None)
                )
        if parts:
            of_text.append((text, ids[tuple(name for name, _ in parts)]))
    found = pl.DataFrame(of_text, schema={"text": pl.String, "path_id": pl.UInt32}, orient="row")
    members = inside.join(found, on="text", how="inner")
    # Nothing sorts before what stands between parts, so a path sorts before what it begins.
    paths = pl.DataFrame(rows, schema=_PATHS, orient="row").sort(pl.col("path").str.replace_all("/", "\0"))
    return Placed(members.select("row", "phase", "path_id", "self_ns"), paths.with_row_index("order"))
