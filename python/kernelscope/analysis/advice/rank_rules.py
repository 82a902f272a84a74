"""Rules about communication, and about ranks that differ.

What only a rule that speaks needs is imported when it does: most have nothing to say about most traces.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, rule
from kernelscope.units import format_ns, format_percent

_HIDDEN, _EXPOSED, _LATE, _UNEVEN = 0.5, 0.05, 0.05, 0.1


@rule("Computing does not hide communication", _HIDDEN, "share that is hidden")
def exposed_communication(facts: Facts) -> Iterator[Advice]:
    """Communication that computing does not hide."""
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
    if sums.is_empty():
        return
    device, total, overlap, exposed = sums.row(0)
    share = facts.share(exposed)
    if share <= _EXPOSED or not total or overlap / total >= _HIDDEN:
        return
    calls = facts.trace.gpu_ops.select("row", "dur_ns", "step", "device", "is_communication")
    calls = calls.filter(pl.col("is_communication").fill_null(value=False))
    calls = facts.inside(calls).filter(pl.col("device").eq_missing(device))
    yield Advice(
        f"Of {format_ns(total)} in which ranks communicate, {format_ns(exposed)} overlap with no computing.",
        "Communicate while computing: gradient buckets of another size, prefetching of sharded parameters, "
        "collectives with async_op=True.",
        overlap / total,
        saving_ns=exposed,
        device=device,
        cites=citing("gpu_ops", calls),
    )


@rule("A rank is slower than the others", _LATE)
def straggler(ranks: Sequence[Facts]) -> Iterator[Advice]:
    """Ranks that take longer than the others for their own part of a step."""
    from kernelscope.analysis.ranks.stragglers import stragglers

    table = stragglers([one.trace for one in ranks], threshold=_LATE)
    causes = {
        "compute": "its kernels take longer",
        "launch": "its host launches more slowly",
        "data": "it waits for data",
        "network": "its communication is slower",
    }
    for (rank,), rows in table.group_by("rank", maintain_order=True):
        excess = int(rows["excess_ns"].sum())
        typical = int(rows["step_ns"].sum())
        cause = rows["cause"].mode().sort()[0]
        yield Advice(
            f"Rank {rank} took {format_ns(excess)} longer than the median rank in {rows.height} steps: "
            f"{causes[cause]}.",
            "Compare its clocks, its data and its share of the model with another rank's.",
            excess / typical if typical else None,
            saving_ns=excess,
            rank=rank if isinstance(rank, int) else None,
        )


@rule("Ranks have different amounts of work", _UNEVEN, "share of the largest")
def uneven_ranks(ranks: Sequence[Facts]) -> Iterator[Advice]:
    """Ranks whose GPUs compute for different times in a step."""
    computing = [(one.trace.meta.rank, one.parts["kernel_ns"] / one.steps) for one in ranks if one.steps]
    if len(computing) < 2:
        return
    least, most = min(ns for _, ns in computing), max(ns for _, ns in computing)
    value = (most - least) / most if most > 0 else 0.0
    if value > _UNEVEN:
        slow, fast = (next(rank for rank, ns in computing if ns == extreme) for extreme in (most, least))
        yield Advice(
            f"In a mean step rank {slow} computes {format_ns(round(most))}, rank {fast} "
            f"{format_ns(round(least))}: {format_percent(value)} less.",
            "Balance what ranks get: samples by length, layers of a pipeline, experts.",
            value,
        )
