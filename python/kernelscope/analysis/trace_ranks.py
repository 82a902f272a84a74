"""Which ranks traces are of: as a rule one each, but a database of a machine holds several."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from kernelscope.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_RANK_IN_NAME = re.compile(r"rank[-_.]?(\d+)", re.IGNORECASE)


class Part(NamedTuple):
    """What a trace has of one rank."""

    trace: "Trace"
    rank: int
    process: tuple[int, int | None] | None
    """Process and device of the rank, if the trace has several; null for the whole trace."""


def parts_of(traces: Sequence["Trace"]) -> list[Part]:
    """The ranks of each trace.

    A trace's rank is what is recorded, else what its file's name says, else its place in the list. A trace of
    unknown rank in which several processes communicate, as in a database of all GPUs of a machine, has a rank
    for each of these, numbered in order of process and device after the ranks of the traces before.

    Raises: InvalidArgumentError: two traces are of one rank.
    """
    parts: list[Part] = []
    for trace in traces:
        free = max((part.rank for part in parts), default=-1) + 1
        named = _RANK_IN_NAME.search(PurePath(trace.meta.path).name)
        known = trace.meta.rank if trace.meta.rank is not None else int(named[1]) if named else None
        processes = _communicating(trace) if known is None else []
        if len(processes) > 1:
            parts += [Part(trace, free + place, process) for place, process in enumerate(processes)]
        else:
            parts.append(Part(trace, free if known is None else known, None))
    _refuse_doubles(parts)
    return parts


def _communicating(trace: "Trace") -> list[tuple[int, int | None]]:
    """The processes that communicate, each with its device."""
    work = trace.gpu_ops.filter(
        pl.col("is_communication").fill_null(value=False) & pl.col("pid").is_not_null()
    )
    return work.select("pid", "device").unique().sort("pid", "device").rows()


def _refuse_doubles(parts: Sequence[Part]) -> None:
    first: dict[int, Part] = {}
    for part in parts:
        other = first.setdefault(part.rank, part)
        if other is not part:
            paths = other.trace.meta.path, part.trace.meta.path
            raise InvalidArgumentError(f"{paths[0]} and {paths[1]} are both of rank {part.rank}")


def tables_of(part: Part) -> dict[str, pl.LazyFrame]:
    """The tables of a rank, in which ``rank`` is a column.

    Of one of several processes those that are about the process; steps, whose parts count the work of all
    processes, are left out.
    """
    number = pl.lit(part.rank, dtype=pl.Int64).alias("rank")
    tables = {name: frame.lazy() for name, frame in part.trace.tables.items()}
    if part.process is not None:
        pid, device = part.process
        own = pl.col("pid") == pid
        tables["gpu_ops"] = tables["gpu_ops"].filter(own & pl.col("device").eq_missing(device))
        tables["ops"] = tables["ops"].filter(own)
        tables["steps"] = tables["steps"].clear()
    return {name: frame.with_columns(number) for name, frame in tables.items()}
