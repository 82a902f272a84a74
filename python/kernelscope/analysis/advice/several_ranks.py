"""Inputs of the rules that compare ranks, each computed on first use.

Modules about several ranks are imported then, because recommendations about one trace do not need them.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.advice.facts import Facts

if TYPE_CHECKING:
    from kernelscope.analysis.ranks.cluster import Cluster


class SeveralRanks:
    """Figures about each of several ranks, and about all together."""

    def __init__(self, each: Sequence[Facts]) -> None:
        self.each = each
        self.traces = [one.trace for one in each]
        self.total_ns = sum(one.total_ns for one in each)

    @cached_property
    def cluster(self) -> "Cluster":
        """What the ranks communicate, and when."""
        from kernelscope.analysis.ranks.cluster import cluster_of

        return cluster_of(self.traces)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The rows of :func:`kernelscope.analysis.rank_steps`."""
        from kernelscope.analysis.ranks.stragglers import rank_steps

        return rank_steps(self.cluster)

    @cached_property
    def stages(self) -> pl.DataFrame:
        """The rows of :func:`kernelscope.analysis.pipeline_stages`."""
        from kernelscope.analysis.training.pipelines import slots_of, stages_of

        return stages_of(slots_of(self.traces, self.cluster), self.cluster)

    def waits(self) -> dict[int | None, int]:
        """Returns how long each rank waited for others in exposed communication.

        That includes transfers in the bubble of a pipeline. Units: ns.
        """
        if len(self.each) < 2:
            return {}
        in_bubbles = self.stages.select("rank", wait_ns="bubble_transfer_ns")
        waits = pl.concat([self.steps.select("rank", "wait_ns"), in_bubbles])
        return dict(waits.group_by("rank").agg(pl.col("wait_ns").sum()).iter_rows())
