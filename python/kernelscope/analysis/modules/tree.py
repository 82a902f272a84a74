"""Costs of each module of the network."""

import polars as pl

from kernelscope.analysis.call_tree import CallTree, subtree_sums
from kernelscope.analysis.grouping import gather_rows
from kernelscope.analysis.modules.module_calls import module_calls
from kernelscope.analysis.modules.paths import hierarchy_calls, with_paths
from kernelscope.analysis.training.backward import in_backward
from kernelscope.trace import Trace

_MEMORY = ("cpu_memory_bytes", "device_memory_bytes")
_SUMS = ("device_total_ns", "backward_host_ns", "backward_device_ns", "flops", "backward_flops")


def module_table(trace: Trace, *, costs: bool = False) -> pl.DataFrame:
    """The tree of modules: costs of each at its position in the network, on the host and on the device.

    A row is a module at one position: an instance that is called from two positions has two rows. Modules are
    calls of ``nn.Module`` that the profiler recorded as Python frames, otherwise ranges of
    :mod:`kernelscope.capture`, or annotations of Lightning, otherwise the hierarchy that TorchScript writes
    on operators (without calls). Without ``costs``, FLOPs are not computed.

    Columns: ``path`` (the modules from the root to this one, separated by ``/``), ``parent_path`` (null for a
        root), ``depth``, ``module`` (the instance, such as ``Linear_3``), ``class`` (null if unknown),
        ``calls``, ``operators`` (called directly), ``host_total_ns`` (wall time), ``host_self_ns`` (excluding
        modules and operators inside), ``device_total_ns``, ``device_self_ns`` (excluding modules inside),
        ``backward_host_ns`` and ``backward_device_ns`` (gradients of its forward operators, including modules
        inside; summed own times of the operators), ``cpu_memory_bytes`` and ``device_memory_bytes``
        (allocated minus freed during its calls), ``flops`` and ``backward_flops`` (including modules inside).
        Device columns are null in a trace without GPU operations, memory columns without memory events, FLOPs
        without ``costs``.
    Units: ns; bytes; FLOP. Concurrent operations are added, not merged. Order: tree order, each module before
    those inside it, in order of their first calls.
    Source: the module view of the TensorBoard plugin, whose figures are sums over the rows of one ``module``.
    Example: ``module_table(trace).filter(pl.col("depth") < 2)``
    """
    flops = _flops_of_operators(trace) if costs else None
    found = module_calls(trace, flops)
    if found is None:
        return hierarchy_table(trace, flops)
    calls, paths = with_paths(found.calls)
    table = paths
    for part in (_host(calls), _belonging(found.sums, calls), _memory(trace, calls)):
        table = table.join(part, on="path_id", how="left", maintain_order="left")
    return _finished(table, trace, has_costs=costs)


def _flops_of_operators(trace: Trace) -> pl.DataFrame:
    # The cost models take a while to import.
    from kernelscope.analysis.costs.costed import operator_flops

    return operator_flops(trace)


def hierarchy_table(trace: Trace, costs: pl.DataFrame | None) -> pl.DataFrame:
    """Returns the rows of :func:`module_table` from the hierarchy that TorchScript writes on operators.

    An operator is inside the modules that it names. Calls are not recorded, so they are null, and host times
    are the times of the operators.
    """
    ops, paths = hierarchy_calls(trace.ops)
    at = ops.select(op_row="row", path_id="path_id", is_backward=in_backward())
    own = ops.group_by("path_id").agg(
        pl.col("self_ns").filter(~in_backward()).sum().alias("host_self_ns"),
        pl.col("self_ns").filter(in_backward()).sum().alias("backward_host_ns"),
        pl.len().cast(pl.Int64).alias("operators"),
    )
    work = trace.gpu_ops.select("op_row", "dur_ns").join(at, on="op_row", how="inner")
    device = work.group_by("path_id").agg(
        pl.col("dur_ns").filter(~pl.col("is_backward")).sum().alias("device_self_ns"),
        pl.col("dur_ns").filter("is_backward").sum().alias("backward_device_ns"),
    )
    members = ops.select("row", call_row="path_id", inside=~in_backward())
    table = paths.with_columns(
        calls=pl.lit(None, pl.Int64), **{column: pl.lit(None, pl.Int64) for column in _MEMORY}
    )
    of_path = paths.select("path_id", call_row="path_id")
    for part in (own, device, _flops(members, of_path, costs)):
        table = table.join(part, on="path_id", how="left", maintain_order="left")
    table = table.with_columns(pl.col("host_self_ns").fill_null(0)).with_columns(host_total_ns="host_self_ns")
    return _finished(table, trace, has_costs=costs is not None, inherited=("host_total_ns",))


