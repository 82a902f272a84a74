"""Traces and tables of the installed PyTorch against what it says of them itself."""

from __future__ import annotations

import dataclasses
import gzip
import importlib.util
import inspect
import json
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
from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function


class Recorded(NamedTuple):
    profiler: Any
    path: Path
    trace: ks.Trace


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Three training steps on the CPU."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    batch = torch.randn(32, 8)
    path = tmp_path_factory.mktemp("torch") / "cpu.pt.trace.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        record_shapes=True,
        profile_memory=True,
    ) as profiler:
        for _ in range(4):
            with record_function("forward"):
                loss = model(batch).sum()
            loss.backward()
            profiler.step()
    return Recorded(profiler, path, ks.read(path, strict=True))


def test_counts_and_times(recorded: Recorded) -> None:
    theirs = {row.key: row for row in recorded.profiler.key_averages()}
    rows = ks.compat.torch_profiler.key_averages(recorded.trace).filter(pl.col("device") == "cpu").to_dicts()
    assert {row["name"]: row["count"] for row in rows} == {name: row.count for name, row in theirs.items()}
    for row in rows:
        # The file has ns; the profiler's own table rounds each call to the us.
        total_us = round(theirs[row["name"]].cpu_time_total)
        assert round(row["cpu_total_ns"] / 1000) == pytest.approx(total_us, abs=row["count"] + 1), row["name"]


def test_nothing_is_lost_or_repaired(recorded: Recorded) -> None:
    trace = recorded.trace
    assert trace.meta.seen == trace.meta.kept > 100
    assert trace.diagnostics.filter(pl.col("severity").cast(pl.String) != "info").is_empty()
    assert trace.meta.flags == {"record_shapes": True, "profile_memory": True}
    assert trace.steps["step"].drop_nulls().len() == 3
    assert {"forward", "backward"} <= set(trace.ops["phase"].drop_nulls().cast(pl.String))


def test_compressed_is_the_same(recorded: Recorded, tmp_path: Path) -> None:
    packed = tmp_path / "cpu.json.gz"
    packed.write_bytes(gzip.compress(recorded.path.read_bytes()))
    unpacked = ks.read(packed)
    for name, frame in recorded.trace.tables.items():
        assert unpacked.tables[name].equals(frame), name


