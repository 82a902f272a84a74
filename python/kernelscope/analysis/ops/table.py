"""Costs of each operator on the host and on the device."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.call_tree import CallTree, collapse_repeats
from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import Classes, as_text, check_by, classes_of
from kernelscope.analysis.kernels.tensor_cores import ELIGIBLE_OPS, kernel_flags
from kernelscope.analysis.ops.call_stacks import with_call_stacks
from kernelscope.analysis.ranges.annotations import work_beside_operators
from kernelscope.analysis.ranges.projection import enclosing_pairs, launching_calls, recorded_annotations
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.errors import InvalidArgumentError
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_HOST = ("host_total_ns", "host_self_ns")
_DEVICE = ("device_total_ns", "device_self_ns")
_METRICS = (*_HOST, *_DEVICE)
_MEMORY = ("cpu_memory_bytes", "cpu_self_memory_bytes", "device_memory_bytes", "device_self_memory_bytes")
# How many eligible operators and kernels on tensor cores lie in a call; the latter's times.
_ELIGIBLE = "eligible_inside"
_TENSOR = ("_tc_total_ns", "_tc_self_ns", _ELIGIBLE)
MEASURES = ("device_self_ns", "device_total_ns", "host_self_ns", "host_total_ns")
OWN_TIMES = ("device_self_ns", "host_self_ns")
"""Measures that count each moment once."""
"""Measures by which operators are compared."""

# Operators nest a dozen deep; a wrapper further up than this does not count the work.
_MOST_LEVELS = 1_000


def op_table(
    trace: Trace, by: str | Sequence[str] = ("name",), *, annotations: bool = False, collapse: bool = True
) -> pl.DataFrame:
    """Costs of operators, summed over calls with equal columns ``by``.

    ``by`` accepts any columns of the table ``ops``. ``call_stack`` is assembled from Python frames if only
    these were recorded. With ``annotations``, ranges of ``record_function`` and of the profiler are rows,
    too. Operations count for each annotation that is open during their launch, regardless of operators
    between or around them. With ``collapse``, an operator whose only child has the same name is merged with
    it.

    Columns: the columns of ``by``; ``calls``; ``host_total_ns`` (wall time), ``host_self_ns`` (excluding
        operators and runtime calls inside), ``device_total_ns`` and ``device_self_ns`` (kernels, copies and
        memsets launched inside, in total and excluding children; for an annotation, the latter is time
        launched by no operator), ``cpu_memory_bytes``, ``cpu_self_memory_bytes``, ``device_memory_bytes``,
        ``device_self_memory_bytes`` (allocated minus freed during the calls, on any thread), ``tc_eligible``
        (whether it can run on tensor cores), ``tc_self_pct`` and ``tc_total_pct`` (share of the device time
        on tensor cores). Device columns are null in a trace without GPU operations, memory columns without
        memory events.
    Units: ns; bytes; percent. Concurrent operations are added, not merged. Order: by device self time, then
    host self time, longest first, then by the columns ``by``.
    Raises: InvalidArgumentError: ``by`` contains a name that is not a column of ``ops``.
    Source: torch/autograd/profiler_util.py; the operator view of the TensorBoard plugin.

    Example: ``op_table(trace, by=("name", "input_dims")).head(10)``
    """
    columns = check_by(by, trace.ops.columns)
    return op_tables(trace, (tuple(columns),), annotations=annotations, collapse=collapse)[0]


@per_trace
def op_tables(
    trace: Trace, groupings: tuple[tuple[str, ...], ...], *, annotations: bool = False, collapse: bool = True
) -> list[pl.DataFrame]:
    """Returns the result of :func:`op_table` for each of ``groupings``, at little additional cost."""
    trace = with_replayed_ops(trace)
    ops = with_call_stacks(trace) if any("call_stack" in group for group in groupings) else trace.ops
    # Calls are summed by everything that is asked for at once, and these few rows by what each table needs.
    classes = operator_classes(ops, chain.from_iterable(groupings))
    tree = _call_tree(trace, collapse=collapse)
    sums = tree.class_sums(classes, ())
    for put, names in _FIGURES.items():
        # Each in a tree of its own, as every figure is a number for each call.
        part = tree.copy_structure()
        put(part, trace, classes)
        if annotations:
            _count_for_annotations(part, trace, names)
        sums = sums.hstack(part.class_sums(classes, names).select(names))
    sums = _known(sums, trace)
    wanted = pl.lit(value=True) if annotations else pl.col("is_operator")
    sums = sums.filter(wanted & (pl.col("calls") > 0))
    return [_summed(sums, list(group)) for group in groupings]


def _summed(sums: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    table = as_text(
        sums.group_by(columns).agg(
            pl.col("calls").sum(), *(_sum_or_null(c) for c in (*_METRICS, *_MEMORY, *_TENSOR))
        )
    )
    return table.select(
        *columns,
        "calls",
        *_METRICS,
        *_MEMORY,
        tc_eligible=pl.col(_ELIGIBLE) > 0,
        tc_self_pct=_percent("_tc_self_ns", "device_self_ns"),
        tc_total_pct=_percent("_tc_total_ns", "device_total_ns"),
    ).sort(
        ["device_self_ns", "host_self_ns", *columns],
        descending=[True, True, *(False for _ in columns)],
        nulls_last=True,
    )


def ops(trace: Trace, *, collapse: bool = True) -> pl.DataFrame:
    """Costs of each call of an operator or annotation.

    Columns: the columns of the table ``ops``, the metrics of :func:`op_table`, and ``is_operator`` (false for
        annotations, steps, data loading and optimizer steps).
    """
    trace = with_replayed_ops(trace)
    classes = operator_classes(trace.ops)
    tree = _call_tree(trace, collapse=collapse)
    for put in _FIGURES:
        put(tree, trace, classes)
    _count_for_annotations(tree, trace, (*_DEVICE, *_TENSOR))
    is_operator = classes.spread(classes.keys["is_operator"]).alias("is_operator")
    calls = trace.ops.with_columns(pl.col("dur_ns").fill_null(0), is_operator).filter(tree.is_kept())
    metrics = _known(tree.columns([*_METRICS, *_MEMORY, _ELIGIBLE]), trace)
    return calls.with_columns(tree.parents(), *metrics.drop(_ELIGIBLE), tc_eligible=metrics[_ELIGIBLE] > 0)


def _call_tree(trace: Trace, *, collapse: bool) -> CallTree:
    tree = CallTree(trace.ops)
    if collapse:
        tree.merge_repeats(trace.ops["name"])
    return tree


def _put_host_time(tree: CallTree, trace: Trace, _: Classes) -> None:
    """An operator's own time is what neither operators and annotations nor runtime calls inside take."""
    tree.put(trace.ops.select(host_total_ns="dur_ns"))
    tree.put_own_time(trace.ops, others=trace.launches, into="host_self_ns")


