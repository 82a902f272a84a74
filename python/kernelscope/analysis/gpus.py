"""How busy and how full each GPU was."""

from typing import TYPE_CHECKING, cast

import polars as pl

from kernelscope.analysis.classes import classes_of
from kernelscope.analysis.covering import covered_ns, filled_ns
from kernelscope.analysis.described import totals, weighted_means
from kernelscope.analysis.occupancy import IS_KERNEL, LAUNCH_COLUMNS, launch_metrics
from kernelscope.analysis.ops import operator_flags
from kernelscope.analysis.row_lookup import positions
from kernelscope.analysis.steps import step_breakdown
from kernelscope.analysis.tensor_cores import kernel_flags

if TYPE_CHECKING:
    from kernelscope.trace import Trace


_NEEDED = ("kind", "device", "dur_ns", *LAUNCH_COLUMNS)
_END = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)


def gpu_summary(trace: "Trace") -> pl.DataFrame:
    """How busy and how full each GPU was, from the start of the first step to the end of the last.

    Steps that the recording cuts off do not count; a trace without steps counts whole.

    Columns: ``device``, ``name``, ``total_memory_bytes``, ``compute_capability``, ``span_ns`` (the
        time looked at), ``busy_ns`` (at least one kernel runs), ``idle_ns`` (neither kernel nor
        copy nor memset runs), ``copy_ns`` (only copies or memsets run), ``utilisation`` (busy share
        of the span), ``sm_efficiency`` (share of SMs with a block, over the span),
        ``occupancy_pct`` (mean over the time of the kernels), ``tensor_core_share`` (of the time of
        kernels that operators launched), ``kernels``, ``kernel_ns`` (summed over all kernels of
        the trace) and ``launch_metrics`` (recorded; derived, if some value follows from launch
        sizes and the limits of the device; null if unknown).
    Units: ns; bytes; shares between 0 and 1; percent for ``occupancy_pct``.
    Formula: sm_efficiency integrates min(1, sum of blocks per SM over running kernels).
    Source: the GPU summary of the TensorBoard plugin.
    """
    span = _span(trace)
    # What lies outside the span ends before it starts, and so counts nothing.
    work = trace.gpu_ops.select(
        *_NEEDED,
        start_ns=pl.col("start_ns").clip(lower_bound=span[0]),
        end_ns=_END.clip(upper_bound=span[1]),
    )
    length = span[1] - span[0]
    runs = IS_KERNEL & (pl.col("end_ns") > pl.col("start_ns"))
    launches = launch_metrics(work, trace.devices, only=runs)
    of, devices = classes_of(work.select("device"))
    parts = [
        _busy(work),
        filled_ns(_sized(launches, runs), by=["device"]).rename({"filled_ns": "_sm_ns"}),
        _occupancy(launches, runs, of, devices),
        _tensor_core_share(trace),
        _counts(work, of, devices),
    ]
    table = devices.drop_nulls().join(_described(trace.devices), on="device", how="left")
    for part in parts:
        table = table.join(part, on="device", how="left")
    known = pl.lit(length if length > 0 else None, pl.Int64)
    busy, active = pl.col("busy_ns").fill_null(0), pl.col("_active_ns").fill_null(0)
    return table.select(
        "device",
        "name",
        "total_memory_bytes",
        "compute_capability",
        span_ns=known,
        busy_ns=busy,
        idle_ns=known - active,
        copy_ns=active - busy,
        utilisation=busy / known,
        sm_efficiency=pl.col("_sm_ns") / known,
        occupancy_pct="occupancy_pct",
        tensor_core_share="tensor_core_share",
        kernels=pl.col("kernels").fill_null(0),
        kernel_ns=pl.col("kernel_ns").fill_null(0),
        launch_metrics="launch_metrics",
    ).sort("device")


def _span(trace: "Trace") -> tuple[int, int]:
    """From the first step's start to the last one's end; without steps, over all GPU work."""
    steps = step_breakdown(trace)
    if steps.height:
        ends = steps["start_ns"] + steps["total_ns"]
        return cast(int, steps["start_ns"].min()), cast(int, ends.max())
    if trace.gpu_ops.is_empty():
        return 0, 0
    return trace.gpu_ops.select(pl.col("start_ns").min(), _END.max().alias("end_ns")).row(0)


