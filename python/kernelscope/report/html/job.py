"""What the views about a job of many ranks share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from kernelscope import analysis

if TYPE_CHECKING:
    from kernelscope.analysis.ranks.cluster import Cluster, Source


@dataclass(frozen=True)
class Job:
    """A job of many ranks, and what several views ask of it."""

    source: "Source"
    sources: pl.DataFrame | None
    notes: Sequence[str]

    @cached_property
    def cluster(self) -> "Cluster":
        """What is kept of each rank."""
        return analysis.cluster_of(self.source)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """What each rank did in each step."""
        return analysis.rank_steps(self.cluster)

    @cached_property
    def findings(self) -> pl.DataFrame:
        """What to look at first."""
        return analysis.cluster_findings(self.cluster)

    @cached_property
    def offsets(self) -> pl.DataFrame:
        """How far the clock of each rank is off."""
        return analysis.clock_offsets(self.cluster)
