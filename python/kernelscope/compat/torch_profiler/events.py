"""The events that torch.profiler sums up, with their own times, as it would list them."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.call_tree import CallTree, nest
from kernelscope.analysis.classes import classes_of
from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.memory.allocations import DEVICE_TYPES, HOST_TYPES, put_memory
from kernelscope.analysis.row_lookup import looked_up
from kernelscope.compat.torch_profiler.call_stacks import with_stacks

if TYPE_CHECKING:
    from kernelscope.trace import Trace

TIMES = ("cpu_total_ns", "cpu_self_ns", "device_total_ns", "device_self_ns")
MEMORY = ("cpu_memory_bytes", "cpu_self_memory_bytes", "device_memory_bytes", "device_self_memory_bytes")

_HIDDEN = (
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
)
_TENSOR_LIST = r"\[\s*\[[^\]]*\](?:\s*,\s*\[[^\]]*\])*\s*\]"


def torch_events(trace: "Trace", *, stacks: pl.DataFrame | None = None) -> pl.DataFrame:
    """Every event of ``prof.events()``, repeats of a name that torch merges being one.

    Python frames and runtime calls nest with operators here. Allocations during no event are events named
    ``[memory]``.

    Columns: ``row``, ``name``, ``device`` (cpu or gpu), ``is_annotation``, ``is_python``, ``input_shapes``,
        ``start_ns``, ``dur_ns``, the times in ``TIMES`` and the memory in ``MEMORY``; with ``stacks``
        (``row`` and ``text``) also ``stack``, the text of the call stack.
    Units: ns; bytes.
    Order: by start, longest first, then as recorded.
    """
    events = host_events(trace)
    if stacks is not None:
        events = with_stacks(trace, events, stacks)
    tree = timed_calls(trace, events)
    put_memory(tree, events, trace.memory)
    calls = events.drop("track", "parent_row").filter(tree.is_kept())
    calls = calls.with_columns(pl.col("name").cast(pl.String), *tree.columns([*TIMES, *MEMORY]))
    parts = [calls, _loose_memory(trace, calls), _gpu_rows(trace)]
    return (
        pl.concat(parts, how="diagonal")
        .with_columns(pl.col("is_python").fill_null(value=False))
        .sort("start_ns", -pl.col("dur_ns"), "row")
    )


def flat_shapes(dims: pl.Expr) -> pl.Expr:
    """Input shapes as torch's tables show them: a list of tensors is ``[]``."""
    text = dims.cast(pl.String).str.strip_chars()
    inner = text.str.head(-1).str.tail(-1).str.replace_all(_TENSOR_LIST, "[]")
    return (pl.lit("[") + inner + pl.lit("]")).str.replace_all(r",\s*", ", ")


def timed_calls(trace: "Trace", events: pl.DataFrame) -> CallTree:
    """The tree of the host's events, repeats of a name being one, with the columns of ``TIMES``."""
    tree = CallTree(events)
    tree.merge_repeats(events["name"])
    tree.put(events.select(cpu_total_ns="dur_ns"))
    tree.less_children("cpu_total_ns", into="cpu_self_ns")
    tree.add(trace.gpu_ops.select(call="op_row", device_self_ns="dur_ns"))
    tree.with_inner("device_self_ns", into="device_total_ns")
    return tree


def host_events(trace: "Trace") -> pl.DataFrame:
    """Operators, annotations, Python frames and runtime calls, nested per thread.

    Columns: ``row``, ``start_ns``, ``dur_ns``, ``name`` (categorical), ``track``, ``is_annotation``,
        ``is_python``, ``input_shapes``, ``device`` (cpu), ``parent_row``.
    """
    slices = call_slices(trace, trace.python)
    names = classes_of(slices.select("name", "input_dims", "category"))
    text = pl.col("name").cast(pl.String)
    told = names.keys.select(
        name=shown_name(text).cast(pl.Categorical),
        input_shapes=flat_shapes(pl.col("input_dims")),
        is_annotation=(pl.col("category").cast(pl.String) == "user_annotation").fill_null(value=False),
    )
    spread = [names.spread(column) for column in told]
    return nest(slices.drop("input_dims", "category")).with_columns(*spread, device=pl.lit("cpu"))


