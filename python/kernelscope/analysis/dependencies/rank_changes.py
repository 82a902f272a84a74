"""Changes of a prediction for some ranks: a rank, the ranks of a host or a pipeline stage, and links."""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.dependencies.changes import OF_RANKS, as_regex
from kernelscope.analysis.ranks.cluster import Cluster
from kernelscope.analysis.ranks.stragglers import rank_steps
from kernelscope.errors import InvalidArgumentError

MEDIAN = "median"

_ALIKE = ("kind", "name", "group_size", "message_bytes", "step")
_PLACE = (*_ALIKE, "place")


class RankChanges(NamedTuple):
    """Changes for all ranks, and those for some.

    ``events`` apply to all ranks. ``shares`` has the factor of the time of a rank, and ``typical`` the rank
    that another one is to be like. ``links`` has the hosts whose links change, with a factor or
    ``MEDIAN``.
    """

    events: dict[str, float | str]
    shares: dict[int, float]
    typical: dict[int, int]
    links: list[tuple[str, float | str]]


def rank_changes(cluster: Cluster, calls: pl.DataFrame, changes: Mapping[str, float | str]) -> RankChanges:
    """Returns the changes of a prediction for several ranks.

    Columns: ``calls`` as ``rank_calls``.
    Raises: InvalidArgumentError: a change has an impossible factor or no rank, or no other rank is similar.
    """
    found = RankChanges({}, {}, {}, [])
    for change, factor in changes.items():
        kind, _, pattern = change.partition(":")
        if kind not in OF_RANKS or not pattern:
            found.events[change] = factor
            continue
        if factor != MEDIAN and (isinstance(factor, str) or not 0 <= factor < float("inf")):
            raise InvalidArgumentError(f"{change} needs a factor of at least 0, or {MEDIAN}, not {factor!r}")
        ranks = _selected(cluster, kind, pattern)
        if not ranks:
            raise InvalidArgumentError(f"no rank matches {change}")
        if kind == "link":
            found.links.append((pattern, factor))
        elif isinstance(factor, str):
            found.typical.update({rank: _typical(cluster, calls, rank, ranks, change) for rank in ranks})
        else:
            found.shares.update({rank: found.shares.get(rank, 1.0) * factor for rank in ranks})
    return found


def _selected(cluster: Cluster, kind: str, pattern: str) -> list[int]:
    is_named = pl.col(OF_RANKS[kind]).cast(pl.String).str.contains(as_regex(pattern))
    return cluster.ranks.filter(is_named)["rank"].to_list()


def _typical(cluster: Cluster, calls: pl.DataFrame, rank: int, but: list[int], change: str) -> int:
    """The rank with the median of the own time of a step, of those with the same collectives as ``rank``."""
    meetings = calls.group_by("rank").agg(pl.struct(_ALIKE).hash().sort_by("start_ns").alias("of"))
    own = meetings.filter(rank=rank)
    others = meetings.filter(~pl.col("rank").is_in(but)).join(own.select("of"), on="of", how="semi")
    steps = rank_steps(cluster).group_by("rank").agg(pl.col("own_ns").median(), steps=pl.len())
    wanted = steps.filter(rank=rank)["steps"]
    others = steps.join(others, on="rank", how="semi").filter(pl.col("steps").is_in(wanted.implode()))
    others = others.sort("own_ns", "rank")
    if others.is_empty():
        raise InvalidArgumentError(
            f"no other rank has the same collectives and steps as rank {rank} of {change}"
        )
    return int(others["rank"][(others.height - 1) // 2])


def changed_links(
    cluster: Cluster, calls: pl.DataFrame, links: list[tuple[str, float | str]]
) -> pl.DataFrame:
    """Returns the calls with other transfer times.

    Columns: ``calls`` has the columns of ``rank_calls``, and ``length_ns`` of the transfer.
    """
    for host, factor in links:
        is_there = pl.col("rank").is_in(_selected(cluster, "link", host))
        touched = is_there.any().over("instance")
        if not isinstance(factor, str):
            calls = calls.with_columns(length_ns=_scaled(touched, factor))
            continue
        calls = calls.with_columns(touched=touched).with_columns(
            place=pl.int_range(pl.len()).over("rank", *_ALIKE)
        )
        others = (
            calls.filter(~pl.col("touched"))
            .group_by(_PLACE)
            .agg(typical_ns=pl.col("length_ns").quantile(0.5, interpolation="lower").cast(pl.Int64))
        )
        calls = calls.join(others, on=_PLACE, how="left", nulls_equal=True, maintain_order="left")
        typical = pl.when("touched").then("typical_ns").fill_null(pl.col("length_ns"))
        calls = calls.with_columns(length_ns=pl.when("touched").then(typical).otherwise("length_ns"))
        calls = calls.drop("touched", "place", "typical_ns")
    return calls


def _scaled(which: pl.Expr, factor: float) -> pl.Expr:
    """The transfer time, times a factor where it is longer than 0."""
    length = pl.col("length_ns")
    return pl.when(which & (length > 0)).then((length * factor).round().cast(pl.Int64)).otherwise(length)
