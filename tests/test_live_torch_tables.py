"""Tables and stacks of a profile that the installed PyTorch makes here, against what it prints itself."""

from __future__ import annotations

import importlib.util
import inspect
import re
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import kernelscope as ks

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch
from torch.profiler import ProfilerActivity, profile, record_function


class Recorded(NamedTuple):
    profiler: Any
    trace: ks.Trace
    folder: Path


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(16, 32)
        self.outer = torch.nn.Linear(32, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.outer(torch.relu(self.inner(x))))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Two training steps with shapes, memory, FLOPs and call stacks."""
    folder = tmp_path_factory.mktemp("torch")
    network = torch.nn.Sequential(Block(), Block())
    optimizer = torch.optim.AdamW(network.parameters())
    batch = torch.randn(64, 16)
    image, filters = torch.randn(2, 4, 9, 9), torch.randn(6, 2, 3, 3)

    def step() -> None:
        with record_function("forward pass; x"):
            loss = network(batch).pow(2).mean() + torch.conv2d(image, filters, stride=2, groups=2).sum() * 0
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_flops=True,
        experimental_config=verbose,
    ) as profiler:
        for _ in range(2):
            step()
    profiler.export_chrome_trace(str(folder / "cpu.json"))
    return Recorded(profiler, ks.read(folder / "cpu.json"), folder)


def averages(recorded: Recorded, **options: Any) -> tuple[Any, ks.compat.torch_profiler.KeyAverages]:
    """Torch's rows and ours; newer versions of torch leave Python frames out."""
    theirs = recorded.profiler.key_averages(**options)
    has_frames = (
        "include_python_functions"
        not in inspect.signature(recorded.profiler.profiler.key_averages).parameters
    )
    return theirs, ks.compat.torch_profiler.key_averages(
        recorded.trace, include_python_functions=has_frames, **options
    )


def cells(text: str) -> list[list[str]]:
    return [re.split(r"  +", line.strip()) for line in text.splitlines()]


def is_tie(ours: str, theirs: str) -> bool:
    """Whether two times differ by one in the last digit: torch adds up floats and rounds ties either way."""
    units = {"s": 10**9, "ms": 10**6, "us": 10**3}
    a, b = (re.fullmatch(r"(-?[\d.]+)(us|ms|s)", cell) for cell in (ours, theirs))
    if a is None or b is None or a[2] != b[2]:
        return False
    return abs(Fraction(a[1]) - Fraction(b[1])) * units[a[2]] == Fraction(units[a[2]], 1000)


def assert_same_text(ours: str, theirs: str) -> None:
    ties = 0
    assert [len(line) for line in ours.splitlines()] == [len(line) for line in theirs.splitlines()]
    for mine, other in zip(cells(ours), cells(theirs), strict=True):
        for a, b in zip(mine, other, strict=True):
            if a != b:
                assert is_tie(a, b), (mine, other)
                ties += 1
    # Each row has a mean, whose last digit is undecided where the sum is odd; nothing else may often be.
    assert ties <= len(ours.splitlines())


@pytest.mark.parametrize(
    "grouping",
    [
        {},
        {"group_by_input_shape": True},
        {"group_by_stack_n": 4},
        {"group_by_stack_n": 2, "group_by_input_shape": True},
    ],
    ids=["plain", "shape", "stack", "stack-and-shape"],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "row_limit": -1,
            "max_name_column_width": 20,
            "max_shapes_column_width": 10,
            "max_src_column_width": 30,
        },
        {"row_limit": 7, "header": "a header", "max_name_column_width": None, "max_src_column_width": None},
        {"sort_by": "count", "row_limit": 3},
    ],
    ids=["defaults", "narrow", "header", "sorted"],
)
def test_table(recorded: Recorded, grouping: dict[str, Any], options: dict[str, Any]) -> None:
    theirs, ours = averages(recorded, **grouping)
    assert_same_text(ours.table(**options), theirs.table(**options))


