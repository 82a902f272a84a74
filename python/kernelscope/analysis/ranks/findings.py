"""Most important findings about a job of many ranks."""

import polars as pl

from kernelscope.analysis.ranks.clocks import clock_offsets
from kernelscope.analysis.ranks.cluster import Cluster, Source, cluster_of
from kernelscope.analysis.ranks.collective_calls import UNKNOWN_GROUP
from kernelscope.analysis.ranks.collectives import chosen, instances_in_parts
from kernelscope.analysis.ranks.stragglers import rank_steps, straggler_ranks
from kernelscope.analysis.training.dimensions import rank_layout
from kernelscope.units import format_ns, format_percent

_NAMES = {
    "compute": "slow_rank",
    "launch": "slow_launch",
    "data": "late_data_loader",
    "network": "slow_network",
}
_SAYS = {
    "compute": "its GPU is busy for longer than the others",
    "launch": "its host launches later than the others",
    "data": "its data loader is later than the others",
    "network": "its collectives take longer after all ranks have arrived",
}
_SAYS_OF_PHASES = {
    "forward": "its host takes longer for the forward pass than the others",
    "backward": "its host takes longer for the backward pass than the others",
    "optimizer": "its host takes longer for the optimizer than the others",
    "other": "its host takes longer than the others before or after the forward and backward pass",
}
_SLOW_SHARE = 0.8
"""Bandwidth of a group or pair of ranks below which its link is slow, as a share of its peers' bandwidth."""

_CLOCK_NS = 10_000
"""Differences between clocks below this value are within the accuracy of profilers."""

_OFTEN = 4
"""A rank is named if it straggles in one of this number of steps, and more than once."""

FINDING_SCHEMA: dict[str, pl.DataType] = {
    "finding": pl.String(),
    "ranks": pl.List(pl.Int64()),
    "group": pl.String(),
    "phase": pl.String(),
    "lost_ns": pl.Float64(),
    "value": pl.Float64(),
    "message": pl.String(),
}


def cluster_findings(source: "Source | Cluster", *, threshold: float = 0.05) -> pl.DataFrame:
    """Most important findings: slow ranks, stages and links, late data loaders, clocks with offsets.

    ``source`` is a list of traces, or a lake of many ranks. A rank is named if it straggles (see
    ``stragglers``) in at least a quarter of its steps, and in more than one unless it has only one. A stage
    of a pipeline is named, instead of its ranks, if the median of its ranks computes longer than the mean of
    all stages in most steps, by more than ``threshold`` of the median step. A process
    group, or the pair of ranks of a transfer, is named if its median transfer takes more than 1.25 times as
    long as the median over groups that run the same collective of the same size. The clock of a host is named
    if its offset exceeds 10 us and three times its residual.

    Columns: ``finding`` (slow_rank, slow_launch, late_data_loader, slow_network, slow_stage, slow_link or
        clock_offset), ``ranks`` (concerned), ``group`` (process group or pair of ranks of a link, host of a
        clock, else null), ``phase`` (the phase that takes longer on a slow rank without GPU operations),
        ``lost_ns`` (time lost by each rank that waited, over the recorded steps; null for a clock), ``value``
        (excess in ns per step; share of the peers' bandwidth; offset in ns), ``message`` (a sentence).
    Units: ns. Order: by lost time, largest first, clocks last, the largest offset first.
    """
    cluster = cluster_of(source)
    links = _slow_links(cluster)
    slowed = {rank for row in links for rank in row[1]}
    stages = _slow_stages(cluster, threshold)
    late = _without_stages(_late_ranks(cluster, threshold, slowed), stages)
    rows = [*late, *stages, *links, *_clocks(clock_offsets(cluster))]
    found = pl.DataFrame(rows, schema=FINDING_SCHEMA, orient="row")
    return (
        found.with_columns(_size=pl.col("value").abs(), _first=pl.col("ranks").list.first())
        .sort("lost_ns", "_size", "_first", descending=[True, True, False], nulls_last=True)
        .drop("_size", "_first")
    )


_Row = tuple[str, list[int], str | None, str | None, float | None, float, str]


def _late_ranks(cluster: Cluster, threshold: float, slowed: set[int]) -> list[_Row]:
    """Ranks that straggle often; those with a slow network are found by its links, if these are known."""
    often = (_OFTEN * pl.col("steps") >= pl.col("of_steps")) & (
        (pl.col("steps") > 1) | (pl.col("of_steps") == 1)
    )
    rows: list[_Row] = []
    for rank, cause, phase, steps, of_steps, excess in (
        straggler_ranks(cluster, threshold=threshold).filter(often).iter_rows()
    ):
        if cause != "network" or rank not in slowed:
            when = f"in {steps} of {of_steps} steps, by {format_ns(excess / steps)} on average"
            says = _SAYS[cause] if phase is None else _SAYS_OF_PHASES[phase]
            message = f"Rank {rank} is late {when}: {says}."
            rows.append((_NAMES[cause], [rank], None, phase, excess, excess / steps, message))
    return rows


