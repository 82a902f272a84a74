"""Tables and stacks of GPU work against torch's own code, which is fed by hand: no GPU is needed for that."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import kernelscope as ks

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent

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
        event = FunctionEvent(
            id=len(events),
            name=name,
            thread=7,
            start_us=start,
            end_us=start + dur,
            use_device="cuda",
            input_shapes=[],
            overload_name="",
            flops=0,
            **options,
        )
        events.append(event)
        return event

    on_gpu = {"stack": [], "device_type": DeviceType.CUDA}
    for name, start, dur, stack, kernels in OPS:
        used = {
            "cpu_memory_usage": memory_during(start, start + dur, 0),
            "device_memory_usage": memory_during(start, start + dur, 1),
        }
        op = add(name, start, dur, stack=list(stack), **used)
        for kernel, _, length in kernels:
            op.append_kernel(kernel, 0, length)
    for kernel in (kernel for op in OPS for kernel in op[4]):
        add(*kernel, **on_gpu)
    add(*COPY, **on_gpu)
    add(*IMAGE, is_user_annotation=True, **on_gpu)
    loose = [(at, size) for at, size, kind in MEMORY if kind == 1 and at >= 300]
    for at, size in loose:
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
def test_table(trace: ks.Trace, sort_by: str | None, stacks: int) -> None:
    theirs = torch_events().key_averages(group_by_stack_n=stacks)
    ours = ks.compat.torch_profiler.key_averages(trace, group_by_stack_n=stacks)
    assert ours.table(sort_by=sort_by) == theirs.table(sort_by=sort_by)


@pytest.mark.parametrize("metric", ["cuda", "cpu"])
def test_export_stacks(trace: ks.Trace, metric: str, tmp_path: Path) -> None:
    torch_events().export_stacks(str(tmp_path / "stacks.txt"), f"self_{metric}_time_total")
    ours = ks.analysis.folded_stacks(trace, metric=f"self_{metric}", aggregate=False)
    lines = [f"{stack} {us}" for stack, us in ours.select("stack", "value_us").rows()]
    assert lines == (tmp_path / "stacks.txt").read_text().splitlines()
    assert len(lines) >= 2