def call_slices(trace: "Trace", frames: pl.DataFrame) -> pl.DataFrame:
    """Operators, annotations, runtime calls and Python ``frames``, but for those that torch hides.

    Columns: ``row``, ``start_ns``, ``dur_ns``, ``name``, ``track``, ``is_python``; of operators also
        ``module_row``, ``input_dims`` and ``category``.
    """
    slices = ("row", "start_ns", pl.col("dur_ns").fill_null(0), "name")
    track = pl.col("track").cast(pl.Int64)
    called, is_python = pl.lit(value=False).alias("is_python"), pl.lit(value=True).alias("is_python")
    ops = trace.ops.select(*slices, track, "module_row", "input_dims", "category", called)
    python = frames.select(*slices, track, is_python)
    # A call that belongs to an operator is drawn on the operator's thread; any other stays apart.
    owner = looked_up(trace.launches["op_row"], trace.ops, "track")["track"].cast(pl.Int64)
    calls = trace.launches.select(*slices, pl.coalesce(owner, -1 - track).alias("track"), called)
    events = pl.concat([ops, python, calls], how="diagonal")
    hidden = events["name"].is_in(_HIDDEN).fill_null(value=False)
    return events.filter(~hidden) if hidden.any() else events


def shown_name(text: pl.Expr) -> pl.Expr:
    """A name as torch shows it: steps are all alike."""
    return pl.when(text.str.starts_with("ProfilerStep#")).then(pl.lit("ProfilerStep*")).otherwise(text)


def _loose_memory(trace: "Trace", calls: pl.DataFrame) -> pl.DataFrame:
    """Memory events that happened during no host event."""
    starts = calls["start_ns"].sort()
    ends = (calls["start_ns"] + calls["dur_ns"]).sort()
    times = trace.memory["start_ns"]
    open_then = starts.search_sorted(times, side="right").cast(pl.Int64) - ends.search_sorted(
        times, side="left"
    ).cast(pl.Int64)
    loose = as_text(trace.memory.filter(open_then == 0))
    return loose.select(
        "row",
        "name",
        "start_ns",
        dur_ns=pl.lit(0, pl.Int64),
        device=pl.lit("cpu"),
        is_annotation=pl.lit(value=False),
        cpu_total_ns=pl.lit(0, pl.Int64),
        cpu_self_ns=pl.lit(0, pl.Int64),
        device_total_ns=pl.lit(0, pl.Int64),
        device_self_ns=pl.lit(0, pl.Int64),
        cpu_memory_bytes=pl.when(pl.col("device_type").is_in(HOST_TYPES)).then("bytes").otherwise(0),
        device_memory_bytes=pl.when(pl.col("device_type").is_in(DEVICE_TYPES)).then("bytes").otherwise(0),
    ).with_columns(cpu_self_memory_bytes="cpu_memory_bytes", device_self_memory_bytes="device_memory_bytes")


def _gpu_rows(trace: "Trace") -> pl.DataFrame:
    """GPU work and the GPU's images of annotations."""
    columns = ("row", pl.col("name").cast(pl.String), "start_ns", pl.col("dur_ns").fill_null(0))
    work = trace.gpu_ops.select(*columns, is_annotation=pl.lit(value=False))
    images = trace.gpu_annotations.select(*columns, is_annotation=pl.lit(value=True))
    return pl.concat([work, images]).with_columns(
        device=pl.lit("gpu"),
        device_total_ns="dur_ns",
        device_self_ns="dur_ns",
        cpu_total_ns=pl.lit(0, pl.Int64),
        cpu_self_ns=pl.lit(0, pl.Int64),
    )
