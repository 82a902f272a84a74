"""Rules about parallel training: exposed tensor parallelism, recomputation, slow stages, uneven lengths."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, rule
from kernelscope.analysis.advice.several_ranks import SeveralRanks
from kernelscope.analysis.grouping import gather_rows
from kernelscope.units import format_bytes, format_ns, format_percent

_EXPOSED, _RECOMPUTING, _SLOW, _UNEVEN = 0.05, 0.05, 0.05, 0.05
# Above this share of the capacity, activations of another layer may not fit.
_ROOM = 0.6


@rule("Tensor parallelism is not hidden", _EXPOSED, needs_all_times=True)
def exposed_tensor_parallelism(facts: Facts) -> Iterator[Advice]:
    """Finds collectives of tensor parallelism during which the GPU does not compute."""
    if not facts.trace.gpu_ops["is_communication"].any():
        return
    for gpu in facts.on_gpus(facts.calls.filter(dimension="tp")):
        exposed = int(gpu.works["exposed_ns"].sum())
        value = facts.share(exposed)
        if value <= _EXPOSED:
            continue
        yield Advice(
            f"{gpu.who}The GPU does not compute for {format_ns(exposed)} of {format_ns(gpu.spent_ns)} in "
            "collectives of tensor parallelism.",
            "Overlap them with the products beside them (async tensor parallelism of torch.compile, "
            "tp_comm_overlap of Megatron), or use fewer ranks for tensor parallelism, inside one host.",
            value,
            change=facts.with_other_stages(facts.faster(gpu.works, "exposed_ns"), exposed),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works, by="exposed_ns"),
        )


@rule("Activations are recomputed although memory is free", _RECOMPUTING)
def needless_recomputation(facts: Facts) -> Iterator[Advice]:
    """Finds recomputation of the forward pass on a GPU with room for its activations."""
    phase = gather_rows(facts.trace.gpu_ops["op_row"], facts.trace.ops, "phase")["phase"]
    is_recomputed = facts.are_kernels & (phase == "recompute").fill_null(value=False)
    if not is_recomputed.any():
        return
    # Sums of recorded allocations do not have the memory from before.
    known = facts.memory.filter(source="recorded").select("device", "peak_bytes", "capacity_bytes")
    rooms = {device: (peak, capacity) for device, peak, capacity in known.iter_rows()}
    for gpu in facts.on_gpus(facts.rows_of(is_recomputed)):
        value = facts.share(gpu.spent_ns)
        peak, capacity = rooms.get(f"GPU{gpu.device}", (None, None))
        if value <= _RECOMPUTING or not peak or not capacity or peak > _ROOM * capacity:
            continue
        yield Advice(
            f"{gpu.who}Recomputation takes {format_ns(gpu.spent_ns)}, {format_percent(gpu.share)} of the "
            f"kernel time. At most {format_bytes(peak)} of {format_bytes(capacity)} are allocated.",
            "Checkpoint fewer layers, or only cheap operators (selective checkpointing), as long as memory "
            "lasts.",
            value,
            change=facts.with_other_stages(facts.faster(gpu.works, launched=False), gpu.spent_ns),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )


@rule("A stage of the pipeline is slow", _SLOW, "share of the pipeline")
def slow_stage(ranks: SeveralRanks) -> Iterator[Advice]:
    """Finds the stage of a pipeline that takes longer than the mean, so that the others wait for it."""
    of_rank = ranks.stages.group_by("pipeline", "stage", "rank").agg(
        pl.col("slots_ns", "pipeline_ns", "bubble_ns").sum(), pl.col("over_mean_share").mean()
    )
    slowest = of_rank.sort("over_mean_share", "rank", descending=[True, False]).head(1)
    for row in slowest.iter_rows(named=True):
        value = row["over_mean_share"]
        if value is None or value <= _SLOW:
            continue
        yield Advice(
            f"Stage {row['stage']} (rank {row['rank']}) computes for {format_ns(row['slots_ns'])}, "
            f"{format_percent(value)} of the pipeline longer than the mean of its stages. The others wait.",
            "Move layers to other stages. The first also has the embedding, the last the output layer.",
            value,
            saving_ns=round(value * row["pipeline_ns"]),
            rank=row["rank"],
            ranks=frozenset(of_rank.filter(stage=row["stage"])["rank"]),
        )


@rule("Ranks train on different numbers of tokens", _UNEVEN)
def uneven_lengths(ranks: SeveralRanks) -> Iterator[Advice]:
    """Finds steps in which ranks wait for the one with most tokens."""
    from kernelscope.analysis.steps.tokens import embedded_tokens

    count = len(ranks.traces)
    tokens = pl.concat(embedded_tokens(trace) for trace in ranks.traces)
    spread = tokens.group_by("step").agg(
        pl.len().alias("ranks"), most=pl.col("tokens").max(), mean=pl.col("tokens").mean()
    )
    uneven = spread.filter(pl.col("ranks") == count, pl.col("most") > (1 + _UNEVEN) * pl.col("mean"))
    if uneven.is_empty():
        return
    waited = int(ranks.steps.join(uneven, on="step", how="semi", nulls_equal=True)["wait_ns"].sum())
    value = waited / ranks.total_ns if ranks.total_ns else 0.0
    if value <= _UNEVEN:
        return
    worst = uneven.sort(pl.col("most") / pl.col("mean"), "step", descending=[True, False]).row(0, named=True)
    yield Advice(
        f"Ranks waited {format_ns(waited)} in {uneven.height} steps with different numbers of tokens. In "
        f"step {worst['step']} one rank has {worst['most']:,}, the mean is {worst['mean']:,.0f}.",
        "Give all ranks as many tokens: pack sequences to one length, or sort samples by length into "
        "buckets.",
        value,
        saving_ns=waited // count,
    )
