"""What each operator cost, on the host and on the device."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.grouping import as_text, by_name, check_by
from kernelscope.analysis.memory.allocations import DEVICE_TYPES, HOST_TYPES, allocated_bytes
from kernelscope.analysis.python_stacks import with_call_stacks
from kernelscope.analysis.tensor_cores import ELIGIBLE_OPS, kernel_flags
from kernelscope.analysis.tree import collapse_repeats, subtree_sums

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_NEEDED = ("row", "parent_row", "name", "category", "start_ns", "dur_ns")
_METRICS = ("host_total_ns", "host_self_ns", "device_total_ns", "device_self_ns")
_MEMORY = ("cpu_memory_bytes", "cpu_self_memory_bytes", "device_memory_bytes", "device_self_memory_bytes")
_TENSOR = ("_tc_total_ns", "_tc_self_ns")


def op_table(
    trace: "Trace",
    by: str | Sequence[str] = ("name",),
    *,
    annotations: bool = False,
    collapse: bool = True,
) -> pl.DataFrame:
    """What operators cost, summed over the calls that agree in the columns ``by``.

    ``by`` takes any columns of the table ``ops``; ``call_stack`` is put together from Python frames in a
    trace where only these were recorded. With ``annotations`` the ranges of ``record_function`` and of the
    profiler are rows too. With ``collapse`` an operator whose only
    child has its own name counts as one call with it.

    Columns: those of ``by``; ``calls``; ``host_total_ns`` (wall time), ``host_self_ns`` (less the
        operators and runtime calls inside), ``device_total_ns`` and ``device_self_ns`` (kernels,
        copies and memsets launched inside, and inside but in no child), ``cpu_memory_bytes``,
        ``cpu_self_memory_bytes``, ``device_memory_bytes``, ``device_self_memory_bytes`` (allocated
        less freed meanwhile, on any thread), ``tc_eligible`` (whether tensor cores can run it),
        ``tc_self_pct`` and ``tc_total_pct`` (share of the device time that did). Device columns
        are null in a trace without GPU work, memory columns in one without memory events.
    Units: ns; bytes; percent. Concurrent GPU work is added, not merged.
    Order: by device self time, then host self time, longest first, then by the columns ``by``.
    Raises: InvalidArgumentError: ``by`` names no column of ``ops``.
    Source: torch/autograd/profiler_util.py; the operator view of the TensorBoard plugin.

    Example: ``op_table(trace, by=("name", "input_dims")).head(10)``
    """
    return op_tables(trace, [by], annotations=annotations, collapse=collapse)[0]


def op_tables(
    trace: "Trace",
    groupings: Sequence[str | Sequence[str]],
    *,
    annotations: bool = False,
    collapse: bool = True,
) -> list[pl.DataFrame]:
    """What :func:`op_table` gives for each of ``groupings``, for little more than the time of one.

    Raises: InvalidArgumentError: a grouping names no column of ``ops``.
    """
    columns = [check_by(by, trace.ops.columns) for by in groupings]
    needed = dict.fromkeys([*_NEEDED, *(name for group in columns for name in group)])
    ops = with_call_stacks(trace) if "call_stack" in needed else trace.ops
    calls = _costed(trace, ops.select(list(needed)), collapse=collapse)
    if not annotations:
        calls = calls.filter("is_operator")
    return [_summed(calls, group) for group in columns]


def _summed(calls: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    table = as_text(
        calls.group_by(columns).agg(
            pl.len().cast(pl.Int64).alias("calls"),
            *(_sum_or_null(c) for c in (*_METRICS, *_MEMORY, *_TENSOR)),
            pl.col("tc_eligible").any(),
        )
    )
    return table.select(
        *columns,
        "calls",
        *_METRICS,
        *_MEMORY,
        "tc_eligible",
        tc_self_pct=_percent("_tc_self_ns", "device_self_ns"),
        tc_total_pct=_percent("_tc_total_ns", "device_total_ns"),
    ).sort(
        ["device_self_ns", "host_self_ns", *columns],
        descending=[True, True, *(False for _ in columns)],
        nulls_last=True,
    )


def op_calls(trace: "Trace", *, collapse: bool = True) -> pl.DataFrame:
    """What each call of an operator or annotation cost.

    Columns: those of the table ``ops``, the metrics of :func:`op_table`, and ``is_operator`` (false
        for annotations, steps, data loading and optimizer steps).
    """
    return _costed(trace, trace.ops, collapse=collapse)


def _costed(trace: "Trace", ops: pl.DataFrame, *, collapse: bool) -> pl.DataFrame:
    ops = operator_flags(ops).with_columns(pl.col("dur_ns").fill_null(0))
    if collapse:
        ops, kept = _merged(ops)
    else:
        kept = ops.select("row", kept="row")
    costed = _with_device(_with_host(ops, trace.launches, kept), trace, kept)
    return _with_memory(costed, trace.memory)


def operator_flags(ops: pl.DataFrame) -> pl.DataFrame:
    """Adds ``is_operator`` (see :func:`op_calls`) and ``_eligible`` (1 where tensor cores can run it).

    Columns: of ``ops``, needs ``name`` and ``category``.
    """
    flagged = by_name(
        ops,
        is_operator=~pl.col("text").str.contains(
            r"^ProfilerStep#|^Optimizer\.|^(?:Distributed)?DataParallel\.forward$"
            r"|^enumerate\(DataLoader\)#.*\.__next__$|^enumerate\(DataPipe\)#"
        ),
        _eligible=pl.col("text").is_in(list(ELIGIBLE_OPS)).cast(pl.UInt32),
    )
    annotation = flagged["category"].cast(pl.String) == "user_annotation"
    return flagged.with_columns(
        pl.col("is_operator").fill_null(value=True) & ~annotation.fill_null(value=False),
        pl.col("_eligible").fill_null(0),
    )


def _merged(ops: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The calls that remain, and for every call the one it is counted as."""
    operators = ops.select("row", "parent_row", "name")
    kept = collapse_repeats(operators)
    parents = kept.rename({"row": "parent_row", "kept": "kept_parent"})
    remaining = (
        ops.join(kept.filter(pl.col("row") == pl.col("kept")).select("row"), on="row", how="semi")
        .join(parents, on="parent_row", how="left", maintain_order="left")
        .with_columns(parent_row="kept_parent")
        .drop("kept_parent")
    )
    return remaining, kept


