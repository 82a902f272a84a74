"""Times answers about training on a lake of many ranks: ``make bench-training BENCH=--help``.

The job is one of ``kernelscope demo --kind training``. Each question is asked twice: in one process, and of
workers of Dask on this machine. Nothing fails on a figure.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

import kernelscope as ks
from inputs import DATA, MB
from kernelscope import _traceparse, analysis
from kernelscope.batch.lake import Lake
from tables import Table

LAYERS, MICRO_BATCHES, SEED = 1, 16, 1
GPU = "h100-sxm5"


def main() -> None:
    """Writes the job and its lake, and asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parallel", default="tp=8,pp=8,dp=16", help="(default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes of Dask (default: %(default)s)")
    options = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        lake = _lake(Path(folder), options.parallel)
        alone = _times(lake, None)
        with (
            LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            shared = _times(lake, client.get_executor(pure=False))
    rows = [
        (name, f"{seconds:.1f} s", f"{shared[name][0]:.1f} s", f"{count:,}")
        for name, (seconds, count) in alone.items()
    ]
    sums = [sum(seconds for seconds, _ in times.values()) for times in (alone, shared)]
    rows.append(("all", *(f"{seconds:.1f} s" for seconds in sums), ""))
    print(Table(f"Answers about {options.parallel}", ("answer", "one process", "Dask", "rows"), rows))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    print(f"\n  peak of this process: {peak_mb:,.0f} MB")


def _lake(folder: Path, parallel: str) -> Lake:
    written, _ = _traceparse.write_demo_training(
        folder / "traces",
        parallel=parallel,
        recompute="selective",
        seed=SEED,
        steps=1,
        layers=LAYERS,
        micro_batches=MICRO_BATCHES,
    )
    ks.batch.run([path for path, _ in written], folder / "lake")
    return ks.scan(folder / "lake")


def _times(lake: Lake, executor: Executor | None) -> dict[str, tuple[float, int]]:
    """Seconds and rows of each answer."""
    questions: dict[str, Callable[[], Any]] = {
        "parallel_dimensions": partial(analysis.parallel_dimensions, lake),
        "rank_layout": partial(analysis.rank_layout, lake),
        "training_phases": partial(analysis.training_phases, lake, executor=executor),
        "communication": partial(analysis.communication, lake, by=("dimension", "phase")),
        "pipeline_stages": partial(analysis.pipeline_stages, lake, executor=executor),
        "expert_layers": partial(analysis.expert_layers, lake, executor=executor),
        "fsdp_units": partial(analysis.fsdp_units, lake, executor=executor),
        "efficiency": partial(analysis.efficiency, lake, gpu=GPU, executor=executor),
    }
    times: dict[str, tuple[float, int]] = {}
    for name, ask in questions.items():
        start = time.perf_counter()
        found = ask()
        times[name] = time.perf_counter() - start, found.height
    return times


if __name__ == "__main__":
    main()
