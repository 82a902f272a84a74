"""The columns that every summary of nsys has, and how they are made of few rows and of many.

Where PyTorch's ``emit_nvtx`` wrote the ranges nearly every text is its own, and the whole as text would take
too much memory: rows in order and summaries by text come part by part.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from kernelscope.compat.nsys.report import PART_ROWS

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

    Together the columns tell every row from the others: the sort is not stable, which would cost
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

    A sort of all rows holds several times their keys. Here a sample tells where parts end, and each is
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
