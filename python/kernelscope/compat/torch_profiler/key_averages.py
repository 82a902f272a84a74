"""torch.profiler's ``key_averages()`` and its table, recomputed from the trace."""

import polars as pl

from kernelscope.analysis.call_tree import DEVICE_TYPES, HOST_TYPES
from kernelscope.analysis.grouping import as_text, classes_of
from kernelscope.analysis.ops.call_stacks import recorded_stacks, split_frames, with_event_stacks
from kernelscope.analysis.ops.host_events import TIMES, host_events, timed_calls, times_of
from kernelscope.compat.torch_profiler.flops import with_flops
from kernelscope.compat.torch_profiler.text import TableOptions, render
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

MEMORY = ("cpu_memory_bytes", "cpu_self_memory_bytes", "device_memory_bytes", "device_self_memory_bytes")

_TENSOR_LIST = r"\[\s*\[[^\]]*\](?:\s*,\s*\[[^\]]*\])*\s*\]"


class KeyAverages(pl.DataFrame):
    """The frame of :func:`key_averages`, with torch's table. Frames computed from it are plain frames."""

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        *,
        time_unit: str | None = None,
        device_name: str = "CUDA",
    ) -> str:
        """Returns the text of ``prof.key_averages().table()``, with torch's arguments.

        ``sort_by`` accepts torch's names, such as ``self_cpu_time_total``, ``cuda_time_total`` or ``count``.
        A ``row_limit`` of -1 means unlimited. ``time_unit`` is s, ms or us. ``device_name`` names the device
        in titles. FLOPs and memory are shown if the profiler recorded them. The last digit of a time exactly
        between two roundings may differ, because torch adds inexact microseconds.

        Raises: InvalidArgumentError: ``sort_by`` or ``time_unit`` is unknown.
        Source: torch/autograd/profiler_util.py, torch 2.15.

        Example: ``print(key_averages(trace).table(sort_by="self_cuda_time_total", row_limit=10))``
        """
        options = TableOptions(
            sort_by=sort_by,
            row_limit=row_limit,
            source_width=max_src_column_width,
            name_width=max_name_column_width,
            shapes_width=max_shapes_column_width,
            header=header,
            time_unit=time_unit,
            device_name=device_name,
        )
        return render(self, options)


def key_averages(
    trace: Trace,
    *,
    group_by_input_shape: bool = False,
    group_by_stack_n: int = 0,
    include_python_functions: bool = True,
) -> KeyAverages:
    """Result of ``prof.key_averages()`` of torch.profiler, computed from the file alone.

    Rows are operators, annotations, Python frames, runtime calls and GPU operations, by name. Python frames
    and runtime calls nest with operators here, so self times differ from those of :func:`op_table`.
    Allocations outside any event are the row ``[memory]``. From torch 2.15 on, torch omits Python frames by
    default, like ``include_python_functions=False``.

    Columns: ``name``, ``device`` (cpu or gpu), ``is_annotation``, ``input_shapes`` (if requested; null if not
        recorded), ``stack`` (if requested: the innermost ``group_by_stack_n`` frames, leaf first; empty
        unless the profiler was verbose), ``count``, ``cpu_total_ns``, ``cpu_self_ns``, ``device_total_ns``,
        ``device_self_ns``, ``cpu_memory_bytes``, ``cpu_self_memory_bytes``, ``device_memory_bytes``,
        ``device_self_memory_bytes``, ``flops``. Memory is null in a trace without memory events. FLOPs are
        null if the profiler did not record them, and follow torch's rules.
    Units: ns; bytes; FLOP.
    Order: by first occurrence.
    Raises: InvalidArgumentError: ``group_by_stack_n`` is negative.
    Source: torch/autograd/profiler_util.py and profiler.py, torch 2.13 and 2.15.

    Example: ``key_averages(trace, group_by_input_shape=True).table(sort_by="cpu_time_total")``
    """
    if group_by_stack_n < 0:
        raise InvalidArgumentError(f"group_by_stack_n must be 0 or more, not {group_by_stack_n}")
    by_stack = group_by_stack_n > 0
    rows = with_flops(torch_events(trace, stacks=recorded_stacks(trace) if by_stack else None), trace)
    if not include_python_functions:
        rows = rows.filter(~pl.col("is_python"))
    keys = ["name", "device", "is_annotation"]
    if group_by_input_shape:
        keys.append("input_shapes")
        if rows["input_shapes"].null_count() < rows.height:
            # To torch, an event without inputs has the shapes of no inputs.
            rows = rows.with_columns(pl.col("input_shapes").fill_null("[]"))
    if by_stack:
        keys.append("stack")
        rows = _with_innermost(rows, group_by_stack_n)
    table = rows.group_by(keys, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("count"), *(pl.col(c).sum() for c in (*TIMES, *MEMORY, "flops"))
    )
    unknown = [*(MEMORY if trace.memory.is_empty() else ()), *(() if _has_flops(trace) else ("flops",))]
    return KeyAverages(table.with_columns(pl.lit(None, pl.Int64).alias(c) for c in unknown))


