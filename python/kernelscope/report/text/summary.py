"""Properties of a trace: the head of a report, and the summary of ``kernelscope info``."""

import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any, NamedTuple, cast

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from kernelscope.analysis.gpu.devices import UNNAMED, working_devices
from kernelscope.meta import TraceMeta, rank_text
from kernelscope.report.findings import findings
from kernelscope.report.json_document import dump, listed
from kernelscope.report.names import safe
from kernelscope.report.text.cells import Shape, plain, plain_console
from kernelscope.schema import TABLES
from kernelscope.trace import Trace
from kernelscope.units import format_bytes, format_count, format_ns

# Older recorders store epoch time in the stamps themselves; 10**18 ns is the year 2001.
_EPOCH_STAMP_NS = 10**18
_ABBREVIATED = ("cuda", "hip", "nccl", "cupti")


def header(trace: Trace, shape: Shape) -> RenderableType:
    """Yields the file, its profiler, and the machine."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim" if shape.color else "")
    grid.add_column(overflow="fold")
    for name, value in trace_facts(trace).items():
        if value:
            grid.add_row(f"  {name}", plain(safe(value), shape))
    path = plain(safe(trace.meta.path), shape)
    path.stylize("bold")
    path.no_wrap, path.overflow = False, "fold"
    return Group(path, grid)


def trace_facts(trace: Trace) -> dict[str, str]:
    """Returns the properties of the file by name; an empty text is unknown."""
    meta = trace.meta
    events = f"{format_count(meta.kept)} of {format_count(meta.seen)} read"
    return {
        "format": format_text(meta),
        "events": events + (f", {format_count(meta.dropped)} dropped" if meta.dropped else ""),
        "recorder": meta.recorder or "",
        "rank": _rank(meta) or "",
        "host": meta.host or "",
        "GPUs": _gpus(trace),
        "versions": versions_text(meta),
    }


def format_text(meta: TraceMeta) -> str:
    """Returns the format of the file and its size, read and stored."""
    size = format_bytes(meta.content_bytes)
    if meta.compression != "none":
        size += f" ({format_bytes(meta.file_bytes)} of {meta.compression})"
    return f"{meta.format}, {size}"


def versions_text(meta: TraceMeta) -> str:
    """Returns the versions that the profiler recorded, in one line."""
    return ", ".join(_version(key, str(value)) for key, value in meta.versions.items())


def _version(key: str, value: str) -> str:
    """A version as people write it; CUDA's 12090 is 12.9 and HIP's 60443483 is 6.4.43483."""
    name = key.removesuffix("_version").replace("_", " ")
    if value.isdecimal() and key.startswith("cuda_"):
        value = f"{int(value) // 1000}.{int(value) % 1000 // 10}"
    elif value.isdecimal() and key.startswith("hip_"):
        value = f"{int(value) // 10**7}.{int(value) // 10**5 % 100}.{int(value) % 10**5}"
    vendor, gap, rest = name.partition(" ")
    return f"{vendor.upper() if vendor in _ABBREVIATED else vendor}{gap}{rest} {value}"


def _gpus(trace: Trace) -> str:
    """The GPUs that worked, those of one name counted together."""
    working = working_devices(trace)
    kinds = Counter(str(row.get("name") or UNNAMED) for row in working.values())
    found = ", ".join(f"{number} x {name}" for name, number in kinds.items())
    described = trace.devices["name"].drop_nulls().len()
    return found + (f" (of {described} in the machine)" if found and described > len(working) else "")


class Verdict(NamedTuple):
    """A law that holds for any trace, and its violations here, if any.

    ``of_file`` marks a fault of the file.
    """

    law: str
    faults: list[str]
    of_file: bool = False


def to_json(trace: Trace, verdicts: list[Verdict] | None = None) -> str:
    """Returns the summary as one JSON object, with the results of the laws if they were checked."""
    document: dict[str, Any] = {
        "trace": asdict(trace.meta),
        "tables": {name: frame.height for name, frame in trace.tables.items()},
        **listed(
            {
                "devices": trace.devices,
                "steps": trace.steps.select("step", "name", "start_ns", "total_ns"),
                "diagnostics": trace.diagnostics,
            }
        ),
    }
    if verdicts is not None:
        document["laws"] = [verdict._asdict() for verdict in verdicts]
    return dump(document)


def print_text(trace: Trace, verdicts: list[Verdict] | None = None) -> None:
    """Prints the summary, as wide as the terminal, and the results of the laws if they were checked."""
    console = plain_console(shutil.get_terminal_size((100, 24)).columns)
    # rich itself would end the program where nobody reads on.
    with console.capture() as captured:
        console.print(safe(trace.meta.path), style="bold", soft_wrap=True)
        console.print(_grid(_long_facts(trace)))
        console.print(_counts(trace))
        if trace.diagnostics.height:
            console.print(_findings(trace))
        else:
            console.print("Nothing was repaired and nothing was lost.")
        for law, faults, of_file in verdicts or ():
            broken, style = ("FILE", "yellow") if of_file else ("BROKEN", "red")
            console.print(f"{broken if faults else 'holds':<8}{law}", style=style if faults else None)
            for fault in faults:
                console.print(f"        {safe(fault)}")
    sys.stdout.write(captured.get())


def _long_facts(trace: Trace) -> dict[str, str | None]:
    meta = trace.meta
    return {
        "format": format_text(meta),
        "recorder": meta.recorder,
        "recorded": _recorded(trace),
        "ranks" if meta.ranks and meta.rank is None else "rank": _rank(meta),
        "host": meta.host,
        "GPUs": _of_ranks(trace, _devices),
        "steps": _of_ranks(trace, _steps),
        "options": ", ".join(name for name, on in meta.flags.items() if on) or None,
        "versions": versions_text(meta) or None,
        "events": f"{format_count(meta.seen)} in the file = {format_count(meta.kept)} kept"
        f" + {format_count(meta.dropped)} dropped",
    }


def _of_ranks(trace: Trace, fact: Callable[[Trace], str | None]) -> str | None:
    """A fact about a trace, or about each of several ranks; those that agree stand together."""
    if not trace.parts:
        return fact(trace)
    facts = Counter(fact(part) or "none" for part in trace.parts)
    return "\n".join(f"{format_count(ranks)} ranks: {text}" for text, ranks in facts.items())


def _grid(facts: Mapping[str, str | None]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        if value is not None:
            grid.add_row(name, "\n".join(map(safe, value.splitlines())))
    return grid


def _counts(trace: Trace) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("table", no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("a row is", style="dim")
    for name, frame in trace.tables.items():
        if frame.height and name != "diagnostics":
            table.add_row(name, format_count(frame.height), re.split(r"[.;:](?: |$)", TABLES[name].doc)[0])
    return table


def _findings(trace: Trace) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("finding", no_wrap=True)
    table.add_column("severity", no_wrap=True)
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("where", overflow="fold")
    table.add_column("description", style="dim")
    for finding in findings(trace):
        style = {"lost": "red", "repaired": "yellow"}.get(finding.severity, "")
        count, place = format_count(finding.count), finding.place or "-"
        table.add_row(finding.code, finding.severity, count, place, finding.message, style=style)
    return table


def _recorded(trace: Trace) -> str | None:
    extent = trace.extent()
    if extent is None:
        return None
    start, end = extent
    took = format_ns(end - start)
    epoch = epoch_ns(trace, start)
    if epoch is None:
        return took
    when = datetime.fromtimestamp(epoch // 10**9, tz=timezone.utc)
    return f"{took} from {when:%Y-%m-%d %H:%M:%S} UTC"


def epoch_ns(trace: Trace, time_ns: int) -> int | None:
    """Returns a time of the trace's clock as ns since 1970, or None if unknown."""
    base = trace.meta.base_time_ns
    if base is None:
        return time_ns if time_ns >= _EPOCH_STAMP_NS else None
    return base + time_ns


