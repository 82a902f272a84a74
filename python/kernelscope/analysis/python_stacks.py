"""The Python call stacks of operators, from what was recorded or from the frames around them."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.calls import Places, nearest
from kernelscope.analysis.grouping import by_name
from kernelscope.analysis.innermost import innermost
from kernelscope.analysis.name_trie import name_trie, path_texts

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
    named = by_name(trace.python.select("name"), is_source=pl.col("text").str.contains(_SOURCE))
    is_source = named["is_source"].fill_null(value=False)
    frames = _source_frames(trace.python, is_source)
    trie = name_trie(frames)
    texts = path_texts(trie.levels, root_first=False).with_columns(pl.col("text").cast(pl.Categorical))
    of_frame = frames.select(frame="row", path=trie.path_of).join(texts, on="path", how="left")
    around = innermost(ops, trace.python, counts=is_source.gather).alias("frame").to_frame()
    stacks = around.join(of_frame, on="frame", how="left", maintain_order="left")
    return ops.with_columns(stacks["text"].alias("call_stack"))


def _source_frames(python: pl.DataFrame, is_source: pl.Series) -> pl.DataFrame:
    """The frames with a line of source, each below the next one of these that called it."""
    places = Places(python["row"])
    nobody = pl.zeros(1, dtype=pl.UInt32, eager=True)
    parents = pl.concat([nobody, places.of(python["parent_row"])])
    callers = nearest(pl.concat([pl.Series([False]), is_source]), parents).gather(parents)[1:]
    rows = pl.concat([pl.Series([None], dtype=pl.UInt32), python["row"]])
    text = pl.col("name").cast(pl.String).str.slice(0, _LONGEST_NAME).str.replace_all(";", ",", literal=True)
    frames = python.select("row", "name", rows.gather(callers).alias("parent_row")).filter(is_source)
    return frames.with_columns(by_name(frames.select("name"), told=text)["told"].alias("name"))
