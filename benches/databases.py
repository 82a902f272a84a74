"""Measures databases of Nsight Systems beside Python's sqlite3: ``make bench-databases``.

Every measurement is a process of its own, and the contestants take turns. What counts is processor
time, of all threads together: the floors were set in it. A database is grown from a recorded one that
is not part of the project; without it nothing is measured, and that is said.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
from inputs import DATA, SHARED, parse_size, size_text, warm
from measure import memory_bytes
from performance import record, taken_on

SOURCE = SHARED / "traces" / "nsys" / "h100-2gpu-emit-nvtx-2026.2.sqlite"
GROW = SHARED / "tools" / "scale_sqlite.py"
MB = 10**6
KEEP_BYTES = 1.1e9
# The floors were set on 1 GB: below it, the interpreter and its imports are most of time and memory.
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


def sqlite3_numbers(path: str) -> int:
    """Python's sqlite3 fetches the name's number, start and end of all kernels."""
    return _fetched(path, "SELECT demangledName, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL")


def sqlite3_names(path: str) -> int:
    """Python's sqlite3 fetches name, start and end of all kernels."""
    join = "CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName"
    return _fetched(path, f"SELECT value, start, end FROM {join}")


def kernel_summary(path: str) -> int:
    """The kernel summary as a frame."""
    return _report(path, "cuda_gpu_kern_sum")


def projection_and_summary(path: str) -> int:
    """``nvtx_projection``, and its sums by name."""
    from kernelscope.analysis import nvtx_projection, nvtx_table
    from kernelscope.compat.nsys import parse, read_for

    trace = read_for(path, *parse("nvtx_gpu_proj_sum"))
    return nvtx_projection(trace).height + nvtx_table(trace).height


def gpu_trace_to_parquet(path: str) -> int:
    """Every piece of GPU work into a Parquet file."""
    from kernelscope.compat.nsys import parse, read_for
    from kernelscope.report import nsys_stats

    report, question = parse("cuda_gpu_trace")
    out = Path(path).with_suffix(".parquet")
    with out.open("wb") as file:
        parts = report.parts(read_for(path, report, question), question)
        nsys_stats.write(parts, report.fields, file, form="parquet")
    size_bytes = out.stat().st_size
    out.unlink()
    return size_bytes


TASKS: dict[str, Callable[[str], int]] = {
    task.__name__: task
    for task in (
        sqlite3_numbers, sqlite3_names, kernel_summary, projection_and_summary, gpu_trace_to_parquet,
    )
}  # fmt: skip
FLOORS = {"kernel_summary": 1.0, "projection_and_summary": 6.0, "gpu_trace_to_parquet": 2.0}
"""Most processor time, as a multiple of that of ``sqlite3_names``."""


def _fetched(path: str, query: str) -> int:
    import sqlite3

    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    return len(connection.execute(query).fetchall())


def _report(path: str, name: str) -> int:
    from kernelscope.compat.nsys import nsys_report, parse, read_for

    return nsys_report(read_for(path, *parse(name)), name).height


def main() -> int:
    """Measures every size, prints what was found, and says which floors hold."""
    options = _options()
    if options.task:
        return _measure_task(*options.task)
    warning = machine.busy()
    if warning is not None:
        print(f"warning: {warning}", file=sys.stderr)
    lines: list[str] = []
    rates: dict[str, dict[str, float]] = {}
    for size_bytes in sorted(parse_size(text) for text in options.sizes.split()):
        path = provide(size_bytes)
        if path is None:
            print(f"left out: {SOURCE.name} or what grows it is not beside the repository")
            return 0
        warm(path)
        lines += _measure(path, options, rates)
        if size_bytes > KEEP_BYTES and not options.keep:
            path.unlink()
    linear = _linear(rates)
    print("\n".join(linear))
    lines += linear
    if options.record:
        block = "\n".join(["", *lines, taken_on(machine.describe()), ""])
        record("databases", "bench-databases", block)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100MB 1GB", help="of the databases (default: 100MB 1GB)")
    parser.add_argument("--repeats", type=int, default=3, help="of each measurement (default: 3)")
    parser.add_argument("--no-reports", action="store_true", help="no whole processes")
    parser.add_argument("--keep", action="store_true", help="keep files above 1 GB")
    parser.add_argument("--record", action="store_true", help="renew the figures in benches/results.json")
    parser.add_argument("--task", nargs=2, metavar=("NAME", "PATH"), help=argparse.SUPPRESS)
    return parser.parse_args()


