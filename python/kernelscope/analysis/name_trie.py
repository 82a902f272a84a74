"""Merges the nodes of a forest that have the same names above them."""

from typing import NamedTuple

import polars as pl

from kernelscope.analysis.calls import Places

# Deeper nodes count for their ancestor at this depth: texts of paths grow with the square of the depth.
MOST_LEVELS = 256
_MAX_ROUNDS = 33


class Trie(NamedTuple):
    """Nodes with their paths, and the paths.

    ``path_of`` has the path of each node, in the order of the nodes. ``levels`` has a frame for each depth,
    with ``path``, ``parent`` (path; null at depth 0) and ``name``.
    """

    path_of: pl.Series
    levels: list[pl.DataFrame]


def name_trie(nodes: pl.DataFrame) -> Trie:
    """The trie of ``nodes``: two nodes share a path if they and all above them have the same names.

    Columns: of ``nodes``, needs ``row``, ``parent_row`` (null, or not there, for a root) and ``name``.
    """
    parents = Places(nodes["row"]).of(nodes["parent_row"])
    ordered = (
        nodes.select(
            "name",
            place=pl.int_range(1, pl.len() + 1, dtype=pl.UInt32),
            parent=parents,
            depth=_depths(parents),
        )
        .sort("depth", "place")
        .with_columns(at=pl.int_range(pl.len(), dtype=pl.UInt32))
    )
    # Where the parent stands in the order by depth.
    position = pl.zeros(nodes.height + 1, dtype=pl.UInt32, eager=True).scatter(
        ordered["place"], ordered["at"]
    )
    ordered = ordered.with_columns(parent_at=position.gather(ordered["parent"]))
    levels: list[pl.DataFrame] = []
    found: list[pl.Series] = []
    before, count = 0, 0
    for (_,), level in ordered.group_by("depth", maintain_order=True):
        if len(levels) == MOST_LEVELS:
            break
        above = (
            found[-1].gather(level["parent_at"] - before)
            if found
            else pl.Series([None] * level.height, dtype=pl.UInt32)
        )
        keyed = level.select(parent=above, name="name")
        paths = keyed.unique(maintain_order=True).with_row_index("path", offset=count)
        at = keyed.join(paths, on=["parent", "name"], how="left", nulls_equal=True, maintain_order="left")
        found.append(at["path"])
        levels.append(paths)
        count += paths.height
        before = level["at"][0]
    return Trie(_by_node(ordered, found, nodes.height), levels)


def _depths(parents: pl.Series) -> pl.Series:
    """How many nodes lie above each; the distance doubles in each round."""
    jump = pl.concat([pl.Series([0], dtype=pl.UInt32), parents])
    depth = (jump > 0).cast(pl.UInt32)
    for _ in range(_MAX_ROUNDS):
        if not (jump > 0).any():
            break
        depth = depth + depth.gather(jump)
        jump = jump.gather(jump)
    return depth[1:].alias("depth")


def _by_node(ordered: pl.DataFrame, found: list[pl.Series], height: int) -> pl.Series:
    """The path of each node; of one that lies too deep, its ancestor's."""
    paths = pl.concat(found) if found else pl.Series([], dtype=pl.UInt32)
    shallow = paths.len()
    if shallow < height:
        jump = pl.select(
            pl.when(ordered["at"] < shallow).then(ordered["at"]).otherwise(ordered["parent_at"])
        ).to_series()
        for _ in range(_MAX_ROUNDS):
            if not (jump >= shallow).any():
                break
            jump = jump.gather(jump)
        paths = paths.gather(jump)
    return pl.zeros(height, dtype=pl.UInt32, eager=True).scatter(ordered["place"] - 1, paths).alias("path")


def path_texts(levels: list[pl.DataFrame], *, root_first: bool = True) -> pl.DataFrame:
    """The text of every path: ``path`` and ``text``, its names with ``;`` between.

    Names are taken as they are, so they must hold no ``;``.
    """
    done: list[pl.DataFrame] = []
    above = pl.DataFrame(schema={"parent": pl.UInt32, "_above": pl.String})
    order = ("_above", "name") if root_first else ("name", "_above")
    for level in levels:
        joined = level.join(above, on="parent", how="left", maintain_order="left")
        texts = joined.select("path", text=pl.concat_str(order, separator=";", ignore_nulls=True))
        above = texts.select(parent="path", _above="text")
        done.append(texts)
    return pl.concat(done) if done else pl.DataFrame(schema={"path": pl.UInt32, "text": pl.String})
