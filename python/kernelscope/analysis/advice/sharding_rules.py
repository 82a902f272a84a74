"""Rules about sharded parameters and gradients (FSDP, ZeRO)."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, counted, most_common, rule
from kernelscope.units import format_bytes, format_ns

_LATE = 0.05
# A message of this size takes about as long as its latency, at 100 GB/s and 10 us.
_SMALL_BYTES = 2**20
_AHEAD = {
    "forward": "set_modules_to_forward_prefetch (FSDP2) or forward_prefetch=True (FSDP1)",
    "backward": "set_modules_to_backward_prefetch (FSDP2) or BackwardPrefetch.BACKWARD_PRE (FSDP1)",
}


@rule("Computation waits for sharded parameters", _LATE, needs_all_times=True)
def late_all_gathers(facts: Facts) -> Iterator[Advice]:
    """Finds all-gathers of FSDP or ZeRO that end after they are needed."""
    gathers = facts.sharded.filter(kind="all_gather")
    for gpu in facts.on_gpus(gathers.filter(pl.col("wait_ns") > 0)):
        waits = gpu.works
        waited = int(waits["wait_ns"].sum())
        value = facts.share(waited)
        if value <= _LATE:
            continue
        all_of_gpu = gathers.filter(pl.col("device").eq_missing(gpu.device))
        longest = waits.group_by("fsdp_unit").agg(pl.col("wait_ns").sum())
        longest = longest.sort("wait_ns", "fsdp_unit", descending=[True, False])["fsdp_unit"]
        named = f", most for {most_common(longest)}" if longest.drop_nulls().len() else ""
        parts = {name: int(waits.filter(direction=name)["wait_ns"].sum()) for name in _AHEAD}
        forward, backward = (format_ns(parts[name]) for name in _AHEAD)
        yield Advice(
            f"{gpu.who}Computation waited {format_ns(waited)} for {waits.height:,} of "
            f"{counted(all_of_gpu.height, 'all-gather')}{named}: {forward} in the forward pass and "
            f"{backward} in the backward pass.",
            _sooner(facts, all_of_gpu, max(parts, key=parts.__getitem__)),
            value,
            change=facts.faster(waits, "wait_ns"),
            device=gpu.device,
            cites=citing("gpu_ops", waits, by="wait_ns"),
        )


def _sooner(facts: Facts, gathers: pl.DataFrame, direction: str) -> str:
    """The option that brings parameters sooner in the pass that waits most."""
    of_pass = gathers.filter(direction=direction)
    late = of_pass.filter(pl.col("needed_ns") - pl.col("issued_ns") < pl.col("dur_ns"))
    if 2 * late["wait_ns"].sum() > of_pass["wait_ns"].sum():
        if late["is_prefetched"].null_count() == late.height:
            return "Gather earlier: a larger stage3_prefetch_bucket_size (DeepSpeed), or prefetching of FSDP."
        if late["is_prefetched"].mean() == 1:
            return f"Prefetch more than one unit ahead in the {direction} pass: {_AHEAD[direction]}."
        return f"Gather the next unit early in the {direction} pass: {_AHEAD[direction]}."
    size = gathers["bytes"].median()
    if isinstance(size, float) and size < _SMALL_BYTES:
        return f"Use larger units: an all-gather brings only {format_bytes(size)}."
    options = [
        "compute more for each unit (a larger batch)",
        "shard within a host only (a mesh of 2 dimensions)",
    ]
    if gathers["direction"].n_unique() > 1 and not facts.may_use("total_allocated_bytes", 0.8):
        # All units would be held at the end of the forward pass.
        step = gathers.filter(direction="backward").group_by("step").agg(pl.col("bytes").sum())
        held = step["bytes"].max()
        options.insert(
            0,
            "keep parameters until the backward pass (reshard_after_forward=False), which holds up to "
            f"{format_bytes(held if isinstance(held, int) else None)} more",
        )
    return f"All-gathers take longer than the computation beside them: {', or '.join(options)}."


@rule("Steps end with reductions of sharded gradients", _LATE, needs_all_times=True)
def late_reductions(facts: Facts) -> Iterator[Advice]:
    """Finds reduce-scatters of FSDP or ZeRO after the backward pass."""
    reduces = facts.sharded.filter(pl.col("kind") != "all_gather", pl.col("wait_ns") > 0)
    for gpu in facts.on_gpus(reduces):
        waits = gpu.works
        waited = int(waits["wait_ns"].sum())
        value = facts.share(waited)
        if value <= _LATE:
            continue
        of_step = waits.height / max(facts.steps, 1)
        remedy = (
            "Make the units at the start of the model smaller, whose gradients come last."
            if of_step < 2
            else "Reduce less: reduce_dtype=torch.bfloat16 (MixedPrecisionPolicy), or gradients of several "
            "batches together (set_requires_gradient_sync)."
        )
        yield Advice(
            f"{gpu.who}Steps waited {format_ns(waited)} for {counted(waits.height, 'reduction')} after the "
            "computation of the backward pass.",
            remedy,
            value,
            change=facts.faster(waits, "wait_ns"),
            device=gpu.device,
            cites=citing("gpu_ops", waits, by="wait_ns"),
        )
