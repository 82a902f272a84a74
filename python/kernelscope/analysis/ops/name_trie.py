"""Paths of names in a forest: nodes that have the same names above them share one."""

from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.call_tree import CallTree
from kernelscope.analysis.grouping import classes_of, taken

# Deeper nodes count for their ancestor at this depth: texts of paths grow with the square of the depth.
MOST_LEVELS = 256


class Trie(NamedTuple):
    """The paths of nodes.

    ``path_of`` has the path of each node, in the order of the nodes. ``paths`` has ``parent`` (path; null for
    a root) and ``name``, a position in ``texts``; a path is known by its position.
    """

    path_of: pl.Series
    paths: pl.DataFrame
    texts: list[str]

    def text_of(self, paths: pl.Series, *, root_first: bool = True) -> pl.Series:
        """The texts of the names of each of ``paths`` with ``;`` between, but for empty ones.

        Names are taken as they are, so they must hold no ``;``.
        """
        wanted = paths.alias("path").to_frame()
        return taken(_traceparse.path_texts(self.paths, self.texts, wanted, root_first), "text")

    def folded(self, calls: pl.DataFrame, *, most: int) -> pl.DataFrame:
        """Sums calls by the texts of their paths, without those that have none or sum to 0.

        Columns: of ``calls``, needs ``path`` (null for none) and ``value_ns``; gives ``stack`` (null but for
            the first ``most``), ``value_ns`` (the sum) and ``events``.
        Order: the largest sum first, then by stack.
        """
        return pl.DataFrame(_traceparse.fold_paths(self.paths, self.texts, calls, most))


def flat_trie(path_of: pl.Series, texts: list[str]) -> Trie:
    """A trie of paths that are known by their whole ``texts``: each is a root."""
    names = pl.int_range(len(texts), dtype=pl.UInt32, eager=True)
    return Trie(path_of, names.to_frame("name").with_columns(parent=pl.lit(None, pl.UInt32)), texts)


def name_trie(
    nodes: pl.DataFrame, text: Callable[[pl.DataFrame], pl.Series], *, keys: tuple[str, ...] = ("name",)
) -> Trie:
    """The trie of ``nodes``: two nodes share a path if they and all above them agree in ``keys``.

    ``text`` makes the texts of names from their columns ``keys``.

    Columns: of ``nodes``, needs ``row``, ``parent_row`` (null, or not there, for a root) and ``keys``.
    """
    names = classes_of(nodes.select(keys))
    texts = text(names.keys).fill_null("").to_list()
    path_of, paths = CallTree(nodes).paths(names.of, most_levels=MOST_LEVELS)
    return Trie(path_of, paths, texts)
