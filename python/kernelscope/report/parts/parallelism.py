"""Tables about the parallelism of a job, for its page and the viewer."""

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.ranks.cluster import Cluster
from kernelscope.analysis.training.dimensions import DIMENSIONS
from kernelscope.report.parts.tables import Table

MOST_RANKS = 1_024
"""Maximum number of ranks in a picture of the layout."""

NO_DIMENSION = (
    "Neither descriptions nor traffic of the process groups name a dimension of parallelism. "
    "DeviceMesh and Megatron describe their groups."
)
NO_PIPELINE = "No process group is for a pipeline, or no micro-batch has a backward pass."

_GROUPS = ("dimension", "evidence", "confidence", "group_size", "groups")
_TRAFFIC = (
    "dimension", "phase", "collectives", "calls", "total_ns", "wait_ns", "exposed_ns", "bytes",
    "bus_bytes_per_s",
)  # fmt: skip
_STAGES = (
    "rank", "step", "pipeline", "stage", "schedule", "micro_batches", "chunks", "pipeline_ns", "slots_ns",
    "bubble_ns", "bubble_transfer_ns", "bubble_share", "ideal_share", "over_mean_share",
)  # fmt: skip
_UNITS = (
    "fsdp_unit", "bytes", "gathers", "gather_ns", "prefetched_share", "forward_wait_ns", "backward_wait_ns",
    "held_ns", "reduces", "reduce_ns", "reduce_wait_ns",
)  # fmt: skip


def has_dimensions(cluster: Cluster) -> bool:
    """Returns whether the purpose of any process group is known."""
    groups = analysis.parallel_dimensions(cluster)
    return groups["dimension"].null_count() < groups.height


def group_table(cluster: Cluster) -> Table:
    """Returns the purpose of each kind of process group."""
    alike = (
        analysis.parallel_dimensions(cluster)
        .group_by("dimension", "evidence", "group_size", maintain_order=True)
        .agg(pl.col("confidence").min(), groups=pl.len().cast(pl.Int64))
    )
    return Table("dimensions", "Process groups", "Groups of one dimension and size.", alike, _GROUPS)


def traffic_table(cluster: Cluster) -> Table:
    """Returns the communication of each dimension in each phase."""
    traffic = analysis.communication(cluster, by=("dimension", "phase"))
    return Table("by-dimension", "Communication", "Summed over all ranks.", traffic, _TRAFFIC)


def layout_table(cluster: Cluster) -> Table:
    """Returns the place of each rank in each dimension."""
    layout = analysis.rank_layout(cluster)
    what = "Place of each rank in each dimension."
    return Table("layout", "Ranks", what, layout, ("rank", "host", *DIMENSIONS))


def used_dimensions(layout: pl.DataFrame) -> list[str]:
    """Returns the dimensions in which any rank has a place."""
    return [name for name in DIMENSIONS if layout[name].null_count() < layout.height]


def unit_table(units: pl.DataFrame) -> Table:
    """Returns the units of sharded data parallelism."""
    what = "Parameters that are gathered together, and how long computation waits for them."
    return Table("fsdp-units", "FSDP units", what, units, _UNITS)


def stage_table(stages: pl.DataFrame) -> Table:
    """Returns the bubble of each stage of a pipeline."""
    what = "The bubble of each rank and step beside the one of an ideal pipeline of the same schedule."
    return Table("stages", "Stages", what, stages, _STAGES)
