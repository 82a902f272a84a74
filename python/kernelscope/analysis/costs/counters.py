"""Hardware counters of kernels, with the operators that launched them and their modelled costs."""

import re

import polars as pl

from kernelscope.analysis.costs.costed import cost_operators
from kernelscope.analysis.grouping import as_text, positions
from kernelscope.analysis.ops.table import operator_classes
from kernelscope.trace import Trace

CATEGORY = "cuda_profiler_range"
"""Category of the ranges that CUPTI's profiler writes, one per kernel."""

# Calls that start one kernel each. The runtime's come first: where they alone are as many as the ranges, the
# driver's are those that the runtime made.
_LAUNCHES = (r"^cudaLaunchKernel", r"^(cuda|cu)Launch(Cooperative)?Kernel")
_FLOPS = re.compile(r"^smsp__sass_thread_inst_executed_op_[fhd](?P<kind>fma|mul|add)_pred_on\.sum$")
# Operations of tensor cores by the type of their factors, a multiply-add counting 2: without those that are
# part of another counter, and without whole numbers.
_TENSOR_FLOPS = re.compile(r"^sm__ops_path_tensor_src_(bf16|tf32|fp\d+)(_dst_fp\d+)?\.sum$")
_TENSOR_INSTRUCTIONS = "sm__inst_executed_pipe_tensor.sum"
"""Counters that Kineto collects for ``kineto__tensor_core_insts``."""
_BYTES = re.compile(r"^dram__bytes(_read|_write)?\.sum$")
_FIXED = {
    "row": pl.UInt32,
    "name": pl.String,
    "start_ns": pl.Int64,
    "dur_ns": pl.Int64,
    "launch_row": pl.UInt32,
    "correlation": pl.Int64,
    "op_row": pl.UInt32,
    "op_stack": pl.List(pl.String),
    "top_level_op": pl.String,
    "bottom_level_op": pl.String,
    "measured_flops": pl.Float64,
    "tensor_instructions": pl.Float64,
    "tensor_flops": pl.Float64,
    "measured_bytes": pl.Float64,
    "intensity": pl.Float64,
    "model_row": pl.UInt32,
    "operator_flops": pl.Float64,
    "modelled_flops": pl.Int64,
    "ratio": pl.Float64,
}


def counters_with_operators(trace: Trace) -> pl.DataFrame:
    """Hardware counters of each kernel, with the operators around its launch: measured and modelled.

    The profiler records one range per kernel without its launch. Because it runs kernels one by one, the n-th
    range belongs to the n-th launch. If the numbers of launches and ranges differ, none is matched, and the
    columns about operators are null. ``measured_flops`` are those of the counters of scalar instructions
    (``kineto__cuda_core_flops`` combines nine of them). The FLOPs of a tensor instruction depend on its shape
    and types, which instruction counters do not record. ``tensor_flops`` are known from counters of
    operations, or if no such instruction was executed.

    Columns: ``row``, ``name`` (of the kernel), ``start_ns``, ``dur_ns`` of the range; ``launch_row``,
        ``correlation`` and ``op_row`` of the launch; ``op_stack`` (names of the enclosing operators,
        outermost first), ``top_level_op``, ``bottom_level_op``; ``measured_flops`` (scalar),
        ``tensor_instructions``, ``tensor_flops`` and ``measured_bytes`` (DRAM) from the counters, null if not
        collected; ``intensity``, all FLOPs divided by bytes; ``model_row`` (the operator whose cost is
        compared), ``operator_flops`` (all FLOPs over all its kernels), ``modelled_flops`` and ``ratio``
        (measured divided by modelled), all three null if tensor instructions are counted and their FLOPs are
        unknown; then one column per counter, by its name. A counter with the name of another column is
        ``NAME (counter)``.
    Units: FLOP, a fused multiply-add counting 2; bytes; ns. Order: by start.
    Source: HolisticTraceAnalysis, hta/analyzers/cupti_counter_analysis.py; NVIDIA Nsight Compute
        documentation, roofline metrics.
    Example:
        ``counters_with_operators(trace).group_by("bottom_level_op").agg(pl.col("measured_flops").sum())``
    """
    ranges = trace.counters.filter(pl.col("category").cast(pl.String) == CATEGORY)
    if ranges.is_empty():
        return pl.DataFrame(schema=_FIXED)
    names = ranges["counter"].unique().cast(pl.String).drop_nulls().sort().to_list()
    wide, columns = _by_counter(ranges, names)
    table = wide.sort("start_ns", "row").with_columns(
        measured_flops=_weighted(columns, _FLOPS),
        tensor_instructions=pl.col(columns[_TENSOR_INSTRUCTIONS])
        if _TENSOR_INSTRUCTIONS in columns
        else pl.lit(None, pl.Float64),
        tensor_flops=_weighted(columns, _TENSOR_FLOPS),
        measured_bytes=_bytes(columns),
    )
    table = _with_all_flops(table).with_columns(
        intensity=pl.when(pl.col("measured_bytes") > 0).then(pl.col("all_flops") / pl.col("measured_bytes"))
    )
    table = _with_launches(table, trace)
    answer = _with_models(_with_stacks(table, trace), trace)
    return answer.select(*_FIXED, **{_title(name): column for name, column in columns.items()})