def _slow_stages(cluster: Cluster, threshold: float) -> list[_Row]:
    """Stages of pipelines that compute for longer than the mean in most steps."""
    steps = rank_steps(cluster)
    # A rank that is late in every second step makes no stage slow.
    usual = pl.col("compute_ns").quantile(0.5, interpolation="lower")
    own = steps.group_by("rank").agg(usual, pl.col("total_ns").median(), steps=pl.len())
    places = rank_layout(cluster).select("rank", "pp").drop_nulls()
    stages = own.join(places, on="rank").group_by("pp")
    stages = stages.agg(pl.col("compute_ns", "steps").median(), pl.col("rank").sort())
    excess = stages.select("pp", "rank", "steps", excess=pl.col("compute_ns") - pl.col("compute_ns").mean())
    least = threshold * (own.select(pl.col("total_ns").median()).item() or 0)
    rows: list[_Row] = []
    for place, ranks, count, by in excess.filter(pl.col("excess") > least).sort("pp").iter_rows():
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
        longer = f"computes for {format_ns(by)} per step longer than the mean of all stages"
        message = f"Stage {place} of the pipeline ({who}) {longer}."
        rows.append(("slow_stage", ranks, None, None, by * count, by, message))
    return rows


def _without_stages(late: list[_Row], stages: list[_Row]) -> list[_Row]:
    """The late ranks without all of a slow stage, unless a phase of the host says more."""
    found = late
    for _, ranks, *_ in stages:
        own = [row for row in late if row[0] == _NAMES["compute"] and row[3] is None and row[1][0] in ranks]
        if len(own) == len(ranks):
            found = [row for row in found if row not in own]
    return found


def _slow_links(cluster: Cluster) -> list[_Row]:
    """Groups, or pairs, that are slower than others at the same collective and size."""
    wanted = ("kind", "group_size", "message_bytes", "peer", "group", "transfer_ns")
    instances = instances_in_parts(cluster).gather(chosen, wanted).filter(pl.col("transfer_ns") > 0)
    same = ["kind", "group_size", "message_bytes"]
    timed = instances.with_columns(link=pl.coalesce("peer", "group")).drop_nulls(["message_bytes", "link"])
    timed = timed.filter(~pl.col("link").str.starts_with(UNKNOWN_GROUP))
    per_link = timed.group_by(*same, "link").agg(
        pl.col("transfer_ns").median(), pl.len().cast(pl.Int64).alias("collectives")
    )
    # Of two links the faster shows what there could be.
    peers = pl.col("transfer_ns").quantile(0.5, interpolation="lower").over(same)
    compared = per_link.with_columns(peers_ns=peers)
    slow = compared.with_columns(share=pl.col("peers_ns") / pl.col("transfer_ns")).filter(
        pl.col("share") < _SLOW_SHARE
    )
    lost = (pl.col("transfer_ns") - pl.col("peers_ns")) * pl.col("collectives")
    totals = slow.group_by("link").agg(
        lost.sum().alias("lost_ns"), pl.col("share").median(), pl.col("collectives").sum()
    )
    members = cluster.calls.gather(_members, totals["link"]).unique()
    members = members.group_by("link").agg(pl.col("rank").sort().alias("ranks"))
    rows: list[_Row] = []
    for link, lost_ns, share, collectives, ranks in totals.join(members, on="link").iter_rows():
        message = (
            f"Group {link} reaches {format_percent(share)} of the bandwidth of other groups in the "
            f"same collectives ({collectives} collectives)."
        )
        rows.append(("slow_link", ranks, link, None, lost_ns, share, message))
    return rows


def _members(calls: pl.DataFrame, links: pl.Series) -> pl.DataFrame:
    """The ranks of each of ``links``."""
    link = pl.coalesce(pl.col("peer", "group").cast(pl.String))
    return calls.select("rank", link=link).filter(pl.col("link").is_in(links.implode())).unique()


def _clocks(offsets: pl.DataFrame) -> list[_Row]:
    """Hosts whose clock is off; where the ranks of a host differ, or it is unknown, each rank for itself."""
    spread = (pl.col("offset_ns").max() - pl.col("offset_ns").min()).over("host")
    agrees = pl.col("host").is_not_null() & (spread <= _CLOCK_NS)
    host = pl.when(agrees).then("host").alias("of_host")
    name = pl.when(agrees).then("host").otherwise(pl.format("rank {}", "rank")).alias("name")
    clocks = (
        offsets.drop_nulls("offset_ns")
        .with_columns(host, name)
        .group_by("name", maintain_order=True)
        .agg(pl.col("of_host").first(), pl.col("rank"), pl.col("offset_ns", "residual_ns").median())
    )
    off = pl.col("offset_ns").abs()
    apart = clocks.filter((off > _CLOCK_NS) & (off > 3 * pl.col("residual_ns")))
    rows: list[_Row] = []
    for whose, of_host, ranks, offset, residual in apart.iter_rows():
        side = "ahead" if offset > 0 else "behind"
        message = f"The clock of {whose} is {format_ns(abs(offset))} {side}, to within {format_ns(residual)}."
        rows.append(("clock_offset", ranks, of_host, None, None, offset, message))
    return rows
