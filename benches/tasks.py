"""What is measured, each in a process of its own: ``tasks.py TASK ARGUMENTS`` prints one JSON line.

The names that a task is entered with are imported first and passed to it. Only the call is timed, and the
high-water mark of the resident memory is reset just before it, so that the peak is that of the call.
Processor time counts from the imports on. A task may return figures of its own, too.
"""

import ctypes
import gc
import gzip
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

Task = Callable[..., dict[str, Any] | None]
TASKS: dict[str, tuple[Task, tuple[str, ...]]] = {}
MB = 10**6
MADV_POPULATE_READ = 22

_kept: list[Any] = []


def task(*imports: str) -> Callable[[Task], Task]:
    """Enters a task under its name, with what it imports, such as ``kernelscope:read``."""

    def enter(function: Task) -> Task:
        TASKS[function.__name__] = function, imports
        return function

    return enter


def _keep(value: Any) -> Any:
    """Holds on to a result, so that letting go of it is not part of the time."""
    _kept.append(value)
    return value


# Readers of one trace.


@task("kernelscope:read")
def kernelscope(read: Any, path: str, threads: str = "") -> dict[str, Any]:
    """From the path to linked Polars frames, with all cores or so many."""
    return {"events": _keep(read(path, threads=int(threads) if threads else None)).meta.seen}


@task()
def json_load(path: str) -> dict[str, Any]:
    """Python's own JSON reader."""
    with _opened(path) as file:
        return _events(json.load(file))


@task("orjson:loads")
def orjson_loads(loads: Any, path: str) -> dict[str, Any]:
    """The fastest JSON reader that gives Python objects."""
    with _opened(path) as file:
        return _events(loads(file.read()))


def _opened(path: str) -> Any:
    return gzip.open(path) if path.endswith(".gz") else open(path, "rb")


def _events(document: Any) -> dict[str, Any]:
    _keep(document)
    return {"events": len(document["traceEvents"] if isinstance(document, dict) else document)}


@task()
def python_gzip(path: str) -> None:
    """Inflation alone, with Python's gzip."""
    with gzip.open(path) as file:
        while file.read(1 << 20):
            pass


@task("deflate:gzip_decompress")
def libdeflate(inflate: Any, path: str) -> None:
    """Inflation alone, by a library that wants a whole file in memory; kernelscope streams."""
    _keep(inflate(Path(path).read_bytes()))


@task("hta.trace_analysis:TraceAnalysis")
def hta(analysis: Any, path: str) -> dict[str, Any]:
    """HolisticTraceAnalysis: its constructor loads, parses and links."""
    return {"events": len(_keep(analysis(trace_files={0: path}, trace_dir="/")).t.get_trace(0))}


@task(
    "torch_tb_profiler.profiler.data:RunProfileData", "torch_tb_profiler.profiler.run_generator:RunGenerator"
)
def tb_profiler(profile: Any, generator: Any, path: str) -> dict[str, Any]:
    """torch_tb_profiler: what it does with one worker's file, without TensorBoard around it."""
    with tempfile.TemporaryDirectory() as cache:
        data = profile.parse("worker", None, path, cache)
        _keep(generator("worker", None, data).generate_run_profile())
    return {"events": len(data.events)}


# Questions about one trace.


@task("kernelscope:read", "kernelscope.analysis:costs", "kernelscope.analysis:roofline")
def costs(read: Any, cost: Any, roofline: Any, path: str) -> dict[str, Any]:
    """Reads a trace, and works out its costs and, of a copy that remembers nothing, its roofline."""
    times = [time.perf_counter()]
    trace = read(path)
    times.append(time.perf_counter())
    cost(trace)
    times.append(time.perf_counter())
    roofline(replace(trace))
    times.append(time.perf_counter())
    read_s, costs_s, roofline_s = (end - start for start, end in pairwise(times))
    operators = trace.ops.height
    return {
        "operators": operators,
        "gpu_ops": trace.gpu_ops.height,
        "read_s": read_s,
        "costs_s": costs_s,
        "roofline_s": roofline_s,
        "operators_per_s": operators / costs_s,
        "share": costs_s / read_s,
    }