def _by_counter(ranges: pl.DataFrame, names: list[str]) -> tuple[pl.DataFrame, dict[str, str]]:
    """A row for each range, and which of its columns holds each counter.

    A counter may be called like any column, so that columns have names that no other of the work has.
    """
    columns = {name: f"counter {place}" for place, name in enumerate(names)}
    called = pl.col("counter").replace_strict(columns, default="counter", return_dtype=pl.String)
    index = ["row", "name", "start_ns", "dur_ns"]
    values = as_text(ranges.select(*index, "counter", "value")).with_columns(called)
    wide = values.pivot("counter", index=index, values="value", aggregate_function="sum")
    return wide, columns


def _title(counter: str) -> str:
    """The name of a counter's column."""
    return f"{counter} (counter)" if counter in _FIXED else counter


def _with_all_flops(table: pl.DataFrame) -> pl.DataFrame:
    """Adds ``all_flops``, scalar and of tensor cores; null where there are such of unknown number."""
    none = pl.when(pl.col("tensor_instructions") == 0).then(0.0)
    table = table.with_columns(tensor_flops=pl.coalesce("tensor_flops", none))
    is_known = pl.col("tensor_flops").is_not_null() | pl.col("tensor_instructions").is_null()
    is_counted = pl.any_horizontal(pl.col("measured_flops", "tensor_flops").is_not_null())
    flops = pl.sum_horizontal("measured_flops", "tensor_flops")
    return table.with_columns(all_flops=pl.when(is_known & is_counted).then(flops))


def _weighted(columns: dict[str, str], pattern: re.Pattern[str]) -> pl.Expr:
    """The sum of FLOPs over the counters that count them; null without any."""
    matches = [(column, pattern.match(name)) for name, column in columns.items()]
    terms = [
        pl.col(column) * (2 if match.groupdict().get("kind") == "fma" else 1)
        for column, match in matches
        if match
    ]
    return pl.sum_horizontal(terms) if terms else pl.lit(None, pl.Float64)


def _bytes(columns: dict[str, str]) -> pl.Expr:
    """DRAM traffic: the counter of both directions, or those of each."""
    found = [name for name in columns if _BYTES.match(name)]
    both = [name for name in found if name == "dram__bytes.sum"] or found
    return pl.sum_horizontal(pl.col(columns[name]) for name in both) if both else pl.lit(None, pl.Float64)


def _with_launches(table: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    launches = trace.launches.select("row", "name", "start_ns", "correlation", "op_row")
    text = pl.col("name").cast(pl.String)
    for pattern in _LAUNCHES:
        found = launches.filter(text.str.contains(pattern)).sort("start_ns", "row")
        if found.height == table.height:
            return table.hstack(found.select("correlation", "op_row", launch_row="row"))
    unknown = {"launch_row": pl.UInt32, "correlation": pl.Int64, "op_row": pl.UInt32}
    return table.with_columns(pl.lit(None, dtype).alias(column) for column, dtype in unknown.items())


def _with_stacks(table: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Adds the names of the operators around each launch, annotations left out."""
    ops = trace.ops
    of, kinds = operator_classes(ops)
    parents = positions(ops["row"], ops["parent_row"])
    texts = kinds.select(pl.when("is_operator").then(pl.col("name").cast(pl.String))).to_series().gather(of)
    innermost = table["op_row"].drop_nulls().unique()
    place = positions(ops["row"], innermost)
    levels: list[pl.DataFrame] = []
    while place.is_not_null().any():
        levels.append(pl.DataFrame({"op_row": innermost, "text": texts.gather(place), "level": len(levels)}))
        place = parents.gather(place)
    if not levels:
        empty = pl.lit(None, pl.String)
        return table.with_columns(
            op_stack=pl.lit(None, pl.List(pl.String)), top_level_op=empty, bottom_level_op=empty
        )
    stacks = pl.concat(levels).drop_nulls("text").sort("level", descending=True)
    stacks = stacks.group_by("op_row", maintain_order=True).agg(op_stack=pl.col("text"))
    return table.join(stacks, on="op_row", how="left", maintain_order="left").with_columns(
        top_level_op=pl.col("op_stack").list.first(), bottom_level_op=pl.col("op_stack").list.last()
    )


def _with_models(table: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Adds the FLOPs that the model of the operator gives, and the measured ones over all its kernels."""
    launched = table.filter(pl.col("op_row").is_not_null())
    costed = cost_operators(trace, launched["op_row"], convention="kernelscope")
    flops = costed.kinds["flops"].gather(costed.ops["kind"])
    owner = launched.select("row").with_columns(
        model_row=costed.ops["op_row"].gather(costed.work), modelled_flops=flops.gather(costed.work)
    )
    table = table.join(owner, on="row", how="left", maintain_order="left")
    known = pl.col("model_row").is_not_null()
    # Of an operator with a kernel whose FLOPs are not known those of all are not.
    is_counted = pl.col("all_flops").is_not_null().all().over("model_row")
    total = pl.when(known & is_counted).then(pl.col("all_flops").sum().over("model_row"))
    return table.with_columns(operator_flops=total).with_columns(
        ratio=pl.when(pl.col("modelled_flops") > 0).then(pl.col("operator_flops") / pl.col("modelled_flops"))
    )
