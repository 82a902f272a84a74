"""One clock for all ranks: the offset of each rank's clock, from the ends of collectives."""

from statistics import median

import polars as pl

from kernelscope.analysis.ranks.cluster import Cluster, Source, cluster_of
from kernelscope.analysis.ranks.collective_calls import SYNCHRONISING
from kernelscope.analysis.ranks.parts import BUCKETS
from kernelscope.memo import per_trace

_ROUNDS = 4
"""Rounds of refinement after the groups are combined. The residual after two rounds is below 1 ns."""

_BUCKET = (pl.col("rank") % BUCKETS).cast(pl.UInt32).alias("bucket")


def clock_offsets(source: "Source | Cluster") -> pl.DataFrame:
    """Offset of each rank's clock from the others.

    The profiler's base time puts all ranks on one clock, as accurately as the hosts agree. A collective that
    waits for all its ranks ends on all of them at about the same time. So the median difference of the ends
    over collectives is the difference of the clocks.

    Columns: ``rank``, ``host``, ``base_time_ns``, ``offset_ns`` (to be subtracted from the rank's times plus
        the base time; null if the rank shares no such collective), ``residual_ns`` (median distance of the
        rank's ends from the collectives' after the correction), ``residual_max_ns``, ``collectives`` (number
        compared), ``clock_group`` (ranks of different groups share no collective, so their offsets cannot be
        compared).
    Units: ns. In each clock group the median offset is 0.
    """
    return _offsets(cluster_of(source))


@per_trace
def _offsets(cluster: Cluster) -> pl.DataFrame:
    base = pl.col("base_time_ns").fill_null(0)
    ends = cluster.calls.map(_ends, cluster.ranks.select("rank", base - base.min()))
    # A median is a float64, which holds times of a recording to the nanosecond, but not epoch times.
    zero: int = ends.gather(_first).min().item() or 0
    known = cluster.ranks.select("rank", "host", "base_time_ns")
    offsets = _stitched(ends.exchange(_late, zero).gather(_median_late))
    for _ in range(_ROUNDS):
        moved = ends.exchange(_distances, zero, offsets).gather(_median_distance)
        offsets = offsets.join(moved, on="rank").select(
            "rank", pl.col("offset_ns") + pl.col("distance_ns"), "clock_group"
        )
    offsets = offsets.with_columns(pl.col("offset_ns").round().cast(pl.Int64))
    middle = pl.col("offset_ns").median().round().cast(pl.Int64).over("clock_group")
    offsets = offsets.with_columns(pl.col("offset_ns") - middle)
    distance = ends.exchange(_distances, zero, offsets).gather(_residuals)
    joined = known.join(offsets, on="rank", how="left").join(distance, on="rank", how="left")
    joined = joined.with_columns(pl.col("collectives").fill_null(0))
    return joined.select(pl.exclude("clock_group"), "clock_group").sort("rank")


def shifts(cluster: Cluster) -> pl.DataFrame:
    """Returns the value to subtract from the times of each rank: ``rank``, ``shift_ns``.

    Times then count from the earliest base time, on the common clock.
    """
    base = pl.col("base_time_ns").fill_null(0)
    return (
        cluster.ranks.select("rank", base - base.min())
        .join(_offsets(cluster).select("rank", "offset_ns"), on="rank", how="left")
        .select("rank", shift_ns=pl.col("offset_ns").fill_null(0) - pl.col("base_time_ns"))
    )


def _ends(calls: pl.DataFrame, bases: pl.DataFrame) -> pl.DataFrame:
    """When each rank left each collective that several of the ranks were in: on the recorders' clocks."""
    synchronising = calls.filter(
        pl.col("kind").cast(pl.String).is_in(SYNCHRONISING) & (pl.col("ranks_seen") > 1)
    )
    end = pl.col("start_ns") + pl.col("dur_ns") + pl.col("base_time_ns")
    return synchronising.join(bases, on="rank").select("rank", "instance", "group", end_ns=end)


def _first(ends: pl.DataFrame) -> pl.DataFrame:
    return ends.select(pl.col("end_ns").min())


def _late(ends: pl.DataFrame, zero: int) -> pl.DataFrame:
    """How much later than the ranks of its group each rank left each collective."""
    end = pl.col("end_ns") - zero
    late = end - end.median().over("instance").round().cast(pl.Int64)
    return ends.select("rank", "group", _BUCKET, late_ns=late)


def _median_late(late: pl.DataFrame) -> pl.DataFrame:
    group = pl.col("group").cast(pl.String).fill_null("")
    return late.group_by("group", "rank").agg(pl.col("late_ns").median()).with_columns(group)


def _distances(ends: pl.DataFrame, zero: int, offsets: pl.DataFrame) -> pl.DataFrame:
    """How much later than the others each rank left each collective, on the common clock."""
    # Rounded to whole nanoseconds first: a sum of int64 and float64 would lose them.
    shift = offsets.select("rank", pl.col("offset_ns").round().cast(pl.Int64))
    common = ends.join(shift, on="rank").with_columns(pl.col("end_ns") - zero - pl.col("offset_ns"))
    middle = pl.col("end_ns").median().over("instance").round().cast(pl.Int64)
    return common.select("rank", _BUCKET, distance_ns=pl.col("end_ns") - middle)


def _median_distance(distances: pl.DataFrame) -> pl.DataFrame:
    return distances.group_by("rank").agg(pl.col("distance_ns").median())


def _residuals(distances: pl.DataFrame) -> pl.DataFrame:
    distance = pl.col("distance_ns").abs()
    return distances.group_by("rank").agg(
        residual_ns=distance.median(),
        residual_max_ns=distance.max().cast(pl.Int64),
        collectives=pl.len().cast(pl.Int64),
    )


def _stitched(late: pl.DataFrame) -> pl.DataFrame:
    """A first offset for each rank: groups are compared inside, then joined by the ranks they share."""
    groups: dict[str, dict[int, float]] = {}
    for group, rank, late_ns in late.sort("group", "rank").iter_rows():
        groups.setdefault(group, {})[rank] = late_ns
    member_of: dict[int, list[str]] = {}
    for group, members in groups.items():
        for rank in members:
            member_of.setdefault(rank, []).append(group)
    rows: list[tuple[int, float, int]] = []
    waiting = sorted(groups, key=lambda group: -len(groups[group]))
    done: set[str] = set()
    for number, first in enumerate(waiting):
        if first not in done:
            found = _reached(first, groups, member_of, done)
            rows += [(rank, offset, number) for rank, offset in found.items()]
    return pl.DataFrame(
        rows, schema={"rank": pl.Int64, "offset_ns": pl.Float64, "clock_group": pl.Int64}, orient="row"
    )


def _reached(
    first: str, groups: dict[str, dict[int, float]], member_of: dict[int, list[str]], done: set[str]
) -> dict[int, float]:
    """Offsets of all ranks that ``first`` reaches through shared ranks."""
    offsets = dict(groups[first])
    done.add(first)
    queue = [first]
    for group in queue:
        for rank in groups[group]:
            for neighbour in member_of[rank]:
                if neighbour in done:
                    continue
                done.add(neighbour)
                queue.append(neighbour)
                members = groups[neighbour]
                shift = median(offsets[r] - members[r] for r in members if r in offsets)
                for member, late in members.items():
                    offsets.setdefault(member, late + shift)
    return offsets
