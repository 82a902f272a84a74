"""Flame graphs as trees: by hand, and beside the folded stacks that they are made of."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
from events import Events
from kernelscope.analysis import folded_stacks
from kernelscope.analysis.ops.flame_tree import FlameTree, flame_tree
from oracles.traces import SHARED, TRACES, files, read

SOME = [
    *files(TRACES, "owlv2*.gz"),
    *files(TRACES, "resnet-act*.gz"),
    *files(TRACES, "a100-nccl*.gz"),
    # Its operators are ranges, too, under the same numbers.
    *files(SHARED / "traces" / "nsys", "h100*.sqlite"),
]
WAYS = [(by, metric) for by in ("op", "module", "python") for metric in ("self_cpu", "self_cuda")]


def stacks_of(tree: FlameTree) -> Counter[tuple[str, str, int]]:
    """The thread, the folded text and the own time of each frame that has some."""
    frames = tree.frames.to_dicts()
    found: Counter[tuple[str, str, int]] = Counter()
    for frame in frames:
        names, at = [], frame
        while at["parent"] is not None:
            names.append(re.sub(r"[ ;\x00-\x1f\x7f-\x9f\u2028\u2029]", "_", at["name"][:1024]) or "(no_name)")
            at = frames[at["parent"]]
        if frame["own_ns"]:
            found[at["name"].replace(" ", "_"), ";".join(reversed(names)), frame["own_ns"]] += 1
    return found


@pytest.mark.parametrize(("by", "metric"), WAYS)
@pytest.mark.parametrize("path", SOME, ids=lambda path: path.name.partition(".")[0])
def test_the_tree_has_the_folded_stacks(path: Path, by: str, metric: str) -> None:
    trace = read(path)
    tree = flame_tree(trace, by=by, metric=metric)
    folded = folded_stacks(trace, by=by, metric=metric, by_thread=True)
    expected = Counter(
        (thread.replace(" ", "_"), stack, value)
        for thread, stack, value in folded.select("thread", "stack", "value_ns").iter_rows()
    )
    assert stacks_of(tree) == expected
    assert tree.left_ns == 0
    parents = tree.frames["parent"].to_list()
    assert all(parent is None or parent < at for at, parent in enumerate(parents))
    totals = tree.frames["own_ns"].to_list()
    for at in range(len(totals) - 1, -1, -1):
        if parents[at] is not None:
            totals[parents[at]] += totals[at]
    assert tree.frames["total_ns"].to_list() == totals


@pytest.fixture
def nested(tmp_path: Path) -> ks.Trace:
    """Thread 1 has a linear (0 to 100 us) with two products (10 to 40, 50 to 90), thread 2 a copy (to 30)."""
    events = Events()
    events.add("cpu_op", "aten::linear", 0, 100, args={"External id": 1}, tid=1)
    events.add("cpu_op", "aten::mm", 10, 30, args={"External id": 2}, tid=1)
    events.add("cpu_op", "aten::mm", 50, 40, args={"External id": 3}, tid=1)
    events.add("cpu_op", "aten::copy_", 0, 30, args={"External id": 4}, tid=2)
    events.add("cuda_runtime", "cudaLaunchKernel", 60, 5, args={"External id": 3, "correlation": 9}, tid=1)
    kernel = {"External id": 3, "correlation": 9, "device": 0, "stream": 7}
    events.add("kernel", "void gemm<float, 3>", 70, 200, args=kernel, pid=0, tid=7)
    return ks.read(events.write(tmp_path / "nested.json"))


def test_frames_by_hand(nested: ks.Trace) -> None:
    tree = flame_tree(nested, by="op", metric="self_cpu")
    assert tree.frames.rows() == [
        (None, "thread 1", "thread", 100_000, 0, None),
        (0, "aten::linear", "operator", 100_000, 30_000, 1),
        (1, "aten::mm", "operator", 70_000, 65_000, 2),
        (2, "cudaLaunchKernel", "launch", 5_000, 5_000, 1),
        (None, "thread 2", "thread", 30_000, 0, None),
        (4, "aten::copy_", "operator", 30_000, 30_000, 1),
    ]
    products = (
        nested.ops.filter(pl.col("name").cast(pl.String) == "aten::mm").sort("start_ns")["row"].to_list()
    )
    assert tree.events.filter(frame=2)["row"].to_list() == products
    work = flame_tree(nested, by="op", metric="self_cuda").frames
    assert work.rows() == [
        (None, "thread 1", "thread", 200_000, 0, None),
        (0, "aten::linear", "operator", 200_000, 0, 1),
        # The product that launches nothing is an event of the same frame.
        (1, "aten::mm", "operator", 200_000, 0, 2),
        (2, "void gemm<float, 3>", "kernel", 200_000, 200_000, 1),
    ]


def test_only_what_starts_in_a_span_counts(nested: ks.Trace) -> None:
    start = nested.ops["start_ns"].min()
    assert isinstance(start, int)
    frames = flame_tree(nested, by="op", metric="self_cpu", spans=((start + 10_000, start + 50_000),)).frames
    assert frames.rows() == [
        (None, "thread 1", "thread", 30_000, 0, None),
        (0, "aten::linear", "operator", 30_000, 0, 1),
        (1, "aten::mm", "operator", 30_000, 30_000, 2),
    ]
    assert flame_tree(nested, by="op", metric="self_cpu", spans=()).frames.is_empty()


def test_python_frames_are_their_own_events(tmp_path: Path) -> None:
    events = Events()
    events.add(
        "python_function", "train.py(3): main", 0, 100, args={"Python id": 1, "Python parent id": None}, tid=1
    )
    events.add(
        "python_function", "train.py(9): step", 10, 80, args={"Python id": 2, "Python parent id": 1}, tid=1
    )
    events.add("cpu_op", "aten::mm", 20, 30, args={"External id": 2}, tid=1)
    trace = ks.read(events.write(tmp_path / "python.json"))
    tree = flame_tree(trace, by="python", metric="self_cpu")
    names = tree.frames["name"].to_list()
    step = names.index("train.py(9): step")
    frame = trace.python.filter(pl.col("name").cast(pl.String) == "train.py(9): step")["row"].to_list()
    assert tree.events.filter(frame=step)["row"].to_list() == frame
    assert tree.frames["calls"][step] == 1
