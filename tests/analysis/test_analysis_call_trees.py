"""Call trees, folded stacks, Python stacks and modules, against loops that are plainly right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import draws
from events import Events
from kernelscope import analysis
from kernelscope.analysis.call_tree import CallTree, collapse_repeats, innermost, nest, subtree_sums
from kernelscope.analysis.grouping import classes_of
from kernelscope.analysis.ops.call_stacks import MOST_LEVELS
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
    tree.keep_marked(pl.Series(marks))
    for row, kept in enumerate(tree.kept()):
        here: int | None = row
        while here is not None and not marks[here]:
            here = parents[here]
        assert kept == here


@pytest.fixture
def trace(tmp_path: Path) -> Any:
    """A linear layer with a kernel, its gradient with another, and a kernel of no operator."""
    e = Events()
    e.add("python_function", "train.py(3): step", 0, 100, args={"Python id": 1, "Python parent id": None})
    module = {"Python id": 2, "Python parent id": 1, "Python module id": 0}
    e.add("python_function", "nn.Module: Linear_0", 5, 60, args=module)
    e.op("aten::linear", 10, 50, Sequence_number=4, Fwd_thread_id=0)
    e.op("aten::addmm", 20, 30)
    e.call(22, 5, 1)
    e.op("AddmmBackward0", 70, 20, Sequence_number=4, Fwd_thread_id=1)
    e.call(75, 5, 2)
    e.kernel("gemm", 40, 30, 1)
    e.kernel("wgrad; x", 90, 7, 2)
    e.kernel("alone", 200, 3, 77)
    return e.read(tmp_path)


def stacks(trace: Any, **options: Any) -> dict[str, int]:
    frame = analysis.folded_stacks(trace, **options)
    return dict(frame.select("stack", "value_us").rows())


def test_by_operator(trace: Any) -> None:
    assert stacks(trace, by="op") == {
        "aten::linear": 20,
        "aten::linear;aten::addmm": 25,
        "aten::linear;aten::addmm;cudaLaunchKernel": 5,
        "AddmmBackward0": 15,
        "AddmmBackward0;cudaLaunchKernel": 5,
    }


def test_by_operator_on_the_gpu(trace: Any) -> None:
    assert stacks(trace, by="op", metric="self_cuda") == {
        "aten::linear;aten::addmm;gemm": 30,
        "AddmmBackward0;wgrad__x": 7,
        "(no_operator);alone": 3,
    }


def test_gradients_lie_in_the_module_of_their_forward(trace: Any) -> None:
    found = stacks(trace, by="module")
    assert found["Linear_0"] == 10
    assert found["Linear_0;aten::linear;aten::addmm"] == 25
    assert found["Linear_0;AddmmBackward0"] == 15
    # Times add up, whatever they are looked at by.
    assert sum(found.values()) == sum(stacks(trace, by="op").values()) + 10
    on_gpu = stacks(trace, by="module", metric="self_cuda")
    assert on_gpu["Linear_0;AddmmBackward0;wgrad__x"] == 7


def test_by_python_frames(trace: Any) -> None:
    # The forward's time and its gradient's belong to the same frames; a frame's own time to its caller.
    assert stacks(trace)["train.py(3):_step;nn.Module:_Linear_0"] == 20 + 25 + 5 + 15 + 5
    assert stacks(trace, metric="self_cuda") == {"train.py(3):_step;nn.Module:_Linear_0": 30 + 7}


def test_names_cannot_break_a_line(tmp_path: Path) -> None:
    e = Events()
    e.op("a;b c\nd\u2028e\x1b[31m<b>", 0, 5)
    e.op("x" * 100_000, 10, 5)
    e.op("", 20, 5)
    found = stacks(e.read(tmp_path), by="op")
    assert list(found) == ["(no_name)", "a_b_c_d_e_[31m<b>", "x" * 1024]


def test_very_deep_stacks_count_for_their_ancestor(tmp_path: Path) -> None:
    e = Events()
    depth = 3 * MOST_LEVELS
    for level in range(depth):
        e.op(f"op{level}", level, 2 * (depth - level))
    found = stacks(e.read(tmp_path), by="op")
    assert max(stack.count(";") for stack in found) == MOST_LEVELS - 1
    assert sum(found.values()) == 2 * depth


def test_an_empty_trace_has_no_stacks(tmp_path: Path) -> None:
    trace = Events().read(tmp_path)
    for by in ("python", "op", "module"):
        for metric in ("self_cpu", "self_cuda"):
            assert analysis.folded_stacks(trace, by=by, metric=metric).is_empty()


@pytest.mark.parametrize("wrong", [{"by": "name"}, {"metric": "cpu"}])
def test_nonsense_is_refused(trace: Any, wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match="not"):
        analysis.folded_stacks(trace, **wrong)


def test_only_the_first_stacks_have_a_text(trace: Any) -> None:
    whole = analysis.folded_stacks(trace, by="op")
    first = analysis.folded_stacks(trace, by="op", most_stacks=2)
    assert first["stack"].to_list() == [*whole["stack"][:2], *[None] * (whole.height - 2)]
    assert first.drop("stack").equals(whole.drop("stack"))
    with pytest.raises(InvalidArgumentError, match="most_stacks"):
        analysis.folded_stacks(trace, most_stacks=-1)


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


@pytest.mark.slow
@settings(max_examples=draws.count(150, 3_000))
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


class Modules(Events):
    """Events with calls of modules, as ``with_stack`` records them."""

    def module(self, name: str, ts: float, dur: float, *, parent: int | None = None, tid: int = 7) -> int:
        python_id = next(self.ids)
        args = {"Python id": python_id, "Python module id": 0, "Python parent id": parent}
        self.add("python_function", f"nn.Module: {name}", ts, dur, tid=tid, args=args)
        return python_id

    def launch(self, ts: float, kernel_us: float, correlation: int) -> None:
        self.call(ts, 1, correlation)
        self.kernel("k", ts + 1000, kernel_us, correlation)


def row(table: pl.DataFrame, path: str) -> dict[str, Any]:
    return table.row(by_predicate=pl.col("path") == path, named=True)


def test_a_module_has_what_ran_in_it_and_no_time_twice(tmp_path: Path) -> None:
    events = Modules()
    net = events.module("Net_0", 0, 100)
    linear = events.module("Linear_0", 10, 40, parent=net)
    events.op("aten::linear", 15, 20)
    events.op("aten::mm", 16, 10)
    events.launch(17, 7, 1)
    events.op("aten::add", 60, 10)
    events.launch(61, 3, 2)
    del linear
    table = analysis.module_table(events.read(tmp_path))
    assert table["path"].to_list() == ["Net_0", "Net_0/Linear_0"]
    assert row(table, "Net_0/Linear_0") == {
        "path": "Net_0/Linear_0",
        "parent_path": "Net_0",
        "depth": 1,
        "module": "Linear_0",
        "class": "Linear",
        "calls": 1,
        "operators": 1,
        "host_total_ns": 40_000,
        "host_self_ns": 20_000,
        "device_total_ns": 7_000,
        "device_self_ns": 7_000,
        "backward_host_ns": 0,
        "backward_device_ns": 0,
        "cpu_memory_bytes": None,
        "device_memory_bytes": None,
        "flops": None,
        "backward_flops": None,
    }
    net_row = row(table, "Net_0")
    assert net_row["host_self_ns"] == 100_000 - 40_000 - 10_000
    assert (net_row["device_total_ns"], net_row["device_self_ns"]) == (10_000, 3_000)


def test_a_module_that_two_others_call_has_a_row_in_each(tmp_path: Path) -> None:
    events = Modules()
    for start, name in ((0, "A_0"), (100, "B_0"), (200, "A_0")):
        parent = events.module(name, start, 50)
        events.module("Shared_0", start + 5, 10 if name == "A_0" else 30, parent=parent)
    table = analysis.module_table(events.read(tmp_path))
    assert table.select("path", "calls", "host_total_ns").rows() == [
        ("A_0", 2, 100_000),
        ("A_0/Shared_0", 2, 20_000),
        ("B_0", 1, 50_000),
        ("B_0/Shared_0", 1, 30_000),
    ]


def test_gradients_count_for_the_module_of_their_forward(tmp_path: Path) -> None:
    events = Modules()
    events.module("Net_0", 0, 100)
    events.differentiated((10, 10), (300, 30))
    events.op("MmBackward0", 305, 20, tid=8, Sequence_number=5, Fwd_thread_id=1)
    events.op("aten::mm", 310, 10, tid=8)
    events.add("cuda_runtime", "cudaLaunchKernel", 312, 1, tid=8, args={"correlation": 9})
    events.kernel("k", 1300, 4, 9)
    net = row(analysis.module_table(events.read(tmp_path)), "Net_0")
    assert (net["operators"], net["device_total_ns"]) == (1, 0)
    assert (net["backward_host_ns"], net["backward_device_ns"]) == (30_000, 4_000)


def test_kernels_that_python_launches_without_an_operator_count(tmp_path: Path) -> None:
    events = Modules()
    events.module("Net_0", 0, 100)
    events.launch(20, 6, 1)
    assert row(analysis.module_table(events.read(tmp_path)), "Net_0")["device_self_ns"] == 6_000


def test_annotations_of_lightning_are_modules(tmp_path: Path) -> None:
    events = Events()
    events.annotation("[pl][module]torch.nn.Sequential: encoder", 0, 100)
    events.annotation("[pl][module]torch.nn.Linear: encoder.0", 10, 40)
    events.op("aten::mm", 20, 10)
    events.call(21, 1, 1)
    events.kernel("k", 500, 5, 1)
    table = analysis.module_table(events.read(tmp_path))
    assert table.select("path", "class", "operators", "host_self_ns", "device_total_ns").rows() == [
        ("encoder", "torch.nn.Sequential", 0, 60_000, 5_000),
        ("encoder/encoder.0", "torch.nn.Linear", 1, 30_000, 5_000),
    ]


def test_the_hierarchy_of_torchscript_makes_a_tree_without_calls(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 10, Module_Hierarchy="TOP(Net)::forward.fc(Linear)::forward")
    events.op("aten::add", 20, 5, Module_Hierarchy="TOP(Net)::forward.SELF(Net)::helper")
    table = analysis.module_table(events.read(tmp_path))
    assert table.select("path", "class", "calls", "operators", "host_total_ns", "host_self_ns").rows() == [
        ("TOP", "Net", None, 1, 15_000, 5_000),
        ("TOP/fc", "Linear", None, 1, 10_000, 10_000),
    ]


@pytest.mark.parametrize("depth", [50, 450])
def test_deep_modules_lose_no_gpu_time(tmp_path: Path, depth: int) -> None:
    events = Modules()
    parent = None
    for level in range(depth):
        parent = events.module(f"M_{level}", level, 2000 - 2 * level, parent=parent)
    events.op("aten::mm", depth + 1, 5)
    events.launch(depth + 2, 8, 1)
    table = analysis.module_table(events.read(tmp_path))
    assert table.height == min(depth, 200)
    assert table["device_total_ns"].unique().to_list() == [8_000]
    assert table["device_self_ns"].sum() == 8_000


def test_flops_are_those_of_the_operators_inside(tmp_path: Path) -> None:
    events = Modules()
    net = events.module("Net_0", 0, 100)
    events.module("Linear_0", 10, 40, parent=net)
    events.op("aten::mm", 15, 20, Input_Dims=[[4, 8], [8, 2]], Input_type=["float", "float"])
    trace = events.read(tmp_path)
    table = analysis.module_table(trace, costs=True)
    assert table["flops"].to_list() == [2 * 4 * 8 * 2] * 2
    assert table["backward_flops"].to_list() == [0, 0]


def test_a_trace_without_modules_has_an_empty_table(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 10)
    empty = analysis.module_table(events.read(tmp_path))
    modules = Modules()
    modules.module("Net_0", 0, 100)
    assert empty.is_empty()
    assert empty.schema == analysis.module_table(modules.read(tmp_path)).schema
