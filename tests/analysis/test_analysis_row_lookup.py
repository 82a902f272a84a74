"""Rows that are found by their numbers."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.analysis.row_lookup import looked_up, positions

ROWS = st.one_of(
    st.lists(st.integers(0, 60), unique=True, max_size=12),
    st.builds(lambda first, count: list(range(first, first + count)), st.integers(0, 9), st.integers(0, 9)),
)


@settings(deadline=None)
@given(ROWS, st.lists(st.one_of(st.none(), st.integers(0, 70)), max_size=20))
def test_rows_are_where_they_are(rows: list[int], asked: list[int | None]) -> None:
    table = pl.DataFrame({"row": pl.Series(rows, dtype=pl.UInt32)}).with_columns(
        name=pl.format("name {}", "row").cast(pl.Categorical)
    )
    sought = pl.Series(asked, dtype=pl.UInt32)
    assert positions(table["row"], sought).to_list() == [
        rows.index(row) if row in rows else None for row in asked
    ]
    names = looked_up(sought, table, "name")["name"]
    assert names.to_list() == [f"name {row}" if row in rows else None for row in asked]
