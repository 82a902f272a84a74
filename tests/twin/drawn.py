"""Traces drawn at random.

Calls nest on several threads, some overlap in part; launches start no work, one work or the many of a graph
on several streams and GPUs, or are lost; operators begin on one thread and go on on another; memory is
allocated and freed; Python frames and modules are around; gradients follow the operators of the forward
pass, on any thread. Several steps may have one number.
"""

from random import Random
from typing import Any

from hypothesis import strategies as st

from events import GRADIENT, V100, Events

NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
OPS = (
    "aten::mm", "aten::linear", "aten::add_", "c10d::allreduce_", "MmBackward0", "aten::copy_", NODE,
    "aten::gelu_backward", "CompiledFunction", "Scale",
)  # fmt: skip
ANNOTATIONS = ("nccl:all_reduce", "Optimizer.step#SGD.step", "my range", "enumerate(DataLoader)#_BaseIter")
KERNELS = (
    "sgemm",
    "elementwise",
    "s1688gemm_fp16",
    "ncclDevKernel_AllReduce_Sum_f32",
    "void dpsk::ep::internode::dispatch<8>(int)",
    "void vllm::cross_device_reduce_1stage<float, 2>(float*)",
    "triton_red_fused_all_reduce_0",
)
RECORDERS = {
    "cuda": ("cuda_runtime", "kernel", "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"),
    "xpu": ("xpu_driver", "kernel", "gpu_memcpy", "Memcpy M2D"),
    "privateuse1": ("privateuse1_runtime", "kernel", "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"),
    "mtia": ("mtia_runtime", "mtia_ccp_events", "mtia_ccp_events", "dma_request"),
}
"""The categories of calls, kernels and copies, and the name of a copy, of each device."""
CALLS = ("cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync", "cudaDeviceSynchronize")
FRAMES = (
    "nn.Module: Net_0", "nn.Module: Linear_0", "train.py(12): step", "nn.Module: Linear_1",
    "torch/_tensor.py(5): backward", "torch/autograd/graph.py(8): _engine_run_backward",
)  # fmt: skip
MOST_EVENTS = 70
LENGTH = 300
PROCESS = 7