def _put_device_time(tree: CallTree, trace: Trace, _: Classes) -> None:
    tree.add(trace.gpu_ops.select(call="op_row", device_self_ns="dur_ns"))
    tree.with_inner("device_self_ns", into="device_total_ns")


def _put_tensor_core_time(tree: CallTree, trace: Trace, _: Classes) -> None:
    _add_work(tree, trace, sums=["_tc_self_ns"])
    tree.with_inner("_tc_self_ns", into="_tc_total_ns")


def _put_eligible(tree: CallTree, trace: Trace, classes: Classes) -> None:
    """Puts ``eligible``, too: 1 for an operator that tensor cores can run, and for each kernel on them."""
    tree.put_by_class(classes, "eligible")
    _add_work(tree, trace, counts=["eligible"])
    tree.with_inner("eligible", into=_ELIGIBLE)


def _add_work(tree: CallTree, trace: Trace, *, counts: Sequence[str] = (), sums: Sequence[str] = ()) -> None:
    """Adds the GPU work of each call to it, as far as it counts: see :func:`_work_classes`."""
    work = trace.gpu_ops.select(call="op_row", value="dur_ns")
    tree.add_by_class(work, _work_classes(trace, GpuWork(trace).launches), counts=counts, sums=sums)


def _count_for_annotations(tree: CallTree, trace: Trace, names: Sequence[str]) -> None:
    """Adds to the columns ``names`` of annotations the GPU work that belongs to no operator inside them."""
    if trace.gpu_ops.is_empty() or not trace.ops["is_annotation"].any():
        return
    # What is inside a merged annotation is inside the one that it is merged into.
    kept = trace.ops["row"].filter(tree.is_kept())
    for figures in (_DEVICE, _TENSOR):
        wanted = [name for name in figures if name in names]
        if wanted:
            beside = work_beside_operators(trace, _is_tensor_work(trace) if figures is _TENSOR else None)
            inside = pl.when(pl.col("row").is_in(kept.implode())).then(pl.col("total_ns", "works"))
            beside = beside.with_columns(inside.fill_null(0))
            known = zip(figures, ("total_ns", "self_ns", "works"), strict=False)
            tree.add(beside.select(call="row", **{name: of for name, of in known if name in wanted}))