@task(
    "kernelscope:read",
    "kernelscope.analysis.dependencies.graph:dependencies",
    "kernelscope.analysis:critical_path",
    "kernelscope.analysis:what_if",
    "polars:DataFrame",
)
def critical_path(
    read: Any, graph_of: Any, path_of: Any, what_if: Any, frame: Any, path: str
) -> dict[str, Any]:
    """Reads a trace, follows the critical path of every step, and makes one prediction."""
    times = [time.perf_counter()]
    trace = read(path)
    times.append(time.perf_counter())
    before = _memory_bytes("VmRSS")
    graph = graph_of(trace)
    bytes_of_graph = _memory_bytes("VmRSS") - before
    for step in trace.steps["step"].unique():
        path_of(trace, step)
    times.append(time.perf_counter())
    graph.replayed()
    times.append(time.perf_counter())
    what_if(trace, {"call:*": 0.5})
    times.append(time.perf_counter())
    read_s, path_s, replay_s, what_if_s = (end - start for start, end in pairwise(times))
    size = frame(graph.graph.size()).row(0, named=True)
    return {
        "steps": trace.steps.height,
        **size,
        "bytes_per_edge": bytes_of_graph / size["edges"],
        "read_s": read_s,
        "path_s": path_s,
        "path_share": path_s / read_s,
        "replay_s": replay_s,
        "replay_share": replay_s / read_s,
        "what_if_s": what_if_s,
    }


@task("kernelscope:read", "kernelscope.compat.hta:critical_path")
def whole_path(read: Any, path_of: Any, path: str) -> dict[str, Any]:
    """Reads a trace, and follows the path of all of it."""
    begun = time.perf_counter()
    trace = read(path)
    done = time.perf_counter()
    _keep(path_of(trace))
    return _path_times(begun, done)


@task("hta.trace_analysis:TraceAnalysis")
def hta_whole_path(analysis: Any, path: str) -> dict[str, Any]:
    """The same with HolisticTraceAnalysis."""
    begun = time.perf_counter()
    asked = analysis(trace_files={0: path}, trace_dir="/")
    done = time.perf_counter()
    found, is_done = asked.critical_path_analysis(0, "", 0)
    if not is_done:
        sys.exit("it finds no path")
    _keep(found.get_critical_path_breakdown())
    return _path_times(begun, done)


def _path_times(begun: float, done: float) -> dict[str, Any]:
    ended = time.perf_counter()
    return {"read_s": done - begun, "path_s": ended - done, "both_s": ended - begun}


@task("kernelscope:read", "kernelscope.report:required_tables", "kernelscope.report.html.page:write_page")
def page(read: Any, required_tables: Any, write_page: Any, path: str, out: str) -> dict[str, Any]:
    """Reads a trace and writes its page, as the command does."""
    _map_libraries()
    clean, stolen = _memory_bytes("VmHWM"), _stolen_seconds()
    began = time.perf_counter()
    trace = read(path, tables=required_tables("html"))
    done, read_peak = time.perf_counter(), _memory_bytes("VmHWM")
    write_page(trace, Path(out))
    ended = time.perf_counter()
    return {
        "read_s": done - began,
        "page_s": ended - done,
        "stolen": (_stolen_seconds() - stolen) / (ended - began),
        "read_peak_mb": (read_peak - clean) / MB,
        "page_peak_mb": (_memory_bytes("VmHWM") - clean) / MB,
        "size_mb": os.path.getsize(out) / MB,
        "json_mb": trace.meta.content_bytes / MB,
    }


