"""Folded stacks on traces small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from events import Events

from kernelscope import analysis
from kernelscope.analysis.ops.name_trie import MOST_LEVELS
from kernelscope.errors import InvalidArgumentError


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