def _described(devices: pl.DataFrame) -> pl.DataFrame:
    capability = pl.concat_str(pl.col("compute_major"), pl.lit("."), pl.col("compute_minor"))
    return devices.unique("device", keep="first", maintain_order=True).select(
        "device", pl.col("name").cast(pl.String), "total_memory_bytes", capability.alias("compute_capability")
    )


def _busy(work: pl.DataFrame) -> pl.DataFrame:
    """For how long a kernel runs on each device, and for how long anything does."""
    is_other = (pl.col("kind") != "kernel").fill_null(value=True)
    work = work.select("device", "start_ns", "end_ns", is_other=is_other)
    covered = covered_ns(work, by=["device"], level="is_other")
    return covered.group_by("device").agg(
        busy_ns=pl.col("covered_ns").filter(pl.col("is_other") == 0).sum(),
        _active_ns=pl.col("covered_ns").max(),
    )


def _sized(launches: pl.DataFrame, runs: pl.Expr) -> pl.DataFrame:
    """The kernels that have a block on some SM, with the share of SMs that do."""
    sized = launches.select("device", "start_ns", "end_ns", share=pl.when(runs).then("blocks_per_sm"))
    return sized.filter(pl.col("share") > 0)


def _occupancy(launches: pl.DataFrame, runs: pl.Expr, of: pl.Series, devices: pl.DataFrame) -> pl.DataFrame:
    """Mean occupancy over the time of the kernels inside the span, and where the figures come from."""
    columns = launches.select(
        "occupancy_pct", group=pl.when(runs).then(of), weight=pl.col("end_ns") - pl.col("start_ns")
    )
    means = weighted_means(columns["group"], columns["weight"], columns["occupancy_pct"], devices.height)
    origins = launches.select("device", "launch_metrics").group_by("device")
    return devices.with_columns(occupancy_pct=means).join(
        origins.agg(pl.col("launch_metrics").min().cast(pl.String)), on="device", how="left"
    )


def _counts(work: pl.DataFrame, of: pl.Series, devices: pl.DataFrame) -> pl.DataFrame:
    """How many kernels each device ran, and their time."""
    groups = work.select(pl.when(IS_KERNEL).then(of)).to_series()
    found = totals(groups, work["dur_ns"], devices.height)
    return devices.with_columns(found.select(kernels="rows", kernel_ns="sum").get_columns())


def _tensor_core_share(trace: "Trace") -> pl.DataFrame:
    """The share of the time of kernels that operators launched, on tensor cores, by ``device``."""
    classes = launched_kernels(trace).filter("is_operator")
    total = pl.col("dur_ns").sum()
    used = pl.col("dur_ns").filter(pl.col("tensor_cores")).sum()
    unknown = pl.col("tensor_cores").is_null().any()
    return classes.group_by("device").agg(
        pl.when((total > 0) & ~unknown).then(used / total).alias("tensor_core_share")
    )


def launched_kernels(trace: "Trace") -> pl.DataFrame:
    """Kernels that operators or annotations launched, by the names of both.

    Columns: ``device``, ``name`` (of the kernel), ``op`` and ``category`` (of the operator),
        ``is_operator`` (see ``op_calls``), ``tensor_cores`` (see ``kernel_flags``) and ``dur_ns`` (summed).
    """
    work = trace.gpu_ops.select("kind", "op_row", "device", "name", "dur_ns")
    at = positions(trace.ops["row"], work["op_row"])
    ops = trace.ops.select(pl.col("name", "category").gather(at))
    of, keys = classes_of(work.select("device", "name", op=ops["name"], category=ops["category"]))
    groups = work.select(pl.when(IS_KERNEL & at.is_not_null()).then(of)).to_series()
    found = totals(groups, work["dur_ns"], keys.height)
    classes = keys.with_columns(dur_ns=found["sum"]).filter(found["rows"] > 0)
    named = operator_flags(classes.select(name="op", category="category"))
    return kernel_flags(classes.with_columns(named["is_operator"]), trace.devices)
