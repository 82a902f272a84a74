"""Dimensions of parallelism of a job, for its page."""

import polars as pl

from kernelscope.analysis.ranks.cluster import Cluster, Source
from kernelscope.analysis.training.experts import exchanges_of, layers_of
from kernelscope.analysis.training.sharding import sharded_calls, units_of
from kernelscope.report.parts import Figure, Note, Part, View
from kernelscope.report.parts import parallelism as shared
from kernelscope.report.parts.path_bars import MOST_RANKS
from kernelscope.report.parts.tables import Table

_TOO_MANY = (
    f"FSDP units and experts need all of each rank. For more than {MOST_RANKS}, use "
    "kernelscope.analysis.fsdp_units and expert_layers with an executor."
)
_LAYERS = (
    "step", "phase", "layer", "group", "routed_tokens", "tokens_max", "hot_rank", "imbalance", "dispatch_ns",
    "combine_ns", "exposed_ns", "combine_wait_ns",
)  # fmt: skip


def dimensions(source: Source, cluster: Cluster) -> View:
    """Returns the purpose and traffic of each group, the place of each rank, FSDP units and experts."""
    what = "Purpose of each process group, from its description or its traffic, and the place of each rank."
    if not shared.has_dimensions(cluster):
        return View("dimensions", "Parallelism", what, [Note(shared.NO_DIMENSION, missing=True)])
    groups, layout = shared.group_table(cluster), shared.layout_table(cluster)
    picture = _picture(layout.frame.head(shared.MOST_RANKS))
    parts: list[Part] = [groups, shared.traffic_table(cluster), picture, layout]
    used = {"fsdp", "ep"} & set(groups.frame["dimension"])
    if used and cluster.ranks.height > MOST_RANKS:
        parts.append(Note(_TOO_MANY))
        used.clear()
    if "fsdp" in used:
        parts.append(shared.unit_table(units_of(sharded_calls(source, cluster))))
    if "ep" in used:
        layers = layers_of(exchanges_of(source, cluster))
        spread = "Tokens of each layer of experts, and how long ranks wait for the one with most."
        parts.append(Table("experts", "Experts", spread, layers, _LAYERS))
    return View("dimensions", "Parallelism", what, parts)


def _picture(layout: pl.DataFrame) -> Figure:
    used = shared.used_dimensions(layout)
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
