"""Phases and micro-batches of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from events import GRADIENT, Events
from kernelscope import analysis

RECORDED = Path(__file__).resolve().parents[1] / "recorded/gloo"


def counted(trace: ks.Trace, *by: str) -> dict[tuple[Any, ...], int]:
    """The number of operators of each group."""
    table = analysis.training_phases(trace, by=by)
    return {row[:-1]: row[-1] for row in table.select(*by, "operators").iter_rows()}


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tp"])
def test_a_step_without_accumulation_is_one_micro_batch(kind: str) -> None:
    trace = ks.read(RECORDED / f"{kind}-rank0.json.gz")
    found = counted(trace, "step", "phase", "micro_batch")
    # A Function of the job with FSDP is named as a node, and belongs to none.
    expected = {0, None} if kind == "fsdp" else {0}
    assert {batch for _, phase, batch in found if phase in ("forward", "backward")} == expected
    assert {batch for _, phase, batch in found if phase == "optimizer"} == {None}


@pytest.mark.parametrize("rank", [0, 1])
def test_micro_batches_of_a_pipeline(rank: int) -> None:
    """1F1B names none: each of four has two layers in each pass."""
    trace = ks.read(RECORDED / f"pp-rank{rank}.json.gz")
    layers = trace.ops.filter(pl.col("name").is_in(["aten::addmm", "AddmmBackward0"]))
    batches = analysis.training_phases(trace, by=("step", "micro_batch", "phase"))
    assert layers.group_by("step", "name").len()["len"].unique().to_list() == [8]
    passes = batches.filter(pl.col("phase").is_in(["forward", "backward"])).drop_nulls("micro_batch")
    assert sorted(passes.group_by("step").agg(pl.col("micro_batch"))["micro_batch"][0]) == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    backward = passes.filter(phase="backward").filter(pl.col("micro_batch") > 0)
    assert backward.group_by("step").agg(pl.col("operators").n_unique())["operators"].to_list() == [1] * 4


class Training(Events):
    """Passes of one layer on a thread, with a node of the backward pass for each forward operator."""

    def __init__(self) -> None:
        super().__init__()
        self.annotation("ProfilerStep#1", 0, 1000)

    def forward(self, ts: float, number: int) -> None:
        self.op("aten::copy_", ts, 2)
        self.op("aten::mm", ts + 3, 5, Sequence_number=number)

    def backward(self, ts: float, number: int, *, tid: int = 7) -> None:
        self.op(GRADIENT, ts, 8, tid=tid, Sequence_number=number, Fwd_thread_id=1)
        self.op("aten::mm", ts + 1, 5, tid=tid)

    def batches(self, folder: Path, name: str = "aten::mm") -> list[tuple[float, int | None]]:
        """Start and micro-batch of each operator of a name, in order of time."""
        from kernelscope.analysis.training.micro_batches import micro_batches

        trace = self.read(folder)
        ops = (
            trace.ops.with_columns(micro_batches(trace)["micro_batch"])
            .filter(pl.col("name") == name)
            .sort("start_ns")
        )
        return [(start / 1000, batch) for start, batch in ops.select("start_ns", "micro_batch").iter_rows()]


def test_accumulation_on_another_thread(tmp_path: Path) -> None:
    """Autograd's thread runs three passes; the one that calls it computes between them."""
    e = Training()
    for batch in range(3):
        e.forward(100 * batch + 10, batch + 1)
        e.backward(100 * batch + 30, batch + 1, tid=8)
    e.annotation("Optimizer.step#SGD.step", 400, 50)
    assert [batch for _, batch in e.batches(tmp_path)] == [0, 0, 1, 1, 2, 2]


def test_passes_in_reverse_order(tmp_path: Path) -> None:
    """Micro-batches are numbered in the order of their forward passes."""
    e = Training()
    for batch in range(3):
        e.forward(20 * batch + 10, batch + 1)
    for place, batch in enumerate((2, 1, 0)):
        e.op("aten::ones_like", 100 * place + 100, 2)
        e.backward(100 * place + 110, batch + 1)
    assert [batch for _, batch in e.batches(tmp_path)] == [0, 1, 2, 2, 1, 0]


def test_a_second_optimizer_begins_anew(tmp_path: Path) -> None:
    e = Training()
    for place in range(2):
        e.forward(200 * place + 10, place + 1)
        e.backward(200 * place + 30, place + 1)
        e.annotation("Optimizer.step#SGD.step", 200 * place + 100, 50)
    assert [batch for _, batch in e.batches(tmp_path)] == [0, 0, 0, 0]


def test_gradients_of_gradients_are_of_the_same_micro_batch(tmp_path: Path) -> None:
    e = Training()
    e.forward(10, 1)
    for place in range(2):
        e.op("aten::ones_like", 100 * place + 90, 2)
        e.backward(100 * place + 100, 1)
    assert [batch for _, batch in e.batches(tmp_path)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("PP:0F3", 3, 3),
        ("PP:(1F0;0B2)OVERLAP_F_B", 0, 2),
        ("PP:1SEND_F4", 4, 4),
        ("Forward 6", 6, 6),
        ("forward 6", 0, 0),
        ("train micro_batch 5", 5, 5),
        ("PP:0UNSHARD", 0, 0),
        ("microbatches of 4", 0, 0),
    ],
)
def test_names_of_micro_batches(name: str, forward: int, backward: int, tmp_path: Path) -> None:
    e = Training()
    e.annotation(name, 5, 100)
    e.forward(10, 1)
    e.backward(30, 1)
    assert e.batches(tmp_path) == [(13, forward), (31, backward)]


def test_phases_with_names(tmp_path: Path) -> None:
    e = Training()
    e.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 2, 6)
    e.op("aten::stack", 3, 2)
    e.forward(10, 1)
    e.backward(30, 1)
    # The norms of gradients, and the product that limits them.
    for ts, name in ((50, "aten::_foreach_norm"), (60, "aten::stack"), (65, "aten::_foreach_mul_")):
        e.op(name, ts, 4)
    e.annotation("Optimizer.step#SGD.step", 80, 20)
    e.op("aten::_foreach_add_", 85, 4)
    e.op("aten::_foreach_norm", 110, 4)
    # In the next step, nothing is limited.
    e.forward(120, 2)
    e.backward(140, 2)
    e.annotation("Optimizer.step#SGD.step", 160, 20)
    frames = {
        "train.py(7): evaluate": 200,
        "torch/serialization.py(943): save": 300,
        "a.py(3): clip_grad_norm_": 400,
    }
    for number, (frame, ts) in enumerate(frames.items()):
        e.add("python_function", frame, ts, 50, args={"Python id": number, "Python parent id": None})
        e.op("aten::mm", ts + 10, 5)
    e.annotation("eval loop", 500, 50)
    e.op("aten::mm", 510, 5)
    found = counted(e.read(tmp_path), "phase")
    # The step itself, and the norm after the optimizer, which limits nothing.
    assert found == {
        ("data_loading",): 2, ("forward",): 2, ("backward",): 4, ("gradient_clipping",): 4, ("optimizer",): 3,
        ("evaluation",): 3, ("checkpoint_saving",): 1, ("other",): 4,
    }  # fmt: skip
