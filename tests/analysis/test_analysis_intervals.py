"""Covered time, against counting nanosecond by nanosecond."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from kernelscope.analysis.intervals import clipped, covered_ns

INTERVALS = st.lists(st.tuples(st.integers(0, 1), st.integers(-20, 20), st.integers(-20, 20)), max_size=20)
SCHEMA = {"device": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}


@given(INTERVALS)
def test_covered_time(intervals: list[tuple[int, int, int]]) -> None:
    frame = pl.DataFrame(intervals, schema=SCHEMA, orient="row")
    moments = {(device, t) for device, start, end in intervals for t in range(start, end)}
    for device, covered in covered_ns(frame, by=["device"]).rows():
        assert covered == sum(d == device for d, _ in moments)
    assert covered_ns(frame, by=[]).item() == len({t for _, t in moments})


@given(INTERVALS, st.integers(-20, 20), st.integers(-20, 20))
def test_clipped(intervals: list[tuple[int, int, int]], start: int, end: int) -> None:
    frame = pl.DataFrame(intervals, schema=SCHEMA, orient="row")
    moments = sorted((d, t) for d, s, e in intervals for t in range(s, e) if start <= t < end)
    parts = clipped(frame, start, end).rows()
    assert sorted((d, t) for d, s, e in parts for t in range(s, e)) == moments
    assert all(s < e for _, s, e in parts)
