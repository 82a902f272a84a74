"""The backward pass, which threads of autograd run while the thread that called it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from events import Events
from kernelscope import analysis
from kernelscope.check import LAWS
from nsys_database import Database, global_tid

NODE = "autograd::engine::evaluate_function: "
MAIN, AUTOGRAD, OTHER = 7, 8, 9


class Training(Events):
    """Annotations, operators that launch kernels, and Python frames, on any thread."""

    def __init__(self) -> None:
        super().__init__()
        self.correlation = 0

    def annotated(self, name: str, start: float, duration: float, *, tid: int = MAIN) -> None:
        self.add("user_annotation", name, start, duration, tid=tid, args={"External id": next(self.ids)})

    def launch(self, start: float, duration: float, *, tid: int, copy: bool = False) -> None:
        """A launch at ``start`` of work of ``duration`` that runs alone."""
        self.correlation += 1
        args = {"correlation": self.correlation}
        self.add(
            "cuda_runtime", "cudaMemcpyAsync" if copy else "cudaLaunchKernel", start, 1, tid=tid, args=args
        )
        work = self.copy if copy else lambda *times: self.kernel("kernel", *times)
        work(100 * start, duration, self.correlation)

    def forward(self, start: float, sequence: int, *, tid: int = MAIN) -> None:
        self.op("aten::mm", start, 5, tid=tid, Sequence_number=sequence)

    def node(self, start: float, duration: float, sequence: int | None, *, tid: int = AUTOGRAD) -> None:
        """A node of the backward pass that launches work of ``duration``; without a number it accumulates."""
        numbers: dict[str, Any] = {}
        if sequence is not None:
            numbers = {"Sequence_number": sequence, "Fwd_thread_id": 1}
        name = "torch::autograd::AccumulateGrad" if sequence is None else "MmBackward0"
        self.op(f"{NODE}{name}", start, 10, tid=tid, **numbers)
        self.op(name, start + 1, 8, tid=tid, **numbers)
        self.launch(start + 2, duration, tid=tid)

    def frame(self, name: str, start: float, duration: float, *, tid: int = MAIN) -> None:
        self.add("python_function", name, start, duration, tid=tid)


def found(trace: ks.Trace) -> dict[str, tuple[int, int]]:
    """Device time and the part of it from other threads by annotation, in us; no law is broken."""
    for law in LAWS:
        assert not list(law.find(trace)), law.statement
    table = analysis.annotation_table(trace)
    times = table.select(pl.col("device_total_ns", "other_thread_ns") // 1_000)
    return dict(zip(table["name"].to_list(), times.rows(), strict=True))


@pytest.mark.parametrize("threads", [(7, 8, 9), (9, 8, 7), (8, 7, 9)])
def test_backward_belongs_to_what_the_calling_thread_has_open(
    threads: tuple[int, int, int], tmp_path: Path
) -> None:
    main, autograd, loader = threads
    events = Training()
    events.annotated("ProfilerStep#22", 0, 900, tid=main)
    events.annotated("forward", 10, 50, tid=main)
    events.forward(20, 5, tid=main)
    events.launch(21, 100, tid=main)
    events.annotated("backward", 100, 500, tid=main)
    events.node(200, 30, None, tid=autograd)
    events.node(300, 300, 5, tid=autograd)
    # Nodes that accumulate gradients have no number: that of the neighbours tells.
    events.node(320, 40, None, tid=autograd)
    events.launch(400, 7, tid=loader, copy=True)
    trace = events.read(tmp_path)
    assert found(trace) == {"ProfilerStep#22": (470, 370), "backward": (370, 370), "forward": (100, 0)}
    alone = analysis.annotation_table(trace).filter(pl.col("name") == "backward")
    assert alone.select("gpu_ops", "gpu_exclusive_ns").row(0) == (3, 370_000)


def test_the_backward_pass_of_another_model_does_not_match(tmp_path: Path) -> None:
    events = Training()
    for sequence, tid in ((5, MAIN), (6, OTHER)):
        events.forward(10 + sequence, sequence, tid=tid)
    events.annotated("mine", 100, 800)
    events.annotated("other", 100, 800, tid=OTHER)
    events.node(200, 10, 5)
    # Between nodes of two models: nobody can tell whose gradient it is.
    events.node(300, 1_000, None)
    events.node(400, 20, 6)
    events.node(500, 40, None)
    trace = events.read(tmp_path)
    assert found(trace) == {"mine": (10, 10), "other": (60, 60)}


def test_python_tells_the_caller_where_no_forward_does(tmp_path: Path) -> None:
    def events(*frames: tuple[str, int]) -> dict[str, tuple[int, int]]:
        events = Training()
        events.annotated("backward", 0, 900)
        events.annotated("other", 0, 900, tid=OTHER)
        events.node(200, 10, None)
        for name, tid in frames:
            events.frame(name, 100, 500, tid=tid)
        return found(events.read(tmp_path))

    nothing, mine = {"backward": (0, 0), "other": (0, 0)}, {"backward": (10, 10), "other": (0, 0)}
    engine = "torch/autograd/graph.py(823): _engine_run_backward"
    assert events() == nothing
    assert events(("train.py(3): step", MAIN)) == nothing
    for name in (engine, "torch/_tensor.py(570): backward", "torch/autograd/__init__.py(400): grad",
                 "<built-in method run_backward of torch._C._EngineBase object at 0x7f00>"):  # fmt: skip
        assert events((name, MAIN)) == mine, name
    # An annotation on a thread of its own that is only named as nodes are is none.
    events_of_name = Training()
    events_of_name.annotated("backward", 0, 900)
    events_of_name.annotated("LossBackward", 10, 800, tid=OTHER)
    events_of_name.launch(20, 10, tid=OTHER)
    events_of_name.frame(engine, 0, 900)
    assert found(events_of_name.read(tmp_path)) == {"backward": (0, 0), "LossBackward": (10, 0)}
    # The frame of the engine counts before a function that only has the name.
    assert events((engine, MAIN), ("train.py(3): backward", OTHER)) == mine
    assert events((engine, MAIN), (engine, OTHER)) == nothing
    # A thread that runs its own backward pass waits for nobody.
    assert events((engine, MAIN), (engine, AUTOGRAD)) == nothing


def test_a_node_that_calls_backward_passes_work_on_for_the_first_caller(tmp_path: Path) -> None:
    events = Training()
    events.forward(10, 5)
    events.annotated("backward", 100, 800)
    events.op(f"{NODE}CheckpointFunctionBackward", 200, 500, tid=AUTOGRAD, Sequence_number=5, Fwd_thread_id=1)
    events.forward(210, 6, tid=AUTOGRAD)
    args = {"Sequence_number": 6, "Fwd_thread_id": 2}
    events.op(f"{NODE}MmBackward0", 300, 100, tid=OTHER, **args)
    events.launch(320, 30, tid=OTHER)
    assert found(events.read(tmp_path)) == {"backward": (30, 30)}


def test_an_annotation_on_the_thread_of_autograd_is_the_inner_one(tmp_path: Path) -> None:
    events = Training()
    events.forward(10, 5)
    events.annotated("backward", 100, 500)
    events.node(200, 10, 5)
    events.node(300, 20, None)
    events.annotated("nccl:all_reduce", 301, 6, tid=AUTOGRAD)
    trace = events.read(tmp_path)
    assert found(trace) == {"backward": (30, 30), "nccl:all_reduce": (20, 0)}
    own = analysis.annotation_table(trace).select("name", "gpu_exclusive_ns")
    assert dict(own.iter_rows()) == {"backward": 10_000, "nccl:all_reduce": 20_000}


def test_gradients_have_module_and_line_of_the_caller(tmp_path: Path) -> None:
    events = Training()
    events.frame("train.py(12): fit", 0, 900)
    events.frame("nn.Module: Trainer_0", 50, 800)
    events.frame("torch/_tensor.py(570): backward", 100, 500)
    events.node(200, 10, None)
    trace = events.read(tmp_path)
    assert trace.ops["module"].cast(pl.String).to_list() == ["Trainer_0", "Trainer_0"]
    by_line = analysis.op_table(trace, by=("name", "call_stack"))
    stack = "torch/_tensor.py(570): backward;train.py(12): fit"
    assert by_line["call_stack"].to_list() == [stack, stack]


def nvtx(path: Path, *, loads: bool = False, names: bool = True) -> ks.Trace:
    """One kernel of a thread with a range, one that autograd launches for it, a copy of a third thread."""
    database = Database(path, schema={"ThreadNames": "nameId INTEGER, priority INTEGER, globalTid INTEGER"})
    for number, name in ((20, "pt_autograd_0"), (21, "cudaMemcpyAsync_v3020")):
        database.insert("StringIds", id=number, value=name)
    if names:
        database.insert("ThreadNames", nameId=20, priority=0, globalTid=global_tid(7, AUTOGRAD))
    database.range("step", 0, 900)
    database.range("loss", 100, 500)
    database.range("load", 0, 900, globalTid=global_tid(7, OTHER))
    places = (("kernel", 10, MAIN), ("kernel", 200, AUTOGRAD), ("kernel" if loads else "copy", 300, OTHER))
    for number, (what, start, tid) in enumerate(places, 1):
        changes = {} if what == "kernel" else {"nameId": 21}
        database.call(start, start + 5, correlation=number, globalTid=global_tid(7, tid), **changes)
        database.kernel(start + 1_000, start + 1_000 + 10 * number, correlation=number)
    return ks.read(database.close())


def test_ranges_have_what_threads_of_autograd_launch(tmp_path: Path) -> None:
    def sums(trace: ks.Trace) -> dict[str, tuple[int, ...]]:
        table = analysis.nvtx_table(trace).select("name", "gpu_busy_ns", "other_thread_ns", "gpu_ops")
        return {name: figures for name, *figures in table.iter_rows()}

    trace = nvtx(tmp_path / "a.sqlite")
    assert sums(trace) == {"step": [30, 20, 2], "loss": [20, 20, 1], "load": [30, 0, 1]}
    # Which of two threads that launch kernels waits, nothing tells; and an unnamed thread may be any.
    apart = {"step": [10, 0, 1], "load": [30, 0, 1]}
    assert sums(nvtx(tmp_path / "b.sqlite", loads=True)) == apart
    assert sums(nvtx(tmp_path / "c.sqlite", names=False)) == apart
    # As nsys answers, which knows of no thread that waits.
    report = ks.compat.nsys.nsys_report(trace, "nvtx_gpu_proj_sum")
    assert sorted(report["name"].to_list()) == ["load", "step"]
