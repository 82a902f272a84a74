"""The events that torch.profiler sums up, with their own times, as it would list them."""

import polars as pl

from kernelscope.analysis.classes import classes_of
from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.memory.allocations import DEVICE_TYPES, HOST_TYPES, put_memory
from kernelscope.analysis.ops.call_stacks import with_stacks
from kernelscope.analysis.ops.host_events import TIMES, host_events, timed_calls
from kernelscope.trace import Trace

MEMORY = ("cpu_memory_bytes", "cpu_self_memory_bytes", "device_memory_bytes", "device_self_memory_bytes")

_TENSOR_LIST = r"\[\s*\[[^\]]*\](?:\s*,\s*\[[^\]]*\])*\s*\]"


def torch_events(trace: Trace, *, stacks: pl.DataFrame | None = None) -> pl.DataFrame:
    """Every event of ``prof.events()``, repeats of a name that torch merges being one.

    Python frames and runtime calls nest with operators here. Allocations during no event are events named
    ``[memory]``.

    Columns: ``row``, ``name``, ``device`` (cpu or gpu), ``is_annotation``, ``is_python``, ``input_shapes``,
        ``start_ns``, ``dur_ns``, the times in ``TIMES`` and the memory in ``MEMORY``; with ``stacks``
        (``row`` and ``text``) also ``stack``, the text of the call stack.
    Units: ns; bytes.
    Order: by start, longest first, then as recorded.
    """
    events = _described(host_events(trace))
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


def _described(events: pl.DataFrame) -> pl.DataFrame:
    """Adds ``input_shapes``, ``is_annotation`` and ``device`` to events of the host."""
    kinds = classes_of(events.select("input_dims", "category"))
    known = kinds.keys.select(
        input_shapes=flat_shapes(pl.col("input_dims")),
        is_annotation=(pl.col("category").cast(pl.String) == "user_annotation").fill_null(value=False),
    )
    return events.drop("input_dims", "category", "module_row").with_columns(
        *map(kinds.spread, known), device=pl.lit("cpu")
    )


def _loose_memory(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
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


def _gpu_rows(trace: Trace) -> pl.DataFrame:
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