@pytest.mark.parametrize("name", ['a"b', "back\\slash", "tab\there", "é", "nan", "}, {", "\x01"])
def test_any_annotation_name(tmp_path: Path, name: str) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        with record_function(name):
            torch.ones(3).sum()
        torch.zeros(3)
    path = tmp_path / "named.json"
    profiler.export_chrome_trace(str(path))
    trace = ks.read(path)
    assert (trace.meta.dropped, trace.meta.seen) == (0, trace.meta.kept)
    assert {"aten::sum", "aten::zeros"} <= set(trace.ops["name"].cast(pl.String))
    assert trace.ops.filter(pl.col("category").cast(pl.String) == "user_annotation").height == 1


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(16, 32)
        self.outer = torch.nn.Linear(32, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.outer(torch.relu(self.inner(x))))


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Two training steps with shapes, memory, FLOPs and call stacks."""
    path = tmp_path_factory.mktemp("torch") / "cpu.json"
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
    profiler.export_chrome_trace(str(path))
    return Recorded(profiler, path, ks.read(path))


def averages(profiled: Recorded, **options: Any) -> tuple[Any, ks.compat.torch_profiler.KeyAverages]:
    """Torch's rows and ours; newer versions of torch leave Python frames out."""
    known = inspect.signature(profiled.profiler.profiler.key_averages).parameters
    has_frames = "include_python_functions" not in known
    return profiled.profiler.key_averages(**options), ks.compat.torch_profiler.key_averages(
        profiled.trace, include_python_functions=has_frames, **options
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
        *({}, {"group_by_input_shape": True}),
        *({"group_by_stack_n": 4}, {"group_by_stack_n": 2, "group_by_input_shape": True}),
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
def test_table(profiled: Recorded, grouping: dict[str, Any], options: dict[str, Any]) -> None:
    theirs, ours = averages(profiled, **grouping)
    assert_same_text(ours.table(**options), theirs.table(**options))


@pytest.mark.parametrize(
    ("sort_by", "column"),
    [("cpu_time_total", 4), ("self_cpu_time_total", 2), ("cpu_time", 5), ("self_cpu_memory_usage", 7)],
)
def test_sorted_table(profiled: Recorded, sort_by: str, column: int) -> None:
    theirs, ours = averages(profiled)
    mine, other = ours.table(sort_by=sort_by, row_limit=-1), theirs.table(sort_by=sort_by, row_limit=-1)
    # Rows of equal time may stand in another order, for torch's sums are not exact.
    names = [sorted(line.split()[0] for line in text.splitlines()) for text in (mine, other)]
    assert names[0] == names[1]
    value = [[row[column] for row in cells(text)[3:-2]] for text in (mine, other)]
    for a, b in zip(*value, strict=True):
        assert a == b or is_tie(a, b)


def test_time_unit(profiled: Recorded) -> None:
    theirs, ours = averages(profiled)
    if "time_unit" not in inspect.signature(theirs.table).parameters:
        pytest.skip("this version of torch has no time_unit")
    for unit in ("s", "ms", "us"):
        assert_same_text(ours.table(time_unit=unit), theirs.table(time_unit=unit))


def test_stacks_of_every_event(profiled: Recorded) -> None:
    """Every event has torch's stack: a gradient that of its forward operator."""
    from kernelscope.analysis.ops.call_stacks import recorded_stacks, split_frames
    from kernelscope.compat.torch_profiler.key_averages import torch_events

    ours = torch_events(profiled.trace, stacks=recorded_stacks(profiled.trace))
    frames = dict(split_frames(ours["stack"]).rows())
    theirs = profiled.profiler.events()
    assert ours["name"].to_list() == [event.key for event in theirs]
    assert [frames[stack] for stack in ours["stack"]] == [list(event.stack or []) for event in theirs]
    assert sum(len(event.stack or []) > 0 for event in theirs) > 500


def test_export_stacks(profiled: Recorded) -> None:
    path = profiled.path.with_name("stacks.txt")
    profiled.profiler.export_stacks(str(path), "self_cpu_time_total")
    ours = ks.analysis.folded_stacks(profiled.trace, aggregate=False)
    theirs = [line.rsplit(" ", 1) for line in path.read_text().splitlines()]
    # A whole number of microseconds may come out of torch's floats as one less, and one as none.
    whole = {row for row in ours.rows() if row[1] % 1000 == 0}
    certain = [(stack, us) for stack, ns, us, _ in ours.rows() if (stack, ns, us, 1) not in whole]
    undecided = {(stack, us - less) for stack, _, us, _ in whole for less in (0, 1)}
    # Where calls overlap in part, torch computes less than nothing for that around them, and leaves it out.
    written = str.maketrans(" ;\t\n", "____")
    negative = {
        ";".join(frame.translate(written) for frame in reversed(event.stack))
        for event in profiled.profiler.events()
        if event.self_cpu_time_total < 0
    }
    found = [(stack, int(us)) for stack, us in theirs]
    assert [row for row in found if row not in undecided and row[0] not in negative] == [
        row for row in certain if row not in undecided and row[0] not in negative
    ]
    assert len(theirs) > 500 > 20 * len(whole)


def test_stacks_without_a_verbose_profiler_are_put_together(profiled: Recorded) -> None:
    """What the Python frames of a trace tell of a stack is what torch profiled of it."""
    trace = profiled.trace
    silent = {
        name: trace.tables[name].with_columns(call_stack=pl.lit(None, trace.ops.schema["call_stack"]))
        for name in ("ops", "python")
    }
    quiet = dataclasses.replace(trace, **silent)
    rebuilt = ks.analysis.folded_stacks(quiet, aggregate=False).rows()
    known = ks.analysis.folded_stacks(trace, aggregate=False).rows()
    assert len(rebuilt) == len(known)
    same = sum(a == b for a, b in zip(rebuilt, known, strict=True))
    # The profiler's own frames begin and end at times of another clock.
    assert same >= 0.95 * len(known)


STACK = ["<built-in function linear>", "linear.py(1): forward", "nn.Module: Linear_0", "train.py(3): step"]

# Name, start, duration (us), call stack, kernels below as (name, start, duration).
OPS: list[tuple[str, int, int, list[str], list[tuple[str, int, int]]]] = [
    ("aten::linear", 10, 50, STACK, []),
    ("aten::addmm", 20, 30, STACK, [("gemm", 100, 1_500), ("bias; split k", 1_650, 80)]),
    ("aten::relu", 70, 20, STACK[2:], [("relu", 1_800, 7)]),
    ("aten::empty", 100, 5, [], []),
]
# Time, bytes, and device: 0 for the host, 1 for the GPU.
MEMORY = [(25, 3 << 20, 1), (26, 2048, 0), (75, -512, 1), (300, 5 << 30, 1)]
COPY = ("Memcpy HtoD (Pageable -> Device)", 2_000, 40)
IMAGE = ("my range", 100, 1_580)


def document() -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    for number, (name, start, dur, stack, kernels) in enumerate(OPS, 1):
        args = {"External id": number, "Call stack": ";".join([*stack, ""]) if stack else ""}
        host = {"ph": "X", "pid": 7, "tid": 7}
        events.append({**host, "cat": "cpu_op", "name": name, "ts": start, "dur": dur, "args": args})
        for place, (kernel, at, length) in enumerate(kernels):
            ids = {"External id": number, "correlation": 100 * number + place, "device": 0, "stream": 7}
            work = {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7}
            events.append({**work, "ts": at, "dur": length, "args": ids})
    work = {"ph": "X", "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7, "correlation": 999}}
    for category, (name, start, dur) in (("gpu_memcpy", COPY), ("gpu_user_annotation", IMAGE)):
        events.append({**work, "cat": category, "name": name, "ts": start, "dur": dur})
    for at, size, kind in MEMORY:
        args = {"Bytes": size, "Device Type": kind, "Device Id": kind - 1, "Addr": 5}
        record = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 7}
        events.append({**record, "ts": at, "args": args})
    return {"schemaVersion": 1, "profile_memory": 1, "traceEvents": events}


def memory_during(start: int, end: int, kind: int) -> int:
    return sum(size for at, size, device in MEMORY if start <= at <= end and device == kind)


def torch_events() -> EventList:
    """What torch makes of such a recording."""
    events: list[FunctionEvent] = []

    def add(name: str, start: int, dur: int, **options: Any) -> FunctionEvent:
        known = {"id": len(events), "name": name, "thread": 7, "use_device": "cuda", "overload_name": ""}
        known |= {"start_us": start, "end_us": start + dur, "input_shapes": [], "flops": 0}
        events.append(FunctionEvent(**known, **options))
        return events[-1]

    on_gpu = {"stack": [], "device_type": DeviceType.CUDA}
    for name, start, dur, stack, kernels in OPS:
        host, device = (memory_during(start, start + dur, kind) for kind in (0, 1))
        op = add(name, start, dur, stack=list(stack), cpu_memory_usage=host, device_memory_usage=device)
        for kernel, _, length in kernels:
            op.append_kernel(kernel, 0, length)
    for kernel in (kernel for op in OPS for kernel in op[4]):
        add(*kernel, **on_gpu)
    add(*COPY, **on_gpu)
    add(*IMAGE, is_user_annotation=True, **on_gpu)
    for at, size, kind in MEMORY:
        if kind == 1 and at >= 300:
            add("[memory]", at, 0, stack=[], device_memory_usage=size)
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    made = EventList(events, use_device="cuda", profile_memory=True, with_flops=False)
    made._build_tree()
    return made


@pytest.fixture
def trace(tmp_path: Path) -> ks.Trace:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(document()))
    return ks.read(path)


@pytest.mark.parametrize(
    "sort_by", [None, "self_cuda_time_total", "cuda_time_total", "self_cuda_memory_usage"]
)
@pytest.mark.parametrize("stacks", [0, 2])
def test_device_table(trace: ks.Trace, sort_by: str | None, stacks: int) -> None:
    theirs = torch_events().key_averages(group_by_stack_n=stacks)
    ours = ks.compat.torch_profiler.key_averages(trace, group_by_stack_n=stacks)
    assert ours.table(sort_by=sort_by) == theirs.table(sort_by=sort_by)


@pytest.mark.parametrize("metric", ["cuda", "cpu"])
def test_export_device_stacks(trace: ks.Trace, metric: str, tmp_path: Path) -> None:
    torch_events().export_stacks(str(tmp_path / "stacks.txt"), f"self_{metric}_time_total")
    ours = ks.analysis.folded_stacks(trace, metric=f"self_{metric}", aggregate=False)
    lines = [f"{stack} {us}" for stack, us in ours.select("stack", "value_us").rows()]
    assert lines == (tmp_path / "stacks.txt").read_text().splitlines()
    assert len(lines) >= 2
