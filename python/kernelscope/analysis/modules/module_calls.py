"""Calls of modules in a trace, with their operators and GPU operations."""

from typing import NamedTuple

import polars as pl

from kernelscope.analysis.call_tree import CallTree, innermost, marked_parents, nest
from kernelscope.analysis.grouping import Classes, classes_of, gather_rows, positions, sum_by_group
from kernelscope.analysis.intervals import covered_ns
from kernelscope.analysis.replays import replays, with_replayed_ops
from kernelscope.trace import Trace

_OF_FRAME, _OF_RANGE = r"nn\.Module: ", r"layer:|\[pl\]\[module\]"
FRAME = rf"^{_OF_FRAME}(?P<name>.*)$"
"""Matches the name of a Python frame that is a module call, as torch.profiler writes it."""

LAYER = rf"^(?:{_OF_RANGE})(?P<name>.*)$"
"""Matches the name of a range or annotation around a module call, from kernelscope.capture or Lightning."""

EITHER = rf"(?:{_OF_FRAME}|{_OF_RANGE})"
"""Matches what is before the name of the module in either."""


class ModuleCalls(NamedTuple):
    """Operators and GPU operations by module call.

    ``calls``: ``row``, ``parent_row`` (of the enclosing call), ``name``, ``track``, ``start_ns``, ``dur_ns``,
    ``operators`` (called directly) and ``covered_ns`` (by these and nested calls). ``sums``, to be summed by
    ``call_row`` and ``inside`` (false for gradients of its forward operators): ``self_ns`` (of all its
    operators), ``device_ns`` and ``flops``.
    """

    calls: pl.DataFrame
    sums: pl.DataFrame


class _Slices(NamedTuple):
    """Operators or ranges, and of each the call that it belongs to.

    ``slices``: ``row``, ``parent_row``, ``start_ns``, ``dur_ns``. ``owner``: by class of slices ``call_row``,
    ``inside`` and ``is_operator``, which is false of what is no operator in a call. ``link``: the column by
    which GPU work names them.
    """

    slices: pl.DataFrame
    owner: Classes
    link: str


def module_calls(trace: Trace, costs: pl.DataFrame | None) -> ModuleCalls | None:
    """Returns the calls of modules in ``trace``.

    They are Python frames, otherwise ranges or annotations around modules.

    Returns None if there are none. ``costs`` has ``op_row`` and ``flops``.
    """
    replayed = with_replayed_ops(trace)
    calls = _frames(replayed.python)
    if calls.height:
        loose = _unowned(trace, calls)
        return _summed(replayed, calls, _operators(replayed.ops, calls), costs, loose)
    for slices, link in ((trace.ops, "op_row"), (trace.ranges, "range_row")):
        names = classes_of(slices.select("name"))
        is_module = _says(names, LAYER)
        if is_module.any():
            calls = _nested(slices, is_module, slices["track" if "track" in slices.columns else "tid"])
            loose = _unowned(trace, calls) if link == "op_row" else None
            return _summed(trace, calls, _around(slices, is_module, link), costs, loose)
    return None


def _frames(python: pl.DataFrame) -> pl.DataFrame:
    """The Python frames that are calls of modules."""
    is_module = python["module_id"].is_not_null() | _says(classes_of(python.select("name")), FRAME)
    return _nested(python, is_module, python["track"])


def _says(names: Classes, pattern: str) -> pl.Series:
    """Of which rows the name matches."""
    return names.spread(names.keys["name"].cast(pl.String).str.contains(pattern).fill_null(value=False))


def _nested(slices: pl.DataFrame, marked: pl.Series, track: pl.Series) -> pl.DataFrame:
    """The slices that are marked, each with the marked one around it as its parent."""
    calls = slices.select("row", "name", track.alias("track"), "start_ns", pl.col("dur_ns").fill_null(0))
    if not marked.any():
        return calls.clear().with_columns(pl.lit(None, pl.UInt32).alias("parent_row"))
    return calls.filter(marked).with_columns(marked_parents(slices, marked))


def _operators(ops: pl.DataFrame, calls: pl.DataFrame) -> _Slices:
    """Operators with the calls that their modules are known to be in."""
    # A gradient has the module of its forward operator, in whose call it does not lie.
    at = positions(calls["row"], ops["module_row"]).alias("call")
    into = ops["start_ns"] - calls["start_ns"].gather(at)
    lasts = calls["dur_ns"].gather(at)
    # A replayed operator begins with the module that it was captured in, and neither takes time.
    is_replayed = (into == 0) & (lasts == 0)
    inside = (into >= 0) & ((into < lasts) | is_replayed) & (ops["track"] == calls["track"].gather(at))
    classes = classes_of(ops.select(at, inside.fill_null(value=False).alias("inside"), "is_annotation"))
    owner = classes.keys.select(
        calls["row"].gather(classes.keys["call"]).alias("call_row"),
        "inside",
        is_operator=~pl.col("is_annotation").fill_null(value=False),
    )
    return _Slices(ops, Classes(classes.of, owner), "op_row")


def _around(slices: pl.DataFrame, is_module: pl.Series, link: str) -> _Slices:
    """Slices that are modules' calls or lie in them: every one belongs to the call around it."""
    tree = CallTree(slices)
    tree.keep_marked(is_module)
    # A call itself is no operator in it.
    operators = (~is_module).alias("is_operator")
    owner = slices.select(operators, tree.kept().alias("call_row"), inside=pl.lit(value=True))
    return _Slices(slices, classes_of(owner), link)