class _Trace:
    """Draws the calls of a trace, inside one another, with what they launch."""

    def __init__(self, random: Random) -> None:
        self.random = random
        second = {**V100, "id": 1, "name": "NVIDIA H100", "computeMajor": 9, "numSms": 132}
        self.events = Events(*random.choice(([V100], [V100, second])))
        # Graphs are recorded with fractions of microseconds, too.
        self.unit = random.choice((1, 1, 0.25))
        self.recorder = RECORDERS[random.choice(sorted(RECORDERS))]
        self.correlation = 0
        self.left = MOST_EVENTS
        self.forward: list[tuple[int, int]] = []
        self.frames = 0
        self.allocated: list[tuple[int, int, int]] = []
        self.total = {0: 0, 1: 0}

    def number(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def happens(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def add(self, cat: str, name: str, at: float, length: float, **where: Any) -> None:
        self.events.add(cat, name, at * self.unit, length * self.unit, **where)

    def calls(self, start: int, stop: int, tid: int, depth: int) -> None:
        """Fills a time of a thread with calls."""
        at = start
        while at < stop and self.left > 0:
            self.left -= 1
            begin = self.number(at, stop)
            until = self.number(begin, stop)
            at = until + 1
            choice = self.number(0, 6)
            if choice <= 2 and depth:
                self.call(choice, begin, until, tid)
                self.calls(begin, until, tid, depth - 1)
            elif choice == 6:
                self.memory(begin, tid)
            elif choice > 2:
                self.launch(begin, until - begin, tid)

    def call(self, choice: int, begin: int, until: int, tid: int) -> None:
        identifier = next(self.events.ids)
        args: dict[str, Any] = {"External id": identifier}
        if not choice:
            name = self.random.choice(ANNOTATIONS)
            # An annotation may end after what is around it.
            late = self.number(0, 20) if self.happens(6) else 0
            self.add("user_annotation", name, begin, until - begin + late, tid=tid, args=args)
            return
        name = self.random.choice(OPS)
        if self.happens(3):
            sequence = self.number(1, 4)
            if self.forward and self.happens(2):
                name, sequence = GRADIENT, self.random.choice(self.forward)[0]
                args["Fwd thread id"] = 1
            else:
                self.forward.append((sequence, tid))
            args["Sequence number"] = sequence
        if self.happens(2):
            args |= {"Input Dims": [[8, 4], [4, 8]], "Input type": ["float", "float"]}
        self.add("cpu_op", name, begin, until - begin, tid=tid, args=args)
        if self.happens(8):
            # What goes on elsewhere has the id of the operator that began it.
            self.add("cpu_op", name, until + self.number(0, 9), self.number(0, 9), tid=tid + 1, args=args)

    def launch(self, at: int, length: int, tid: int) -> None:
        """A call and the works that it starts, of which none or several may have been recorded."""
        self.correlation += 1
        call, kernel, copy, copy_name = self.recorder
        args: dict[str, Any] = {"correlation": self.correlation}
        is_graph = self.happens(8)
        if not self.happens(10):
            name = "cudaGraphLaunch" if is_graph else self.random.choice(CALLS)
            self.add(call, name, at, length, tid=tid, args=args)
        graph = {"graph id": 5} if is_graph else {}
        for _ in range(self.number(3, 9) if is_graph else self.number(0, 2)):
            begin = at + self.number(0, 40)
            device, stream = self.number(0, 1), self.number(7, 8)
            recorded = {**args, **graph, "device": device, "stream": stream}
            where = {"pid": device, "tid": stream}
            if self.happens(5):
                self.add(copy, copy_name, begin, self.number(0, 30),
                         args={**recorded, "bytes": self.number(0, 9) * 64}, **where)  # fmt: skip
                continue
            size = {"grid": [self.number(1, 200), 1, 1], "block": [self.random.choice((64, 128, 256)), 1, 1]}
            size |= {"registers per thread": 32, "shared memory": self.random.choice((0, 60_000))}
            sized = size if self.happens(2) else {}
            # Streams of MTIA wait for events, which is no work.
            waits = ("event_wait",) if kernel == "mtia_ccp_events" else ()
            name = self.random.choice(KERNELS + waits)
            self.add(kernel, name, begin, self.number(0, 30), args={**recorded, **sized}, **where)

    def memory(self, at: int, tid: int) -> None:
        """An allocation, or a free of an earlier one or of what is older than the recording."""
        if self.allocated and self.happens(2):
            address, size, kind = self.allocated.pop(self.number(0, len(self.allocated) - 1))
            size = -size
        else:
            address, size, kind = self.number(1, 6) * 512, self.number(1, 9) * 512, self.number(0, 1)
            if self.happens(6):
                size = -size
            else:
                self.allocated.append((address, size, kind))
        self.total[kind] += size
        args = {"Addr": address, "Bytes": size, "Device Type": kind, "Device Id": kind - 1}
        if not self.happens(10):
            args |= {"Total Allocated": self.total[kind] + 90_000, "Total Reserved": 200_000 * kind}
        event = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": PROCESS}
        self.events.events.append({**event, "tid": tid, "ts": at * self.unit, "args": args})

    def python(self, start: int, stop: int, tid: int, above: int | None, depth: int) -> None:
        """Frames of Python inside one another."""
        at = start
        while depth and at < stop and self.happens(2):
            self.frames += 1
            name, begin = self.random.choice(FRAMES), self.number(at, stop)
            until, number = self.number(begin, stop), self.frames
            args: dict[str, Any] = {"Python id": number, "Python parent id": above}
            if name.startswith("nn.Module"):
                args["Python module id"] = FRAMES.index(name)
            self.add("python_function", name, begin, until - begin, tid=tid, args=args)
            self.python(begin, until, tid, number, depth - 1)
            at = until + 1


def draw(random: Random) -> Events:
    """A trace of what ``random`` chooses, its events in any order."""
    trace = _Trace(random)
    if random.random() < 0.5:
        # Two cycles of a profiler in one file count anew.
        cycle = trace.number(1, 4)
        for step in range(trace.number(1, 3)):
            args = {"External id": next(trace.events.ids)}
            trace.add("user_annotation", f"ProfilerStep#{step % cycle}", 100 * step, 100, args=args)
    for tid in range(7, 7 + trace.number(1, 3)):
        trace.calls(0, LENGTH, tid, 3)
        trace.python(0, LENGTH, tid, None, 3)
    random.shuffle(trace.events.events)
    return trace.events


def randoms() -> st.SearchStrategy[Random]:
    """Whatever chooses; what fails is shown by its seed."""
    return st.builds(Random, st.integers(0, 2**64 - 1))


def traces() -> st.SearchStrategy[Events]:
    """Traces, each by the seed of what chooses."""
    return st.builds(draw, randoms())
