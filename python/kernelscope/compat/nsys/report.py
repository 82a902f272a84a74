"""Structure of a report of ``nsys stats``, columns of summaries, and summation of few and many rows.

If PyTorch's ``emit_nvtx`` wrote the ranges, nearly every text is unique, and all texts would take too much
memory. So ordered rows and summaries by text are produced in parts.
"""

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
    """Number format of a column in nsys."""

    PLAIN = "unchanged"
    TENTHS = "with one decimal, halves away from zero"
    MEGABYTES = "bytes as millions with three decimals"
    TRIPLE = "three numbers, four columns each"


@dataclass(frozen=True, slots=True)
class Field:
    """A column: its heading in nsys, its name in the frame, and its format."""

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
    """Parses columns from texts such as ``Start (ns): start_ns, Name: name``.

    The heading determines the format.
    """
    pairs = [pair.split(":") for text in texts for pair in text.split(",")]
    return tuple(
        Field(heading.strip(), column.strip(), next(f for p, f in _FIGURES.items() if re.search(p, heading)))
        for heading, column in pairs
    )


@dataclass(frozen=True, slots=True)
class Question:
    """Options of a report."""

    by: tuple[str, ...] = ()
    """Columns that break down every row."""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arguments after the name, as in ``cuda_gpu_kern_sum:base``. An argument without a value has ``""``."""

    def has(self, name: str) -> bool:
        """Whether an argument was given."""
        return name in self.arguments


@dataclass(frozen=True, slots=True)
class Report:
    """A report: its title, its inputs, its columns, and the function that creates it."""

    name: str
    doc: str
    fields: tuple[Field, ...]
    build: Callable[[Trace, Question], pl.DataFrame | Iterator[pl.DataFrame]]
    """Creates the report: as a whole, or in parts if it has one row per event."""
    sources: tuple[str, ...]
    """Tables of nsys, at least one of which is needed; ``*`` matches any end of a name."""
    tables: Mapping[str, Sequence[str]]
    """Tables and columns of the trace that it uses."""
    by: tuple[str, ...] = ()
    """Columns by which its rows can be broken down."""
    arguments: tuple[str, ...] = ()
    """Names of its arguments."""
    only_launching: bool = False
    """Whether it uses only calls that launched GPU operations, and ranges around them."""
    kinds: tuple[str, ...] | None = None
    """Kinds of GPU operations whose number without a call is reported; null for all."""

    sample: Callable[[Trace, Question], pl.DataFrame] | None = None
    """Returns the single values of a trace that it summarises, for pooling several traces; null if that is
    impossible."""
    sample_columns: tuple[str, ...] = ("name", "dur_ns")
    """Columns of ``sample`` in addition to the breakdown: the keys of its rows, then the value."""

    linked: bool = True
    """Whether it uses links between its tables; if not, they are read one after the other."""

    def parts(self, trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
        """Returns the report in one or more frames. The first may be empty."""
        made = self.build(trace, question)
        # A report that is made part by part frees the trace before it is complete.
        del trace
        yield from (made,) if isinstance(made, pl.DataFrame) else made

    def fields_by(self, by: Sequence[str]) -> tuple[Field, ...]:
        """Returns its columns when broken down by ``by``."""
        return (*(BREAKDOWN[name] for name in by), *self.fields)


BREAKDOWN: Mapping[str, Field] = MappingProxyType(
    {
        "device": Field("Device", "device"),
        "stream": Field("Stream", "stream"),
        "process": Field("PID", "process"),
        "rank": Field("Rank", "rank"),
    }
)
"""Columns by which reports can be broken down."""

PART_ROWS = 1 << 15
"""Number of rows in a part of a report that has one row per event."""

GPU_BY = ("device", "stream", "process", "rank")
HOST_BY = ("process", "rank")


def selected(trace: Trace, table: pl.DataFrame, by: Sequence[str], *columns: str) -> pl.DataFrame:
    """Selects the columns of a table that a report needs, and the columns of its breakdown.

    They are selected before filtering, because a filter copies every column.
    """
    sources = {"process": pl.col("pid"), "rank": pl.lit(trace.meta.rank, pl.Int64)}
    broken = {name: sources.get(name, pl.col(name)) for name in by}
    return table.select(*(name for name in columns if name not in broken), **broken)


_SAMPLES_PER_PART = 64
_MOST_PARTS = 64
_BUCKET_ROWS = 1 << 20


def summary_headings(count: str) -> str:
    """Returns the headings of share, total, count and distribution of durations.

    ``count`` is the heading of the count.
    """
    total = f"Time (%): time_pct, Total Time (ns): total_ns, {count}: instances"
    return f"{total}, {distribution_headings('ns')}"


def distribution_headings(suffix: str, *, prefix: str = "", unit: str = "ns") -> str:
    """Returns the columns of :func:`distribution` for ``parse_fields``, with prefixed headings."""
    names = {"Avg": "mean", "Med": "median", "Min": "min", "Max": "max", "StdDev": "std"}
    return ", ".join(f"{prefix}{heading} ({unit}): {name}_{suffix}" for heading, name in names.items())


def distribution(value: pl.Expr, suffix: str) -> list[pl.Expr]:
    """Mean, median, minimum, maximum and standard deviation of a sample (0 for a single value).

    Nulls are not part of the sample. For an empty sample all but the deviation are null.
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
    """Total, count and :func:`distribution` of ``value`` by ``keys``, and the sums in ``also``.

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
    """Share, total, count and distribution of durations by ``keys``. Rows without a duration do not count.

    Columns: ``keys``, ``time_pct`` (of the total of all), ``total_ns``, ``instances``, ``mean_ns``,
        ``median_ns``, ``min_ns``, ``max_ns``, ``std_ns``.
    """
    return spread(frame, keys, "dur_ns", "ns").with_columns(time_pct=share("total_ns"))


def ordered_summary(
    frame: pl.DataFrame, by: Sequence[str], *keys: str, tied: Sequence[str] = ()
) -> pl.DataFrame:
    """Returns the :func:`summary` by ``by`` and ``keys``, largest total first.

    Equal totals are ordered by ``tied``, then by keys.
    """
    return in_order(summary(frame, [*by, *keys]), "total_ns", ascending=[*tied, *keys, *by])


def share(column: str) -> pl.Expr:
    """Percentage of the total; null where that is 0."""
    total = pl.col(column).sum()
    return pl.when(total != 0).then(100.0 * pl.col(column) / total)


def in_order(frame: pl.DataFrame, *keys: str, ascending: Sequence[str] = ()) -> pl.DataFrame:
    """Sorts by ``keys``, largest first, then by ``ascending``, nulls first; text by code points.

    No two rows agree in all of these columns: the sort is not stable, because that would cost several times
    as much.
    """
    texts = [
        pl.col(name).cast(pl.String) if frame.schema[name] == pl.Categorical else pl.col(name)
        for name in ascending
    ]
    greatest = [pl.col(name) for name in keys]
    flags = [*(True for _ in keys), *(False for _ in ascending)]
    return frame.sort([*greatest, *texts], descending=flags, nulls_last=flags)


def ordered_parts(column: pl.Series, *, descending: bool = False) -> Iterator[pl.Series]:
    """Yields positions of all rows in order of ``column``, part by part. Equal values stay together.

    Sorting all rows needs several times the memory of their keys. Here a sample determines the bounds of the
    parts, and each part is selected and sorted separately. Equal values are in order of their positions. The
    column has no nulls.
    """
    # Each part looks at all rows once, so there are not arbitrarily many.
    step = max(PART_ROWS, len(column) // _MOST_PARTS) // _SAMPLES_PER_PART
    sample = column.gather_every(step).sort()
    # The first part begins before every sample, the last ends behind it.
    bounds = sample.gather_every(_SAMPLES_PER_PART).unique().sort()[1:]
    part_of = bounds.search_sorted(column, side="right").cast(pl.UInt8)
    numbers = range(len(bounds) + 1)
    for number in reversed(numbers) if descending else numbers:
        chosen = (part_of == number).arg_true()
        part = pl.DataFrame({"position": chosen, "value": column.gather(chosen)})
        if len(part) or len(column) == 0:
            yield part.sort("value", descending=descending, maintain_order=True)["position"]
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
    """Yields the distribution of ``value`` by ``keys``, largest total first, part by part.

    A group with one row is that row: only its position is kept until its part is created, and only the texts
    of one part exist at a time. ``finish`` adds the columns ``ascending`` to a part, by which equal totals
    are ordered. ``sums`` and ``means`` map further columns to the values that they aggregate.

    Columns: ``keys``; ``total_ns``, ``instances``, the distribution and ``time_pct``; those of ``sums`` and
        ``means``; those added by ``finish``.
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
    """Divides the rows into approximately the given number of parts.

    Rows that agree in ``keys`` are in the same part.

    Texts differ because of numbers in them. Without numbers there are few texts, and one part.
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
