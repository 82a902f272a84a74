"""Utilisation of each GPU."""

from typing import cast

import polars as pl

from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import sum_by_group
from kernelscope.analysis.kernels.occupancy import IS_KERNEL
from kernelscope.analysis.kernels.tensor_cores import kernel_flags
from kernelscope.analysis.ops.table import operator_flags
from kernelscope.analysis.steps.breakdown import step_times
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_END = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)


@per_trace
def gpu_summary(trace: Trace) -> pl.DataFrame:
    """Utilisation of each GPU, from the start of the first step to the end of the last.

    Incomplete steps do not count. A trace without steps counts as a whole.

    Columns: ``device``, ``name``, ``total_memory_bytes``, ``compute_capability``, ``window_ns`` (the observed
        time), ``busy_ns`` (at least one kernel runs), ``utilisation`` (busy share of the window),
        ``sm_efficiency`` (share of SMs with a block, over the window), ``occupancy_pct`` (mean over the time
        of the kernels), ``tensor_core_share`` (of the time of kernels that operators launched), ``kernels``,
        ``gpu_kernel_ns`` (summed over all kernels of the trace) and ``launch_metrics`` (recorded; derived, if
        any value follows from launch sizes and the limits of the device; null if unknown).
    Units: ns; bytes; shares between 0 and 1; percent for ``occupancy_pct``.
    Formula: sm_efficiency integrates min(1, sum of blocks per SM over running kernels).
    Source: the GPU summary of the TensorBoard plugin.
    """
    span = _span(trace)
    length = span[1] - span[0]
    work = GpuWork(trace)
    of, keys = work.launches
    inside = inside_ns(trace.gpu_ops, of, keys.height, window=span)
    classes = keys.with_columns(
        runs=IS_KERNEL & (inside["rows"] > 0),
        inside_ns=inside["sum"],
        works=work.totals["rows"],
        dur_ns=work.totals["sum"],
    )
    devices = classes.select("device").unique(maintain_order=True)
    parts = [
        _busy(work, classes, span),
        _filled(work, classes, span),
        _occupancy(classes),
        _tensor_core_share(classes, trace.devices),
        _counts(classes),
    ]
    table = devices.drop_nulls().join(_described(trace.devices), on="device", how="left")
    for part in parts:
        table = table.join(part, on="device", how="left")
    known = pl.lit(length if length > 0 else None, pl.Int64)
    busy = pl.col("busy_ns").fill_null(0)
    return table.select(
        "device",
        "name",
        "total_memory_bytes",
        "compute_capability",
        window_ns=known,
        busy_ns=busy,
        utilisation=busy / known,
        sm_efficiency=pl.col("_sm_ns") / known,
        occupancy_pct="occupancy_pct",
        tensor_core_share="tensor_core_share",
        kernels=pl.col("kernels").fill_null(0),
        gpu_kernel_ns=pl.col("gpu_kernel_ns").fill_null(0),
        launch_metrics="launch_metrics",
    ).sort("device")


def inside_ns(works: pl.DataFrame, of: pl.Series, count: int, *, window: tuple[int, int]) -> pl.DataFrame:
    """Returns the number of operations of each of ``count`` classes that overlap a window.

    The second array is their time inside it.

    Columns: ``works`` needs ``start_ns`` and ``dur_ns``. The result has ``rows`` and ``sum``.
    """
    inside = _END.clip(upper_bound=window[1]) - pl.col("start_ns").clip(lower_bound=window[0])
    found = works.select(of.alias("class"), inside.alias("inside_ns")).filter(pl.col("inside_ns") > 0)
    return sum_by_group(found["class"], found["inside_ns"], count)


def _span(trace: Trace) -> tuple[int, int]:
    """From the first step's start to the last one's end; without steps, over all GPU work."""
    steps = step_times(trace)
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


def _busy(work: GpuWork, classes: pl.DataFrame, span: tuple[int, int]) -> pl.DataFrame:
    """For how long a kernel runs on each device."""
    is_other = classes.select((pl.col("kind") != "kernel").fill_null(value=True).cast(pl.UInt8)).to_series()
    covered = work.on_devices.covered_ns(is_other, of=work.launches.of, window=span)
    return covered.filter(pl.col("level") == 0).select("device", busy_ns="covered_ns")


def _filled(work: GpuWork, classes: pl.DataFrame, span: tuple[int, int]) -> pl.DataFrame:
    """The integral of the share of SMs that have a block, over the kernels that run."""
    shares = classes.select(pl.when(IS_KERNEL).then("blocks_per_sm")).to_series()
    filled = work.on_devices.filled_ns(shares, of=work.launches.of, window=span)
    return filled.rename({"filled_ns": "_sm_ns"})


def _occupancy(classes: pl.DataFrame) -> pl.DataFrame:
    """Mean occupancy over the time of the kernels inside the span, and where the figures come from."""
    running = classes.filter("runs")
    known = running.filter(pl.col("occupancy_pct").is_not_null())
    means = known.group_by("device").agg(
        occupancy_pct=(pl.col("occupancy_pct") * pl.col("inside_ns")).sum() / pl.col("inside_ns").sum()
    )
    origins = running.group_by("device").agg(pl.col("launch_metrics").min().cast(pl.String))
    return origins.join(means, on="device", how="left")


def _counts(classes: pl.DataFrame) -> pl.DataFrame:
    """How many kernels each device ran, and their time."""
    kernels = classes.filter(IS_KERNEL)
    return kernels.group_by("device").agg(kernels=pl.col("works").sum(), gpu_kernel_ns=pl.col("dur_ns").sum())


def _tensor_core_share(classes: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    """The share of the time of kernels that operators launched, on tensor cores, by ``device``."""
    linked = classes.filter(IS_KERNEL & pl.col("is_linked"))
    flags = operator_flags(linked.select("is_annotation", name="op"))
    flagged = kernel_flags(linked.filter(flags["is_operator"]), devices)
    total = pl.col("dur_ns").sum()
    used = pl.col("dur_ns").filter(pl.col("tensor_cores")).sum()
    unknown = pl.col("tensor_cores").is_null().any()
    return flagged.group_by("device").agg(
        pl.when((total > 0) & ~unknown).then(used / total).alias("tensor_core_share")
    )
