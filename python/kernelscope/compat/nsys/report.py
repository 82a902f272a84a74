"""What a report of ``nsys stats`` is, the columns that summaries have, and how few rows and many are summed.

Where PyTorch's ``emit_nvtx`` wrote the ranges nearly every text is its own, and the whole as text would take
too much memory: rows in order and summaries by text come part by part.
"""

import itertools
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
    r"%|Avg|Med|StdDev|\bQ[13]\b": Figure.TENTHS,
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
    """Tables of nsys of which it needs any; ``*`` stands for any end of a name."""
    tables: Mapping[str, Sequence[str]]
    """Tables and columns of the trace that it looks at."""
    by: tuple[str, ...] = ()
    """What its rows can be broken down by."""
    arguments: tuple[str, ...] = ()
    """Names of the arguments it takes."""
    only_launching: bool = False
    """Whether it looks only at calls that launched GPU work, and ranges around them."""
    kinds: tuple[str, ...] | None = None
    """Kinds of GPU work of which it says how much has no call; null for all."""

    sample: Callable[[Trace, Question], pl.DataFrame] | None = None
    """The single values that it sums up, of a trace, which several traces can share; null if they cannot."""
    sample_columns: tuple[str, ...] = ("name", "dur_ns")
    """Columns of ``sample`` beside those it is broken down by: the keys of its rows, last the value."""

    linked: bool = True
    """Whether it looks at links between its tables; if not, they are read one after the other."""

    def parts(self, trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
        """The report in one or more frames, of which the first may be empty."""
        made = self.build(trace, question)
        # A report that is made part by part frees the trace before it is complete.
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


_SAMPLES_PER_PART = 64
_MOST_PARTS = 64
_BUCKET_ROWS = 1 << 20


def summary_headings(count: str) -> str:
    """Share, total, count and distribution of durations; ``count`` is the heading of the count."""
    total = f"Time (%): time_pct, Total Time (ns): total_ns, {count}: instances"
    return f"{total}, {distribution_headings('ns')}"


def distribution_headings(suffix: str, *, prefix: str = "", unit: str = "ns") -> str:
    """The columns of :func:`distribution` for ``parse_fields``; ``prefix`` begins their headings."""
    names = {"Avg": "mean", "Med": "median", "Min": "min", "Max": "max", "StdDev": "std"}
    return ", ".join(f"{prefix}{heading} ({unit}): {name}_{suffix}" for heading, name in names.items())


def distribution(value: pl.Expr, suffix: str) -> list[pl.Expr]:
    """Mean, median, least, greatest and standard deviation of a sample, which of one value is 0.

    Values that are null are no part of the sample; of an empty one all but the deviation is null.
    """
    count = value.count()
    return [
        pl.when(count > 0).then(value.sum() / count).alias(f"mean_{suffix}"),
        value.median().alias(f"median_{suffix}"),
        value.min().alias(f"min_{suffix}"),
        value.max().alias(f"max_{suffix}"),
        pl.when(count <= 1).then(0.0).otherwise(value.std()).alias(f"std_{suffix}"),
    ]


def spread(
    frame: pl.DataFrame, keys: Sequence[str], value: str, suffix: str, **also: pl.Expr
) -> pl.DataFrame:
    """Total, count and :func:`distribution` of ``value`` by ``keys``, and what ``also`` adds up.

    Columns: ``keys``, ``total_<suffix>``, ``instances``, the distribution, and those of ``also``.
    """
    number = pl.col(value)
    frame = frame.filter(number.is_not_null()) if frame[value].null_count() else frame
    return frame.group_by(keys).agg(
        number.sum().alias(f"total_{suffix}"),
        pl.len().cast(pl.Int64).alias("instances"),
        *distribution(number, suffix),
        **also,
    )


def summary(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Share, total, count and distribution of durations by ``keys``; rows without one do not count.

    Columns: ``keys``, ``time_pct`` (of the total of all), ``total_ns``, ``instances``, ``mean_ns``,
        ``median_ns``, ``min_ns``, ``max_ns``, ``std_ns``.
    """
    return spread(frame, keys, "dur_ns", "ns").with_columns(time_pct=share("total_ns"))


def ordered_summary(
    frame: pl.DataFrame, by: Sequence[str], *keys: str, tied: Sequence[str] = ()
) -> pl.DataFrame:
    """The :func:`summary` by ``by`` and ``keys``, greatest total first, equal ones by ``tied``, then keys."""
    return in_order(summary(frame, [*by, *keys]), "total_ns", ascending=[*tied, *keys, *by])


def share(column: str) -> pl.Expr:
    """Percentage of the total; null where that is 0."""
    total = pl.col(column).sum()
    return pl.when(total != 0).then(100.0 * pl.col(column) / total)


def in_order(frame: pl.DataFrame, *keys: str, ascending: Sequence[str] = ()) -> pl.DataFrame:
    """Sorted by ``keys``, greatest first, then by ``ascending``, nulls first; text by its characters.

    No two rows agree in all of these columns: the sort is not stable, which would cost
    several times as much.
    """
    texts = [
        pl.col(name).cast(pl.String) if frame.schema[name] == pl.Categorical else pl.col(name)
        for name in ascending
    ]
    greatest = [pl.col(name) for name in keys]
    flags = [*(True for _ in keys), *(False for _ in ascending)]
    return frame.sort([*greatest, *texts], descending=flags, nulls_last=flags)


def ordered_parts(column: pl.Series, *, descending: bool = False) -> Iterator[pl.Series]:
    """Positions of all rows in order of ``column``, part by part; equal values stay together.

    A sort of all rows holds several times their keys. Here a sample says where parts end, and each is
    found and sorted by itself. Equal values are in order of their positions; the column has no nulls.
    """
    # Each part looks at all rows once, so there are not arbitrarily many.
    step = max(PART_ROWS, len(column) // _MOST_PARTS) // _SAMPLES_PER_PART
    sample = column.gather_every(step).sort()
    bounds = sample.gather_every(_SAMPLES_PER_PART).unique().sort()
    # The first part begins before every sample, the last ends behind it.
    windows = [None, *bounds.to_list()[1:], None]
    pairs = list(itertools.pairwise(windows))
    for low, high in reversed(pairs) if descending else pairs:
        inside = pl.repeat(value=True, n=len(column), eager=True)
        if low is not None:
            inside &= column >= low
        if high is not None:
            inside &= column < high
        chosen = inside.arg_true()
        part = pl.DataFrame({"position": chosen, "value": column.gather(chosen)})
        if len(part) or len(column) == 0:
            yield part.sort("value", "position", descending=[descending, False])["position"]
        if len(column) == 0:
            return


def sums_by_text(
    rows: pl.DataFrame,
    keys: Sequence[str],
    value: str,
    finish: Callable[[pl.DataFrame], pl.DataFrame],
    *,
    ascending: Sequence[str],
    sums: Mapping[str, str] | None = None,
    means: Mapping[str, str] | None = None,
) -> Iterator[pl.DataFrame]:
    """The distribution of ``value`` by ``keys``, greatest total first, part by part.

    A group of one row is that row: only its position is held until its part is made, and only the
    texts of a part exist at a time. ``finish`` adds to a part the columns ``ascending``, by which
    equal totals are ordered. ``sums`` and ``means`` are further columns and what they add up.

    Columns: ``keys``; ``total_ns``, ``instances``, the distribution and ``time_pct``; those of ``sums``
        and ``means``; what ``finish`` adds.
    """
    rows = rows.filter(pl.col(value).is_not_null()) if rows[value].null_count() else rows
    grand_total = rows[value].sum()
    singles, several = _split(rows, keys, value, sums or {}, means or {})
    totals = pl.concat([rows[value].gather(singles), several["total_ns"]])
    # Rows of one total stay together, to be ordered by their texts.
    for chosen in ordered_parts(totals, descending=True):
        alone, common = chosen.filter(chosen < len(singles)), chosen.filter(chosen >= len(singles))
        part = pl.concat(
            [
                _as_groups(rows[singles.gather(alone)], keys, value, sums or {}, means or {}),
                several[common - len(singles)],
            ],
            how="diagonal_relaxed",
        )
        share = 100.0 * pl.col("total_ns") / grand_total
        part = part.with_columns(time_pct=share if grand_total else pl.lit(None, pl.Float64))
        yield in_order(finish(part), "total_ns", ascending=ascending)


def in_buckets(rows: pl.DataFrame, keys: Sequence[str], buckets: int) -> Iterator[pl.DataFrame]:
    """The rows in about so many parts; those that agree in ``keys`` are in one.

    What makes texts differ are numbers in them; where they have none there are few texts, and one part.
    """
    numbers = [name for name in ("op_id", "sequence") if name in keys]
    if not numbers or buckets < 2:
        yield rows
        return
    bucket = pl.coalesce(*numbers, pl.lit(0)) % buckets
    for number in range(buckets):
        yield rows.filter(bucket == number)


def _split(
    rows: pl.DataFrame, keys: Sequence[str], value: str, sums: Mapping[str, str], means: Mapping[str, str]
) -> tuple[pl.Series, pl.DataFrame]:
    """Positions of the rows that are a group by themselves, and the groups of several rows."""
    also = {name: pl.col(column).sum() for name, column in sums.items()}
    also |= {name: pl.col(column).mean() for name, column in means.items()}
    singles: list[pl.Series] = []
    several: list[pl.DataFrame] = []
    buckets = rows.height // _BUCKET_ROWS + 1
    for part in in_buckets(rows.with_row_index("_position"), keys, buckets):
        counts = part.group_by(keys).agg(pl.len().alias("_count"), pl.col("_position").first())
        singles.append(counts.filter(pl.col("_count") == 1)["_position"])
        common = counts.filter(pl.col("_count") > 1).select(keys)
        del counts
        if common.height:
            grouped = part.join(common, on=keys, how="semi", nulls_equal=True)
            several.append(spread(grouped, keys, value, "ns", **also))
    empty = spread(rows.head(0), keys, value, "ns", **also)
    return pl.concat(singles).sort(), pl.concat([empty, *several])


def _as_groups(
    rows: pl.DataFrame, keys: Sequence[str], value: str, sums: Mapping[str, str], means: Mapping[str, str]
) -> pl.DataFrame:
    """Rows as groups of one."""
    number = pl.col(value)
    alone = {f"{name}_ns": number for name in ("total", "min", "max")}
    alone |= {f"{name}_ns": number.cast(pl.Float64) for name in ("mean", "median")}
    also = {name: pl.col(column) for name, column in sums.items()}
    also |= {name: pl.col(column).cast(pl.Float64) for name, column in means.items()}
    one = pl.lit(1, pl.Int64)
    return rows.select(*keys, instances=one, std_ns=pl.lit(0.0), **alone, **also)
