"""Dimensions of parallelism: the purpose of each process group, and the place of each rank in them."""

import re
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.ranks.cluster import Cluster, Source, cluster_of
from kernelscope.analysis.ranks.collective_calls import TRANSFERS
from kernelscope.memo import per_trace

DIMENSIONS = ("tp", "cp", "ep", "fsdp", "dp", "pp")
"""Tensor, context and expert parallelism, sharded and replicated data parallelism, and pipelines."""

_MOST_CONTROL_BYTES = 64
"""Messages up to this size, such as a loss or a norm, are left out."""

_LEAST_SHARE = 0.9
"""Least share of transfers in the traffic of a pipeline."""

_FORWARD_SHARE = 0.2
"""Least share of the forward pass in all-reduces of layers; about half of them belong to it."""

_TRAFFIC_CONFIDENCE = 0.9
"""Confidence in a dimension if all traffic of the group fits."""

_GROUP_SCHEMA = {
    "group": pl.String, "description": pl.String, "ranks": pl.List(pl.Int64), "dimension": pl.String,
    "confidence": pl.Float64, "evidence": pl.String,
}  # fmt: skip


class _Found(NamedTuple):
    dimension: str | None
    confidence: float | None = None
    evidence: str | None = None


def parallel_dimensions(source: "Source | Cluster") -> pl.DataFrame:
    """The dimension of parallelism that each process group belongs to.

    ``source`` is a trace, a list of traces, or a lake of many ranks. The description of a group decides, as
    written by DeviceMesh and Megatron: ``tp`` (with sequence parallelism), ``cp``, ``ep``, ``fsdp``, ``dp``
    or ``pp``. Otherwise its traffic does: transfers between neighbours are a pipeline, all-to-alls are
    experts, all-gathers with reduce-scatters only in the backward pass are FSDP, collectives of both passes
    are tensor parallelism, and all-reduces only in the backward pass are data parallelism.

    Columns: ``group`` (name and ranks), ``group_size``, ``description``, ``ranks``, ``dimension`` (null if
        neither tells), ``confidence`` (1 for a description, below that the share of the traffic that fits,
        times 0.9), ``evidence``, ``calls`` and ``bytes`` (of all ranks).
    Units: bytes; shares between 0 and 1.
    Order: by dimension and group.
    """
    return _groups(cluster_of(source))


def with_dimension(calls: pl.DataFrame, cluster: Cluster) -> pl.DataFrame:
    """Adds the ``dimension`` of the ``group`` of each row; null if neither description nor traffic tells."""
    groups = parallel_dimensions(cluster).select("group", "dimension")
    return calls.join(groups, on="group", how="left", maintain_order="left")


@per_trace
def _groups(cluster: Cluster) -> pl.DataFrame:
    traffic = cluster.calls.gather(_traffic)
    described = traffic.drop_nulls(["group", "description"]).sort("group", "description")
    descriptions = dict(described.unique("group", keep="first").select("group", "description").iter_rows())
    traffic = traffic.group_by("group", "kind", "phase").agg(pl.col("calls", "bytes").sum())
    sums = traffic.group_by("group").agg(pl.col("calls", "bytes").sum())
    rows: list[tuple[object, ...]] = []
    for group in sums["group"].drop_nulls().sort():
        description = descriptions.get(group)
        found = _dimension(description, traffic.filter(group=group))
        rows.append((group, description, _ranks_of(group), *found))
    table = pl.DataFrame(rows, _GROUP_SCHEMA, orient="row").join(sums, on="group", maintain_order="left")
    order = pl.col("dimension").cast(pl.Enum(DIMENSIONS))
    return table.select(
        "group", pl.col("ranks").list.len().cast(pl.Int64).alias("group_size"), *list(_GROUP_SCHEMA)[1:],
        "calls", "bytes",
    ).sort(order, "group", nulls_last=True)  # fmt: skip


