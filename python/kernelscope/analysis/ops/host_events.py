"""Nested host events with their times, as torch.profiler shows them."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.call_tree import CallTree, nest
from kernelscope.analysis.grouping import classes_of, gather_rows
from kernelscope.analysis.replays import replays, with_replayed_ops
from kernelscope.trace import Trace

TIMES = ("cpu_total_ns", "cpu_self_ns", "device_total_ns", "device_self_ns")

_HIDDEN = (
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
)


def host_events(trace: Trace) -> pl.DataFrame:
    """Returns operators, annotations, Python frames, runtime calls and replayed operators, nested per thread.

    Columns: ``row``, ``start_ns``, ``dur_ns``, ``name`` (categorical), ``track``, ``is_python``,
        ``parent_row``; for operators also ``module_row``, ``input_dims`` and ``is_annotation``.
    """
    events = nest(call_slices(trace, trace.python, "module_row", "input_dims", "is_annotation"))
    replayed = replays(trace)
    if replayed is not None:
        added = replayed.ops.select(
            pl.col("row", "parent_row", "start_ns", "name", "module_row", "input_dims", "is_annotation"),
            dur_ns=pl.lit(0, pl.Int64),
            track=pl.col("track").cast(pl.Int64),
            is_python=pl.lit(value=False),
        )
        events = pl.concat([events, added.select(events.columns)])
    names = classes_of(events.select("name"))
    shown = names.keys.select(shown_name(pl.col("name").cast(pl.String)).cast(pl.Categorical)).to_series()
    return events.with_columns(names.spread(shown).alias("name"))


def call_slices(trace: Trace, frames: pl.DataFrame, *of_ops: str) -> pl.DataFrame:
    """Returns operators, annotations, runtime calls and Python ``frames``, except those that torch hides.

    Columns: ``row``, ``start_ns``, ``dur_ns``, ``name``, ``track``, ``is_python``; ``of_ops``, the columns of
        ``ops`` with these names, null for other events.
    """
    slices = ("row", "start_ns", pl.col("dur_ns").fill_null(0), "name")
    track = pl.col("track").cast(pl.Int64)
    called, is_python = pl.lit(value=False).alias("is_python"), pl.lit(value=True).alias("is_python")
    ops = trace.ops.select(*slices, track, *of_ops, called)
    python = frames.select(*slices, track, is_python)
    # A call that belongs to an operator is drawn on the operator's thread; any other stays apart.
    owner = gather_rows(trace.launches["op_row"], trace.ops, "track")["track"].cast(pl.Int64)
    calls = trace.launches.select(*slices, pl.coalesce(owner, -1 - track).alias("track"), called)
    events = pl.concat([ops, python, calls], how="diagonal")
    hidden = events["name"].is_in(_HIDDEN).fill_null(value=False)
    return events.filter(~hidden) if hidden.any() else events


def shown_name(text: pl.Expr) -> pl.Expr:
    """Returns a name as torch shows it: all steps have the same name."""
    return pl.when(text.str.starts_with("ProfilerStep#")).then(pl.lit("ProfilerStep*")).otherwise(text)


def timed_calls(trace: Trace, events: pl.DataFrame) -> CallTree:
    """Returns the tree of host events, with repeated names merged. :func:`times_of` has their times."""
    tree = CallTree(events)
    tree.merge_repeats(events["name"])
    tree.put(events.select(cpu_total_ns="dur_ns"))
    tree.put_own_time(events, into="_own_ns")
    tree.subtract_children("cpu_total_ns", into="cpu_self_ns")
    tree.add(with_replayed_ops(trace).gpu_ops.select(call="op_row", device_self_ns="dur_ns"))
    tree.with_inner("device_self_ns", into="device_total_ns")
    return tree


def times_of(tree: CallTree, names: Sequence[str]) -> pl.DataFrame:
    """Returns columns of ``TIMES`` and others of a tree from :func:`timed_calls`, for unmerged calls.

    Own time is computed as in torch: the time of nested calls is subtracted, twice if these overlap in part.
    If the result would be negative, the own time is the time in which the call is the last one that started.
    """
    found = tree.columns([*names, "_own_ns"])
    if "cpu_self_ns" in names:
        own = pl.when(pl.col("cpu_self_ns") < 0).then("_own_ns").otherwise("cpu_self_ns")
        found = found.with_columns(cpu_self_ns=own)
    return found.drop("_own_ns")