def _host(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls and host times; what lies in a module or operator inside a call is not the call's own."""
    own = calls.filter("has_path")
    times = own.group_by("path_id").agg(
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("dur_ns").sum().alias("host_total_ns"),
        (pl.col("dur_ns") - pl.col("covered_ns")).sum().alias("host_self_ns"),
    )
    operators = calls.group_by("path_id").agg(pl.col("operators").sum())
    return times.join(operators, on="path_id", how="left")


def _belonging(sums: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """GPU work and FLOPs. Gradients run outside the call: their own times can be added."""
    inside = pl.col("inside")
    return (
        sums.hstack(gather_rows(sums["call_row"], calls, "path_id"))
        .group_by("path_id")
        .agg(
            pl.col("device_ns").filter(inside).sum().alias("device_self_ns"),
            pl.col("self_ns").filter(~inside).sum().alias("backward_host_ns"),
            pl.col("device_ns").filter(~inside).sum().alias("backward_device_ns"),
            pl.col("flops").filter(inside).sum(),
            pl.col("flops").filter(~inside).sum().alias("backward_flops"),
        )
    )


def _memory(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    calls = calls.filter("has_path")
    tree = CallTree(calls)
    tree.put_memory(calls, trace.memory, "cpu")
    tree.put_memory(calls, trace.memory, "device")
    return calls.select("path_id").hstack(tree.columns(_MEMORY)).group_by("path_id").agg(pl.all().sum())


def _flops(members: pl.DataFrame, path_of: pl.DataFrame, costs: pl.DataFrame | None) -> pl.DataFrame:
    """FLOPs of the operators that ran in each module, and of the gradients of such."""
    if costs is None:
        return path_of.select(
            "path_id", flops=pl.lit(None, pl.Int64), backward_flops=pl.lit(None, pl.Int64)
        ).clear()
    known = costs.select("op_row", "flops").filter(pl.col("flops").is_not_null())
    of = members.select("call_row", "inside", op_row="row").join(known, on="op_row", how="inner")
    return (
        of.join(path_of, on="call_row", how="inner")
        .group_by("path_id")
        .agg(
            pl.col("flops").filter("inside").sum().alias("flops"),
            pl.col("flops").filter(~pl.col("inside")).sum().alias("backward_flops"),
        )
    )


def _finished(
    table: pl.DataFrame, trace: Trace, *, has_costs: bool, inherited: tuple[str, ...] = ()
) -> pl.DataFrame:
    """Adds to each module what the modules inside it cost, and hides what the trace cannot tell."""
    counted = ("operators", "device_self_ns", "backward_host_ns", "backward_device_ns")
    table = table.with_columns(pl.col(*counted, "flops", "backward_flops").fill_null(0))
    table = table.with_columns(device_total_ns="device_self_ns")
    summed = subtree_sums(
        table.rename({"path_id": "row", "parent_id": "parent_row"}), [*_SUMS, *inherited]
    ).sort("order")
    unknown = [
        *(("device_total_ns", "device_self_ns", "backward_device_ns") if trace.gpu_ops.is_empty() else ()),
        *(_MEMORY if trace.memory.is_empty() else ()),
        *(() if has_costs else ("flops", "backward_flops")),
    ]
    return summed.with_columns(pl.lit(None, pl.Int64).alias(column) for column in unknown).select(
        "path",
        "parent_path",
        "depth",
        "module",
        "class",
        "calls",
        "operators",
        "host_total_ns",
        "host_self_ns",
        "device_total_ns",
        "device_self_ns",
        "backward_host_ns",
        "backward_device_ns",
        *_MEMORY,
        "flops",
        "backward_flops",
    )
