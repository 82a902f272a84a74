"""Rules about communication and differences between ranks.

Modules needed only to describe a finding are imported then, because most rules find nothing in most traces.
"""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, rule
from kernelscope.analysis.advice.several_ranks import SeveralRanks
from kernelscope.units import format_ns, format_percent

_COMMUNICATION = ("communication", "exposed_communication")
_MORE_TO_COMPUTE = ("uneven_experts", "slow_stage")
_CAUSES = {
    "compute": (
        "its kernels take longer",
        (
            "Compare its clocks (nvidia-smi -q -d CLOCK,PERFORMANCE), its data and its share of the "
            "model with another rank."
        ),
    ),
    "launch": (
        "its host launches more slowly",
        "Compare other processes on its host, and bind its process to the cores next to its GPU (numactl).",
    ),
    "data": ("it waits for data", "Compare its storage and its DataLoader workers with another rank."),
    "network": (
        "its communication is slower",
        "Compare its links with another rank (nvidia-smi topo -m, NCCL_DEBUG=INFO).",
    ),
}
_HIDDEN, _EXPOSED, _LATE, _UNEVEN, _UNBALANCED = 0.5, 0.05, 0.05, 0.1, 0.05


@rule("Computation does not hide communication", _HIDDEN, "hidden share")
def exposed_communication(facts: Facts) -> Iterator[Advice]:
    """Finds communication that computation does not hide."""
    if not facts.trace.gpu_ops["is_communication"].any():
        return
    from kernelscope.analysis.gpu.time import comm_comp_overlap

    table = comm_comp_overlap(facts.trace, by=("device", "step"))
    sums = (
        facts.inside(table)
        .group_by("device")
        .agg(pl.col("communication_ns", "overlap_ns", "exposed_ns").sum())
        .sort("exposed_ns", "device", descending=[True, False])
    )
    works = {gpu.device: gpu.works for gpu in facts.on_gpus(facts.communication)}
    for device, total, overlap, exposed in sums.iter_rows():
        if facts.share(exposed) <= _EXPOSED or not total or overlap / total >= _HIDDEN:
            continue
        yield Advice(
            f"{facts.who(device)}{format_ns(exposed)} of {format_ns(total)} of communication are not hidden "
            "by computation.",
            "Communicate during computation: other sizes of gradient buckets, prefetching of sharded "
            "parameters, collectives with async_op=True.",
            overlap / total,
            change=facts.faster(works[device]),
            device=device,
            cites=citing("gpu_ops", works[device]),
            cause=(*facts.communication_causes(device, exposed), "communication"),
        )


def without_waiting(rule_id: str, advice: Advice, wait_ns: int) -> Advice:
    """Returns the same advice; advice about communication excludes waiting for late ranks."""
    if rule_id not in _COMMUNICATION or advice.saving_ns is None or not wait_ns:
        return advice
    evidence = f"{advice.evidence} For {format_ns(wait_ns)} of it a rank had not arrived yet."
    return replace(advice, evidence=evidence, saving_ns=max(0, advice.saving_ns - wait_ns))


@rule("A rank is slower than the others", _LATE)
def straggler(ranks: SeveralRanks) -> Iterator[Advice]:
    """Finds ranks that take longer than others for their own part of a step."""
    from kernelscope.analysis.ranks.stragglers import stragglers

    table = stragglers(ranks.cluster, threshold=_LATE)
    for (rank,), rows in table.group_by("rank", maintain_order=True):
        excess = int(rows["excess_ns"].sum())
        typical = int(rows["step_ns"].sum())
        what, remedy = _CAUSES[rows["cause"].mode().sort()[0]]
        yield Advice(
            f"Rank {rank} took {format_ns(excess)} longer than the fastest quarter of the ranks in "
            f"{rows.height} steps: {what}.",
            remedy,
            excess / typical if typical else None,
            saving_ns=excess,
            rank=rank if isinstance(rank, int) else None,
            cause=_MORE_TO_COMPUTE if set(rows["cause"]) == {"compute"} else (),
        )


@rule("Ranks compute for different times", _UNEVEN, "share of the largest")
def uneven_ranks(ranks: SeveralRanks) -> Iterator[Advice]:
    """Finds ranks whose GPUs compute for different times in a step."""
    computing = [
        (one.trace.meta.rank, one.parts["kernel_ns"].mean_ns / one.steps) for one in ranks.each if one.steps
    ]
    if len(computing) < 2:
        return
    least, most = min(ns for _, ns in computing), max(ns for _, ns in computing)
    value = (most - least) / most if most > 0 else 0.0
    if value > _UNEVEN:
        slow, fast = (next(rank for rank, ns in computing if ns == extreme) for extreme in (most, least))
        yield Advice(
            f"In a mean step, rank {slow} computes for {format_ns(round(most))}, but rank {fast} for "
            f"{format_ns(round(least))}: {format_percent(value)} less.",
            "Balance the load of the ranks: samples by length, layers of a pipeline, experts.",
            value,
            rank=slow if isinstance(slow, int) else None,
            cause=(*_MORE_TO_COMPUTE, "straggler"),
        )


@rule("Experts are loaded unevenly", _UNBALANCED)
def uneven_experts(ranks: SeveralRanks) -> Iterator[Advice]:
    """Finds ranks that wait for the rank whose experts get most tokens."""
    from kernelscope.analysis.training.experts import exchanges_of, layers_of

    layers = layers_of(exchanges_of(ranks.traces, ranks.cluster)).filter(pl.col("imbalance") > _UNEVEN)
    waited = int(layers["combine_wait_ns"].sum())
    value = waited / ranks.total_ns if ranks.total_ns else 0.0
    if value <= _UNBALANCED:
        return
    layers = layers.sort("combine_wait_ns", "layer", descending=[True, False])
    worst = layers.row(0, named=True)
    yield Advice(
        f"Ranks waited {format_ns(waited)} to combine the results of experts, most in layer {worst['layer']} "
        f"({worst['phase']}), where rank {worst['hot_rank']} gets {format_percent(worst['imbalance'])} more "
        "tokens than the mean.",
        "Balance the router: a larger auxiliary loss, a bias for each expert, or a limit of tokens for each "
        "(capacity factor). Spread or copy experts with many tokens over ranks.",
        value,
        saving_ns=waited // len(ranks.each),
        rank=worst["hot_rank"],
        ranks=frozenset(layers.unique("group", keep="first", maintain_order=True)["hot_rank"]),
    )
