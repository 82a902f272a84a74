"""Converts the tables and views of a trace for other tools."""

import os
from collections.abc import Sequence
from pathlib import Path

from kernelscope.analysis.ops.flame import METRICS, VIEWS, folded_stacks
from kernelscope.analysis.ranks.cluster import Source, one_trace
from kernelscope.errors import InvalidArgumentError
from kernelscope.report.files import filled_folder, write_text
from kernelscope.report.json_document import describe, dump
from kernelscope.report.perfetto.writing import write_perfetto
from kernelscope.trace import Trace

TARGETS = ("parquet", "arrow", "perfetto", "folded")
"""Targets of a conversion."""


def convert(source: Source, to: str | Sequence[str], out: str | os.PathLike[str]) -> list[Path]:
    """Writes a trace in each of the formats ``to``, and returns the written paths.

    ``parquet`` and ``arrow`` (Arrow IPC, equal to Feather) are folders with one file per table, and
    ``trace.json``. ``folded`` is a folder with one file per kind of stack and metric, for flame graphs (times
    in ns). ``perfetto`` is a file for ui.perfetto.dev: a protobuf if its name ends in ``.pftrace`` or
    ``.perfetto-trace``, also before ``.gz``, and otherwise JSON. With one format, ``out`` is the folder or
    file itself; with several, a folder with ``parquet``, ``arrow``, ``folded`` and ``perfetto.json``.

    ``source`` is a trace, or for ``perfetto`` also a list of traces, a trace of several ranks or a lake: the
    ranks are merged into one file, on the clock of :func:`kernelscope.analysis.clock_offsets`.

    Raises: InvalidArgumentError: a format is unknown, none is given, or there are several ranks and another
        format. OSError: it cannot be written.
    Example: ``ks.convert(trace, ["parquet", "perfetto"], "converted")``
    """
    targets = [to] if isinstance(to, str) else list(dict.fromkeys(to))
    unknown = [target for target in targets if target not in TARGETS]
    if unknown or not targets:
        raise InvalidArgumentError(
            f"the targets of a conversion are {', '.join(TARGETS)}, not {', '.join(unknown) or 'nothing'}"
        )
    trace = one_trace(source)
    if trace is None and targets != ["perfetto"]:
        raise InvalidArgumentError(f"several ranks are merged into perfetto alone, not {', '.join(targets)}")
    out = Path(out)
    if len(targets) > 1:
        out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for target in targets:
        path = out if len(targets) == 1 else out / ("perfetto.json" if target == "perfetto" else target)
        if target == "perfetto":
            write_perfetto(source, path)
        elif trace is not None:
            _write(trace, target, path)
        written.append(path)
    return written


def _write(trace: Trace, target: str, path: Path) -> None:
    if target == "folded":
        _write_folded(trace, path)
    else:
        _write_tables(trace, target, path)


def _write_tables(trace: Trace, target: str, path: Path) -> None:
    with filled_folder(path) as folder:
        write_text(folder / "trace.json", dump(describe(trace)))
        for name, frame in trace.tables.items():
            if target == "parquet":
                frame.write_parquet(folder / f"{name}.parquet")
            else:
                frame.write_ipc(folder / f"{name}.arrow")


def _write_folded(trace: Trace, path: Path) -> None:
    with filled_folder(path) as folder:
        for by in VIEWS:
            for metric in METRICS:
                stacks = folded_stacks(trace, by=by, metric=metric).select("stack", "value_ns")
                with (folder / f"{by}.{metric}.folded").open("w", encoding="utf-8", newline="\n") as file:
                    for part in stacks.iter_slices(1 << 16):
                        file.writelines(f"{stack} {value}\n" for stack, value in part.rows())
