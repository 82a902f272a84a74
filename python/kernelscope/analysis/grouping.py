"""Groups rows, summarises the values of each group, and gathers rows by number."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

ON_TRACKS = ("gpu_ops", "ops", "launches", "python", "ranges")
"""Tables whose events are on threads or streams."""


def check_by(by: str | Sequence[str], known: Iterable[str]) -> list[str]:
    """Returns the columns of ``by`` as a list.

    Raises: InvalidArgumentError: ``by`` is empty, or names an unknown column or one twice.
    """
    columns = [by] if isinstance(by, str) else list(by)
    allowed = set(known)
    unknown = [c for c in columns if c not in allowed]
    if unknown:
        raise InvalidArgumentError(
            f"cannot group by {', '.join(unknown)}; possible are {', '.join(sorted(allowed))}"
        )
    if not columns or len(set(columns)) != len(columns):
        raise InvalidArgumentError("by= needs one or more different columns")
    return columns


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Converts categories to plain text, so that a result can be joined, sorted and written anywhere."""
    return frame.with_columns_seq(pl.col(pl.Categorical).cast(pl.String))


def size_text(column: str) -> pl.Expr:
    """Returns the three numbers of a launch size as text, such as ``[80, 1, 1]``."""
    return pl.format("[{}, {}, {}]", *(pl.col(column).arr.get(axis) for axis in range(3))).alias(column)


def sizes_as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the frame with launch sizes as text, for formats without lists."""
    sizes = (name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Array))
    return frame.with_columns(size_text(name) for name in sizes)


def by_name(frame: pl.DataFrame, **flags: pl.Expr) -> pl.DataFrame:
    """Adds columns that depend only on ``name``, evaluated once per distinct name.

    Each expression refers to the text of the name as column ``text``.
    """
    names = frame["name"].unique()
    decided = pl.DataFrame({"name": names, "text": names.cast(pl.String)}).select("name", **flags)
    return frame.join(decided, on="name", how="left", nulls_equal=True, maintain_order="left")


class Classes(NamedTuple):
    """``of`` has the class of each row: a position in ``keys``, which has one row per class."""

    of: pl.Series
    keys: pl.DataFrame

    def spread(self, values: pl.Series) -> pl.Series:
        """Returns the value of the class of each row."""
        return values[self.of]


def classes_of(keys: pl.DataFrame) -> Classes:
    """Returns the classes of the rows of ``keys`` with equal values in all columns.

    They are in order of first occurrence.
    """
    columns = [codes(column) for column in keys]
    # Columns without a value divide nothing, and most optional ones have none.
    known = [column for column in columns if column.null_count() < column.len()]
    of, first = _traceparse.divide_rows(pl.DataFrame(known or columns[:1]))
    return Classes(taken(of, "class"), keys[taken(first, "first")])


def codes(values: pl.Series) -> pl.Series:
    """Returns numbers that are equal if ``values`` are, and null if these are."""
    if values.dtype == pl.String:
        values = values.cast(pl.Categorical)
    if isinstance(values.dtype, pl.Categorical | pl.Enum):
        values = values.to_physical()
    if isinstance(
        values.dtype, pl.UInt8 | pl.UInt32 | pl.Boolean | pl.Int32 | pl.Int64 | pl.Float64 | pl.Array
    ):
        return values
    return values.rank("dense").cast(pl.UInt32)


def taken(table: _traceparse.ArrowTable, column: str) -> pl.Series:
    """Wraps a result of Rust as a column."""
    return pl.DataFrame(table)[column]


def describe_by_group(groups: pl.Series, values: pl.Series, count: int) -> pl.DataFrame:
    """Summarises the integers of each of ``count`` groups.

    Columns: ``rows`` (of the group), ``sum``, ``mean``, ``median``, ``min``, ``max`` and ``std`` (sample
        standard deviation; null for one number).
    """
    value = pl.col("value")
    return _of_groups(
        groups,
        values,
        count,
        mean=value.mean(),
        median=value.median(),
        min=value.min(),
        max=value.max(),
        std=value.std(),
    )


def sum_by_group(groups: pl.Series, values: pl.Series, count: int) -> pl.DataFrame:
    """Returns the row count and the sum of the integers of each of ``count`` groups: ``rows``, ``sum``."""
    return _of_groups(groups, values, count)


def _of_groups(groups: pl.Series, values: pl.Series, count: int, **figures: pl.Expr) -> pl.DataFrame:
    frame = pl.DataFrame({"group": groups.cast(pl.UInt32), "value": values.cast(pl.Int64)})
    found = frame.group_by("group").agg(rows=pl.len().cast(pl.Int64), sum=pl.col("value").sum(), **figures)
    return of_every(found, "group", count).with_columns(pl.col("rows", "sum").fill_null(0))


def weighted_means(groups: pl.Series, weights: pl.Series, values: pl.Series, count: int) -> pl.Series:
    """Returns the mean of the values of each of ``count`` groups, weighted by integers.

    If the weights of the rows with a value sum to 0, all have equal weight. Null without values.
    """
    frame = pl.DataFrame({"group": groups.cast(pl.UInt32), "weight": weights, "value": values.fill_nan(None)})
    weight, value = pl.col("weight").fill_null(0), pl.col("value")
    weighted = (value * weight).sum() / weight.sum()
    mean = pl.when(weight.sum() > 0).then(weighted).otherwise(value.mean())
    means = frame.drop_nulls("value").group_by("group").agg(mean=mean)
    return of_every(means, "group", count)["mean"]


def of_every(found: pl.DataFrame, group: str, count: int) -> pl.DataFrame:
    """Returns one row for each of ``count`` groups: the row of ``found`` with its number, or nulls."""
    found = found.drop_nulls(group)
    places = pl.repeat(None, count, dtype=pl.UInt32, eager=True)
    places = places.scatter(found[group], pl.int_range(found.height, dtype=pl.UInt32, eager=True))
    return found.drop(group)[places]


def positions(rows: pl.Series, wanted: pl.Series) -> pl.Series:
    """Returns the position of each of ``wanted`` in ``rows``, whose values are unique.

    It is null if the value is null or absent.

    Fast if ``rows`` ascend, and ``wanted`` nearly do.
    """
    found = _traceparse.find_rows(rows.to_frame("row"), wanted.to_frame("row"))
    return pl.DataFrame(found).to_series()


def gather_rows(rows: pl.Series, table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Returns the ``columns`` of the rows with these numbers; null if there is none.

    Columns: ``table`` needs ``row`` and ``columns``. The result has ``columns``, one row for each of
    ``rows``.
    """
    return table[list(columns)][positions(table["row"], rows)]


def gather_events(rows: pl.Series, trace: Trace, *columns: str) -> pl.DataFrame:
    """Returns the ``columns`` of events with these numbers; null without such an event or column.

    Columns: as for :func:`gather_rows`, of the tables in ``ON_TRACKS``.
    """
    found: dict[str, list[pl.Series]] = {name: [] for name in columns}
    for table in (trace.tables[name] for name in ON_TRACKS):
        at = positions(table["row"], rows)
        for name in set(columns) & set(table.columns):
            found[name].append(table[name][at])
    return pl.select(pl.coalesce(values).alias(name) for name, values in found.items())
