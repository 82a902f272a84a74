"""Rows in order, and summaries by text, made part by part: the whole as text would take too much memory.

Nearly every text is its own where PyTorch's ``emit_nvtx`` wrote the ranges.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from kernelscope.compat.nsys.report import PART_ROWS
from kernelscope.compat.nsys.statistics import in_order, spread

_SAMPLES_PER_PART = 64
_MOST_PARTS = 64
_BUCKET_ROWS = 1 << 20


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
