"""Key figures of a trace."""

import polars as pl

from kernelscope.analysis.gpu.summary import gpu_summary
from kernelscope.analysis.ops.table import eligible_share
from kernelscope.analysis.steps.breakdown import CATEGORIES, step_breakdown, step_times
from kernelscope.trace import Trace

_EFFICIENCY = {
    "flops_per_step": pl.Float64,
    "mfu_pct": pl.Float64,
    "known_pct": pl.Float64,
    "peak_flops_per_s": pl.Float64,
    "peak_type": pl.String,
}


def overview(trace: Trace, *, costs: bool = False) -> pl.DataFrame:
    """Key figures of a trace as one row, so that the rows of many ranks can be concatenated.

    Without ``costs``, FLOPs are not computed, and figures derived from them are null.

    Columns: ``rank``, ``world_size``, ``host``, ``format``; ``gpus`` (that ran a kernel), ``gpu_name`` (of
        the first); ``steps`` (complete ones), ``partial_steps``; ``step_ns`` and the eight parts of a step,
        as means over the complete steps and over the GPUs (``mean_steps`` has each); ``utilisation``,
        ``sm_efficiency``, ``occupancy_pct`` and ``tensor_core_share`` (means over the GPUs that ran a kernel,
        the last two weighted by the time of their kernels; null if unknown for one); ``tc_eligible_share``
        (share of operators' kernel time in operators that could run on tensor cores); ``kernels``,
        ``gpu_kernel_ns`` (summed over all kernels), ``operators`` (calls of operators and annotations),
        ``launches``; ``flops_per_step``, ``mfu_pct`` (over all steps), ``known_pct`` (of the GPU time, with
        known FLOPs), ``peak_flops_per_s`` and ``peak_type``.
    Units: ns; shares between 0 and 1; percent; FLOP; FLOP/s.
    Source: the overview of the TensorBoard plugin.
    """
    steps = step_times(trace, include_partial=True)
    whole = steps.filter(~pl.col("is_partial"))
    summary = gpu_summary(trace)
    used = summary.filter(pl.col("kernels") > 0)
    meta = trace.meta
    parts = step_breakdown(trace).select(
        pl.col("total_ns").mean().alias("step_ns"), pl.col(CATEGORIES).mean()
    )
    head = pl.select(
        rank=pl.lit(meta.rank, pl.Int64),
        world_size=pl.lit(meta.world_size, pl.Int64),
        host=pl.lit(meta.host, pl.String),
        format=pl.lit(meta.format),
        gpus=pl.lit(used.height, pl.Int64),
        gpu_name=pl.lit(used["name"].first(), pl.String),
        steps=pl.lit(whole.height, pl.Int64),
        partial_steps=pl.lit(steps.height - whole.height, pl.Int64),
    )
    counts = pl.select(
        tc_eligible_share=pl.lit(eligible_share(trace), pl.Float64),
        kernels=pl.lit(used["kernels"].sum(), pl.Int64),
        gpu_kernel_ns=pl.lit(used["gpu_kernel_ns"].sum(), pl.Int64),
        operators=pl.lit(trace.ops.height, pl.Int64),
        launches=pl.lit(trace.launches.height, pl.Int64),
    )
    return pl.concat([head, parts, _of_gpus(used), counts, _of_flops(trace, costs=costs)], how="horizontal")


def _of_gpus(used: pl.DataFrame) -> pl.DataFrame:
    weight = pl.col("gpu_kernel_ns")

    def weighted(column: str) -> pl.Expr:
        known = pl.col(column).is_not_null().all() & (weight.sum() > 0)
        return pl.when(known).then((pl.col(column) * weight).sum() / weight.sum()).alias(column)

    def mean(column: str) -> pl.Expr:
        return pl.when(pl.col(column).is_not_null().all()).then(pl.col(column).mean()).alias(column)

    return used.select(
        mean("utilisation"), mean("sm_efficiency"), weighted("occupancy_pct"), weighted("tensor_core_share")
    )


def _of_flops(trace: Trace, *, costs: bool) -> pl.DataFrame:
    """Figures over all steps together: of the FLOPs of all in the time of all."""
    unknown = pl.DataFrame({name: [None] for name in _EFFICIENCY}, schema=_EFFICIENCY)
    if not costs:
        return unknown
    # The cost models take a while to import.
    from kernelscope.analysis.costs.achieved import efficiency

    steps = efficiency(trace)
    if steps.is_empty():
        return unknown
    rate = pl.col("peak_flops_per_s").first()
    known = pl.col("flops").is_not_null()
    model_flops = pl.col("flops") - pl.col("recompute_flops")
    time = pl.col("total_ns").filter(known).sum() * 1e-9
    device = pl.col("device_ns").sum()
    return steps.select(
        pl.col("flops").mean().alias("flops_per_step"),
        pl.when(time > 0).then(100.0 * model_flops.sum() / (time * rate)).alias("mfu_pct"),
        pl.when(device > 0)
        .then((pl.col("known_pct") * pl.col("device_ns")).sum() / device)
        .alias("known_pct"),
        rate.alias("peak_flops_per_s"),
        pl.col("peak_type").first(),
    )