def _summed(
    trace: Trace, calls: pl.DataFrame, found: _Slices, costs: pl.DataFrame | None, loose: pl.DataFrame | None
) -> ModuleCalls:
    """The calls and what belongs to them, with the work ``loose`` that no operator launched."""
    slices, owner, link = found
    keys = owner.keys
    tree = CallTree(slices)
    if not keys["is_operator"].all():
        tree.retain_classes(owner, keys["is_operator"])
    columns = ("self_ns", "device_ns", "flops")
    sums = keys.with_columns(
        _self_time(tree, slices, owner),
        _sum_by_owner(trace.gpu_ops[link], trace.gpu_ops["dur_ns"], found).alias("device_ns"),
        flops=pl.lit(0, pl.Int64) if costs is None else _sum_by_owner(costs["op_row"], costs["flops"], found),
    ).filter(pl.col("call_row").is_not_null())
    # What is no operator costs nothing but GPU work.
    sums = sums.with_columns(flops=pl.when("is_operator").then("flops").otherwise(0))
    # What is not inside has no caller there.
    inside = keys.select(call_row=pl.when("inside").then("call_row"))
    called = _outermost(tree, owner)
    operators = slices.select("start_ns", "dur_ns")[called].hstack(inside[owner.of.gather(called)])
    covered = _covered(calls, operators)
    if loose is not None:
        sums = pl.concat([sums, loose], how="diagonal")
    return ModuleCalls(calls.hstack(covered), sums.select("call_row", "inside", *columns))


def _self_time(tree: CallTree, slices: pl.DataFrame, owner: Classes) -> pl.Series:
    """The time of the operators of each class without those inside.

    An annotation takes none: it would keep that of an operator which it overlaps in part.
    """
    own = tree.copy_structure()
    is_operator = owner.spread(owner.keys["is_operator"])
    own.put_own_time(slices.with_columns(pl.when(is_operator).then("dur_ns").otherwise(0)), into="self_ns")
    return own.class_sums(owner, ["self_ns"])["self_ns"]


def _sum_by_owner(rows: pl.Series, values: pl.Series, found: _Slices) -> pl.Series:
    """The sum of the values of the slices of each class, which are those of these rows."""
    places = positions(found.slices["row"], rows)
    known = places.is_not_null()
    of = found.owner.of.gather(places.filter(known))
    return sum_by_group(of, values.filter(known), found.owner.keys.height)["sum"]


def _outermost(tree: CallTree, owner: Classes) -> pl.Series:
    """Where the operators stand that lie in a call and in no operator of that call."""
    # Rows count from 0, which stands for none here.
    numbered = owner.keys.with_columns(call=pl.col("call_row").cast(pl.Int64) + 1)
    tree.put_by_class(Classes(owner.of, numbered), "call")
    tree.mark_changes("call", into="operators")
    return tree.columns_where("operators", [])["at"]


def _covered(calls: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """How much of each call its operators and the calls inside it cover, and how many operators it has.

    Columns: of ``operators``, needs ``call_row``, ``start_ns`` and ``dur_ns``; gives ``covered_ns`` and
        ``operators``, a row for each call.
    """
    children = calls.select("start_ns", "dur_ns", call_row="parent_row")
    inner = pl.concat([operators, children], how="diagonal")
    at = positions(calls["row"], inner["call_row"])
    call = calls.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))[at]
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    inside = inner.select(
        at.alias("at"),
        start_ns=pl.max_horizontal("start_ns", call["start_ns"]),
        end_ns=pl.min_horizontal(end, call["end_ns"]),
    )
    covered = covered_ns(inside.filter(pl.col("at").is_not_null()), by=["at"])
    own = at.head(operators.height)
    return pl.DataFrame(
        {
            "covered_ns": sum_by_group(covered["at"], covered["covered_ns"], calls.height)["sum"],
            "operators": sum_by_group(own, own, calls.height)["rows"],
        }
    )


def _unowned(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The work of kernels that Python launches itself, as Triton's do: in a module, but in no operator."""
    replayed = replays(trace)
    unknown = pl.repeat(None, trace.gpu_ops.height, dtype=pl.UInt32, eager=True)
    modules = unknown if replayed is None else replayed.module_rows
    work = trace.gpu_ops.select("launch_row", modules.alias("call_row"), device_ns="dur_ns")
    ops = with_replayed_ops(trace).gpu_ops["op_row"]
    loose = work.filter(ops.is_null() & work["launch_row"].is_not_null())
    placed = loose.drop_nulls("call_row").select("call_row", "device_ns", inside=pl.lit(value=True))
    loose = loose.filter(pl.col("call_row").is_null()).drop("call_row")
    columns = ("row", "track", "start_ns", "dur_ns")
    launches = gather_rows(loose["launch_row"].unique(), trace.launches, *columns).drop_nulls("row")
    around = innermost(launches, nest(calls.select(columns))).alias("call_row")
    direct = loose.join(launches.select(around, launch_row="row"), on="launch_row", how="inner")
    direct = direct.drop_nulls("call_row").select("call_row", "device_ns", inside=pl.lit(value=True))
    return pl.concat([placed, direct])
