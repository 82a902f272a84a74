"""The overview, shares of operators, and what ran below each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from events import V100, Events

from kernelscope import analysis
from kernelscope.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path


def linear(events: Events) -> Events:
    """An operator with another inside, each with a kernel of its own."""
    events.op("aten::linear", 10, 40)
    events.op("aten::mm", 15, 20)
    events.call(16, 2, 1)
    events.call(40, 2, 2)
    events.kernel("volta_sgemm", 60, 30, 1)
    events.kernel("add", 95, 10, 2)
    return events


def test_work_counts_for_every_operator_around_its_launch(tmp_path: Path) -> None:
    table = analysis.op_kernels(linear(Events()).read(tmp_path))
    assert table.select("op", "name", "calls", "total_ns", "self_ns", "share").rows() == [
        ("aten::linear", "volta_sgemm", 1, 30_000, 0, 0.75),
        ("aten::linear", "add", 1, 10_000, 10_000, 0.25),
        ("aten::mm", "volta_sgemm", 1, 30_000, 30_000, 1.0),
    ]


def test_shares_keep_the_sum_when_only_the_largest_are_named(tmp_path: Path) -> None:
    events = Events()
    for index in range(5):
        events.op(f"aten::op{index}", 100 * index, 10 + index)
    trace = events.read(tmp_path)
    top = analysis.op_shares(trace, top=2).filter(measure="host_self_ns")
    assert top.select("name", "value_ns", "is_rest").rows() == [
        ("aten::op4", 14_000, False),
        ("aten::op3", 13_000, False),
        (None, 33_000, True),
    ]
    assert top["share"].sum() == pytest.approx(1)
    assert analysis.op_shares(trace, top=2).filter(measure="device_self_ns").is_empty()
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        analysis.op_shares(trace, top=0)


def test_the_overview_is_one_row_whatever_the_trace_holds(tmp_path: Path) -> None:
    events = linear(Events())
    events.annotation("ProfilerStep#1", 0, 100)
    trace = events.read(tmp_path)
    row = analysis.overview(trace, costs=True).row(0, named=True)
    assert (row["steps"], row["gpus"], row["kernels"], row["gpu_kernel_ns"]) == (1, 1, 2, 40_000)
    assert row["step_ns"] == 105_000
    assert row["step_ns"] == sum(row[column] for column in analysis.CATEGORIES)
    assert row["utilisation"] == pytest.approx(40 / 105)
    assert row["tc_eligible_share"] == pytest.approx(0.75)
    assert (row["gpu_name"], row["mfu_pct"]) == ("Tesla V100", None)
    (tmp_path / "bare").mkdir()
    bare = Events(V100)
    bare.events.append({"ph": "i", "name": "start", "ts": 1, "pid": 1, "tid": 1, "s": "t"})
    empty = analysis.overview(bare.read(tmp_path / "bare"))
    assert empty.height == 1
    assert empty.schema == analysis.overview(trace).schema
    shown = empty.row(0, named=True)
    assert (shown["gpus"], shown["utilisation"], shown["step_ns"]) == (0, None, None)


def test_flops_of_all_steps_over_their_time(tmp_path: Path) -> None:
    events = Events(V100 | {"name": "Tesla V100-SXM2-32GB"})
    for step, size in ((1, 64), (2, 128)):
        start = 1000 * step
        events.annotation(f"ProfilerStep#{step}", start, 500)
        events.op("aten::mm", start + 1, 50, Input_Dims=[[size, size]] * 2, Input_type=["float", "float"])
        events.call(start + 2, 2, step)
        events.kernel("volta_sgemm", start + 60, 100, step)
    trace = events.read(tmp_path)
    row = analysis.overview(trace, costs=True).row(0, named=True)
    flops = 2 * 64**3 + 2 * 128**3
    assert row["flops_per_step"] == flops / 2
    assert row["mfu_pct"] == pytest.approx(100 * flops / (1e-3 * row["peak_flops_per_s"]))
    assert row["known_pct"] == pytest.approx(100)


QUESTIONS = (
    "gpu_timeline",
    "kernel_launches",
    "memory_allocations",
    "memory_peak",
    "memory_summary",
    "memory_table",
    "memory_timeline",
    "missing",
    "module_table",
    "op_kernels",
    "op_shares",
    "overview",
    "recommendations",
)


def only_host(events: Events) -> None:
    events.op("aten::mm", 10, 40)


def only_gpu(events: Events) -> None:
    events.kernel("volta_sgemm", 60, 30, 1)


def one_event(events: Events) -> None:
    events.events.append({"ph": "i", "name": "start", "ts": 1, "pid": 1, "tid": 1, "s": "t"})


def only_memory(events: Events) -> None:
    events.memory(5, 64)
    events.memory(5, -64, device_type=1)


def times_that_make_no_sense(events: Events) -> None:
    linear(events)
    for number, event in enumerate(events.events):
        event["ts"], event["dur"] = (-(2**40), 2**41) if number % 2 else (2**52, 0)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("fill", [only_host, only_gpu, one_event, only_memory, times_that_make_no_sense])
def test_every_answer_has_its_columns_whatever_the_trace_lacks(
    tmp_path: Path, question: str, fill: Callable[[Events], None]
) -> None:
    whole = linear(Events())
    whole.annotation("ProfilerStep#1", 0, 100)
    whole.memory(12, 64)
    ask = getattr(analysis, question)
    expected = ask(whole.read(tmp_path)).schema
    events = Events(V100 | {"name": None})
    fill(events)
    assert ask(events.read(tmp_path)).schema == expected