def _rank(meta: TraceMeta) -> str | None:
    if meta.ranks:
        if meta.rank is not None:
            return f"{rank_text(meta, meta.rank)}, one of {len(meta.ranks)} in the file"
        return f"{', '.join(rank_text(meta, rank) for rank in meta.ranks)}, merged into the file"
    if meta.rank is None:
        return None
    parts = [f"{meta.rank} of {meta.world_size}" if meta.world_size else str(meta.rank)]
    parts += [f"({meta.backend})"] if meta.backend else []
    return " ".join(parts)


def _devices(trace: Trace) -> str | None:
    used = set(trace.gpu_ops["device"].drop_nulls().unique().to_list())
    kinds: dict[str, list[int]] = {}
    for row in trace.devices.iter_rows(named=True):
        memory = row["total_memory_bytes"]
        text = row["name"] or "unnamed"
        # Cards of one type differ by a few MiB.
        text += f", {memory / 2**30:.0f} GiB" if memory else ""
        text += f", {row['sm_count']} SMs" if row["sm_count"] else ""
        kinds.setdefault(text, []).append(row["device"])
    lines = [f"{len(ids)} x {text}" for text, ids in kinds.items()]
    if not lines:
        return None
    busy = ", ".join(f"GPU {device}" for device in sorted(used)) or "none"
    return "\n".join([*lines, f"with operations in this trace: {busy}"])


def _steps(trace: Trace) -> str | None:
    named = trace.steps.drop_nulls("step")
    if not named.height:
        return "none marked"
    first, last = named["name"][0], named["name"][-1]
    mean = cast(float, named["total_ns"].mean())
    span = first if named.height == 1 else f"{first} to {last}"
    return f"{named.height} ({span}), {format_ns(mean)} on average"
