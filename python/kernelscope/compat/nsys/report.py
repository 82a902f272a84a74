"""What a report of ``nsys stats`` is: its name, what it reads, its columns, and how it is made."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

import polars as pl

from kernelscope.trace import Trace

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMORY = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"


class Figure(Enum):
    """How nsys writes the values of a column."""

    PLAIN = "as they are"
    TENTHS = "with one decimal, halves away from zero"
    MEGABYTES = "bytes as millions with three decimals"
    TRIPLE = "three numbers, four columns each"


@dataclass(frozen=True, slots=True)
class Field:
    """A column: its heading in nsys, its name in the frame, and how it is written."""

    heading: str
    column: str
    figure: Figure = Figure.PLAIN


# What a heading says of its values; the first that matches counts.
_FIGURES = {
    r"\(MB": Figure.MEGABYTES,
    "XYZ": Figure.TRIPLE,
    r"%|Avg|Med|StdDev": Figure.TENTHS,
    "": Figure.PLAIN,
}


def parse_fields(*texts: str) -> tuple[Field, ...]:
    """The columns of texts such as ``Start (ns): start_ns, Name: name``; a heading says how values look."""
    pairs = [pair.split(":") for text in texts for pair in text.split(",")]
    return tuple(
        Field(heading.strip(), column.strip(), next(f for p, f in _FIGURES.items() if re.search(p, heading)))
        for heading, column in pairs
    )


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a report besides its name."""

    by: tuple[str, ...] = ()
    """Columns that every row is broken down by."""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arguments behind the name, as in ``cuda_gpu_kern_sum:base``; a bare one has the value ``""``."""

    def has(self, name: str) -> bool:
        """Whether an argument was given."""
        return name in self.arguments


@dataclass(frozen=True, slots=True)
class Report:
    """A report: what it is called, what it needs, what it has, and the function that makes it."""

    name: str
    doc: str
    fields: tuple[Field, ...]
    build: Callable[[Trace, Question], pl.DataFrame | Iterator[pl.DataFrame]]
    """Makes the report: as a whole, or part by part where it has a row per event."""
    sources: tuple[str, ...]
    """Tables of nsys of which it needs any."""
    tables: Mapping[str, Sequence[str]]
    """Tables and columns of the trace that it looks at."""
    by: tuple[str, ...] = ()
    """What its rows can be broken down by."""
    arguments: tuple[str, ...] = ()
    """Names of the arguments it takes."""
    kinds: tuple[str, ...] | None = None
    """Kinds of GPU work that it looks at; null for all."""
    only_launching: bool = False
    """Whether it looks only at calls that launched GPU work, and ranges around them."""

    linked: bool = True
    """Whether it looks at links between its tables; if not, they are read one after the other."""

    def parts(self, trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
        """The report in one or more frames, of which the first may be empty."""
        made = self.build(trace, question)
        # What is made part by part lets go of the trace as it goes.
        del trace
        yield from (made,) if isinstance(made, pl.DataFrame) else made

    def fields_by(self, by: Sequence[str]) -> tuple[Field, ...]:
        """Its columns when it is broken down by ``by``."""
        return (*(BREAKDOWN[name] for name in by), *self.fields)


BREAKDOWN: Mapping[str, Field] = MappingProxyType(
    {
        "device": Field("Device", "device"),
        "stream": Field("Stream", "stream"),
        "process": Field("PID", "process"),
        "rank": Field("Rank", "rank"),
    }
)
"""What reports can be broken down by."""

PART_ROWS = 1 << 15
"""Rows of a part of a report that has a row per event."""

GPU_BY = ("device", "stream", "process", "rank")
HOST_BY = ("process", "rank")


def selected(trace: Trace, table: pl.DataFrame, by: Sequence[str], *columns: str) -> pl.DataFrame:
    """The columns of a table that a report needs, and those it is broken down by.

    Selected before anything is filtered: a filter copies every column there is.
    """
    sources = {"process": pl.col("pid"), "rank": pl.lit(trace.meta.rank, pl.Int64)}
    broken = {name: sources.get(name, pl.col(name)) for name in by}
    return table.select(*(name for name in columns if name not in broken), **broken)