def provide(size_bytes: int) -> Path | None:
    """The recorded database grown to about ``size_bytes``; null if it cannot be made here."""
    path = DATA / f"h100-emit-nvtx-{size_text(size_bytes)}.sqlite"
    if path.exists():
        return path
    if not (SOURCE.exists() and GROW.exists()):
        return None
    DATA.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"part-{path.name}")
    part.unlink(missing_ok=True)
    target = ["--target-mb", str(round(size_bytes / MB)), "--no-verify"]
    subprocess.run(
        [sys.executable, str(GROW), str(SOURCE), str(part), *target], check=True, stdout=sys.stderr
    )
    part.replace(path)
    return path


def _measure_task(name: str, path: str) -> int:
    """Prints processor time and peak memory of one task; the time of imports is in it."""
    before = os.times()
    rows = TASKS[name](path)
    after = os.times()
    seconds = after.user + after.system - before.user - before.system
    print(json.dumps({"cpu_s": seconds, "peak_bytes": memory_bytes("VmHWM"), "rows": rows}))
    return 0


def _measure(path: Path, options: argparse.Namespace, rates: dict[str, dict[str, float]]) -> list[str]:
    """The figures of one database; processor time per GB of it goes into ``rates``, by size and task."""
    file_bytes = path.stat().st_size
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in TASKS}
    for _ in range(options.repeats):
        for name, taken in samples.items():
            command = [sys.executable, __file__, "--task", name, str(path)]
            taken.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    seconds = {name: _median(taken, "cpu_s") for name, taken in samples.items()}
    title = f"{file_bytes / MB:,.0f} MB"
    rates[title] = {name: seconds[name] * 1000 * MB / file_bytes for name in TASKS}
    lines = [f"**{title}**", ""]
    lines += ["| task | CPU s | x sqlite3 | floor | peak |", "|---|---|---|---|---|"]
    for name, task in TASKS.items():
        ratio, peak = seconds[name] / seconds["sqlite3_names"], _median(samples[name], "peak_bytes")
        floor = f"{FLOORS[name]:g} x{_verdict(ratio, FLOORS[name], file_bytes)}" if name in FLOORS else ""
        share = f"{peak / MB:,.0f} MB, {peak / file_bytes:.2f} x"
        lines.append(f"| {_title(task)} | {seconds[name]:.2f} | {ratio:.2f} | {floor} | {share} |")
    lines.append("")
    if not options.no_reports:
        lines += _measure_reports(path, file_bytes)
    print("\n".join(lines), flush=True)
    return lines


def _measure_reports(path: Path, file_bytes: int) -> list[str]:
    lines = ["| `kernelscope stats --report` | CPU s | peak | floor |", "|---|---|---|---|"]
    out = str(DATA / "report.csv")
    for name in (*REPORTS, *NVTX_REPORTS):
        command = [sys.executable, "-m", "kernelscope", "stats", str(path), "--report", name, "--out", out]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        share = usage.ru_maxrss * 1024 / file_bytes
        most = 1.0 if name in NVTX_REPORTS else 1 / 3
        failed = f": failed ({process.returncode})"
        verdict = _verdict(share, most, file_bytes) if process.returncode == 0 else failed
        seconds = usage.ru_utime + usage.ru_stime
        text = f"{usage.ru_maxrss * 1024 / MB:,.0f} MB, {share:.2f} x"
        lines.append(f"| `{name}` | {seconds:.2f} | {text} | {'1' if most == 1 else '1/3'} x{verdict} |")
    Path(out).unlink(missing_ok=True)
    return [*lines, ""]


def _median(taken: list[dict[str, Any]], key: str) -> float:
    return statistics.median(sample[key] for sample in taken)


def _verdict(value: float, most: float, file_bytes: int) -> str:
    if file_bytes < JUDGED_BYTES:
        return ""
    return ": holds" if value <= most else ": missed"


def _title(task: Callable[[str], int]) -> str:
    return (task.__doc__ or "").replace("``", "`").rstrip(".")


def _linear(rates: dict[str, dict[str, float]]) -> list[str]:
    """Processor time per GB of every size, which is to be the same."""
    lines = [f"| CPU s per GB | {' | '.join(rates)} |", "|---" * (len(rates) + 1) + "|"]
    for name, task in TASKS.items():
        cells = " | ".join(f"{of_size[name]:.2f}" for of_size in rates.values())
        lines.append(f"| {_title(task)} | {cells} |")
    return [*lines, ""]


if __name__ == "__main__":
    sys.exit(main())