@pytest.mark.parametrize(
    "sort_by", ["cpu_time_total", "self_cpu_time_total", "cpu_time", "self_cpu_memory_usage"]
)
def test_sorted_table(recorded: Recorded, sort_by: str) -> None:
    theirs, ours = averages(recorded)
    mine, other = ours.table(sort_by=sort_by, row_limit=-1), theirs.table(sort_by=sort_by, row_limit=-1)
    # Rows of equal time may stand in another order, for torch's sums are not exact.
    assert sorted(line.split()[0] for line in mine.splitlines()) == sorted(
        line.split()[0] for line in other.splitlines()
    )
    column = {"cpu_time_total": 4, "self_cpu_time_total": 2, "cpu_time": 5, "self_cpu_memory_usage": 7}[
        sort_by
    ]
    value = [[row[column] for row in cells(text)[3:-2]] for text in (mine, other)]
    for a, b in zip(*value, strict=True):
        assert a == b or is_tie(a, b)


def test_time_unit(recorded: Recorded) -> None:
    theirs, ours = averages(recorded)
    if "time_unit" not in inspect.signature(theirs.table).parameters:
        pytest.skip("this version of torch has no time_unit")
    for unit in ("s", "ms", "us"):
        assert_same_text(ours.table(time_unit=unit), theirs.table(time_unit=unit))


def test_stacks_of_every_event(recorded: Recorded) -> None:
    """Every event has torch's stack: a gradient that of its forward operator."""
    from kernelscope.analysis.ops.call_stacks import recorded_stacks, split_frames
    from kernelscope.compat.torch_profiler.key_averages import torch_events

    ours = torch_events(recorded.trace, stacks=recorded_stacks(recorded.trace))
    frames = dict(split_frames(ours["stack"]).rows())
    theirs = recorded.profiler.events()
    assert ours["name"].to_list() == [event.key for event in theirs]
    assert [frames[stack] for stack in ours["stack"]] == [list(event.stack or []) for event in theirs]
    assert sum(len(event.stack or []) > 0 for event in theirs) > 500


def test_export_stacks(recorded: Recorded) -> None:
    path = recorded.folder / "stacks.txt"
    recorded.profiler.export_stacks(str(path), "self_cpu_time_total")
    ours = ks.analysis.folded_stacks(recorded.trace, aggregate=False)
    theirs = [line.rsplit(" ", 1) for line in path.read_text().splitlines()]
    # A whole number of microseconds may come out of torch's floats as one less, and one as none.
    whole = {row for row in ours.rows() if row[1] % 1000 == 0}
    certain = [(stack, us) for stack, ns, us, _ in ours.rows() if (stack, ns, us, 1) not in whole]
    undecided = {(stack, us - less) for stack, _, us, _ in whole for less in (0, 1)}
    assert [(stack, int(us)) for stack, us in theirs if (stack, int(us)) not in undecided] == [
        row for row in certain if row not in undecided
    ]
    assert len(theirs) > 500 > 20 * len(whole)


def test_stacks_without_a_verbose_profiler_are_put_together(recorded: Recorded) -> None:
    """What the Python frames of a trace tell of a stack is what torch recorded of it."""
    import dataclasses

    trace = recorded.trace
    quiet = dataclasses.replace(
        trace,
        **{
            name: frame.with_columns(call_stack=pl.lit(None, frame.schema["call_stack"]))
            for name, frame in (("ops", trace.ops), ("python", trace.python))
        },
    )
    rebuilt = ks.analysis.folded_stacks(quiet, aggregate=False).rows()
    known = ks.analysis.folded_stacks(trace, aggregate=False).rows()
    assert len(rebuilt) == len(known)
    same = sum(a == b for a, b in zip(rebuilt, known, strict=True))
    # The profiler's own frames begin and end at times of another clock.
    assert same >= 0.95 * len(known)
