"""Call stacks of Python and of operators, and the paths of names in a forest."""

from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.call_tree import CallTree, innermost, marked_parents
from kernelscope.analysis.grouping import classes_of, gather_rows, taken
from kernelscope.trace import Trace

# Deeper nodes count for their ancestor at this depth: texts of paths grow with the square of the depth.
MOST_LEVELS = 256
_WRAPPER = "autograd::engine::evaluate_function: "
# Frames of the profiler and of autograd that torch leaves out.
_LEFT_OUT = (
    ("autograd/__init__", "_make_grads"),
    ("autograd/__init__", "backward"),
    ("torch/tensor", "backward"),
    ("_internal/common_utils", "prof_callable"),
    ("_internal/common_utils", "prof_func_call"),
    ("_internal/common_utils", "prof_meth_call"),
)
# A frame of Python's own: file, line and function. Others are calls of built-in functions, whose names hold
# addresses, and of modules, whose forward is a frame, too.
SOURCE = r"\(\d+\): "
_LONGEST_NAME = 1_024


class Trie(NamedTuple):
    """The paths of nodes.

    ``path_of`` has the path of each node, in the order of the nodes. ``paths`` has ``parent`` (path; null for
    a root) and ``name``, a position in ``texts``. A path is identified by its position.
    """

    path_of: pl.Series
    paths: pl.DataFrame
    texts: list[str]

    def text_of(self, paths: pl.Series, *, root_first: bool = True) -> pl.Series:
        """Returns the names of each of ``paths`` joined by ``;``, without empty ones.

        Names are used unchanged, so they must not contain ``;``.
        """
        wanted = paths.alias("path").to_frame()
        return taken(_traceparse.path_texts(self.paths, self.texts, wanted, root_first), "text")

    def folded(self, calls: pl.DataFrame, *, most: int) -> pl.DataFrame:
        """Sums calls by the text of their path, without calls that have no path and sums of 0.

        Columns: ``calls`` needs ``path`` (null for none) and ``value_ns``. The result has ``stack`` (only for
            the first ``most``), ``value_ns`` (the sum) and ``events``.
        Order: the largest sum first, then by stack.
        """
        return pl.DataFrame(_traceparse.fold_paths(self.paths, self.texts, calls, most))


def flat_trie(path_of: pl.Series, texts: list[str]) -> Trie:
    """Returns a trie of paths with complete ``texts``: each is a root."""
    names = pl.int_range(len(texts), dtype=pl.UInt32, eager=True)
    return Trie(path_of, names.to_frame("name").with_columns(parent=pl.lit(None, pl.UInt32)), texts)


def name_trie(
    nodes: pl.DataFrame, text: Callable[[pl.DataFrame], pl.Series], *, keys: tuple[str, ...] = ("name",)
) -> Trie:
    """Returns the trie of ``nodes``: two nodes share a path if they and their ancestors agree in ``keys``.

    ``text`` converts the columns ``keys`` to names.

    Columns: ``nodes`` needs ``row``, ``parent_row`` (null, or absent, for a root) and ``keys``.
    """
    names = classes_of(nodes.select(keys))
    texts = text(names.keys).fill_null("").to_list()
    path_of, paths = CallTree(nodes).paths(names.of, most_levels=MOST_LEVELS)
    return Trie(path_of, paths, texts)


def with_call_stacks(trace: Trace) -> pl.DataFrame:
    """Returns the table ``ops``, with ``call_stack`` assembled from Python frames if no stack was recorded.

    The stack of an operator is the innermost enclosing frame with a source line, and its callers, leaf first
    and separated by ``;``, as profilers write it. Frames deeper than 256 are left out. A backward operator
    outside all frames has the stack of the thread that called ``backward``.
    """
    ops = trace.ops
    if ops["call_stack"].null_count() < ops.height or trace.python.is_empty():
        return ops
    names = classes_of(trace.python.select("name"))
    is_source = names.keys["name"].cast(pl.String).str.contains(SOURCE).fill_null(value=False)
    is_source = names.spread(is_source)
    frames = _source_frames(trace.python, is_source)
    text = pl.col("name").cast(pl.String).str.slice(0, _LONGEST_NAME)
    text = text.str.replace_all(";", ",", literal=True)
    trie = name_trie(frames, lambda names: names.select(text).to_series())
    of_frame = frames.select(frame="row", path=trie.path_of)
    around = innermost(ops, trace.python, counts=is_source).alias("frame").to_frame()
    waited_for = around["frame"].is_null() & ops["caller_track"].is_not_null()
    if waited_for.any():
        called = ops.with_columns(pl.when(waited_for).then("caller_track").alias("track"))
        of_caller = innermost(called, trace.python, counts=is_source).alias("frame")
        around = pl.select(frame=pl.coalesce(around["frame"], of_caller))
    paths = around.join(of_frame, on="frame", how="left", maintain_order="left").select("path")
    stacks = classes_of(paths)
    texts = trie.text_of(stacks.keys["path"], root_first=False)
    texts = pl.select(pl.when(stacks.keys["path"].is_not_null()).then(texts)).to_series()
    return ops.with_columns(stacks.spread(texts.cast(pl.Categorical)).alias("call_stack"))


