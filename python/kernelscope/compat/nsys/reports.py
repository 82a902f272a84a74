"""Every report by name, with functions that create it and read only the required parts of a file."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import polars as pl

from kernelscope.analysis.grouping import as_text
from kernelscope.compat.nsys import api_calls, gpu_work, libraries, nvtx, recipes, rules, unified_memory
from kernelscope.compat.nsys.names import TEXT_COLUMNS
from kernelscope.compat.nsys.report import Question, Report
from kernelscope.errors import InvalidArgumentError, did_you_mean
from kernelscope.reading import read, read_part
from kernelscope.trace import Trace
from kernelscope.units import format_ns

_MODULES = (gpu_work, api_calls, nvtx, unified_memory, libraries, rules, recipes)

REPORTS: Mapping[str, Report] = MappingProxyType(
    {report.name: report for module in _MODULES for report in module.REPORTS}
)
"""Every report by its name."""

OLD_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "apigpusum": "cuda_api_gpu_sum",
        "cudaapisum": "cuda_api_sum",
        "cudaapitrace": "cuda_api_trace",
        "gpukerngbsum": "cuda_gpu_kern_gb_sum",
        "gpukernsum": "cuda_gpu_kern_sum",
        "gpumemsizesum": "cuda_gpu_mem_size_sum",
        "gpumemtimesum": "cuda_gpu_mem_time_sum",
        "gpusum": "cuda_gpu_sum",
        "gputrace": "cuda_gpu_trace",
        "kernexecsum": "cuda_kern_exec_sum",
        "kernexectrace": "cuda_kern_exec_trace",
        "khrdebuggpusum": "opengl_khr_gpu_range_sum",
        "khrdebugsum": "opengl_khr_range_sum",
        "nvtxgpuproj": "nvtx_gpu_proj_trace",
        "nvtxkernsum": "nvtx_kern_sum",
        "nvtxppsum": "nvtx_pushpop_sum",
        "nvtxpptrace": "nvtx_pushpop_trace",
        "nvtxsesum": "nvtx_startend_sum",
        "nvtxsssum": "nvtx_startend_sum",
        "nvtxsum": "nvtx_sum",
        "openaccsum": "openacc_sum",
        "openmpevtsum": "openmp_sum",
        "osrtsum": "osrt_sum",
        "umcpupagefaults": "um_cpu_page_faults_sum",
        "unifiedmemory": "um_sum",
        "unifiedmemorytotals": "um_total_sum",
        "vulkanapisum": "vulkan_api_sum",
        "vulkanapitrace": "vulkan_api_trace",
        "vulkangpumarkersum": "vulkan_gpu_marker_sum",
        "vulkanmarkerssum": "vulkan_marker_sum",
    }
)
"""Names of reports in nsys before 2022, and their present names."""

# Columns of GPU work that it is broken down by.
_OF_GPU_WORK = {"device": "device", "stream": "stream", "process": "pid"}
# Where what ran on the host did: every row says it, whatever else is read of it.
_ON_HOST = ("launches", "ranges", "spans")
_PLACE = ("pid", "tid")


def nsys_report(trace: Trace, report: str, *, by: Sequence[str] = ()) -> pl.DataFrame:
    """A report of ``nsys stats`` or a rule of ``nsys analyze``, by its name there.

    ``report`` may contain arguments as there: ``cuda_gpu_kern_sum:base``, ``gpu_gaps:gap=100:rows=10``.
    ``by`` breaks the rows of a summary down by ``device``, ``stream``, ``process`` or ``rank``.

    Columns: the columns of ``by``, then those of the report, in its order. ``REPORTS[name].fields`` has the
        headings of nsys.
    Units: ns and bytes, not rounded. Order: as in nsys, and by name among rows that nsys leaves unordered.
    Raises: InvalidArgumentError: there is no such report, or it does not have such an argument or breakdown.
    Source: the user guide of Nsight Systems 2023.4; docs/nsys.md lists the differences.

    Example: ``nsys_report(trace, "cuda_gpu_kern_sum", by=["device"])``
    """
    wanted, question = parse(report, by=by)
    columns = [field.column for field in wanted.fields_by(question.by)]
    parts = [as_text(part.select(columns)) for part in wanted.parts(trace, question)]
    return pl.concat(parts)


def nsys_reports(traces: Mapping[str, Trace], report: str, *, by: Sequence[str] = ()) -> pl.DataFrame:
    """Rows of :func:`nsys_report` for each of several databases, concatenated.

    ``traces`` maps the names shown in the column ``file``, such as paths, to traces.

    Columns: ``file``, then those of :func:`nsys_report`.
    Order: of ``traces``, each in the order of its report.
    Raises: as :func:`nsys_report`; InvalidArgumentError: there is no trace.
    """
    if not traces:
        raise InvalidArgumentError("a report of several databases needs at least one")
    parts = [
        nsys_report(trace, report, by=by).select(pl.lit(name).alias("file"), pl.all())
        for name, trace in traces.items()
    ]
    return pl.concat(parts, how="vertical_relaxed")


def parse(text: str, *, by: Sequence[str] = ()) -> tuple[Report, Question]:
    """Parses the name of a report and its options from ``text``.

    Raises: InvalidArgumentError: there is no such report, or it does not have such an argument or breakdown.
    """
    # A name goes on to the end: those of kernels and operators have colons.
    front, is_named, chosen = text.partition(_NAME)
    name, *parts = front.split(":")
    report = REPORTS.get(OLD_NAMES.get(name, name))
    if report is None:
        meant = did_you_mean(name, REPORTS) or f"; the reports are {', '.join(REPORTS)}"
        raise InvalidArgumentError(f"there is no report {name!r}{meant}")
    arguments = dict(_pair(part) for part in parts) | ({"name": chosen} if is_named else {})
    for unknown in (key for key in arguments if key not in report.arguments):
        known = ", ".join(report.arguments) or "none"
        raise InvalidArgumentError(f"{name} has no argument {unknown!r}; it has {known}")
    for unknown in (key for key in by if key not in report.by):
        known = ", ".join(report.by) or "nothing"
        raise InvalidArgumentError(f"{name} cannot be broken down by {unknown!r}, only by {known}")
    return report, Question(by=tuple(dict.fromkeys(by)), arguments=arguments)


_NAME = ":name="


def _pair(part: str) -> tuple[str, str]:
    key, _, value = part.partition("=")
    return key, value


def tables_for(report: Report, question: Question) -> dict[str, list[str]]:
    """Returns the tables of the trace that a report uses, each with its columns or none for all."""
    tables = {name: list(columns) for name, columns in report.tables.items()}
    for name, column in (("base", "short_name"), ("mangled", "mangled_name")):
        if question.has(name):
            tables["gpu_ops"].append(column)
    if "gpu_ops" in tables:
        tables["gpu_ops"] += [_OF_GPU_WORK[name] for name in question.by if name in _OF_GPU_WORK]
    if question.has("nvtx-name"):
        tables["gpu_ops"].append("range_row")
        tables.setdefault("launches", []).append("range_row")
        tables["ranges"] = list(TEXT_COLUMNS)
        tables["extra_args"] = []
    # No columns stand for all of them.
    for name in _ON_HOST:
        if tables.get(name):
            tables[name] += _PLACE
    return tables


def read_for(
    path: str | os.PathLike[str],
    report: Report,
    question: Question,
    *,
    strict: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    **filters: Any,
) -> Trace:
    """Reads the part of the file at ``path`` that a report needs.

    ``filters`` are those of ``kernelscope.read``.

    Raises: as ``kernelscope.read``.
    """
    tables = tables_for(report, question)
    options: dict[str, Any] = {"strict": strict, "threads": threads, "progress": progress, **filters}
    if not (report.linked or question.has("nvtx-name")):
        return _read_one_by_one(path, tables, options)
    return read_part(path, tables=tables, only_launching=report.only_launching, **options)


def _read_one_by_one(
    path: str | os.PathLike[str], tables: dict[str, list[str]], options: dict[str, Any]
) -> Trace:
    """Reads tables one after the other: together they would be linked, which takes time and memory."""
    (first, *others) = tables
    trace = _with_only(read(path, tables={first: tables[first]}, **options), first, tables[first])
    for name in others:
        other = read(path, tables={name: tables[name]}, **options)
        found = pl.concat([trace.diagnostics, other.diagnostics]).unique(maintain_order=True)
        trace = replace(trace, diagnostics=found, **{name: getattr(other, name)})
        del other
    return trace


def _with_only(trace: Trace, table: str, columns: Sequence[str]) -> Trace:
    """The trace with null in the columns of a table that are not wanted."""
    frame: pl.DataFrame = getattr(trace, table)
    kept = set(columns or frame.columns)
    nothing = (
        pl.Series(name, [None], dtype=dtype).new_from_index(0, frame.height)
        for name, dtype in frame.schema.items()
    )
    narrow = [frame[empty.name] if empty.name in kept else empty for empty in nothing]
    return replace(trace, **{table: pl.DataFrame(narrow)})


def missing_reason(trace: Trace, report: Report) -> str | None:
    """Returns the reason why a database has no data for the report, or None.

    A table that was recorded but is empty is an answer, not missing data.
    """
    if trace.meta.format != "nsys":
        return None
    filled: Collection[str] = trace.meta.properties.get("tables", {})
    if any(fnmatchcase(table, source) for source in report.sources for table in filled):
        return None
    found = trace.diagnostics.filter(pl.col("source").cast(pl.String).is_in(report.sources))
    if (found["code"].cast(pl.String) == "captured_empty").any():
        return None
    messages = found["message"].cast(pl.String).to_list()
    why = messages[0] if messages else "The table is missing or empty."
    return f"{report.name}: {', '.join(report.sources)}: {why}"


def left_out_note(trace: Trace, report: Report) -> str | None:
    """Returns a note about GPU operations that are in no row, if there are any.

    Their call was not recorded.
    """
    if not report.only_launching:
        return None
    work, what = trace.gpu_ops, "GPU operations"
    if report.kinds is not None:
        work = work.filter(pl.col("kind").is_in(report.kinds))
        what = f"GPU operations ({', '.join(report.kinds)})"
    lost = work["launch_row"].null_count()
    if not lost:
        return None
    return f"{report.name}: {lost} of {work.height} {what} have no call in the recording"


def overhead_note(trace: Trace, report: Report) -> str | None:
    """Returns a note about profiler overhead that an idle rule counts as GPU operations, if there is any."""
    if report.name not in rules.COUNT_OVERHEAD:
        return None
    overhead = trace.spans.filter(pl.col("category") == "profiler_overhead")
    if overhead.is_empty():
        return None
    took = format_ns(int(overhead["dur_ns"].sum()))
    return f"{report.name}: {took} of profiler overhead count as GPU operations, as in NVIDIA's guide"