def _with_host(ops: pl.DataFrame, launches: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """Adds host times: an operator's own time is what neither child operators nor runtime calls take."""
    children = ops.group_by(pl.col("parent_row").alias("row")).agg(
        pl.col("dur_ns").sum().alias("_children_ns")
    )
    # A driver call inside a runtime call takes no time of its own.
    end = pl.col("start_ns") + pl.col("dur_ns")
    outer = (
        launches.select("row", "track", "start_ns", "dur_ns", "op_row")
        .filter(pl.col("op_row").is_not_null() & pl.col("dur_ns").is_not_null())
        .sort("track", "start_ns", -pl.col("dur_ns"), "row")
        .filter((end > end.cum_max().shift(1).over("track")).fill_null(value=True) | (pl.col("dur_ns") == 0))
    )
    called = (
        outer.join(kept, left_on="op_row", right_on="row", how="inner")
        .group_by(pl.col("kept").alias("row"))
        .agg(pl.col("dur_ns").sum().alias("_called_ns"))
    )
    return (
        ops.join(children, on="row", how="left", maintain_order="left")
        .join(called, on="row", how="left", maintain_order="left")
        .with_columns(
            host_total_ns="dur_ns",
            host_self_ns=pl.col("dur_ns")
            - pl.col("_children_ns").fill_null(0)
            - pl.col("_called_ns").fill_null(0),
        )
        .drop("_children_ns", "_called_ns")
    )


def _with_device(ops: pl.DataFrame, trace: "Trace", kept: pl.DataFrame) -> pl.DataFrame:
    """Adds device times and tensor-core use; descendants' work counts in the totals."""
    if trace.gpu_ops.is_empty():
        nothing = (pl.lit(None, pl.Int64).alias(c) for c in ("device_total_ns", "device_self_ns", *_TENSOR))
        eligible = subtree_sums(ops, ["_eligible"]).with_columns(tc_eligible=pl.col("_eligible") > 0)
        return eligible.with_columns(nothing).drop("_eligible")
    linked = trace.gpu_ops.filter(pl.col("op_row").is_not_null())
    work = kernel_flags(linked.select("op_row", "kind", "name", "device", "dur_ns"), trace.devices)
    tensor = pl.col("dur_ns").filter((pl.col("kind") == "kernel") & pl.col("tensor_cores"))
    own = (
        work.join(kept, left_on="op_row", right_on="row", how="inner")
        .group_by(pl.col("kept").alias("row"))
        .agg(
            pl.col("dur_ns").sum().alias("device_self_ns"),
            tensor.sum().alias("_tc_self_ns"),
            (tensor.len() > 0).cast(pl.UInt32).alias("_launched"),
        )
    )
    costed = ops.join(own, on="row", how="left", maintain_order="left").with_columns(
        pl.col("device_self_ns", "_tc_self_ns").fill_null(0),
        _eligible=pl.col("_eligible") + pl.col("_launched").fill_null(0),
    )
    costed = costed.with_columns(device_total_ns="device_self_ns", _tc_total_ns="_tc_self_ns")
    summed = subtree_sums(costed, ["device_total_ns", "_tc_total_ns", "_eligible"])
    return summed.with_columns(tc_eligible=pl.col("_eligible") > 0).drop("_eligible", "_launched")


def _with_memory(ops: pl.DataFrame, memory: pl.DataFrame) -> pl.DataFrame:
    """Adds memory allocated during each call, and during it but during no child."""
    if memory.is_empty():
        return ops.with_columns(pl.lit(None, pl.Int64).alias(c) for c in _MEMORY)
    totals = ops.with_columns(
        allocated_bytes(ops, memory, device_types=HOST_TYPES).alias("cpu_memory_bytes"),
        allocated_bytes(ops, memory, device_types=DEVICE_TYPES).alias("device_memory_bytes"),
    )
    return with_self_memory(totals)


def with_self_memory(calls: pl.DataFrame) -> pl.DataFrame:
    """Adds the memory of each call less that of its children.

    Columns: of ``calls``, needs ``row``, ``parent_row``, ``cpu_memory_bytes`` and
        ``device_memory_bytes``; adds ``cpu_self_memory_bytes`` and ``device_self_memory_bytes``.
    """
    of_children = calls.group_by(pl.col("parent_row").alias("row")).agg(
        pl.col("cpu_memory_bytes").sum().alias("_cpu"), pl.col("device_memory_bytes").sum().alias("_device")
    )
    return (
        calls.join(of_children, on="row", how="left", maintain_order="left")
        .with_columns(
            cpu_self_memory_bytes=pl.col("cpu_memory_bytes") - pl.col("_cpu").fill_null(0),
            device_self_memory_bytes=pl.col("device_memory_bytes") - pl.col("_device").fill_null(0),
        )
        .drop("_cpu", "_device")
    )


def _sum_or_null(column: str) -> pl.Expr:
    """A sum that stays null where nothing is known."""
    return pl.when(pl.col(column).is_not_null().any()).then(pl.col(column).sum()).alias(column)


def _percent(part: str, whole: str) -> pl.Expr:
    return pl.when(pl.col(whole) > 0).then(100.0 * pl.col(part) / pl.col(whole))
