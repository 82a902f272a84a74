"""Measures batches of many ranks, and the questions about them: ``make bench-cluster``.

Every measurement is a process of its own, and figures are medians. Memory of several processes together
is the sum of their proportional sizes (pages that two share count half for each), looked at all the time:
of ours in runs that are not timed, of the long runs of others so seldom that they lose a fiftieth.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import cluster_paper
import machine
from inputs import DATA, parse_size, size_text, warm
from kernelscope.batch.pool import SETTINGS
from performance import record, taken_on
from processes import PEERS

MB = 10**6
MEMORY = Path("/dev/shm")
LOOK_S = 0.01
RESTS = 50
"""How much longer than a look takes the pause after it lasts, in a run that is timed."""

# What the settings of a worker process are, so that one trace alone is read as in a batch.
WORKER = {**SETTINGS, "POLARS_MAX_THREADS": "1"}


def main() -> int:
    """Measures, prints what was found, and says which promises hold."""
    options = _options()
    warning = machine.busy()
    if warning is not None:
        print(f"warning: {warning}", file=sys.stderr)
    about = machine.describe() if options.record else {}
    with tempfile.TemporaryDirectory(dir=options.lakes) as place:
        spread = _throughput(options, Path(place))
        many = _many(options, Path(place))
        lines = [*_promises(spread, many, options), *_beside(options, Path(place))]
    lines += cluster_paper.lines(spread, many)
    print("\n".join(lines))
    if options.record:
        record("cluster", "bench-cluster", "\n".join(["", *lines, taken_on(about), ""]))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", default="48x100MB", help="ranks and size for throughput (default: 48x100MB)")
    parser.add_argument("--many", default="1000x2MB", help="ranks and size of many ranks (default: 1000x2MB)")
    parser.add_argument(
        "--beside", default="8x400MB 64x50MB", help="beside HolisticTraceAnalysis (default: 8x400MB 64x50MB)"
    )
    parser.add_argument(
        "--lakes",
        type=Path,
        default=MEMORY if MEMORY.is_dir() else DATA,
        help="where lakes are written; in memory, the disk does not count (default: %(default)s)",
    )
    parser.add_argument("--repeats", type=int, default=3, help="of each measurement (default: 3)")
    parser.add_argument("--keep", action="store_true", help="keep the traces")
    parser.add_argument("--record", action="store_true", help="renew the figures in benches/results.json")
    options = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    return options


@contextlib.contextmanager
def provided(job: str, options: argparse.Namespace) -> Generator[Path]:
    """The folder of a job such as ``8x100MB``, made if it is not there, and read once; it goes in the end."""
    ranks, _, text = job.partition("x")
    size_bytes = parse_size(text)
    folder = DATA / f"job-{int(ranks)}x{size_text(size_bytes)}"
    part = folder.with_name(f"part-{folder.name}")
    try:
        if not folder.exists():
            shutil.rmtree(part, ignore_errors=True)
            _check_space(int(ranks) * size_bytes)
            command = ["demo", "--ranks", ranks, "--size", text, "--out", str(part)]
            arguments = [sys.executable, "-m", "kernelscope", *command]
            subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
            part.rename(folder)
        for path in folder.iterdir():
            warm(path)
        # Writing it to the disk would take a core from what is measured on all of them.
        os.sync()
        yield folder
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _check_space(content_bytes: int) -> None:
    """A job and its lakes."""
    needed, free = content_bytes * 5 // 4, shutil.disk_usage(DATA).free
    if free < needed:
        raise SystemExit(f"{DATA} has {free / MB:,.0f} MB left, and {needed / MB:,.0f} MB are needed")


def _throughput(options: argparse.Namespace, place: Path) -> dict[str, float]:
    """One trace after the other, a batch on one core, one on all; they take turns."""
    cores = len(os.sched_getaffinity(0))
    samples: dict[str, list[dict[str, Any]]] = {"single": [], "one": [], "all": []}
    with provided(options.job, options) as folder:
        content_bytes = sum(path.stat().st_size for path in folder.glob("rank*"))
        for number in range(options.repeats):
            samples["single"].append(task("single", folder, place / "single", environment=WORKER))
            for name, count in (("one", 1), ("all", cores)):
                lake = place / f"{name}{number}"
                samples[name].append(task("batch", folder, lake, count))
                shutil.rmtree(lake)
                os.sync()
        alone = task("read_largest", folder, environment=WORKER)
    seconds = {name: statistics.median(s["seconds"] for s in taken) for name, taken in samples.items()}
    return {
        "cores": cores,
        "bytes": content_bytes,
        "single_per_s": content_bytes / seconds["single"],
        "one_per_s": content_bytes / seconds["one"],
        "all_per_s": content_bytes / seconds["all"],
        "worker_peak": max(s["worker_peak_bytes"] for s in samples["all"]),
        "read_peak": alone["peak_bytes"],
        "lake_share": samples["all"][0]["lake_bytes"] / content_bytes,
    }


def _many(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Memory of the coordinator with few and with many ranks, and the answers about many."""
    cores = len(os.sched_getaffinity(0))
    lake, few = place / "many", place / "few-traces"
    with provided(options.many, options) as folder:
        ranks = len(list(folder.glob("rank*")))
        few.mkdir()
        for rank in range(8):
            name = f"rank{rank}.pt.trace.json"
            (few / name).symlink_to(folder / name)
        small = task("batch", few, place / "few", cores)
        large = task("batch", folder, lake, cores)
        again = task("batch", folder, lake, cores)
        content_bytes = sum(path.stat().st_size for path in folder.glob("rank*"))
    half = task("answers", lake, ranks // 2)
    asked = [task("answers", lake) for _ in range(options.repeats)]
    shutil.rmtree(lake)
    return {
        "ranks": ranks,
        "bytes": content_bytes,
        "seconds": large["seconds"],
        "again_s": again["seconds"],
        "few_peak": small["peak_bytes"],
        "many_peak": large["peak_bytes"],
        "answers_s": statistics.median(found["seconds"] for found in asked),
        "answers_peak": max(found["peak_bytes"] for found in asked),
        "calls": asked[0]["calls"],
        "bytes_per_call": (asked[0]["peak_bytes"] - half["peak_bytes"]) / (asked[0]["calls"] - half["calls"]),
    }


def _promises(spread: dict[str, float], many: dict[str, Any], options: argparse.Namespace) -> list[str]:
    cores = int(spread["cores"])
    speedup, share = (
        spread["all_per_s"] / spread["one_per_s"],
        spread["all_per_s"] / cores / spread["single_per_s"],
    )
    worker = spread["worker_peak"] / spread["read_peak"]
    peaks = (
        f"{many['few_peak'] / MB:.0f} MB with 8 ranks, {many['many_peak'] / MB:.0f} MB with {many['ranks']:,}"
    )
    rates = ", ".join(
        f"{name} {spread[key] / MB:,.0f} MB/s"
        for name, key in (
            ("one trace after the other", "single_per_s"),
            ("a batch on one core", "one_per_s"),
            (f"on {cores} cores", "all_per_s"),
        )
    )
    rows = [
        (f"a batch on {cores} cores, of one on one core", f"{speedup:.2f} x", "≥ 1.80 x", speedup >= 1.8),
        (f"the same, of {cores} x reading to Parquet", f"{share:.2f} x", "≥ 0.85 x", share >= 0.85),
        ("peak of the coordinator", peaks, "< 300 MB, flat", many["many_peak"] < 300 * MB),
        ("peak of a worker, of reading alone", f"{worker:.2f} x", "≤ 1.30 x", worker <= 1.3),
        (
            f"cross-rank answers, {many['ranks']:,} ranks",
            f"{many['answers_s']:.1f} s, {many['answers_peak'] / MB:.0f} MB",
            "< 10 s",
            many["answers_s"] < 10,
        ),
    ]
    took = f"{many['seconds']:.1f} s, and {many['again_s']:.1f} s when nothing has changed"
    return [
        f"Job of {options.job}: {rates}. Job of {options.many}: {took}.",
        "",
        "| Promise | Measured | Promised | Kept |",
        "|---|---|---|---|",
        *(
            f"| {what} | {found} | {wanted} | {'yes' if kept else 'NO'} |"
            for what, found, wanted, kept in rows
        ),
        "",
    ]


def _beside(options: argparse.Namespace, place: Path) -> list[str]:
    """The whole way beside HolisticTraceAnalysis: from traces to answers, with all processes."""
    if not PEERS.exists():
        print("left out: the environment .venv-bench is missing", file=sys.stderr)
        return []
    lines = [
        "| Ranks | kernelscope | HolisticTraceAnalysis | time | memory |",
        "|---|---|---|---|---|",
    ]
    for job in options.beside.split():
        with provided(job, options) as folder:
            ours = _ours(folder, place / f"beside-{job}", options)
            try:
                theirs = task("hta", folder, python=str(PEERS), rests=RESTS)
            except subprocess.CalledProcessError as error:
                lines.append(f"| {job} | {_cost(ours)} | failed: {_last_line(error.stderr)} | | |")
                continue
        faster = theirs["seconds"] / ours["seconds"]
        smaller = theirs["tree_bytes"] / ours["tree_bytes"]
        verdicts = f"{faster:.0f} x ({_kept(faster >= 30)}) | {smaller:.1f} x ({_kept(smaller >= 10)})"
        lines.append(f"| {job} | {_cost(ours)} | {_cost(theirs)} | {verdicts} |")
    return [*lines, ""]


def _ours(folder: Path, lake: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Time from runs that nobody looks at, memory from others."""
    cores = len(os.sched_getaffinity(0))
    seconds: list[float] = []
    tree_bytes = 0
    for _ in range(options.repeats):
        seconds.append(task("lake_and_answers", folder, lake, cores)["seconds"])
        shutil.rmtree(lake)
        looked_at = task("lake_and_answers", folder, lake, cores, rests=1)
        tree_bytes = max(tree_bytes, looked_at["tree_bytes"])
        shutil.rmtree(lake)
    return {"seconds": statistics.median(seconds), "tree_bytes": tree_bytes}


def _cost(found: dict[str, Any]) -> str:
    return f"{found['seconds']:.1f} s, {found['tree_bytes'] / MB:,.0f} MB"


def _kept(kept: object) -> str:
    return "kept" if kept else "NOT KEPT"


def _last_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[-1:][0] if (text or "").strip() else "no message"


def task(
    name: str,
    *arguments: object,
    python: str = sys.executable,
    environment: dict[str, str] | None = None,
    rests: int | None = None,
) -> dict[str, Any]:
    """Runs a task of cluster_tasks.py.

    ``rests`` adds the memory of all its processes together: how many times as long as a look takes the
    pause after it lasts.
    """
    command = [python, str(Path(__file__).with_name("cluster_tasks.py")), name, *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    largest = None if rests is None else _Largest(process.pid, rests)
    output, errors = process.communicate()
    if process.returncode:
        print(errors, file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, command, output, errors)
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    if largest is not None:
        found["tree_bytes"] = largest.stop()
    return found


class _Largest:
    """Looks at the memory of a process and its descendants until it is stopped."""

    def __init__(self, pid: int, rests: int) -> None:
        self._pid = pid
        self._rests = rests
        self._bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.is_set():
            start = time.perf_counter()
            self._bytes = max(self._bytes, sum(map(_proportional_bytes, _descendants(self._pid))))
            self._stop.wait(max(LOOK_S, self._rests * (time.perf_counter() - start)))

    def stop(self) -> int:
        """The largest sum."""
        self._stop.set()
        self._thread.join()
        return self._bytes


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for listing in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in _text(listing).split()]
    return found


def _proportional_bytes(pid: int) -> int:
    for line in _text(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
