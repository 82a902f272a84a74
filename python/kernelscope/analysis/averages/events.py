"""The events that torch.profiler sums up, with their own times, as it would list them."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.averages.call_stacks import with_stacks
from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.memory.allocations import DEVICE_TYPES, HOST_TYPES, allocated_bytes
from kernelscope.analysis.ops import with_self_memory
from kernelscope.analysis.tree import collapse_repeats, nest, subtree_sums

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
    calls = _cpu_calls(trace, stacks=stacks)
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


def _cpu_calls(trace: "Trace", *, stacks: pl.DataFrame | None) -> pl.DataFrame:
    """Host events in one tree per thread, with their metrics."""
    events = host_events(trace)
    if stacks is not None:
        events = with_stacks(trace, events, stacks)
    merged = collapse_repeats(events)
    kept = merged.rename({"row": "parent_row", "kept": "kept_parent"})
    calls = (
        events.join(merged.filter(pl.col("row") == pl.col("kept")).select("row"), on="row", how="semi")
        .join(kept, on="parent_row", how="left", maintain_order="left")
        .with_columns(parent_row="kept_parent")
        .drop("kept_parent")
    )
    children = calls.group_by(pl.col("parent_row").alias("row")).agg(
        pl.col("dur_ns").sum().alias("_children_ns")
    )
    own = (
        trace.gpu_ops.join(merged, left_on="op_row", right_on="row", how="inner")
        .group_by(pl.col("kept").alias("row"))
        .agg(pl.col("dur_ns").sum().alias("device_self_ns"))
    )
    calls = (
        calls.join(children, on="row", how="left", maintain_order="left")
        .join(own, on="row", how="left", maintain_order="left")
        .with_columns(
            pl.col("device_self_ns").fill_null(0),
            device_total_ns=pl.col("device_self_ns").fill_null(0),
            cpu_total_ns="dur_ns",
            cpu_self_ns=pl.col("dur_ns") - pl.col("_children_ns").fill_null(0),
        )
    )
    calls = subtree_sums(calls, ["device_total_ns"]).with_columns(
        allocated_bytes(calls, trace.memory, device_types=HOST_TYPES).alias("cpu_memory_bytes"),
        allocated_bytes(calls, trace.memory, device_types=DEVICE_TYPES).alias("device_memory_bytes"),
    )
    return with_self_memory(calls).drop("_children_ns", "track", "parent_row")


def host_events(trace: "Trace") -> pl.DataFrame:
    """Operators, annotations, Python frames and runtime calls, nested per thread.

    Columns: ``row``, ``start_ns``, ``dur_ns``, ``name``, ``track``, ``is_annotation``, ``is_python``,
        ``input_shapes``, ``device`` (cpu), ``parent_row``.
    """
    text = pl.col("name").cast(pl.String)
    slices = ("row", "start_ns", pl.col("dur_ns").fill_null(0))
    ops = trace.ops.select(
        *slices,
        pl.when(text.str.starts_with("ProfilerStep#"))
        .then(pl.lit("ProfilerStep*"))
        .otherwise(text)
        .alias("name"),
        track=pl.col("track").cast(pl.Int64),
        is_annotation=(pl.col("category").cast(pl.String) == "user_annotation").fill_null(value=False),
        input_shapes=flat_shapes(pl.col("input_dims")),
    )
    frames = trace.python.select(
        *slices, text, track=pl.col("track").cast(pl.Int64), is_python=pl.lit(value=True)
    )
    # A call that belongs to an operator is drawn on the operator's thread; any other stays apart.
    threads = trace.ops.select(op_row="row", op_track=pl.col("track").cast(pl.Int64))
    calls = trace.launches.join(threads, on="op_row", how="left", maintain_order="left").select(
        *slices, text, track=pl.coalesce("op_track", -1 - pl.col("track").cast(pl.Int64))
    )
    events = pl.concat([ops, frames, calls], how="diagonal").with_columns(
        pl.col("is_annotation", "is_python").fill_null(value=False), device=pl.lit("cpu")
    )
    return nest(events.filter(~pl.col("name").is_in(_HIDDEN) | pl.col("name").is_null()))


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