def _map_libraries() -> None:
    """Maps in the code of every library that is loaded, so that it counts with the imports."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, *_, name = line.split()
        if access.startswith("r-x") and name.startswith("/"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            madvise(start, end - start, MADV_POPULATE_READ)


def _stolen_seconds() -> float:
    """Processor time, all cores together, that the host of a virtual machine has given to others so far."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")


# Databases of Nsight Systems.


@task("sqlite3:connect")
def sqlite(connect: Any, path: str, query: str) -> None:
    """Python's sqlite3 fetches all rows of a query."""
    _keep(connect(f"file:{path}?mode=ro&immutable=1", uri=True).execute(query).fetchall())


_NSYS = ("kernelscope.compat.nsys:parse", "kernelscope.compat.nsys:read_for")


@task(*_NSYS, "kernelscope.compat.nsys:nsys_report")
def nsys_report(parse: Any, read_for: Any, nsys_report: Any, path: str, name: str) -> None:
    """A report of nsys as a frame."""
    nsys_report(read_for(path, *parse(name)), name)


@task(*_NSYS, "kernelscope.analysis:nvtx_projection", "kernelscope.analysis:nvtx_table")
def nvtx_projection(parse: Any, read_for: Any, project: Any, add_up: Any, path: str) -> None:
    """``nvtx_projection``, and its sums by name."""
    trace = read_for(path, *parse("nvtx_gpu_proj_sum"))
    project(trace)
    add_up(trace)


@task("kernelscope:read", "kernelscope.view.app:QUESTIONS", "kernelscope.view.parameters:Parameters")
def viewer(read: Any, questions: Any, parameters: Any, path: str, name: str) -> None:
    """A viewer reads its trace and answers one question about it."""
    questions[name](_keep(read(path)), parameters({}))


@task(*_NSYS, "kernelscope.report.compat.nsys:write")
def nsys_parquet(parse: Any, read_for: Any, write: Any, path: str, name: str) -> None:
    """A report of nsys into a Parquet file."""
    report, question = parse(name)
    with tempfile.TemporaryFile(dir=Path(path).parent) as file:
        parts = report.parts(read_for(path, report, question), question)
        write(parts, report.fields, file, form="parquet")


# Jobs of many ranks.


def _traces_of(folder: str) -> list[str]:
    """The traces in a folder, in order of rank."""
    paths = Path(folder).glob("rank*.pt.trace.json*")
    return [str(path) for path in sorted(paths, key=lambda path: int(path.name[4:].split(".")[0]))]


@task("kernelscope:read", "kernelscope.batch.work:write_table")
def single(read: Any, write_table: Any, folder: str, out: str) -> None:
    """Reads each trace with one thread and writes its tables as Parquet, one trace after the other."""
    Path(out).mkdir(parents=True, exist_ok=True)
    for path in _traces_of(folder):
        for name, table in read(path, threads=1).tables.items():
            if table.height:
                write_table(table, Path(out, f"{name}.parquet"))


@task("kernelscope:read")
def read_largest(read: Any, folder: str) -> dict[str, Any]:
    """Reads the largest trace with one thread, and nothing else."""
    return kernelscope(read, max(_traces_of(folder), key=os.path.getsize), "1")


@task("kernelscope.batch:run")
def batch(run: Any, folder: str, lake: str, cores: str) -> dict[str, Any]:
    """A batch on some of the cores, from its first look at the traces to its end."""
    # On one core all there is shares it: the worker, what Polars does beside it, and the coordinator.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    reports: list[Any] = []
    run(folder, lake, on_rank=lambda rank, _: reports.append(rank))
    failed = [report.entry.error for report in reports if report.status == "failed"]
    if failed:
        raise SystemExit(f"{len(failed)} ranks failed: {failed[0]}")
    return {
        "worker_peak_mb": max((report.peak_bytes or 0 for report in reports), default=0) / MB,
        "lake_mb": sum(path.stat().st_size for path in Path(lake).rglob("*.parquet")) / MB,
    }


