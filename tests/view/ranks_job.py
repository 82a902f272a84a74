"""A job whose answers are known, as a lake, and one of any size that is made of its first rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

import kernelscope as ks
from events import Events
from kernelscope.batch.lake import Lake
from kernelscope.batch.manifest import Entry

US = 1_000
STEP_US, COMPUTES_US, SENDS_US = 2_000, 1_000, 200
BASE_NS = 1_767_189_312_000_000_000
LATE = {7: 300, 3: 40}
"""By how many us a rank computes longer, in every step."""
CLOCKS = {2: 5_000}
"""By how many us the clock of a rank is ahead."""


def write_rank(folder: Path, rank: int, *, ranks: int, steps: int, first: int = 0) -> Path:
    """A rank that computes for 1,000 us a step, and sums gradients in 200 us once the slowest has come."""
    events = Events({"id": 0, "name": "NVIDIA H100", "numSms": 132})
    arrive = 10 + COMPUTES_US + max(late for other, late in LATE.items() if other < ranks or other == 3)
    for step in range(first, first + steps):
        start = 1_000 + step * STEP_US + CLOCKS.get(rank, 0)
        ready = 10 + COMPUTES_US + LATE.get(rank, 0)
        events.annotation(f"ProfilerStep#{step}", start, arrive + SENDS_US + 10)
        events.call(start + 2, 3, 2 * step + 1)
        events.kernel("gemm", start + 10, ready - 10, 2 * step + 1)
        events.call(start + 6, 3, 2 * step + 2)
        known = {
            "Collective name": "allreduce",
            "dtype": "Float",
            "In msg nelems": 1_000,
            "Out msg nelems": 1_000,
            "Group size": ranks,
            "Process Group Name": "0",
            "Process Group Ranks": str(list(range(ranks))),
            "Seq": 100 + step,
        }
        lasts = arrive + SENDS_US - ready
        events.kernel("ncclDevKernel_AllReduce", start + ready, lasts, 2 * step + 2, stream=20, **known)
    info = {"backend": "nccl", "rank": rank, "world_size": ranks}
    path = folder / f"rank{rank}.json"
    path.parent.mkdir(exist_ok=True, parents=True)
    return events.write(path, distributedInfo=info, baseTimeNanoseconds=BASE_NS, host_name=f"node{rank // 8}")


def make_lake(folder: Path, *, ranks: int = 16, steps: int = 6, runs: Sequence[str] = ("",)) -> Path:
    """The lake of the job; of several ``runs``, each has a rank less than the one before."""
    for place, run in enumerate(runs):
        for rank in range(ranks - place):
            write_rank(folder / "traces" / run, rank, ranks=ranks - place, steps=steps)
    for run in runs:
        options = {"run": run} if run else {}
        ks.batch.run(folder / "traces" / run, folder / "lake", **options)
    return folder / "lake"


@dataclass(frozen=True)
class Repeated(Lake):
    """A lake of many ranks, each of which is another's first, and some percent slower."""

    ranks_there: int = 1_000
    asked: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, lake: Lake, ranks: int) -> Repeated:
        """The lake of so many ranks, made of the first of ``lake``."""
        first = next(entry for entry in lake.entries if entry.rank == 0)
        entries = tuple(replace(first, rank=rank, source=f"rank{rank}.json") for rank in range(ranks))
        return cls(lake.path, entries, {"ranks": lake.tables["ranks"]} | dict(lake.tables), ranks)

    def of_run(self, run: str) -> Repeated:
        """It has one."""
        assert run == self.runs[0]
        return self

    def trace_of(self, entry: Entry) -> ks.Trace:
        """The trace of the first rank, which any other has, too."""
        return super().trace_of(replace(entry, rank=0))

    def part(self, window: int, ranks: Sequence[int]) -> Lake:
        """A lake with the tables of some ranks, and which are asked for."""
        assert window == 0
        return Lake(self.path, self.entries, _Repeated(self, sorted(ranks)))


class _Repeated(Mapping[str, pl.LazyFrame]):
    def __init__(self, lake: Repeated, ranks: list[int]) -> None:
        self._lake, self._ranks = lake, ranks

    def __getitem__(self, name: str) -> pl.LazyFrame:
        self._lake.asked.add(name)
        one = self._lake.tables[name].filter(pl.col("rank") == 0).drop("rank")
        # One rank takes longer for one step, and all others a little longer the higher their number.
        many = one.join(pl.LazyFrame({"rank": self._ranks}, schema={"rank": pl.Int64}), how="cross")
        if name != "steps":
            return many
        slow = (pl.col("rank") == 777) & (pl.col("step") == 3)
        more = pl.when(slow).then(400 * US).otherwise(pl.col("rank") % 10 * US)
        return many.with_columns(pl.col("total_ns") + more, pl.col("kernel_ns") + more)

    def __iter__(self) -> Iterator[str]:
        return iter(self._lake.tables)

    def __len__(self) -> int:
        return len(self._lake.tables)
