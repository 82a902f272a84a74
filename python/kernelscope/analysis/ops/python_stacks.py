"""The Python call stacks of operators, from what was recorded or from the frames around them."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.call_tree import marked_parents
from kernelscope.analysis.classes import classes_of
from kernelscope.analysis.innermost import innermost
from kernelscope.analysis.ops.name_trie import name_trie

if TYPE_CHECKING:
    from kernelscope.trace import Trace

# A frame of Python's own: file, line and function. Others are calls of built-in functions, whose names hold
# addresses, and of modules, whose forward is a frame, too.
_SOURCE = r"\(\d+\): "
_LONGEST_NAME = 1_024


def with_call_stacks(trace: "Trace") -> pl.DataFrame:
    """The table ``ops``, its ``call_stack`` put together from Python frames where no stack was recorded.

    The stack of an operator is the innermost frame with a line of source that runs around it, and the frames
    that called that one, leaf first and with ``;`` between, as recorders write it. Frames deeper than 256 are
    left out. An operator outside all frames has none: the autograd engine runs no Python.
    """
    ops = trace.ops
    if ops["call_stack"].null_count() < ops.height or trace.python.is_empty():
        return ops
    names = classes_of(trace.python.select("name"))
    is_source = names.keys["name"].cast(pl.String).str.contains(_SOURCE).fill_null(value=False)
    is_source = names.spread(is_source)
    frames = _source_frames(trace.python, is_source)
    text = pl.col("name").cast(pl.String).str.slice(0, _LONGEST_NAME)
    text = text.str.replace_all(";", ",", literal=True)
    trie = name_trie(frames, lambda names: names.select(text).to_series())
    of_frame = frames.select(frame="row", path=trie.path_of)
    around = innermost(ops, trace.python, counts=is_source).alias("frame").to_frame()
    paths = around.join(of_frame, on="frame", how="left", maintain_order="left").select("path")
    stacks = classes_of(paths)
    texts = trie.text_of(stacks.keys["path"], root_first=False)
    texts = pl.select(pl.when(stacks.keys["path"].is_not_null()).then(texts)).to_series()
    return ops.with_columns(stacks.spread(texts.cast(pl.Categorical)).alias("call_stack"))


def _source_frames(python: pl.DataFrame, is_source: pl.Series) -> pl.DataFrame:
    """The frames with a line of source, each below the next one of these that called it."""
    return python.select("row", "name").filter(is_source).with_columns(marked_parents(python, is_source))