def _traffic(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls and bytes of each group by kind and phase, without control messages, and its description."""
    is_large = pl.col("message_bytes").fill_null(_MOST_CONTROL_BYTES + 1) > _MOST_CONTROL_BYTES
    texts = pl.col("group", "kind", "phase").cast(pl.String)
    return (
        calls.filter(is_large)
        .with_columns(texts)
        .group_by("group", "kind", "phase")
        .agg(
            calls=pl.len().cast(pl.Int64),
            bytes=pl.col("message_bytes").sum(),
            description=pl.col("group_description").cast(pl.String).drop_nulls().min(),
        )
    )


def _ranks_of(group: str) -> list[int] | None:
    """The ranks in the text of a group, if it names all."""
    found = re.search(r"\[([\d,]+)\]$", group)
    return [int(rank) for rank in found[1].split(",") if rank] if found else None


def _dimension(description: str | None, traffic: pl.DataFrame) -> _Found:
    named = named_dimension(description)
    by_traffic = _of_traffic(traffic)
    if named is None:
        return by_traffic
    # A mesh of FSDP alone may be called after the data.
    if named == "dp" and by_traffic.dimension == "fsdp" and (description or "").startswith("mesh_"):
        return _Found("fsdp", 1.0, f"description {description}; {by_traffic.evidence}")
    return _Found(named, 1.0, f"description {description}")


def named_dimension(description: str | None) -> str | None:
    """Returns the dimension in the description of a process group; None if there is none, or several.

    Data parallelism over other dimensions, too, such as ``dp_shard_cp``, is data parallelism.

    Source: torch/distributed/device_mesh.py; megatron/core/parallel_state.py.
    """
    words = set(re.split(r"[\W_]+", (description or "").lower()))
    is_expert = bool(words & {"ep", "expert", "experts", "moe", "edp", "efsdp", "etp"})
    is_tensor = bool(words & {"tp", "tensor", "sp", "sequence", "etp"})
    is_pipeline = bool(words & {"pp", "pipe", "pipeline", "embedding"})
    is_context = bool(words & {"cp", "context"})
    is_sharded = bool(words & {"fsdp", "hsdp", "shard", "efsdp"})
    is_data = is_sharded or bool(words & {"dp", "data", "ddp", "replicate", "edp"})
    if is_pipeline:
        return None if is_expert or is_tensor or is_data else "pp"
    if is_data:
        return None if is_tensor else "fsdp" if is_sharded else "dp"
    if is_expert:
        # Tokens are exchanged over Megatron's EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP.
        return "tp" if is_tensor and "model" not in words else "ep"
    if is_tensor:
        return None if is_context else "tp"
    return "cp" if is_context else None


def _of_traffic(traffic: pl.DataFrame) -> _Found:
    """The dimension that the traffic of a group fits."""

    def share(*kinds: str, phases: tuple[str, ...] = ()) -> float:
        found = traffic.filter(pl.col("kind").is_in(kinds))
        if phases:
            found = found.filter(pl.col("phase").is_in(phases))
        return float(found[weight].sum()) / total

    traffic = traffic.filter(~pl.col("kind").is_in(["barrier", "broadcast"]).fill_null(value=False))
    weight = "bytes" if traffic["bytes"].sum() else "calls"
    total = float(traffic[weight].sum())
    if not total:
        return _Found(None)
    forward = ("forward", "recompute")
    if (transfers := share(*TRANSFERS)) >= _LEAST_SHARE:
        return _Found("pp", _TRAFFIC_CONFIDENCE * transfers, "transfers between ranks")
    if (exchanges := share("all_to_all")) > 1 / 2:
        return _Found("ep", _TRAFFIC_CONFIDENCE * exchanges, "all-to-alls")
    collectives = share("all_reduce", "all_gather", "reduce_scatter")
    reduced = share("all_reduce", "reduce_scatter")
    in_forward = share("all_reduce", "reduce_scatter", phases=forward)
    in_backward = share("all_reduce", "reduce_scatter", phases=("backward",))
    if reduced and in_forward / reduced >= _FORWARD_SHARE:
        return _Found("tp", _TRAFFIC_CONFIDENCE * collectives, "reductions in the forward pass")
    # Without a backward pass, nothing says what a reduction is for.
    if not in_backward:
        return _Found(None)
    if share("all_gather") >= reduced / 2:
        text = "all-gathers, and reductions in the backward pass only"
        return _Found("fsdp", _TRAFFIC_CONFIDENCE * collectives, text)
    confidence = _TRAFFIC_CONFIDENCE * share("all_reduce")
    return _Found("dp", confidence, "reductions in the backward pass only")


def rank_layout(source: "Source | Cluster") -> pl.DataFrame:
    """The place of each rank in each dimension of parallelism.

    It is the position of the rank in its group of this dimension. Of several such groups the largest counts.
    Labels of ranks, as in merged files, come first.

    Columns: ``rank``, ``host``, ``tp``, ``cp``, ``ep``, ``fsdp``, ``dp``, ``pp`` (from 0; null for a
        dimension that the job does not have).
    Order: by rank.
    """
    cluster = cluster_of(source)
    groups = _groups(cluster).drop_nulls(["dimension", "ranks"]).sort("group_size", "group", descending=True)
    places: dict[tuple[str, int], int] = {}
    for dimension, ranks in groups.select("dimension", "ranks").iter_rows():
        for place, rank in enumerate(ranks):
            places.setdefault((dimension, rank), place)
    # No label has a place in sharded data parallelism.
    known = cluster.ranks.with_columns(fsdp=pl.lit(None, pl.Int64))
    found = (
        pl.Series(dimension, [places.get((dimension, rank)) for rank in known["rank"]], dtype=pl.Int64)
        for dimension in DIMENSIONS
    )
    return known.select("rank", "host", *(known[own.name].fill_null(own) for own in found))
