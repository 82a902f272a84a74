"""Several ranks in one file: on one clock, each with processes and arrows of its own."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import polars as pl

from kernelscope.analysis.dependencies.rank_path import path_of_job
from kernelscope.analysis.dependencies.ranks import job_of
from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.ranks.clocks import shifts
from kernelscope.analysis.ranks.cluster import Source, Window, cluster_of, windows_of
from kernelscope.report.perfetto.path_events import (
    arrows_of_path,
    ends_of_arrows,
    first_path_id,
    slices_of_path,
)
from kernelscope.trace import Trace

_MOST_PROCESSES = 1000
"""Processes of a rank that viewers show in order."""


class Place(NamedTuple):
    """The place of the events of a window of a rank in the file."""

    rank: int | None
    """None if it is alone: then all is as recorded."""
    position: int
    """Number of the rank in their order."""
    shift_ns: int
    """To be subtracted from its times."""
    first_id: int
    """To be added to its ids."""

    def trace(self, trace: Trace) -> Trace:
        """Returns the trace with the rank in the names of its processes, which follow the ranks before."""
        name, value = (pl.col(column).cast(pl.String) for column in ("name", "value"))
        title = f"rank {self.rank}: {{}}"
        order = pl.when(name == "process_sort_index").then(value.cast(pl.Int64, strict=False)).rank("dense")
        order = (order + self.position * _MOST_PROCESSES).cast(pl.String)
        named = pl.when(name == "process_name").then(pl.format(title, value))
        return replace(
            trace,
            metadata=trace.metadata.with_columns(value=pl.coalesce(named, order, value)),
            threads=trace.threads.with_columns(process_name=pl.format(title, "process_name")),
        )

    def events(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Returns events with the processes, times and ids that they have in the file."""
        if self.rank is None:
            return frame
        pid = [pl.col(name).cast(pl.String) for name in ("pid_text", "pid") if name in frame.columns]
        changed = {"pid_text": pl.format(f"[rank {self.rank}] {{}}", pl.coalesce(pid))}
        if "ts" in frame.columns:
            changed["ts"] = pl.col("ts") - self.shift_ns
        if "id" in frame.columns:
            changed["id"] = pl.col("id").cast(pl.Int64) + self.first_id
        return frame.with_columns(**changed, pid=pl.lit(None, pl.Int64))

    def extras(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Returns arguments of no column, with ids that no other rank has."""
        if self.rank is None:
            return frame
        is_id = pl.col("is_field") & (pl.col("key") == "id")
        text = pl.col("value").str.strip_chars('"')
        of_rank = pl.when(is_id).then(pl.format(f'"{self.rank}:{{}}"', text))
        return frame.with_columns(value=pl.coalesce(of_rank, "value"))


AS_RECORDED = Place(rank=None, position=0, shift_ns=0, first_id=0)
"""The place of the events of a trace that is alone in its file."""


@dataclass
class Merging:
    """Ranks that are written one after the other."""

    windows: list[Window]
    shifts: dict[int, int]
    """Of each rank, to be subtracted from the times of its first window."""
    path: pl.DataFrame
    """The critical path of all ranks; without rows if they have no steps."""
    base_ns: int | None
    next_id: int = 0
    ends: list[pl.DataFrame] = field(default_factory=list)

    @classmethod
    def of(cls, source: Source) -> "Merging":
        """Finds the common clock of the ranks, and their critical path."""
        cluster = cluster_of(source)
        moved = {rank: shift or 0 for rank, shift in shifts(cluster).iter_rows()}
        job = job_of(source, {}, cluster=cluster)
        path = pl.DataFrame() if job.steps.is_empty() else as_text(path_of_job(job, columns=("name",)))
        base = cast("int | None", cluster.ranks["base_time_ns"].min())
        return cls(windows_of(source), moved, path, base)

    def header(self) -> dict[str, Any]:
        """Returns the properties of the file: as in the first rank, with the GPUs of all."""
        metas = [window.source.meta for window in self.windows if isinstance(window.source, Trace)]
        found: dict[str, Any] = dict(metas[0].properties) if metas else {"schemaVersion": 1}
        devices = [meta.properties.get("deviceProperties") for meta in metas]
        if all(isinstance(own, list) for own in devices):
            found["deviceProperties"] = [device for own in devices for device in own or ()]
        if isinstance(found.get("distributedInfo"), dict):
            # The file is of no rank alone.
            found["distributedInfo"] = {**found["distributedInfo"], "rank": None}
        return found if self.base_ns is None else {**found, "baseTimeNanoseconds": self.base_ns}

    def ranks(self) -> Iterator[tuple[Place, Trace]]:
        """Yields each rank with its place; one of a lake is read meanwhile."""
        order = {rank: number for number, rank in enumerate(sorted({window.rank for window in self.windows}))}
        for window in self.windows:
            shift = self.shifts[window.rank] - window.later_ns
            place = Place(window.rank, order[window.rank], shift, self.next_id)
            yield place, place.trace(window.trace())

    def note(self, place: Place, trace: Trace, moved: pl.DataFrame) -> None:
        """Notes where the path passes a rank, and which ids are taken, before the next rank."""
        self.next_id += max(first_path_id(trace), trace.meta.kept + 1)
        extent = trace.extent()
        if self.path.is_empty() or extent is None:
            return
        end_ns = pl.col("start_ns") + pl.col("dur_ns")
        own = self.path.with_columns(pl.col("start_ns") + place.shift_ns)
        own = own.filter(pl.col("rank") == place.rank, (end_ns > extent[0]) & (end_ns <= extent[1]))
        ends = place.events(ends_of_arrows(trace, own, moved))
        self.ends.append(ends.with_columns(pl.col("^(since|enters|leaves)_ns$") - place.shift_ns))

    def path_events(self) -> Iterator[pl.DataFrame]:
        """Yields the critical path of all ranks, and its arrows."""
        if self.path.is_empty():
            return
        yield slices_of_path(self.path)
        if self.ends:
            ends = pl.concat(self.ends).sort("since_ns", maintain_order=True)
            yield arrows_of_path(ends, self.next_id)
