"""Measures databases of Nsight Systems beside Python's sqlite3: ``make bench-databases``.

Every measurement is a process of its own, and the contestants take turns. What counts is processor
time, of all threads together, but for the viewer, whose user waits: the promises were made in it. A database
is grown from a recorded one that is not part of the project; without it nothing is measured, as is said.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import performance
from inputs import DATA, KEEP_BYTES, MB, SHARED, grow, parse_size, provide_path, size_text
from processes import run, run_task, take_turns
from tables import NotMeasuredError, Promise, Sample, Table, figures_table, promises_table

SOURCE = SHARED / "traces" / "nsys" / "h100-2gpu-emit-nvtx-2026.2.sqlite"
# The promises were made for 1 GB: below it, the interpreter and its imports are most of time and memory.
JUDGED_BYTES = 900 * MB

# Reports whose memory must stay below a third of the file; those about NVTX below the file.
REPORTS = (
    "cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum",
    "cuda_gpu_sum", "cuda_gpu_trace", "cuda_api_sum", "cuda_api_trace", "cuda_api_gpu_sum",
    "cuda_kern_exec_sum", "cuda_kern_exec_trace", "gpu_gaps", "gpu_time_util", "cuda_memcpy_async",
    "cuda_api_sync",
)  # fmt: skip
NVTX_REPORTS = (
    "cuda_gpu_kern_sum:nvtx-name", "nvtx_sum", "nvtx_pushpop_sum", "nvtx_pushpop_trace",
    "nvtx_gpu_proj_sum", "nvtx_gpu_proj_trace", "nvtx_kern_sum",
)  # fmt: skip

# Commands that print a line for each kernel, and the report of the whole.
PRINTED = ("prof", "parse")
COMMANDS = ("analyze", *PRINTED)

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_NAMED_KERNELS = f"{_KERNELS} JOIN StringIds ON id = demangledName"
SQLITE = "Python's sqlite3 fetches name, start and end of all kernels"
READ, READ_ALONE = "`kernelscope.read`", "`kernelscope.read` with one thread"
SUMMARY, PROJECTED = "The kernel summary as a frame", "The sums of projected ranges as a frame"
PROJECTION = "`nvtx_projection`, and its sums by name"
PARQUET = "Every GPU operation into a Parquet file"
VIEWED = "The viewer's overview", "The viewer's flame graph"
TASKS = {
    "Python's sqlite3 fetches the name's number, start and end of all kernels": (
        "sqlite", f"SELECT demangledName, start, end FROM {_KERNELS}",
    ),
    SQLITE: ("sqlite", f"SELECT value, start, end FROM {_NAMED_KERNELS}"),
    SUMMARY: ("nsys_report", "cuda_gpu_kern_sum"),
    PROJECTED: ("nsys_report", "nvtx_gpu_proj_sum"),
    PROJECTION: ("nvtx_projection",),
    PARQUET: ("nsys_parquet", "cuda_gpu_trace"),
    READ: ("kernelscope",),
    READ_ALONE: ("kernelscope", "1"),
    **{title: ("viewer", name) for title, name in zip(VIEWED, ("overview", "flame"), strict=True)},
}  # fmt: skip
"""Task of tasks.py and its arguments after the path, by title."""
BOUNDS: tuple[tuple[str, str, float, str], ...] = (
    ("x sqlite3", SUMMARY, 1, "x"),
    ("x sqlite3", PROJECTED, 6.5, "x"),
    ("x sqlite3", PROJECTION, 6, "x"),
    ("x sqlite3", PARQUET, 2, "x"),
    *(("of the file", report, 1 / 3, "x") for report in REPORTS),
    *(("of the file", report, 1, "x") for report in NVTX_REPORTS),
    # 15 s and 1 GiB were promised for 1.03 GB.
    *(("cpu_s_per_gb", command, 14.5, "s") for command in PRINTED),
    *(("of the file", command, 1.04, "x") for command in PRINTED),
    ("cpu_s", READ, 4, "s"),
    ("of the file", READ, 1, "x"),
    ("of one thread", READ, 1 / 1.7, "x"),
    ("cpu_s", "analyze", 7, "s"),
    ("cpu_s", "nvtx_gpu_proj_sum", 5, "s"),
    ("cpu_s", "nvtx_sum", 4, "s"),
    ("cpu_s", "nvtx_pushpop_trace", 6, "s"),
    ("cpu_s", "cuda_gpu_trace", 3, "s"),
    ("cpu_s", "cuda_gpu_kern_sum", 0.9, "s"),
    *(("seconds", title, most, "s") for title, most in zip(VIEWED, (6, 3), strict=True)),
    *(("of the file", title, 2, "x") for title in VIEWED),
)
"""The figure that is promised of a task, report or command, how large it may be, and its unit."""
COLUMNS = {
    "s": "{seconds:.2f}",
    "CPU s": "{cpu_s:.2f}",
    "CPU s per GB": "{cpu_s_per_gb:.2f}",
    "x sqlite3": "{x sqlite3:.2f}",
    "peak, MB": "{peak_mb:,.0f}",
    "of the file": "{of the file:.2f}",
}


def main() -> int:
    """Measures every size, prints what was found, and says which promises hold."""
    parser = performance.parser(__doc__, repeats=3, sizes="100MB 1GB")
    parser.add_argument("--no-reports", action="store_true", help="no whole processes")
    parser.add_argument("--keep", action="store_true", help="keep files above 1 GB")
    options = performance.parse(parser)
    tables: list[Table] = []
    promises: list[Promise] = []
    for size_bytes in sorted(parse_size(text) for text in options.sizes.split()):
        path = DATA / f"h100-emit-nvtx-{size_text(size_bytes)}.sqlite"
        try:
            provide_path(path, partial(_grow, size_bytes))
        except NotMeasuredError as missing:
            print(missing)
            return 0
        found = _measure(path, options)
        name = f"{path.stat().st_size / MB:,.0f} MB"
        tables.append(figures_table(name, "task or report", COLUMNS, found))
        print(tables[-1], flush=True)
        promises += [
            Promise(f"{figure.replace('_', ' ')}: {title}", name, found[title][figure], most, unit)
            for figure, title, most, unit in BOUNDS
            if path.stat().st_size >= JUDGED_BYTES and figure in found.get(title, {})
        ]
        if size_bytes > KEEP_BYTES and not options.keep:
            path.unlink()
    tables.append(promises_table(promises))
    print(tables[-1])
    performance.record(options, "databases", "bench-databases", tables)
    return 0


def _grow(size_bytes: int, part: Path) -> None:
    grow(SOURCE, "scale_sqlite.py", part, "--target-mb", round(size_bytes / MB), "--no-verify")


def _measure(path: Path, options: argparse.Namespace) -> dict[str, Sample]:
    """Figures of every task by its title, and of every report by its name."""
    tasks = {title: partial(run_task, task[0], path, *task[1:]) for title, task in TASKS.items()}
    found = take_turns(tasks, options.repeats)
    for sample in found.values():
        if "reason" in sample:
            raise SystemExit(sample["reason"])
        sample["x sqlite3"] = sample["cpu_s"] / found[SQLITE]["cpu_s"]
    found[READ]["of one thread"] = found[READ]["seconds"] / found[READ_ALONE]["seconds"]
    if not options.no_reports:
        programs = {name: partial(_report, path, name) for name in (*REPORTS, *NVTX_REPORTS)}
        programs |= {command: partial(_lines, path, command) for command in COMMANDS}
        found |= take_turns(programs, 1)
    file_mb = path.stat().st_size / MB
    for sample in found.values():
        if "reason" not in sample:
            sample["cpu_s_per_gb"] = sample["cpu_s"] * 1000 / file_mb
            sample["of the file"] = sample["peak_mb"] / file_mb
    return found


def _report(path: Path, name: str) -> Sample:
    out = DATA / "report.csv"
    sample = run([sys.executable, "-m", "kernelscope", "stats", path, "--report", name, "--out", out])
    out.unlink(missing_ok=True)
    return sample


def _lines(path: Path, command: str) -> Sample:
    # What is printed would be kept, and is as large as the database; the shell becomes the program.
    quiet = ["sh", "-c", 'exec "$@" > /dev/null', "sh"]
    return run([*quiet, sys.executable, "-m", "kernelscope", command, path])


if __name__ == "__main__":
    sys.exit(main())
