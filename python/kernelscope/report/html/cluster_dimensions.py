"""Dimensions of parallelism of a job, for its page."""

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.ranks.cluster import Cluster, Source
from kernelscope.analysis.training.dimensions import DIMENSIONS
from kernelscope.analysis.training.experts import exchanges_of, layers_of
from kernelscope.report.parts import Figure, Note, Part, View
from kernelscope.report.parts.path_bars import MOST_RANKS
from kernelscope.report.parts.tables import Table

_MOST_RANKS = 1_024
"""Maximum number of ranks of the picture and its table."""

_GROUPS = ("dimension", "evidence", "confidence", "group_size", "groups")
_TRAFFIC = (
    "dimension", "phase", "collectives", "calls", "total_ns", "wait_ns", "exposed_ns", "bytes",
    "bus_bytes_per_s",
)  # fmt: skip
_LAYERS = (
    "step", "phase", "layer", "group", "routed_tokens", "tokens_max", "hot_rank", "imbalance", "dispatch_ns",
    "combine_ns", "exposed_ns", "combine_wait_ns",
)  # fmt: skip
_ABSENT = (
    "Neither descriptions nor traffic of the process groups name a dimension of parallelism. "
    "DeviceMesh and Megatron describe their groups."
)


def dimensions(source: Source, cluster: Cluster) -> View:
    """Returns the purpose of each process group, its traffic, the place of each rank, and its experts."""
    what = "Purpose of each process group, from its description or its traffic, and the place of each rank."
    groups = analysis.parallel_dimensions(cluster)
    if groups["dimension"].null_count() == groups.height:
        return View("dimensions", "Parallelism", what, [Note(_ABSENT, missing=True)])
    alike = groups.group_by("dimension", "evidence", "group_size", maintain_order=True).agg(
        pl.col("confidence").min(), groups=pl.len().cast(pl.Int64)
    )
    traffic = analysis.communication(cluster, by=("dimension", "phase"))
    layout = analysis.rank_layout(cluster)
    parts: list[Part] = [
        Table("dimensions", "Process groups", "Groups of one dimension and size.", alike, _GROUPS),
        Table("by-dimension", "Communication", "Summed over all ranks.", traffic, _TRAFFIC),
        _picture(layout.head(_MOST_RANKS)),
        Table(
            "layout", "Ranks", "Place of each rank in each dimension.", layout, ("rank", "host", *DIMENSIONS)
        ),
    ]
    if "ep" in groups["dimension"] and cluster.ranks.height <= MOST_RANKS:
        layers = layers_of(exchanges_of(source, cluster))
        spread = "Tokens of each layer of experts, and how long ranks wait for the one with most."
        parts.append(Table("experts", "Experts", spread, layers, _LAYERS))
    return View("dimensions", "Parallelism", what, parts)


def _picture(layout: pl.DataFrame) -> Figure:
    used = [name for name in DIMENSIONS if layout[name].null_count() < layout.height]
    what = "Place of each rank in each dimension, from 0 (dark)."
    trace = {
        "type": "heatmap",
        "x": layout["rank"].to_list(),
        "y": used,
        "z": [layout[name].to_list() for name in used],
        "colorscale": "Viridis",
        "colorbar": {"title": {"text": "place"}, "thickness": 12},
        "xgap": 1 if layout.height <= 64 else 0,
        "ygap": 1,
        "hovertemplate": "rank %{x}, %{y}: %{z}<extra></extra>",
    }
    axes = {"xaxis": {"title": {"text": "rank"}}, "yaxis": {"type": "category", "autorange": "reversed"}}
    return Figure("layout-picture", "Layout", what, [trace], axes, height=120 + 40 * len(used))
