"""Every report by its name; makes them of a trace, and reads of a file no more than one needs."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import polars as pl

from kernelscope.analysis.grouping import as_text
from kernelscope.compat.nsys import api_calls, gpu_work, nvtx, rules, unified_memory
from kernelscope.compat.nsys.names import TEXT_COLUMNS
from kernelscope.compat.nsys.report import Question, Report
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace, read, read_part

_MODULES = (gpu_work, api_calls, nvtx, unified_memory, rules)

REPORTS: Mapping[str, Report] = MappingProxyType(
    {report.name: report for module in _MODULES for report in module.REPORTS}
)
"""Every report by its name."""

# Columns of GPU work that it is broken down by.
_OF_GPU_WORK = {"device": "device", "stream": "stream", "process": "pid"}
# Where what ran on the host did: every row says it, whatever else is read of it.
_ON_HOST = ("launches", "ranges", "spans")
_PLACE = ("pid", "tid")


def nsys_report(trace: Trace, report: str, *, by: Sequence[str] = ()) -> pl.DataFrame:
    """A report of ``nsys stats`` or a rule of ``nsys analyze``, by its name there.

    ``report`` may carry arguments as there: ``cuda_gpu_kern_sum:base``, ``gpu_gaps:gap=100:rows=10``.
    ``by`` breaks the rows of a summary down by ``device``, ``stream``, ``process`` or ``rank``.

    Columns: those of ``by``, then those of the report, in its order; ``REPORTS[name].fields`` has the
        heading that nsys gives each.
    Units: ns and bytes; nothing is rounded.
    Order: as nsys orders the rows; where it leaves that open, by name.
    Raises: InvalidArgumentError: there is no such report, or it takes no such argument or breakdown.
    Source: the user guide of Nsight Systems 2023.4; docs/nsys.md has what differs.

    Example: ``nsys_report(trace, "cuda_gpu_kern_sum", by=["device"])``
    """
    wanted, question = parse(report, by=by)
    columns = [field.column for field in wanted.fields_by(question.by)]
    parts = [as_text(part.select(columns)) for part in wanted.parts(trace, question)]
    return pl.concat(parts)


def parse(text: str, *, by: Sequence[str] = ()) -> tuple[Report, Question]:
    """The report that ``text`` names, and what is asked of it.

    Raises: InvalidArgumentError: there is no such report, or it takes no such argument or breakdown.
    """
    name, *parts = text.split(":")
    report = REPORTS.get(name)
    if report is None:
        raise InvalidArgumentError(f"there is no report {name!r}; the reports are {', '.join(REPORTS)}")
    arguments = dict(_pair(part) for part in parts)
    for unknown in (key for key in arguments if key not in report.arguments):
        known = ", ".join(report.arguments) or "none"
        raise InvalidArgumentError(f"{name} takes no argument {unknown!r}; it takes {known}")
    for unknown in (key for key in by if key not in report.by):
        known = ", ".join(report.by) or "nothing"
        raise InvalidArgumentError(f"{name} cannot be broken down by {unknown!r}, only by {known}")
    return report, Question(by=tuple(dict.fromkeys(by)), arguments=arguments)


def _pair(part: str) -> tuple[str, str]:
    key, _, value = part.partition("=")
    return key, value


def read_for(
    path: str | os.PathLike[str],
    report: Report,
    question: Question,
    *,
    strict: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Trace:
    """Reads of the file at ``path`` what a report needs, and nothing else of a database.

    Raises: what ``kernelscope.read`` raises.
    """
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
    options: dict[str, Any] = {"strict": strict, "threads": threads, "progress": progress}
    if not (report.linked or question.has("nvtx-name")):
        return _read_one_by_one(path, tables, options)
    return read_part(path, tables=tables, kinds=report.kinds, only_launching=report.only_launching, **options)


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
    """Why the report cannot be made from a database, if it cannot: nothing of it was recorded.

    A table that the recording was set up for and that stayed empty is an answer, not a lack.
    """
    if trace.meta.format != "nsys":
        return None
    filled: Collection[str] = trace.meta.properties.get("tables", {})
    if any(source in filled for source in report.sources):
        return None
    found = trace.diagnostics.filter(pl.col("source").cast(pl.String).is_in(report.sources))
    if (found["code"].cast(pl.String) == "captured_empty").any():
        return None
    messages = found["message"].cast(pl.String).to_list()
    why = messages[0] if messages else "The database has no such table."
    return f"{report.name}: {', '.join(report.sources)}: {why}"


def left_out_note(trace: Trace, report: Report) -> str | None:
    """How much GPU work is in no row because its call was not recorded, if there is any."""
    if not report.only_launching:
        return None
    lost = trace.gpu_ops["launch_row"].null_count()
    if not lost:
        return None
    what = "pieces of GPU work" if report.kinds is None else f"GPU operations ({', '.join(report.kinds)})"
    return f"{report.name}: of {trace.gpu_ops.height} {what} {lost} have no call in the recording"
