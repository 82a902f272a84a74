"""The Python call stack of each host event, as torch.profiler hands it out."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.calls import Places, nearest

if TYPE_CHECKING:
    from kernelscope.trace import Trace

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


def recorded_texts(trace: "Trace") -> pl.DataFrame:
    """The call stacks that were recorded with operators and Python frames: ``row`` and ``text``.

    They are recorded only by a profiler with ``with_stack=True`` whose experimental configuration has
    ``verbose=True``.
    """
    columns = ("row", pl.col("call_stack").alias("text"))
    return pl.concat([trace.ops.select(columns), trace.python.select(columns)])


def with_stacks(trace: "Trace", events: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """Adds ``stack``: the text of each event's call stack, leaf first, ``;`` between frames; null for none.

    The stack of a gradient is that of the operator whose gradient it is, and null if that operator is not
    in the trace.

    Columns: of ``events``, needs ``row``, ``parent_row``, ``name``, ``track``, ``start_ns`` and ``dur_ns``;
        ``texts`` has ``row`` and ``text``.
    Source: torch/autograd/profiler_util.py, EventList._set_backward_stacktraces.
    """
    numbers = ("sequence", "forward_thread")
    joined = events.join(texts.select("row", _text="text"), on="row", how="left", maintain_order="left").join(
        trace.ops.select("row", *numbers), on="row", how="left", maintain_order="left"
    )
    places = Places(joined["row"])
    parents = places.of(joined["parent_row"])
    node = nearest(_is_gradient(joined, parents), pl.concat([_NONE, parents]))[1:]
    own = joined.with_columns(_node=node)
    by_forward = _forward_texts(trace, own)
    nodes = own.select(
        _place=pl.int_range(1, pl.len() + 1, dtype=pl.UInt32),
        sequence="sequence",
        forward_thread="forward_thread",
    )
    of_node = (
        own.select("_node")
        .join(nodes, left_on="_node", right_on="_place", how="left", maintain_order="left")
        .join(by_forward, on=["sequence", "forward_thread"], how="left", maintain_order="left")
    )
    text = pl.when(pl.col("_node") > 0).then(of_node["_forward_text"]).otherwise(pl.col("_text"))
    return own.with_columns(text.alias("stack")).drop("_node", "_text", *numbers)


_NONE = pl.Series([0], dtype=pl.UInt32)


def _is_gradient(events: pl.DataFrame, parents: pl.Series) -> pl.Series:
    """By place, which events are the call of a node of autograd; the first value stands for none."""
    names = events["name"]
    above = pl.concat([pl.Series([None], dtype=pl.String), names]).gather(parents)
    called = (pl.lit(_WRAPPER) + names == above).fill_null(value=False)
    backward = (events["forward_thread"].fill_null(0) > 0) & ~names.str.starts_with(_WRAPPER).fill_null(
        value=False
    )
    marked = pl.select(called).to_series() | backward
    return pl.concat([pl.Series([False]), marked])


def _forward_texts(trace: "Trace", events: pl.DataFrame) -> pl.DataFrame:
    """The stack of the first event with a sequence number on the thread that each profiler index means."""
    ops = trace.ops.select(forward_row="row", _track=pl.col("track").cast(pl.Int64))
    learned = (
        trace.ops.filter((pl.col("forward_thread") > 0) & pl.col("forward_row").is_not_null())
        .select("forward_thread", "forward_row")
        .join(ops, on="forward_row", how="inner")
        .group_by("forward_thread", "_track")
        .len()
        .sort("len", "_track", descending=[True, False])
        .unique("forward_thread", keep="first")
    )
    first = (
        events.filter((pl.col("_node") == 0) & pl.col("sequence").is_not_null())
        .sort("start_ns", -pl.col("dur_ns"), "row")
        .unique(["sequence", "track"], keep="first", maintain_order=True)
        .select("sequence", "track", _forward_text="_text")
    )
    found = first.join(learned, left_on="track", right_on="_track", how="inner")
    return found.select("sequence", "forward_thread", "_forward_text")


def frames_of(stacks: pl.Series) -> pl.DataFrame:
    """The frames of each distinct text of call stacks, leaf first, without those that torch leaves out.

    Columns: ``stack`` (as in ``stacks``) and ``frames`` (a list, empty for null).
    Source: torch/autograd/profiler_util.py, _filter_stack_entry.
    """
    frame = pl.element()
    left_out = pl.any_horizontal(
        [frame.str.contains(a, literal=True) & frame.str.contains(b, literal=True) for a, b in _LEFT_OUT]
    )
    frames = pl.col("stack").cast(pl.String).fill_null("").str.split(";")
    texts = stacks.alias("stack").unique().to_frame()
    return texts.with_columns(frames=frames.list.eval(frame.filter((frame != "") & ~left_out)))
