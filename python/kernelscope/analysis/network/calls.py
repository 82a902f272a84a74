"""The calls of modules in a trace, and which operators and GPU work belong to each."""

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from kernelscope.analysis.calls import Places, nearest
from kernelscope.analysis.grouping import by_name
from kernelscope.analysis.tree import nest

if TYPE_CHECKING:
    from kernelscope.trace import Trace

FRAME = r"^nn\.Module: (?P<name>.*)$"
"""The name of a Python frame that is a module's call, as torch.profiler writes it."""

LAYER = r"^(?:layer:|\[pl\]\[module\])(?P<name>.*)$"
"""The name of a range or annotation around a module's call: of kernelscope.capture, or of Lightning."""


class ModuleCalls(NamedTuple):
    """What ran in which call of a module.

    ``calls``: ``row``, ``parent_row`` (of the call around it), ``name``, ``module_id``, ``track``,
    ``start_ns``, ``dur_ns``. ``ops``: an operator or range that belongs to a call, with ``row``, ``call_row``
    (the innermost call), ``inside`` (false for a gradient of what ran in it), ``is_direct`` (inside, and in
    no other operator that is), ``start_ns``, ``dur_ns`` and ``self_ns``. ``work``: ``call_row``, ``inside``
    and ``dur_ns`` of each piece of GPU work that belongs to a call.
    """

    calls: pl.DataFrame
    ops: pl.DataFrame
    work: pl.DataFrame


def module_calls(trace: "Trace") -> ModuleCalls:
    """The calls of modules in ``trace``: Python frames, else ranges or annotations around modules."""
    found = _from_frames(trace)
    if found.calls.is_empty():
        found = _from_slices(trace, trace.ops, "op_row")
    if found.calls.is_empty():
        found = _from_slices(trace, trace.ranges, "range_row")
    return found


def _from_frames(trace: "Trace") -> ModuleCalls:
    named = by_name(trace.python.select("name"), is_call=pl.col("text").str.contains(FRAME))
    is_module = trace.python["module_id"].is_not_null() | named["is_call"].fill_null(value=False)
    frames = trace.python.select("row", "parent_row", "name", "module_id", "track", "start_ns", "dur_ns")
    calls = _nested(frames, is_module)
    ops = trace.ops.select("row", "parent_row", "track", "start_ns", "dur_ns", call_row="module_row")
    around = calls.select(
        call_row="row", _track="track", _start="start_ns", _end=pl.col("start_ns") + pl.col("dur_ns")
    )
    # A gradient has the module of its forward operator, in whose call it does not lie.
    inside = (
        (pl.col("track") == pl.col("_track"))
        & (pl.col("start_ns") >= pl.col("_start"))
        & (pl.col("start_ns") < pl.col("_end"))
    )
    ops = ops.join(around, on="call_row", how="left", maintain_order="left").with_columns(
        inside=inside.fill_null(value=False)
    )
    annotation = trace.ops["category"].cast(pl.String) == "user_annotation"
    operators = _nested(ops, ~annotation.fill_null(value=False))
    return ModuleCalls(calls, _members(operators), _work(trace, ops, "op_row", calls))


def _from_slices(trace: "Trace", slices: pl.DataFrame, link: str) -> ModuleCalls:
    """Modules that are operators' or ranges' own parents: every slice belongs to the call around it."""
    frames = slices.select("row", "parent_row", "name", "start_ns", "dur_ns")
    track = slices["track"] if "track" in slices.columns else slices["tid"]
    frames = frames.with_columns(track.alias("track"), module_id=pl.lit(None, pl.Int32))
    is_module = by_name(frames.select("name"), is_call=pl.col("text").str.contains(LAYER))["is_call"]
    is_module = is_module.fill_null(value=False)
    calls = _nested(frames, is_module)
    if calls.is_empty():
        frames = frames.clear()
        is_module = is_module.clear()
    places = Places(frames["row"])
    parents = pl.concat([pl.zeros(1, dtype=pl.UInt32, eager=True), places.of(frames["parent_row"])])
    at = nearest(pl.concat([pl.Series([False]), is_module]), parents)
    # A call itself is no operator in it.
    ops = frames.with_columns(_row_at(frames["row"], at[1:]).alias("call_row"), inside=pl.lit(value=True))
    members = ops.filter(~is_module)
    return ModuleCalls(calls, _members(members), _work(trace, ops, link, calls))


def _nested(slices: pl.DataFrame, marked: pl.Series) -> pl.DataFrame:
    """The slices that are marked, each with the marked one around it as its parent."""
    places = Places(slices["row"])
    parents = pl.concat([pl.zeros(1, dtype=pl.UInt32, eager=True), places.of(slices["parent_row"])])
    around = nearest(pl.concat([pl.Series([False]), marked]), parents).gather(parents)[1:]
    row = _row_at(slices["row"], around).alias("parent_row")
    return slices.with_columns(row, pl.col("dur_ns").fill_null(0)).filter(marked)


def _row_at(rows: pl.Series, places: pl.Series) -> pl.Series:
    """The rows at ``places``, counted from 1; null for 0."""
    return pl.concat([pl.Series([None], dtype=pl.UInt32), rows.cast(pl.UInt32)]).gather(places)


def _members(ops: pl.DataFrame) -> pl.DataFrame:
    """The operators that belong to a call, with their own time and whether they are the call's children."""
    places = Places(ops["row"])
    call = pl.concat([pl.Series([None], dtype=pl.UInt32), ops["call_row"]])
    of_parent = call.gather(places.of(ops["parent_row"]))
    children = ops.group_by(row="parent_row").agg(pl.col("dur_ns").sum().alias("_children_ns"))
    own = pl.col("dur_ns").fill_null(0) - pl.col("_children_ns").fill_null(0)
    return (
        ops.with_columns(is_direct=ops["inside"] & ~ops["call_row"].eq_missing(of_parent))
        .join(children, on="row", how="left", maintain_order="left")
        .filter(pl.col("call_row").is_not_null())
        .select("row", "call_row", "inside", "is_direct", "start_ns", "dur_ns", self_ns=own)
    )


def _work(trace: "Trace", ops: pl.DataFrame, link: str, calls: pl.DataFrame) -> pl.DataFrame:
    columns = ["call_row", "inside", "dur_ns"]
    owner = ops.select("call_row", "inside", row=pl.col("row")).rename({"row": link})
    owner = owner.filter(pl.col("call_row").is_not_null())
    linked = trace.gpu_ops.select(link, "dur_ns").join(owner, on=link, how="inner").select(columns)
    loose = trace.gpu_ops.filter(pl.col("op_row").is_null() & pl.col("launch_row").is_not_null())
    if link != "op_row" or loose.is_empty() or calls.is_empty():
        return linked
    # A kernel that Python launches itself, as Triton's do, is in a module but in no operator.
    wanted = trace.launches.join(loose.select(row="launch_row"), on="row", how="semi")
    columns_of = ("row", "track", "start_ns", "dur_ns")
    slices = [calls.select(columns_of), wanted.select(columns_of)]
    at = nest(pl.concat(slices)).select(launch_row="row", call_row="parent_row")
    at = at.join(calls.select(call_row="row"), on="call_row", how="semi")
    direct = loose.select("launch_row", "dur_ns").join(at, on="launch_row", how="inner")
    return pl.concat([linked, direct.with_columns(inside=pl.lit(value=True)).select(columns)])
