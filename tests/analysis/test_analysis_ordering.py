"""Order part by part, and sums whose texts are made part by part."""

from __future__ import annotations

import random

import polars as pl
import pytest

from kernelscope.compat.nsys import parts
from kernelscope.compat.nsys.statistics import in_order, spread


@pytest.fixture(params=[1, 3, 64])
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_ROWS", request.param * 64)
    monkeypatch.setattr(parts, "_BUCKET_ROWS", 50)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("span", [1, 40, 10**9])
@pytest.mark.parametrize("count", [0, 1, 700])
def test_parts_together_are_the_order(count: int, span: int, *, descending: bool) -> None:
    random.seed(count + span)
    column = pl.Series("x", [random.randrange(span) for _ in range(count)], dtype=pl.Int64)
    found = pl.concat(list(parts.ordered_parts(column, descending=descending)))
    frame = pl.DataFrame({"x": column, "at": pl.int_range(count, eager=True, dtype=pl.UInt32)})
    expected = frame.sort("x", "at", descending=[descending, False])["at"]
    assert found.to_list() == expected.to_list()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("distinct", [1, 60, 10**6])
def test_sums_by_text_equal_a_group_by(distinct: int) -> None:
    random.seed(distinct)
    rows = pl.DataFrame(
        {
            "name": pl.Series([random.choice("abc") for _ in range(800)], dtype=pl.Categorical),
            "op_id": [random.choice([None, random.randrange(distinct)]) for _ in range(800)],
            "dur_ns": [random.randrange(30) for _ in range(800)],
        }
    )
    keys = ["name", "op_id"]

    def finish(part: pl.DataFrame) -> pl.DataFrame:
        return part.with_columns(text=pl.concat_str("name", pl.col("op_id"), ignore_nulls=True))

    found = parts.sums_by_text(
        rows, keys, "dur_ns", finish, ascending=["text"], sums={"twice": "dur_ns"}, means={"middle": "dur_ns"}
    )
    found = pl.concat(list(found))
    duration = pl.col("dur_ns")
    expected = spread(rows, keys, "dur_ns", "ns", twice=duration.sum(), middle=duration.mean())
    expected = in_order(finish(expected), "total_ns", ascending=["text"])
    assert found.select(expected.columns).equals(expected)
    assert found["time_pct"].sum() == pytest.approx(100)