def _is_tensor_work(trace: Trace) -> pl.Series:
    classes = _work_classes(trace, GpuWork(trace).launches)
    return classes.spread(classes.keys["_tc_self_ns"])


def _put_host_memory(tree: CallTree, trace: Trace, _: Classes) -> None:
    tree.put_memory(trace.ops, trace.memory, "cpu")


def _put_device_memory(tree: CallTree, trace: Trace, _: Classes) -> None:
    tree.put_memory(trace.ops, trace.memory, "device")


_FIGURES = {
    _put_host_time: _HOST,
    _put_device_time: _DEVICE,
    _put_tensor_core_time: _TENSOR[:2],
    _put_eligible: _TENSOR[2:],
    _put_host_memory: _MEMORY[:2],
    _put_device_memory: _MEMORY[2:],
}


def _known(sums: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Hides what the trace cannot tell."""
    unknown = [*(_MEMORY if trace.memory.is_empty() else ())]
    unknown += [*_DEVICE, "_tc_total_ns", "_tc_self_ns"] if trace.gpu_ops.is_empty() else []
    return sums.with_columns(pl.lit(None, pl.Int64).alias(c) for c in unknown if c in sums.columns)


def operator_classes(ops: pl.DataFrame, by: Iterable[str] = ()) -> Classes:
    """Returns the classes of ``ops`` by name, ``is_annotation`` and ``by``.

    They have the columns of :func:`operator_flags`.
    """
    classes = classes_of(ops.select(list(dict.fromkeys(["name", "is_annotation", *by]))))
    return Classes(classes.of, operator_flags(classes.keys))


def operator_flags(ops: pl.DataFrame) -> pl.DataFrame:
    """Adds ``is_operator`` (see :func:`ops`) and ``eligible`` (1 if it can run on tensor cores).

    Columns: ``ops`` needs ``name`` and ``is_annotation``.
    """
    is_eligible = pl.col("name").cast(pl.String).is_in(list(ELIGIBLE_OPS))
    return ops.with_columns(
        is_operator=~pl.col("is_annotation").fill_null(value=False),
        eligible=is_eligible.fill_null(value=False).cast(pl.UInt32),
    )


def _work_classes(trace: Trace, classes: Classes) -> Classes:
    """What each class of GPU work adds to the operator that it belongs to."""
    is_kernel = (pl.col("kind") == "kernel").fill_null(value=False)
    tensor = is_kernel & pl.col("tensor_cores").fill_null(value=False)
    flags = kernel_flags(classes.keys.select("kind", "name", "device"), trace.devices).select(
        eligible=tensor, _tc_self_ns=tensor, _kernel_ns=is_kernel
    )
    return Classes(classes.of, flags)


def _sum_or_null(column: str) -> pl.Expr:
    """A sum that stays null where nothing is known."""
    return pl.when(pl.col(column).is_not_null().any()).then(pl.col(column).sum()).alias(column)


def _percent(part: str, whole: str) -> pl.Expr:
    return pl.when(pl.col(whole) > 0).then(100.0 * pl.col(part) / pl.col(whole))


def op_shares(trace: Trace, by: str | Sequence[str] = ("name",), *, top: int | None = None) -> pl.DataFrame:
    """Largest operators with their shares of time: own and total, on the device and on the host.

    ``by`` groups as in :func:`kernelscope.analysis.op_table`. ``top`` limits the rows of each measure; for
    own times, a row without a name sums all others. Totals include operators inside. They overlap, so they
    have no sum, no shares and no rest.

    Columns: ``measure`` (``device_self_ns`` ...), the columns of ``by``, ``value_ns``, ``share`` (of the sum
        of own times; null for totals) and ``is_rest`` (true for the row of all others). Operators without
        time are left out.
    Units: ns; shares between 0 and 1.
    Order: by measure, then by value, largest first.
    Raises: InvalidArgumentError: ``by`` contains a name that is not a column of ``ops``, or ``top`` is below
    1.
    Source: the four pies of the operator view of the TensorBoard plugin, two of which add overlapping times.
    """
    if top is not None and top < 1:
        raise InvalidArgumentError(f"top must be at least 1, not {top}")
    columns = [by] if isinstance(by, str) else list(by)
    table = op_table(trace, by=columns)
    parts = [_shares(table, measure, columns, top) for measure in MEASURES]
    return pl.concat(parts)


def _shares(table: pl.DataFrame, measure: str, columns: list[str], top: int | None) -> pl.DataFrame:
    used = table.filter(pl.col(measure) > 0).sort(
        [measure, *columns], descending=[True, *(False for _ in columns)], nulls_last=True
    )
    total = int(used[measure].sum()) if measure in OWN_TIMES else 0
    rows = used.select(
        pl.lit(measure).alias("measure"), *columns, value_ns=measure, is_rest=pl.lit(value=False)
    )
    if top is not None and measure not in OWN_TIMES:
        rows = rows.head(top)
    elif top is not None and rows.height > top:
        rest = int(rows["value_ns"][top:].sum())
        last = pl.DataFrame({"measure": [measure], "value_ns": [rest], "is_rest": [True]})
        rows = pl.concat([rows.head(top), last], how="diagonal")
    return rows.select(
        "measure", *columns, "value_ns", share=pl.col("value_ns") / (total or None), is_rest="is_rest"
    )


def op_kernels(trace: Trace, *, collapse: bool = True) -> pl.DataFrame:
    """GPU operations of each operator, by name.

    Operations count for the operator that launched them, for every enclosing operator, and for annotations
    that are open meanwhile, as in the totals of :func:`kernelscope.analysis.op_table`, including its
    ``collapse``.

    Columns: ``op``, ``kind`` (kernel, memcpy, memset, graph), ``name``, ``calls``, ``total_ns``, ``self_ns``
        (part launched by the operator itself), ``min_ns``, ``max_ns`` and ``share`` (of the operator's device
        time; null if that is 0).
    Units: ns; shares between 0 and 1.
    Order: by operator, then by total time, longest first.
    """
    trace = with_replayed_ops(trace)
    ops = trace.ops.select("row", "parent_row", "name")
    kept = collapse_repeats(ops) if collapse else ops.select("row", kept="row")
    in_annotations = _annotation_kernels(trace, kept)
    parents = ops.join(kept, on="row", how="inner").filter(pl.col("row") == pl.col("kept"))
    above = kept.select(parent_row="row", _parent="kept")
    parents = parents.join(above, on="parent_row", how="inner").select("row", "_parent")
    linked = trace.gpu_ops.select("op_row", "kind", "name", "dur_ns").join(
        kept.select(op_row="row", row="kept"), on="op_row", how="inner"
    )
    level = _work_by_name(linked, pl.col("dur_ns"))
    levels = [level]
    # Of an operator around the one that launched it, work is not the own.
    level = level.with_columns(self_ns=pl.lit(0, pl.Int64))
    while level.height and len(levels) < _MOST_LEVELS:
        climbed = level.join(parents, on="row", how="inner")
        level = _merged(climbed, [pl.col("_parent").alias("row"), "kind", "name"])
        levels.append(level)
    found = pl.concat(levels).join(recorded_annotations(trace), on="row", how="anti")
    found = pl.concat([found, in_annotations])
    named = found.join(ops.select("row", op="name"), on="row", how="inner")
    whole = pl.col("total_ns").sum().over("op")
    table = _merged(named, ["op", "kind", "name"]).with_columns(
        share=pl.when(whole > 0).then(pl.col("total_ns") / whole)
    )
    return (
        as_text(table)
        .select("op", "kind", "name", "calls", "total_ns", "self_ns", "min_ns", "max_ns", "share")
        .sort(["op", "total_ns", "name", "kind"], descending=[False, True, False, False], nulls_last=True)
    )


def _annotation_kernels(trace: Trace, kept: pl.DataFrame) -> pl.DataFrame:
    """What :func:`op_kernels` says of annotations: ``row``, and what it has of work of one name in each."""
    annotations = recorded_annotations(trace)
    pairs = enclosing_pairs(trace, annotations)
    pairs = pairs.select(annotations["row"].gather(pairs["range"]), "launch_row", "is_innermost")
    pairs = pairs.join(kept, on="row", how="inner")
    innermost = pairs.filter("is_innermost").select("launch_row", _around="kept")
    work = trace.gpu_ops.select("op_row", "kind", "name", "dur_ns", launching_calls(trace))
    work = work.join(kept.select(op_row="row", _op="kept"), on="op_row", how="left")
    work = work.join(innermost, on="launch_row", how="left")
    inside = pairs.filter(pl.col("row") == pl.col("kept")).select("row", "launch_row")
    found = work.join(inside, on="launch_row", how="inner")
    is_own = pl.coalesce("_op", "_around") == pl.col("row")
    return _work_by_name(found, pl.when(is_own).then("dur_ns").otherwise(0))


def _work_by_name(work: pl.DataFrame, own: pl.Expr) -> pl.DataFrame:
    duration = pl.col("dur_ns")
    return work.group_by("row", "kind", "name").agg(
        pl.len().cast(pl.Int64).alias("calls"),
        duration.sum().alias("total_ns"),
        own.sum().alias("self_ns"),
        duration.min().alias("min_ns"),
        duration.max().alias("max_ns"),
    )


def _merged(frame: pl.DataFrame, keys: "Sequence[str | pl.Expr]") -> pl.DataFrame:
    sums = pl.col("calls", "total_ns", "self_ns").sum()
    return frame.group_by(keys).agg(sums, pl.col("min_ns").min(), pl.col("max_ns").max())


class Eligibility(NamedTuple):
    """Calls of operators that can run on tensor cores, and the time of the kernels of all operators.

    Columns of ``lowest``, whose calls have no nested calls: ``row`` and ``kernel_ns`` (of the kernels that
        the call itself launched).
    """

    lowest: pl.DataFrame
    kernel_ns: int


@per_trace
def call_eligibility(trace: Trace) -> Eligibility:
    """Returns the calls of operators that can run on tensor cores.

    They have the time of kernels launched by operators.

    A call is eligible if its name is in the list, or if it launched a kernel that used tensor cores. A call
    whose only child has the same name represents both.

    Units: ns.
    Source: the recommendations of the TensorBoard plugin.
    """
    trace = with_replayed_ops(trace)
    classes = operator_classes(trace.ops)
    tree = _call_tree(trace, collapse=True)
    _put_eligible(tree, trace, classes)
    _add_work(tree, trace, sums=["_kernel_ns"])
    sums = tree.class_sums(classes, ["_kernel_ns"])
    found = tree.columns_where("eligible", ["eligible", _ELIGIBLE, "_kernel_ns"])
    is_operator = classes.keys["is_operator"].gather(classes.of.gather(found["at"]))
    found = found.filter(is_operator & (pl.col(_ELIGIBLE) == pl.col("eligible")))
    lowest = found.select(trace.ops["row"].gather(found["at"]), kernel_ns="_kernel_ns")
    return Eligibility(lowest, int(sums.filter("is_operator")["_kernel_ns"].sum()))


def eligible_share(trace: Trace) -> float | None:
    """Returns the share of operators' kernel time in operators that could run on tensor cores.

    Returns None if no operator launched a kernel.
    """
    lowest, total = call_eligibility(trace)
    return int(lowest["kernel_ns"].sum()) / total if total > 0 else None
