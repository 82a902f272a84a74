"""Call stacks put together from Python frames, and what lies innermost around what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from events import Events
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelscope import analysis
from kernelscope.analysis.call_tree import nest
from kernelscope.analysis.innermost import innermost

if TYPE_CHECKING:
    from pathlib import Path


class Python(Events):
    def frame(self, name: str, ts: float, dur: float, *, parent: int | None = None) -> int:
        python_id = next(self.ids)
        args = {"Python id": python_id, "Python parent id": parent}
        self.add("python_function", name, ts, dur, args=args)
        return python_id


def test_a_stack_is_the_frames_with_a_line_of_source(tmp_path: Path) -> None:
    events = Python()
    main = events.frame("train.py(10): <module>", 0, 100)
    module = events.frame("nn.Module: Linear_0", 5, 60, parent=main)
    forward = events.frame("torch/nn/linear.py(20): forward", 10, 50, parent=module)
    events.frame("<built-in function linear of type object at 0x7f00>", 12, 40, parent=forward)
    events.op("aten::linear", 15, 20)
    events.op("aten::add", 80, 5)
    events.op("aten::mul", 200, 5)
    table = analysis.op_table(events.read(tmp_path), by=("name", "call_stack")).sort("name")
    assert table.select("name", "call_stack").rows() == [
        ("aten::add", "train.py(10): <module>"),
        ("aten::linear", "torch/nn/linear.py(20): forward;train.py(10): <module>"),
        ("aten::mul", None),
    ]


def test_recorded_stacks_stay(tmp_path: Path) -> None:
    events = Python()
    events.frame("train.py(10): <module>", 0, 100)
    events.op("aten::mm", 10, 5, Call_stack="other.py(1): f")
    events.op("aten::add", 20, 5)
    table = analysis.op_table(events.read(tmp_path), by=("name", "call_stack")).sort("name")
    assert table["call_stack"].to_list() == [None, "other.py(1): f"]


def brute_force(points: list[Any], slices: list[Any]) -> list[int | None]:
    found = []
    for track, start, dur in points:
        around = [
            row
            for row, (other, at, length, counts) in enumerate(slices)
            if other == track and at <= start < at + length and start + dur <= at + length and counts
        ]
        # Of those that nest, the innermost began last.
        found.append(max(around, key=lambda row: (slices[row][1], -slices[row][2], row)) if around else None)
    return found


SLICES = st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(0, 20), st.booleans())
POINTS = st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 8))


@settings(max_examples=150, deadline=None)
@given(st.lists(SLICES, min_size=1, max_size=20), st.lists(POINTS, min_size=1, max_size=10))
def test_innermost_is_the_last_that_still_runs(slices: list[Any], points: list[Any]) -> None:
    schema = {"track": pl.UInt32, "start_ns": pl.Int64, "dur_ns": pl.Int64, "counts": pl.Boolean}
    frame = pl.DataFrame(slices, schema=schema, orient="row").with_row_index("row")
    # Where two overlap only in part, what "innermost" means is arbitrary: only nested ones are asked about.
    ends = [(track, at, at + length) for track, at, length, _ in slices]
    assume(not any(a[0] == b[0] and a[1] < b[1] < a[2] < b[2] for a in ends for b in ends))
    frame = nest(frame).sort("row")
    asked = pl.DataFrame(points, schema={k: schema[k] for k in ("track", "start_ns", "dur_ns")}, orient="row")
    rows = innermost(asked, frame, counts=frame["counts"]).to_list()
    expected = brute_force(points, slices)
    for row, other in zip(rows, expected):
        # Two of the same extent enclose each other.
        assert row == other or slices[row][:3] == slices[other][:3]


@pytest.mark.parametrize("depth", [10, 300])
def test_deep_slices_are_climbed_or_nested(depth: int) -> None:
    frame = pl.DataFrame(
        {
            "row": range(depth),
            "parent_row": [None, *range(depth - 1)],
            "track": [1] * depth,
            "start_ns": range(depth),
            "dur_ns": [10_000 - 20 * place for place in range(depth)],
        },
        schema={
            "row": pl.UInt32,
            "parent_row": pl.UInt32,
            "track": pl.UInt32,
            "start_ns": pl.Int64,
            "dur_ns": pl.Int64,
        },
    )
    points = pl.DataFrame({"track": [1, 1, 2], "start_ns": [9_000, 20_000, 5], "dur_ns": [0, 0, 0]}).cast(
        {"track": pl.UInt32}
    )
    # A slice at place p ends at 10,000 - 19 p.
    expected = min(depth - 1, (10_000 - 9_000 - 1) // 19)
    assert innermost(points, frame).to_list() == [expected, None, None]
