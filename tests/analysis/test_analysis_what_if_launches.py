"""Predictions of fewer launches and of another GPU, against times found by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernelscope as ks
from events import Events
from kernelscope import analysis
from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.dependencies.other_gpu import on_gpu
from kernelscope.errors import InvalidArgumentError

US = 1000
V100 = {"id": 0, "name": "Tesla V100-SXM2-16GB", "totalGlobalMem": 16 << 30, "numSms": 80}


def block() -> Events:
    """An operator that launches three kernels, one with each of its operators, and a wait for them."""
    events = Events(V100)
    events.annotation("ProfilerStep#1", 0, 240)
    events.op("block", 10, 140)
    for number, (name, start, dur) in enumerate((("first", 45, 60), ("second", 107, 60), ("third", 169, 40))):
        at = 20 + 40 * number
        events.op(f"aten::{name}", at, 30)
        events.call(at + 10, 10, number + 1)
        events.kernel(name, start, dur, number + 1)
    events.call(160, 59, 9, name="cudaDeviceSynchronize")
    return events


def step_us(trace: ks.Trace, changes: dict[str, float | str]) -> tuple[float, float]:
    """The duration of the step after the changes, and at most, in us."""
    found = analysis.what_if(trace, changes)
    return found["after_ns"].item() / US, found["after_max_ns"].item() / US


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # The pauses of 2 us go; 10 us after the last kernel the host resumes, with 21 us to the end.
        ({"fuse:block": 1}, (236, 236)),
        # The kernels end after 125 us. At most, the host waits then for nothing, and needs 20 us less.
        ({"fuse:block": 0.5}, (156, 171)),
        # One kernel is one already.
        ({"fuse:aten::second": 1}, (240, 240)),
        # The first call takes 10 us, the first kernel starts 15 us after the call; all else is the GPU's.
        ({"graph": 0}, (189, 189)),
        ({"graph": 1}, (240, 240)),
        # The operator begins after 10 us, and has 21 us behind the wait.
        ({"graph:block": 0}, (220, 220)),
    ],
)
def test_fewer_launches(
    tmp_path: Path, changes: dict[str, float | str], expected: tuple[float, float]
) -> None:
    assert step_us(block().read(tmp_path), changes) == expected


def test_nothing_is_merged_across_a_wait(tmp_path: Path) -> None:
    events = Events()
    events.annotation("ProfilerStep#1", 0, 200)
    events.op("block", 10, 140)
    for number in range(2):
        at = 20 + 80 * number
        events.op("aten::mul", at, 20)
        events.call(at + 5, 10, number + 1)
        events.kernel("mul", at + 20, 20, number + 1)
    events.call(45, 20, 9, name="cudaStreamSynchronize")
    trace = events.read(tmp_path)
    assert step_us(trace, {"fuse:block": 1}) == (200, 200)
    # Both calls of 10 us remain, and the kernels start 15 us after they begin; then the host waits 5 us.
    assert step_us(trace, {"graph": 0})[0] == 15 + 20 + 5 + 15 + 20


def test_kernels_on_another_gpu(tmp_path: Path) -> None:
    events = Events(V100)
    events.annotation("ProfilerStep#1", 0, 900)
    big = [[4096, 4096]] * 2
    works = (
        ("aten::add", "add", 100, big), ("aten::mm", "volta_sgemm_128x64_nn", 200, big),
        ("custom::op", "custom", 100, [[8]]), ("aten::fill_", "fill", 4, [[1]]),
    )  # fmt: skip
    for number, (op, name, dur, dims) in enumerate(works):
        events.op(op, 10 + 20 * number, 10, Input_Dims=dims, Input_type=["float"] * len(dims))
        events.call(12 + 20 * number, 5, number + 1)
        events.kernel(name, 100 + 210 * number, dur, number + 1)
    events.call(95, 3, 8)
    events.kernel("ncclDevKernel_AllReduce", 850, 10, 8)
    trace = events.read(tmp_path)
    found = on_gpu(trace, dependencies(trace), "h100-sxm5").tail(trace.gpu_ops.height)
    own = dict(zip(trace.gpu_ops["name"].cast(str), found["own"], strict=True))
    most = dict(zip(trace.gpu_ops["name"].cast(str), found["most_own"], strict=True))
    memory, compute = 900 / 3350, 15.7 / 66.9
    # The 4 us of the shortest kernel stay.
    assert own["add"] == pytest.approx(0.04 + 0.96 * memory)
    assert own["volta_sgemm_128x64_nn"] == pytest.approx(0.02 + 0.98 * compute)
    assert most["volta_sgemm_128x64_nn"] == pytest.approx(0.02 + 0.98 * memory)
    assert (own["custom"], most["custom"]) == (pytest.approx(0.04 + 0.96 * memory), 1)
    assert own["fill"] == own["ncclDevKernel_AllReduce"] == most["ncclDevKernel_AllReduce"] == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": 0.5}, "gpu needs the name of a GPU"),
        ({"gpu": "h9000"}, "'h9000' is not in the table of GPUs"),
        ({"graph": 1.5}, "from 0 to 1"),
        ({"fuse:nothing*": 1}, "nothing in the trace matches fuse:nothing"),
        ({"fuse": 1}, "there is no change 'fuse'; did you mean fuse:"),
    ],
)
def test_impossible_changes(tmp_path: Path, changes: dict[str, float | str], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        analysis.what_if(block().read(tmp_path), changes)


def test_a_recorded_gpu_without_peaks(tmp_path: Path) -> None:
    events = Events({"id": 0, "name": "Unheard-of"})
    events.kernel("mul", 0, 10, 1)
    with pytest.raises(InvalidArgumentError, match="needs the peaks of the recorded GPU"):
        analysis.what_if(events.read(tmp_path), {"gpu": "H200 SXM"})


def test_command(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = block().write(tmp_path / "t.json")
    text = cli("what-if", path, "fuse:block=0.5").stdout
    assert "156.0 us instead of 240.0 us" in text
    text = cli("what-if", path, "gpu=H200 SXM", "graph=0").stdout
    assert "If gpu=H200 SXM, graph=0" in text
