"""Where in the network a module stands: the modules around it, from the root."""

import re
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.grouping import by_name
from kernelscope.analysis.tree import CallTree

SEPARATOR = "/"
"""Stands between the modules of a path."""

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
    """``members`` with their ``path_id``, and the paths in the order of a tree.

    Columns of ``paths``: ``path_id``, ``parent_id`` (null for roots), ``path``, ``parent_path``, ``depth``,
    ``module``, ``class`` (null if unknown) and ``order``.
    """

    members: pl.DataFrame
    paths: pl.DataFrame


def with_paths(calls: pl.DataFrame) -> Placed:
    """The calls of modules with their paths.

    Columns: of ``calls``, needs ``row``, ``parent_row``, ``name`` and ``start_ns``; adds ``path_id`` and
        ``has_path`` (false for a call that lies too deep, which has the path of the last call that does not).
    """
    calls = calls.join(_instances(calls), on="name", how="left", nulls_equal=True, maintain_order="left")
    waiting = calls.select("row", "parent_row", "module", "class", "start_ns")
    level = waiting.filter(pl.col("parent_row").is_null()).with_columns(parent_id=pl.lit(None, pl.UInt32))
    levels: list[pl.DataFrame] = []
    placed: list[pl.DataFrame] = []
    count = 0
    while level.height and len(levels) < _MOST_LEVELS:
        keys = ["parent_id", "module", "class"]
        paths = level.group_by(keys).agg(pl.col("start_ns").min()).sort("parent_id", "start_ns", *keys[1:])
        paths = paths.with_columns(
            path_id=pl.int_range(count, count + paths.height, dtype=pl.UInt32, eager=True),
            depth=pl.lit(len(levels), pl.UInt32),
        )
        count += paths.height
        levels.append(paths)
        at = level.join(paths.select(*keys, "path_id"), on=keys, how="left", nulls_equal=True)
        placed.append(at.select("row", "path_id"))
        level = waiting.join(
            at.select(parent_row="row", parent_id="path_id"), on="parent_row", how="inner"
        ).select(*waiting.columns, "parent_id")
    found = pl.concat(placed) if placed else pl.DataFrame(schema={"row": pl.UInt32, "path_id": pl.UInt32})
    members = calls.join(found, on="row", how="left", maintain_order="left")
    return Placed(_with_deep(members), _ordered(levels))


def _with_deep(calls: pl.DataFrame) -> pl.DataFrame:
    has_path = calls["path_id"].is_not_null()
    if has_path.all():
        return calls.with_columns(has_path=pl.lit(value=True))
    tree = CallTree(calls)
    tree.retain(has_path)
    path_of = calls.select(_at="row", path_id="path_id")
    around = tree.kept().alias("_at").to_frame().join(path_of, on="_at", how="left", maintain_order="left")
    return calls.with_columns(around["path_id"], has_path=has_path)


def _instances(calls: pl.DataFrame) -> pl.DataFrame:
    """The instance and the class that each name tells."""
    texts = by_name(calls.select("name").unique(), text_=pl.col("text"))
    text = pl.col("text_")
    frame = text.str.strip_prefix("nn.Module: ")
    lightning = text.str.strip_prefix("[pl][module]")
    is_lightning = text.str.starts_with("[pl][module]")
    is_range = text.str.starts_with("layer:")
    split = lightning.str.splitn(": ", 2)
    return texts.select(
        "name",
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


def _ordered(levels: list[pl.DataFrame]) -> pl.DataFrame:
    """The paths of all levels in the order of a tree, with their texts."""
    done: list[pl.DataFrame] = []
    above = pl.DataFrame(schema={"parent_id": pl.UInt32, "parent_path": pl.String, "_above": pl.String})
    for level in levels:
        paths = level.join(above, on="parent_id", how="left", maintain_order="left").with_columns(
            path=pl.concat_str("parent_path", "module", separator=SEPARATOR, ignore_nulls=True),
            # Numbers of one width sort as text, and a path sorts before what it begins.
            _key=pl.col("_above").fill_null("") + pl.col("path_id").cast(pl.String).str.zfill(10),
        )
        above = paths.select(parent_id="path_id", parent_path="path", _above="_key")
        done.append(paths.select(*_PATHS, "_key"))
    table = pl.concat(done) if done else pl.DataFrame(schema={**_PATHS, "_key": pl.String})
    return table.sort("_key").drop("_key").with_row_index("order")


def hierarchy_calls(ops: pl.DataFrame) -> Placed:
    """The operators on which TorchScript wrote the modules around them, and the paths these make.

    Columns: of the members, ``row``, ``phase``, ``self_ns`` and ``path_id``.
    """
    tree = CallTree(ops)
    tree.put(ops.select("dur_ns"))
    tree.less_children("dur_ns", into="self_ns")
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