def _source_frames(python: pl.DataFrame, is_source: pl.Series) -> pl.DataFrame:
    """The frames with a line of source, each below the next one of these that called it."""
    return python.select("row", "name").filter(is_source).with_columns(marked_parents(python, is_source))


def recorded_stacks(trace: Trace) -> pl.DataFrame:
    """Returns the call stacks recorded with operators and Python frames: ``row`` and ``text``.

    Only a profiler with ``with_stack=True`` and ``verbose=True`` in its experimental configuration records
    them.
    """
    columns = ("row", pl.col("call_stack").alias("text"))
    return pl.concat([trace.ops.select(columns), trace.python.select(columns)])


def with_event_stacks(trace: Trace, events: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """Adds ``stack``: the text of each event's call stack, leaf first, separated by ``;``; null for none.

    A gradient has the stack of its forward operator, or null if that is not in the trace.

    Columns: ``events`` needs ``row``, ``parent_row``, ``name`` (categorical), ``track``, ``start_ns`` and
        ``dur_ns``; ``texts`` has ``row`` and ``text``.
    Source: torch/autograd/profiler_util.py, EventList._set_backward_stacktraces.
    """
    numbers = ("sequence", "forward_thread")
    text = gather_rows(events["row"], texts, "text").to_series().alias("_text")
    own = events.with_columns(text, *gather_rows(events["row"], trace.ops, *numbers))
    is_gradient = _is_gradient(own)
    if not is_gradient.any():
        return own.rename({"_text": "stack"}).drop(numbers)
    tree = CallTree(own)
    tree.keep_marked(is_gradient)
    own = own.with_columns(tree.kept().alias("_node"))
    by_forward = _forward_texts(trace, own)
    nodes = own.select("row", *numbers).filter(is_gradient)
    nodes = nodes.join(by_forward, on=numbers, how="left")
    forward = gather_rows(own["_node"], nodes, "_forward_text").to_series()
    text = pl.when(pl.col("_node").is_not_null()).then(forward).otherwise("_text")
    return own.with_columns(stack=text).drop("_node", "_text", *numbers)


def _is_gradient(events: pl.DataFrame) -> pl.Series:
    """Which events are the call of a node of autograd."""
    names = classes_of(events.select("name"))
    wraps = names.spread(names.keys["name"].cast(pl.String).str.starts_with(_WRAPPER).fill_null(value=False))
    backward = (events["forward_thread"].fill_null(0) > 0) & ~wraps
    if not wraps.any():
        return backward
    text = pl.col("name").cast(pl.String).str.strip_prefix(_WRAPPER).cast(pl.Categorical)
    wrappers = events.select("row", "name").filter(wraps).with_columns(text)
    wrapped = gather_rows(events["parent_row"], wrappers, "name")["name"]
    return backward | (events["name"] == wrapped).fill_null(value=False)


def _forward_texts(trace: Trace, events: pl.DataFrame) -> pl.DataFrame:
    """The stack of the first event with a sequence number on the thread that each profiler index means."""
    gradients = trace.ops.select("forward_thread", "forward_row").filter(
        (pl.col("forward_thread") > 0) & pl.col("forward_row").is_not_null()
    )
    tracks = gather_rows(gradients["forward_row"], trace.ops, "track").to_series().cast(pl.Int64)
    learned = (
        gradients.with_columns(tracks.alias("_track"))
        .drop_nulls("_track")
        .group_by("forward_thread", "_track")
        .len()
        .sort("len", "_track", descending=[True, False])
        .unique("forward_thread", keep="first")
    )
    first = (
        events.filter(pl.col("_node").is_null() & pl.col("sequence").is_not_null())
        .select("row", "track", "start_ns", "dur_ns", "sequence", "_text")
        .sort("start_ns", -pl.col("dur_ns"), "row")
        .unique(["sequence", "track"], keep="first", maintain_order=True)
        .select("sequence", "track", _forward_text="_text")
    )
    found = first.join(learned, left_on="track", right_on="_track", how="inner")
    return found.select("sequence", "forward_thread", "_forward_text")


def split_frames(stacks: pl.Series) -> pl.DataFrame:
    """Returns the frames of each distinct call stack in order, leaf first.

    Frames that torch leaves out are missing.

    Columns: ``stack`` (as in ``stacks``) and ``frames`` (a list, empty for null).
    Source: torch/autograd/profiler_util.py, _filter_stack_entry.
    """
    frame = pl.element()
    frames = pl.col("stack").cast(pl.String).fill_null("").str.split(";")
    texts = stacks.alias("stack").unique(maintain_order=True).to_frame()
    return texts.with_columns(frames=frames.list.eval(frame.filter((frame != "") & ~is_hidden_frame(frame))))


def is_hidden_frame(frame: pl.Expr) -> pl.Expr:
    """Whether torch leaves a frame of this text out of call stacks."""
    return pl.any_horizontal(
        [frame.str.contains(a, literal=True) & frame.str.contains(b, literal=True) for a, b in _LEFT_OUT]
    )