def _with_innermost(events: pl.DataFrame, count: int) -> pl.DataFrame:
    """Replaces ``stack`` by the list of its innermost frames."""
    frames = split_frames(events["stack"]).select("stack", _frames=pl.col("frames").list.head(count))
    listed = events.join(frames, on="stack", how="left", nulls_equal=True, maintain_order="left")
    return listed.with_columns(stack="_frames").drop("_frames")


def _has_flops(trace: Trace) -> bool:
    return bool(trace.meta.flags.get("with_flops", False))


def torch_events(trace: Trace, *, stacks: pl.DataFrame | None = None) -> pl.DataFrame:
    """Returns every event of ``prof.events()``, with repeats of a name merged as in torch.

    Python frames and runtime calls nest with operators here. Allocations outside any event are events named
    ``[memory]``.

    Columns: ``row``, ``name``, ``device`` (cpu or gpu), ``is_annotation``, ``is_python``, ``input_shapes``,
        ``start_ns``, ``dur_ns``, the times in ``TIMES`` and the memory in ``MEMORY``; with ``stacks``
        (``row`` and ``text``) also ``stack``, the text of the call stack.
    Units: ns; bytes.
    Order: by start, longest first, then as recorded.
    """
    events = _described(host_events(trace))
    if stacks is not None:
        events = with_event_stacks(trace, events, stacks)
    tree = timed_calls(trace, events)
    tree.put_memory(events, trace.memory, "cpu")
    tree.put_memory(events, trace.memory, "device")
    calls = events.drop("track", "parent_row").filter(tree.is_kept())
    calls = calls.with_columns(pl.col("name").cast(pl.String), *times_of(tree, [*TIMES, *MEMORY]))
    parts = [calls, _loose_memory(trace, calls), _gpu_rows(trace)]
    return (
        pl.concat(parts, how="diagonal")
        .with_columns(pl.col("is_python").fill_null(value=False))
        .sort("start_ns", -pl.col("dur_ns"), "row")
    )


def flat_shapes(dims: pl.Expr) -> pl.Expr:
    """Returns input shapes as shown in torch's tables: a list of tensors is ``[]``."""
    text = dims.cast(pl.String).str.strip_chars()
    inner = text.str.head(-1).str.tail(-1).str.replace_all(_TENSOR_LIST, "[]")
    return (pl.lit("[") + inner + pl.lit("]")).str.replace_all(r",\s*", ", ")


def _described(events: pl.DataFrame) -> pl.DataFrame:
    """Adds ``input_shapes``, ``is_annotation`` and ``device`` to events of the host."""
    kinds = classes_of(events.select("input_dims", "is_annotation"))
    known = kinds.keys.select(
        input_shapes=flat_shapes(pl.col("input_dims")),
        is_annotation=pl.col("is_annotation").fill_null(value=False),
    )
    return events.drop("input_dims", "is_annotation", "module_row").with_columns(
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
        **dict.fromkeys(("dur_ns", *TIMES), pl.lit(0, pl.Int64)),
        device=pl.lit("cpu"),
        is_annotation=pl.lit(value=False),
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
