"""What benches/cluster.py measures, each in a process of its own: ``cluster_tasks.py TASK ARGUMENTS``.

Prints one JSON line. Times begin after the imports of what is asked, apart from worker processes, whose
start belongs to a batch.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import memory_bytes

Found = dict[str, Any]


def traces_of(folder: str) -> list[str]:
    """The traces in a folder, in order of rank."""
    paths = Path(folder).glob("rank*.pt.trace.json*")
    return [str(path) for path in sorted(paths, key=lambda path: int(path.name[4:].split(".")[0]))]


def single(folder: str, out: str) -> Found:
    """Reads each trace with one thread and writes its tables as Parquet, one trace after the other."""
    from kernelscope import read
    from kernelscope.batch.work import write_table

    place = Path(out)
    place.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    for path in traces_of(folder):
        for name, table in read(path, threads=1).tables.items():
            if table.height:
                write_table(table, place / f"{name}.parquet")
    return {"seconds": time.perf_counter() - start}


def read_largest(folder: str) -> Found:
    """Reads the largest trace with one thread, and nothing else."""
    from kernelscope import read

    path = max(traces_of(folder), key=os.path.getsize)
    start = time.perf_counter()
    trace = read(path, threads=1)
    return {
        "seconds": time.perf_counter() - start,
        "peak_bytes": memory_bytes("VmHWM"),
        "events": trace.meta.seen,
    }


def batch(folder: str, lake: str, cores: str) -> Found:
    """A batch on some of the cores, from its first look at the traces to its end."""
    from kernelscope.batch import RankReport
    from kernelscope.batch import run as run_batch

    # On one core all there is shares it: the worker, what Polars does beside it, and the coordinator.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    reports: list[RankReport] = []
    start = time.perf_counter()
    run_batch(folder, lake, on_rank=lambda rank, _: reports.append(rank))
    seconds = time.perf_counter() - start
    failed = [report.entry.error for report in reports if report.status == "failed"]
    if failed:
        raise SystemExit(f"{len(failed)} ranks failed: {failed[0]}")
    return {
        "seconds": seconds,
        "peak_bytes": memory_bytes("VmHWM"),
        "worker_peak_bytes": max((report.peak_bytes or 0 for report in reports), default=0),
        "lake_bytes": sum(path.stat().st_size for path in Path(lake).rglob("*.parquet")),
    }


def answers(lake: str, ranks: str = "") -> Found:
    """The cross-rank answers about a lake, or about its first ranks."""
    from kernelscope import analysis, scan

    start = time.perf_counter()
    opened = scan(lake, ranks=range(int(ranks)) if ranks else None)
    cluster = analysis.cluster_of(opened)
    rows = {
        "findings": analysis.cluster_findings(cluster).height,
        "stragglers": analysis.stragglers(cluster).height,
        "communication": analysis.communication(cluster).height,
        "clocks": analysis.clock_offsets(cluster).height,
        "gpu_time": analysis.rank_gpu_time(opened).height,
    }
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "peak_bytes": memory_bytes("VmHWM"),
        "rows": rows,
        "calls": cluster.calls.height,
    }


def lake_and_answers(folder: str, lake: str, cores: str) -> Found:
    """A batch, and the cross-rank answers; those of HolisticTraceAnalysis are among them."""
    start = time.perf_counter()
    batch(folder, lake, cores)
    rows = answers(lake)["rows"]
    return {"seconds": time.perf_counter() - start, "rows": rows}


def hta(folder: str) -> Found:
    """HolisticTraceAnalysis: loads all ranks, and answers two of its questions about them."""
    import logging

    from hta.trace_analysis import TraceAnalysis  # pyright: ignore[reportMissingImports]

    logging.disable(logging.CRITICAL)
    start = time.perf_counter()
    asked = TraceAnalysis(trace_files=dict(enumerate(traces_of(folder))), trace_dir="/")
    rows = len(asked.get_temporal_breakdown(visualize=False)) + len(
        asked.get_comm_comp_overlap(visualize=False)
    )
    return {"seconds": time.perf_counter() - start, "rows": rows}


TASKS: dict[str, Callable[..., Found]] = {
    task.__name__: task for task in (single, read_largest, batch, answers, lake_and_answers, hta)
}


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    found = TASKS[task](*arguments)
    print(json.dumps(found))
