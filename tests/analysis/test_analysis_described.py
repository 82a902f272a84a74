"""What the numbers of groups come to."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from kernelscope.analysis.described import described, weighted_means

ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 2)),
        st.one_of(st.none(), st.integers(0, 40)),
        st.one_of(st.none(), st.floats(0, 100)),
    ),
    max_size=20,
)
SCHEMA = {"group": pl.UInt32, "number": pl.Int64, "value": pl.Float64}
NUMBER, VALUE = pl.col("number"), pl.col("value")


def by_group(frame: pl.DataFrame, *figures: pl.Expr) -> pl.DataFrame:
    groups = pl.DataFrame({"group": pl.Series([0, 1, 2], dtype=pl.UInt32)})
    found = frame.group_by("group").agg(figures)
    return groups.join(found, on="group", how="left", maintain_order="left").drop("group")


@settings(deadline=None)
@given(ROWS)
def test_numbers_are_described_as_polars_does(
    rows: list[tuple[int | None, int | None, float | None]],
) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    found = described(frame["group"], frame["number"], 3, quantiles=(0.5, 0.9))
    expected = by_group(
        frame,
        pl.len().cast(pl.Int64).alias("rows"),
        NUMBER.sum().alias("sum"),
        NUMBER.mean().alias("mean"),
        NUMBER.min().alias("min"),
        NUMBER.max().alias("max"),
        NUMBER.std().alias("std"),
        NUMBER.median().alias("q0"),
        NUMBER.quantile(0.9, interpolation="linear").alias("q1"),
    )
    assert_frame_equal(found, expected.with_columns(pl.col("rows", "sum").fill_null(0)), abs_tol=1e-9)


@settings(deadline=None)
@given(ROWS)
def test_means_are_weighted_as_polars_does(rows: list[tuple[int | None, int | None, float | None]]) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    found = weighted_means(frame["group"], frame["number"], frame["value"], 3).to_frame("mean")
    weight = NUMBER.filter(VALUE.is_not_null()).sum()
    mean = pl.when(weight > 0).then((VALUE * NUMBER).sum() / weight).otherwise(VALUE.mean())
    assert_frame_equal(found, by_group(frame, mean.alias("mean")), abs_tol=1e-9)
