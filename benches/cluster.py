"""Measures batches of many ranks, and the questions about them: ``make bench-cluster``.

Every measurement is a process of its own, and figures are medians. Memory of several processes together
is the sum of their proportional sizes (pages that two share count half for each), looked at all the time:
of ours in runs that are not timed, of the long runs of others so seldom that they lose a fiftieth.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import cluster_simulated
import performance
from cluster_paper import paper_table
from inputs import DATA, MB, execute, parse_size, provide_path, size_text
from kernelscope.batch.pool import SETTINGS
from processes import PEERS, medians, run_task, take_turns
from tables import Promise, Sample, Table, figures_table, promises_table

MEMORY = Path("/dev/shm")
CORES = len(os.sched_getaffinity(0))
RESTS = 50
"""How much longer than a look takes the pause after it lasts, in a run that is timed."""

# What the settings of a worker process are, so that one trace alone is read as in a batch.
WORKER = {**SETTINGS, "POLARS_MAX_THREADS": "1"}


def main() -> int:
    """Measures, prints what was found, and says which promises hold."""
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.lakes) as place:
        spread = _throughput(options, Path(place))
        many = _many(options, Path(place))
        beside, promises = _beside(options, Path(place))
    simulated = cluster_simulated.measure(options)
    tables = [
        promises_table([*_promises(spread, many), *promises, *simulated.promises]),
        _figures(spread, many, options),
        beside,
        *simulated.tables,
        paper_table(spread, many, simulated.answers, CORES),
    ]
    print(*tables, sep="\n")
    performance.record(options, "cluster", "bench-cluster", tables)
    return 0


def _options() -> argparse.Namespace:
    parser = performance.parser(
        __doc__,
        repeats=3,
        job="48x100MB",
        many="1000x2MB",
        beside="8x200MB",
        opened="10000x10",
        simulated="100000x300",
    )
    parser.epilog = (
        "jobs are ranks x size: one for throughput, one of many ranks, those beside HolisticTraceAnalysis;"
        " simulated ones are ranks x collectives: a lake that is opened and asked what to look at first, and"
        " one that a batch starts on and whose cross-rank answers must fit into 4 GB"
    )
    parser.add_argument(
        "--lakes",
        type=Path,
        default=MEMORY if MEMORY.is_dir() else DATA,
        help="where lakes are written; in memory, the disk does not count (default: %(default)s)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the traces")
    DATA.mkdir(parents=True, exist_ok=True)
    return performance.parse(parser)


@contextmanager
def provided(job: str, options: argparse.Namespace) -> Generator[Path]:
    """The folder of a job such as ``8x100MB``, made if it is not there, and read once; it goes in the end."""
    ranks, _, size = job.partition("x")
    size_bytes = parse_size(size)
    folder = DATA / f"job-{int(ranks)}x{size_text(size_bytes)}"

    def make(part: Path) -> None:
        # A job and its lakes.
        needed, free = int(ranks) * size_bytes * 5 // 4, shutil.disk_usage(DATA).free
        if free < needed:
            raise SystemExit(f"{DATA} has {free / MB:,.0f} MB left, and {needed / MB:,.0f} MB are needed")
        execute("-m", "kernelscope", "demo", "--ranks", ranks, "--size", size, "--out", part)

    try:
        provide_path(folder, make)
        # Writing it to the disk would take a core from what is measured on all of them.
        os.sync()
        yield folder
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _batch(folder: Path, lake: Path, cores: int) -> Sample:
    """A batch into a lake that does not stay."""
    found = run_task("batch", folder, lake, cores)
    shutil.rmtree(lake)
    os.sync()
    return found


def _throughput(options: argparse.Namespace, place: Path) -> Sample:
    """One trace after the other, a batch on one core, one on all; they take turns."""
    with provided(options.job, options) as folder:
        found = take_turns(
            {
                "single": partial(run_task, "single", folder, place / "single", environment=WORKER),
                "one": partial(_batch, folder, place / "one", 1),
                "all": partial(_batch, folder, place / "all", CORES),
            },
            options.repeats,
        )
        content_mb = _content_mb(folder)
        alone = run_task("read_largest", folder, environment=WORKER)
    return {
        **{f"{name}_per_s": content_mb / sample["seconds"] for name, sample in found.items()},
        "worker_mb": max(sample["worker_peak_mb"] for sample in found["all"]["samples"]),
        "read_mb": alone["peak_mb"],
        "lake_share": found["all"]["lake_mb"] / content_mb,
    }


def _many(options: argparse.Namespace, place: Path) -> Sample:
    """Memory of the coordinator with few and with many ranks, and the answers about many."""
    lake, few = place / "many", place / "few-traces"
    with provided(options.many, options) as folder:
        ranks, content_mb = len(list(folder.glob("rank*"))), _content_mb(folder)
        few.mkdir()
        for rank in range(8):
            name = f"rank{rank}.pt.trace.json"
            (few / name).symlink_to(folder / name)
        small = run_task("batch", few, place / "few", CORES)
        large = run_task("batch", folder, lake, CORES)
        again = run_task("batch", folder, lake, CORES)
    asked = medians([run_task("answers", lake) for _ in range(options.repeats)])
    shutil.rmtree(lake)
    return {
        "ranks": ranks,
        "mb": content_mb,
        "seconds": large["seconds"],
        "again_s": again["seconds"],
        "few_mb": small["peak_mb"],
        "many_mb": large["peak_mb"],
        "answers_s": asked["seconds"],
        "answers_mb": max(sample["peak_mb"] for sample in asked["samples"]),
    }


def _content_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("rank*")) / MB


def _figures(spread: Sample, many: Sample, options: argparse.Namespace) -> Table:
    job, ranks = f"job of {options.job}", f"job of {options.many}"
    rows = [
        (f"{job}, one trace after the other", f"{spread['single_per_s']:,.0f} MB/s"),
        (f"{job}, a batch on one core", f"{spread['one_per_s']:,.0f} MB/s"),
        (f"{job}, a batch on {CORES} cores", f"{spread['all_per_s']:,.0f} MB/s"),
        (ranks, f"{many['seconds']:.1f} s"),
        (f"{ranks}, when nothing has changed", f"{many['again_s']:.1f} s"),
        (f"{ranks}, peak of the cross-rank answers", f"{many['answers_mb']:.0f} MB"),
        ("peak of the coordinator with 8 ranks", f"{many['few_mb']:.0f} MB"),
    ]
    return Table("", ("Batch", "Measured"), rows)


def _promises(spread: Sample, many: Sample) -> list[Promise]:
    cores, ranks = f"{CORES} cores", f"{many['ranks']:,} ranks"
    speedup = spread["all_per_s"] / spread["one_per_s"]
    share = spread["all_per_s"] / CORES / spread["single_per_s"]
    worker = spread["worker_mb"] / spread["read_mb"]
    return [
        Promise("speed of a batch, of one on one core", cores, speedup, 1.8, at_least=True),
        Promise("the same, of reading to Parquet on each core", cores, share, 0.85, at_least=True),
        Promise("peak of the coordinator", ranks, many["many_mb"], 300, "MB"),
        Promise("peak of a worker, of reading alone", cores, worker, 1.3),
        Promise("cross-rank answers", ranks, many["answers_s"], 10, "s"),
    ]


def _beside(options: argparse.Namespace, place: Path) -> tuple[Table, list[Promise]]:
    """The whole way beside HolisticTraceAnalysis: from traces to answers, with all processes."""
    found: dict[str, Sample] = {}
    promises: list[Promise] = []
    for job in options.beside.split():
        with provided(job, options) as folder:
            ours = _ours(folder, place / f"beside-{job}", options.repeats)
            asked = partial(run_task, "hta_job", folder, python=PEERS, rests=RESTS)
            theirs = take_turns({"hta": asked}, 1)["hta"]
        found |= {f"{job}, kernelscope": ours, f"{job}, HolisticTraceAnalysis": theirs}
        if "reason" not in theirs:
            promises += [
                Promise(f"{what}, of kernelscope's", job, theirs[key] / ours[key], bound, at_least=True)
                for what, key, bound in (
                    ("HolisticTraceAnalysis' time", "seconds", 30),
                    ("HolisticTraceAnalysis' memory", "tree_mb", 10),
                )
            ]
    columns = {"time": "{seconds:.1f} s", "memory": "{tree_mb:,.0f} MB"}
    return figures_table("From traces to answers", "Ranks", columns, found), promises


def _ours(folder: Path, lake: Path, repeats: int) -> Sample:
    """Time from runs that nobody looks at, memory from others."""
    taken: dict[int | None, list[Sample]] = {None: [], 1: []}
    for _ in range(repeats):
        for rests, samples in taken.items():
            samples.append(run_task("lake_and_answers", folder, lake, CORES, rests=rests))
            shutil.rmtree(lake)
    return {**medians(taken[None]), "tree_mb": max(sample["tree_mb"] for sample in taken[1])}


if __name__ == "__main__":
    sys.exit(main())
