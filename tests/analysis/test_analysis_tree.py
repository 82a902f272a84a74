"""Nesting, sums over subtrees and merging of repeated names, against loops that are plainly right."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.analysis.call_tree import CallTree, collapse_repeats, nest, subtree_sums
from kernelscope.analysis.classes import classes_of
from kernelscope.errors import InvalidArgumentError

INTERVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 12), st.one_of(st.none(), st.integers(0, 12))), max_size=40
)
ROW = pl.UInt32


def frame_of(intervals: list[tuple[int, int, int | None]]) -> pl.DataFrame:
    schema = {"track": pl.UInt32, "start_ns": pl.Int64, "dur_ns": pl.Int64}
    return pl.DataFrame(intervals, schema=schema, orient="row").with_row_index("row")


def nest_slowly(intervals: list[tuple[int, int, int | None]]) -> dict[int, int | None]:
    """A stack per track, as torch keeps it."""
    parents: dict[int, int | None] = {}
    for track in {track for track, _, _ in intervals}:
        events = [(s, s + (d or 0), row) for row, (t, s, d) in enumerate(intervals) if t == track]
        events.sort(key=lambda event: (event[0], -event[1], event[2]))
        stack: list[tuple[int, int, int]] = []
        for start, end, row in events:
            while stack and (start >= stack[-1][1] or end > stack[-1][1]):
                stack.pop()
            parents[row] = stack[-1][2] if stack else None
            stack.append((start, end, row))
    return parents


@settings(deadline=None)
@given(INTERVALS)
def test_nest_equals_a_stack(intervals: list[tuple[int, int, int | None]]) -> None:
    nested = nest(frame_of(intervals))
    assert dict(nested.select("row", "parent_row").rows()) == nest_slowly(intervals)


def test_nest_of_a_deep_chain_and_of_many_siblings() -> None:
    size = 100_000
    chain = [(0, i, 2 * size - 2 * i) for i in range(size)]
    assert nest(frame_of(chain))["parent_row"].to_list() == [None, *range(size - 1)]
    siblings = [(0, 0, size), *((0, i, 1) for i in range(size))]
    assert nest(frame_of(siblings))["parent_row"].to_list() == [None, *([0] * size)]


@st.composite
def forests(draw: st.DrawFn) -> pl.DataFrame:
    size = draw(st.integers(0, 30))
    parents = [draw(st.one_of(st.none(), st.integers(0, row - 1))) if row else None for row in range(size)]
    values = draw(st.lists(st.integers(-5, 5), min_size=size, max_size=size))
    names = draw(st.lists(st.sampled_from(["a", "b", None]), min_size=size, max_size=size))
    data = {"row": range(size), "parent_row": parents, "value": values, "name": names}
    return pl.DataFrame(data, schema={"row": ROW, "parent_row": ROW, "value": pl.Int64, "name": pl.String})


@settings(deadline=None)
@given(forests())
def test_subtree_sums_equal_a_walk_from_the_leaves(forest: pl.DataFrame) -> None:
    totals = forest["value"].to_list()
    # A parent stands before its children, so that a child is complete when its turn comes.
    for row, parent in reversed(list(enumerate(forest["parent_row"]))):
        if parent is not None:
            totals[parent] += totals[row]
    assert subtree_sums(forest, ["value"])["value"].to_list() == totals


def test_subtree_sums_of_a_deep_chain() -> None:
    size = 50_000
    chain = pl.DataFrame(
        {"row": range(size), "parent_row": [None, *range(size - 1)], "value": [1] * size},
        schema={"row": ROW, "parent_row": ROW, "value": pl.Int64},
    )
    assert subtree_sums(chain, ["value"])["value"].to_list() == list(range(size, 0, -1))


def test_subtree_sums_refuse_a_circle() -> None:
    circle = pl.DataFrame({"row": [0, 1], "parent_row": [1, 0], "value": [1, 1]})
    with pytest.raises(InvalidArgumentError, match="ancestors"):
        subtree_sums(circle, ["value"])


@settings(deadline=None)
@given(forests())
def test_collapse_equals_deleting_one_by_one(forest: pl.DataFrame) -> None:
    parent: dict[int, int | None] = dict(forest.select("row", "parent_row").rows())
    name = dict(forest.select("row", "name").rows())
    kept = {row: row for row in parent}
    while True:
        children = {row: [c for c in parent if parent[c] == row] for row in parent}
        merged = next((c[0] for row, c in children.items() if len(c) == 1 and name[c[0]] == name[row]), None)
        if merged is None:
            break
        into = parent.pop(merged)
        parent = {row: into if p == merged else p for row, p in parent.items()}
        kept = {row: into if k == merged else k for row, k in kept.items()}
    assert dict(collapse_repeats(forest).rows()) == kept


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.sampled_from(["a", "b", ""])),
            st.one_of(st.none(), st.sampled_from([-1, 0, 2**62])),
            st.one_of(st.none(), st.booleans()),
            st.one_of(st.none(), st.sampled_from([0.5, -1.0])),
        ),
        max_size=30,
    )
)
def test_rows_of_a_class_agree_in_all_columns(rows: list[tuple[object, ...]]) -> None:
    schema = {"text": pl.String, "number": pl.Int64, "flag": pl.Boolean, "share": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    for keys in (frame, frame.with_columns(pl.col("text").cast(pl.Categorical))):
        classes = classes_of(keys)
        assert classes.keys.rows() == list(dict.fromkeys(rows))
        assert classes.keys.select(pl.all().gather(classes.of)).rows() == rows


@settings(deadline=None)
@given(forests(), st.lists(st.tuples(st.integers(-1, 31), st.one_of(st.none(), st.integers(0, 9)))))
def test_sums_over_classes_count_what_calls_are_counted_as(
    forest: pl.DataFrame, linked: list[tuple[int, int | None]]
) -> None:
    kept = dict(collapse_repeats(forest).rows())
    own = {row: value if kept[row] == row else 0 for row, value in forest.select("row", "value").rows()}
    for call, value in linked:
        if call in kept:
            own[kept[call]] += value or 0
    tree = CallTree(forest)
    tree.merge_repeats(forest["name"])
    tree.put(forest.select("value"))
    tree.add(pl.DataFrame([(call if call >= 0 else None, value) for call, value in linked],
                          schema={"call": ROW, "value": pl.Int64}, orient="row"))  # fmt: skip
    sums = tree.class_sums(classes_of(forest.select("name")), ["value"])
    expected: dict[str | None, list[int]] = {}
    for row, name in forest.select("row", "name").rows():
        total = expected.setdefault(name, [0, 0])
        total[0] += kept[row] == row
        total[1] += own[row]
    assert {name: [calls, value] for name, calls, value in sums.rows()} == expected


@settings(deadline=None)
@given(st.data(), st.integers(1, 40))
def test_calls_are_counted_as_the_nearest_marked_ones(data: st.DataObject, count: int) -> None:
    parents = [
        data.draw(st.one_of(st.none(), st.integers(0, row - 1))) if row else None for row in range(count)
    ]
    marks = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    rows = pl.DataFrame(
        {"row": range(count), "parent_row": parents}, schema_overrides={"parent_row": pl.UInt32}
    )
    tree = CallTree(rows)
    tree.retain(pl.Series(marks))
    for row, kept in enumerate(tree.kept()):
        here: int | None = row
        while here is not None and not marks[here]:
            here = parents[here]
        assert kept == here
