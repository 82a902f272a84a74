"""Builds the traces of jobs of many ranks, step by step. Times are in microseconds."""

import json
from pathlib import Path
from typing import Any

import kernelscope as ks

BASE_NS = 1_767_189_312_000_000_000


class Rank:
    """Collects the events of one rank; times are true times, to which the clock's offset is added."""

    def __init__(self, rank: int, ranks: int, *, host: str = "node0", offset: float = 0.0) -> None:
        self.rank, self.ranks, self.host, self.offset = rank, ranks, host, offset
        self.base_ns: int | None = BASE_NS
        self.events: list[dict[str, Any]] = []
        self.correlation = 0

    def add(self, cat: str, name: str, ts: float, dur: float, **args: Any) -> None:
        where = {"pid": 0, "tid": args["stream"]} if "stream" in args else {"pid": 9, "tid": 9}
        at = round(ts + self.offset, 3)
        event = {"ph": "X", "cat": cat, "name": name, "ts": at, "dur": dur, "args": args}
        self.events.append(event | where)

    def step(self, number: int, ts: float, dur: float) -> None:
        self.add("user_annotation", f"ProfilerStep#{number}", ts, dur)

    def load(self, ts: float, dur: float) -> None:
        self.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", ts, dur)

    def kernel(self, ts: float, dur: float, *, launched: float, name: str = "gemm", **args: Any) -> None:
        self.correlation += 1
        self.add("cuda_runtime", "cudaLaunchKernel", launched, 1, correlation=self.correlation)
        stream = args.pop("stream", 7)
        self.add("kernel", name, ts, dur, device=0, stream=stream, correlation=self.correlation, **args)

    def collective(self, ts: float, dur: float, *, launched: float, **known: Any) -> None:
        """An all-reduce of all ranks, if ``known`` does not say otherwise."""
        args = {
            "Collective name": "allreduce",
            "dtype": "Float",
            "In msg nelems": 1000,
            "Out msg nelems": 1000,
            "Group size": self.ranks,
            "Process Group Name": "0",
            "Process Group Ranks": str(list(range(self.ranks))),
        }
        args |= {key.replace("_", " "): value for key, value in known.items()}
        given = {key: value for key, value in args.items() if value is not None}
        self.kernel(ts, dur, launched=launched, name="ncclDevKernel_AllReduce", stream=20, **given)

    def read(self, folder: Path) -> ks.Trace:
        folder.mkdir(exist_ok=True)
        path = folder / f"rank{self.rank}.json"
        document = {
            "schemaVersion": 1,
            "host_name": self.host,
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.ranks},
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
            "traceEvents": self.events,
        }
        if self.base_ns is not None:
            document["baseTimeNanoseconds"] = self.base_ns
        path.write_text(json.dumps(document))
        return ks.read(path)


def training(
    folder: Path,
    ranks: int,
    *,
    steps: int = 4,
    slower: dict[int, float] | None = None,
    loading: dict[int, float] | None = None,
    launching: dict[int, float] | None = None,
    offsets: dict[int, float] | None = None,
) -> list[ks.Trace]:
    """Traces of ranks that compute for 1000 us a step, then sum gradients in 200 us.

    ``slower`` is what a rank computes longer, ``loading`` what its data come later than after 50 us,
    ``launching`` what its host launches later, ``offsets`` by how much its clock is ahead; of ranks that are
    not named, nothing.
    """
    jobs = [Rank(r, ranks, offset=(offsets or {}).get(r, 0.0)) for r in range(ranks)]
    late = [
        sum((what or {}).get(rank, 0.0) for what in (slower, loading, launching)) for rank in range(ranks)
    ]
    start = 1000.0
    for step in range(steps):
        arrived = start + 60 + 1000 + max(late)
        for rank, job in enumerate(jobs):
            data = 50 + (loading or {}).get(rank, 0.0)
            launch = data + 5 + (launching or {}).get(rank, 0.0)
            ready = start + launch + 5
            computed = ready + 1000 + (slower or {}).get(rank, 0.0)
            job.step(step, start, computed - start - 900)
            job.load(start, data)
            job.kernel(ready, computed - ready, launched=start + launch)
            job.collective(computed, arrived + 200 - computed, launched=start + launch + 2, Seq=100 + step)
        start = arrived + 200
    return [job.read(folder) for job in jobs]
