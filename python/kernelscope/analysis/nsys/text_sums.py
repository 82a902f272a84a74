"""Summaries by text where nearly every text is its own, as with PyTorch's ``emit_nvtx``."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from kernelscope.analysis.nsys.report import PART_ROWS
from kernelscope.analysis.nsys.statistics import in_order, spread

_BUCKET_ROWS = 1 << 20


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
    order = totals.arg_sort(descending=True)
    totals = totals.gather(order)
    begin = 0
    while begin < len(order) or begin == 0:
        # Rows of one total stay together, to be ordered by their texts.
        end = _end_of_total(totals, begin + PART_ROWS)
        chosen = order.slice(begin, end - begin)
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
        begin = end
        if not len(order):
            return


def _end_of_total(totals: pl.Series, at: int) -> int:
    """The first position from ``at`` on at which another total begins; totals fall."""
    if at >= len(totals):
        return len(totals)
    same = totals.slice(at) == totals.slice(at - 1, 1)
    return at + int(same.sum())


def _split(
    rows: pl.DataFrame, keys: Sequence[str], value: str, sums: Mapping[str, str], means: Mapping[str, str]
) -> tuple[pl.Series, pl.DataFrame]:
    """Positions of the rows that are a group by themselves, and the groups of several rows."""
    numbers = [name for name in ("op_id", "sequence") if name in keys]
    buckets = rows.height // _BUCKET_ROWS + 1
    bucket = pl.coalesce(*numbers, pl.lit(0)) % buckets if numbers and buckets > 1 else pl.lit(0)
    also = {name: pl.col(column).sum() for name, column in sums.items()}
    also |= {name: pl.col(column).mean() for name, column in means.items()}
    singles: list[pl.Series] = []
    several: list[pl.DataFrame] = []
    for number in range(buckets if numbers else 1):
        part = rows.with_row_index("_position")
        part = part.filter(bucket == number) if buckets > 1 and numbers else part
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