@task("kernelscope:analysis", "kernelscope:scan")
def answers(analysis: Any, scan: Any, lake: str) -> None:
    """The cross-rank answers about a lake."""
    opened = scan(lake)
    cluster = analysis.cluster_of(opened)
    for question in ("cluster_findings", "stragglers", "communication", "clock_offsets"):
        _keep(getattr(analysis, question)(cluster))
    _keep(analysis.rank_gpu_time(opened))


@task("simulated_ranks:SimulatedLake")
def simulate(lake: Any, folder: str, ranks: str, collectives: str) -> None:
    """Writes a lake, and traces that it takes for its own."""
    lake(Path(folder), int(ranks), int(collectives)).write()


@task("kernelscope:scan")
def opened(scan: Any, lake: str) -> None:
    """Opens a lake."""
    _keep(scan(lake))


@task("kernelscope:analysis", "kernelscope:scan")
def findings(analysis: Any, scan: Any, lake: str) -> None:
    """What to look at first in a lake."""
    _keep(analysis.cluster_findings(scan(lake)))


@task("kernelscope.batch.sources:find")
def sources(find: Any, folder: str) -> None:
    """Finds traces."""
    _keep(find([folder], Path(folder, "no-lake")))


@task("kernelscope:analysis", "kernelscope:scan")
def answers_in_parts(analysis: Any, scan: Any, lake: str, memory: str) -> dict[str, Any]:
    """The cross-rank answers within so much memory, and what the files take that lie between."""
    with tempfile.TemporaryDirectory(dir=Path(lake).parent) as place:
        cluster = analysis.cluster_of(scan(lake), memory=int(memory), folder=place)
        files_bytes = sum(path.stat().st_size for path in Path(place).rglob("*.arrow"))
        for question in ("cluster_findings", "stragglers", "communication", "clock_offsets"):
            _keep(getattr(analysis, question)(cluster))
        return {"parts": len(cluster.calls), "files_mb": files_bytes / MB}


@task("kernelscope.batch:run", "kernelscope:analysis", "kernelscope:scan")
def lake_and_answers(run: Any, analysis: Any, scan: Any, folder: str, lake: str, cores: str) -> None:
    """A batch, and the cross-rank answers; those of HolisticTraceAnalysis are among them."""
    batch(run, folder, lake, cores)
    answers(analysis, scan, lake)


@task("hta.trace_analysis:TraceAnalysis")
def hta_job(analysis: Any, folder: str) -> None:
    """HolisticTraceAnalysis: loads all ranks, and answers two of its questions about them."""
    asked = analysis(trace_files=dict(enumerate(_traces_of(folder))), trace_dir="/")
    _keep(asked.get_temporal_breakdown(visualize=False))
    _keep(asked.get_comm_comp_overlap(visualize=False))


def _memory_bytes(field: str) -> int:
    """A figure of this process' memory: ``VmRSS`` is resident now, ``VmHWM`` was at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    """Runs the task named on the command line."""
    name, *arguments = sys.argv[1:]
    call, imports = TASKS[name]
    before = os.times()
    imported = [resolve_name(wanted) for wanted in imports]
    logging.disable(logging.CRITICAL)
    gc.collect()
    # 5 sets the high-water mark to the present size; see proc_pid_clear_refs(5).
    Path("/proc/self/clear_refs").write_text("5")
    imports_bytes = _memory_bytes("VmRSS")
    start = time.perf_counter()
    own = call(*imported, *arguments) or {}
    seconds = time.perf_counter() - start
    peak_bytes, after = _memory_bytes("VmHWM"), os.times()
    figures = {
        "seconds": seconds,
        "cpu_s": after.user + after.system - before.user - before.system,
        "peak_mb": peak_bytes / MB,
        "above_imports_mb": (peak_bytes - imports_bytes) / MB,
    }
    print(json.dumps({**figures, **own}))


if __name__ == "__main__":
    main()
