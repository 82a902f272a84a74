"""What findings promise is what a program would save: each is run with and without its cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from advice_programs import H100
from simulated import Simulated
from simulated_sharding import Sharded

import kernelscope as ks
from events import GRADIENT, V100
from kernelscope import analysis
from kernelscope.analysis.advice.table import RULES
from kernelscope.cli.main import main
from kernelscope.report.rendering import render
from nsys_database import Database, global_tid

LEAST, MOST = 0.9, 1.1
"""A promise is at least and at most this multiple of the time that is gone without the cause."""

V100_32 = V100 | {"name": "Tesla V100-SXM2-32GB"}
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ADD = "vectorized_elementwise_kernel<4, Add>"

Build = Callable[[Simulated, bool], None]


def kernels(program: Simulated, count: int = 10, dur: float = 60, **options: Any) -> None:
    for _ in range(count):
        program.run("k", dur, **options)


def loading(program: Simulated, cause: bool) -> None:
    program.work(LOADER, 400 if cause else 5, "user_annotation")
    kernels(program)


def launching(program: Simulated, cause: bool) -> None:
    if cause:
        kernels(program, 120, 6, host=12)
    else:
        # A graph: one launch, then its kernels, one after the other.
        program.run("k", 6, host=12, call="cudaGraphLaunch")
        for _ in range(119):
            program.works += 1
            program.kernel("k", program.busy[7], 6, program.works)
            program.busy[7] += 6


def serving(program: Simulated, cause: bool) -> None:
    program.work("vllm::all_reduce", 2)
    launching(program, cause)


def other_work(program: Simulated, cause: bool) -> None:
    kernels(program, 5)
    program.work("json::loads", 2500 if cause else 10)
    kernels(program, 5)


def syncing(program: Simulated, cause: bool) -> None:
    for _ in range(10):
        program.run("k", 100)
        if cause:
            program.wait()
            program.work("aten::item", 40)


def queueing(program: Simulated, cause: bool) -> None:
    kernels(program, 5)
    kernels(program, 5, after=program.busy[7] + 300 if cause else 0)


def optimizing(program: Simulated, cause: bool) -> None:
    kernels(program, 2, 500)
    durs = [3 + index % 3 for index in range(150)]
    began = program.now
    if cause:
        for dur in durs:
            program.run(ADD, dur, host=2.5, op="aten::add_")
    else:
        program.run("multi_tensor_apply_kernel", 3 + sum(dur - 3 for dur in durs), op="aten::_fused_adam_")
    program.annotation("Optimizer.step#SGD.step", began - 0.5, program.now - began + 1)


def pageable(program: Simulated, cause: bool) -> None:
    for _ in range(6):
        if cause:
            program.copy_in("Pageable", 50, waits=True)
        else:
            program.copy_in("Pinned", 50, stream=20)
        kernels(program, 2, 60)


def copying(program: Simulated, cause: bool) -> None:
    for _ in range(6):
        if cause:
            program.copy_in("Pinned", 150)
        kernels(program, 2, 60)


def small(program: Simulated, cause: bool) -> None:
    kernels(program, 4, 100, **{"blocks per SM": 8})
    kernels(program, 4, *((200,) if cause else (50,)), **{"blocks per SM": 0.25 if cause else 1})


def products(program: Simulated, cause: bool) -> None:
    # 15.7 TFLOP/s without tensor cores, 125 with them.
    program.run("volta_h884gemm_128x64_ldg8_nn", 100, op="aten::mm")
    name, dur = ("volta_sgemm_128x64_nn", 900) if cause else ("volta_h884gemm_64x64", 900 * 15.7 / 125)
    program.run(name, dur, op="aten::mm")
    kernels(program, 5, 40)


def precise(program: Simulated, cause: bool) -> None:
    name, dur = ("volta_sgemm_128x64_nn", 900) if cause else ("volta_h884gemm_64x64", 900 * 15.7 / 125)
    program.run(name, dur, op="aten::mm")
    kernels(program, 5, 40)


def converting(program: Simulated, cause: bool) -> None:
    for _ in range(6):
        if cause:
            program.run("void cudnn::ops::nchwToNhwcKernel<float>", 40)
        program.run("sm80_xmma_fprop", 100)


def chaining(program: Simulated, cause: bool) -> None:
    for _ in range(6):
        for dur in (40, 60, 50) if cause else (60,):
            program.run(ADD, dur)
        program.run("gemm", 80)


def chaining_while_launching(program: Simulated, cause: bool) -> None:
    """A host that launches too slowly launches less, too."""
    for _ in range(6):
        for dur in (40, 60, 50) if cause else (60,):
            program.run(ADD, dur, host=70, op="aten::add")
        program.run("gemm", 60, host=70, op="aten::mm")


def attending(program: Simulated, cause: bool) -> None:
    for _ in range(4):
        program.run("gemm", 100, op="aten::addmm")
        if cause:
            program.run("cutlass", 60, op="aten::bmm")
            program.run(ADD, 50, op="aten::div")
            program.run("cunn_SoftMaxForward<float>", 120, op="aten::_softmax")
            program.run("cutlass", 60, op="aten::bmm")
        else:
            program.run("flash_fwd", 130, op="aten::_flash_attention_forward")


def attainable(program: Simulated, cause: bool) -> None:
    # 2 * 2048^3 FLOP at 15.7 TFLOP/s take 1,094 us.
    dims = [[2048, 2048], [2048, 2048]]
    program.run("volta_sgemm_128x64_nn", 1094 * 4 if cause else 1094 / 0.8, op="aten::mm", dims=dims)
    kernels(program, 5, 40)


def compiling(program: Simulated, cause: bool) -> None:
    kernels(program, 2)
    program.work("entire_frame_compile (dynamo_timed)", 800 if cause else 0, "user_annotation")
    kernels(program, 8)


def breaking(program: Simulated, cause: bool) -> None:
    for part in range(5):
        began = program.now
        kernels(program, 2, 60)
        if not cause and part < 4:
            program.run("k", 20)
        program.annotation(f"Torch-Compiled Region: {part}/0", began, program.now - began)
        if cause and part < 4:
            program.run("k", 20, host=250, op="aten::nonzero")


def module_loads(program: Simulated, cause: bool) -> None:
    kernels(program, 2)
    if cause:
        program.runtime("cuModuleLoadData", 400)
    kernels(program, 8)


def allocating(program: Simulated, cause: bool) -> None:
    kernels(program, 2)
    if cause and program.step:
        program.runtime("cudaMalloc", 600)
    kernels(program, 8)


def communicating(program: Simulated, cause: bool) -> None:
    kernels(program, 5, 100)
    program.run("ncclDevKernel_AllReduce", 300, stream=9, after=program.busy[7] if cause else 0)
    kernels(program, 5, 100, after=program.busy[9] if cause else 0)


def half_hidden(program: Simulated, cause: bool) -> None:
    kernels(program, 19, 100)
    program.run("ncclDevKernel_AllReduce", 180, stream=9, after=program.busy[7] - (30 if cause else 180))


def collecting(program: Simulated, cause: bool) -> None:
    kernels(program, 2)

    def collect() -> None:
        program.now += 700 if cause else 0

    program.frame("train.py(12): step", lambda: program.frame("<built-in function collect>", collect))
    kernels(program, 8)


def saving(program: Simulated, cause: bool) -> None:
    kernels(program, 2)

    def save() -> None:
        program.now += 700 if cause else 0

    program.frame("train.py(20): main", lambda: program.frame("torch/serialization.py(900): save", save))
    kernels(program, 8)


def norming(program: Simulated, cause: bool) -> None:
    for _ in range(5):
        kernels(program, 2)

        def clip() -> None:
            program.run("norm", 20)
            if cause:
                program.wait()
                program.work("aten::item", 60)

        program.frame("torch/nn/utils/clip_grad.py(184): clip_grad_norm_", clip)
        program.run("adam", 100)


GROUP = {
    "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1000, "Out msg nelems": 1000,
    "Group size": 2, "Process Group Name": "3", "Process Group Ranks": "[0, 1]",
    "Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP",
}  # fmt: skip


def splitting(program: Simulated, cause: bool) -> None:
    for _ in range(5):
        kernels(program, 2, 100)
        after = program.busy[7] if cause else program.busy[7] - 120
        reduced = program.run("ncclDevKernel_AllReduce", 80, stream=9, after=after, op="nccl:call", **GROUP)
        program.run("k", 100, after=reduced)


def recomputing(program: Simulated, cause: bool) -> None:
    assert isinstance(program, Sharded)
    program.sequence += 1
    node = {"Sequence_number": program.sequence, "Fwd_thread_id": 1}

    def product() -> None:
        program.run("gemm", 300)

    def backward() -> None:
        if cause:
            program.sequence += 1
            program.inside("aten::mm", product, op=True, Sequence_number=program.sequence)
        program.inside("MmBackward0", lambda: program.run("gemm", 600, op="aten::mm"), op=True, **node)

    program.inside("aten::mm", product, op=True, Sequence_number=program.sequence)
    program.inside(GRADIENT, backward, op=True, **node)
    held = {"Total Allocated": 8 * 2**30, "Total Reserved": 8 * 2**30}
    program.memory(program.now, 512, device_type=1)
    program.events[-1]["args"] |= held


def gathering(program: Simulated, cause: bool) -> None:
    assert isinstance(program, Sharded)
    program.train(6, gather=400 if cause else 20, compute=150, reduce=20)


def reducing(program: Simulated, cause: bool) -> None:
    assert isinstance(program, Sharded)
    program.train(6, gather=20, compute=150, reduce=600 if cause else 20)


PAIRS: dict[str, tuple[Build, dict[str, Any]]] = {
    "data_loading": (loading, V100),
    "launch_bound": (launching, V100),
    "serving_without_graphs": (serving, V100),
    "host_busy": (other_work, V100),
    "synchronising_calls": (syncing, V100),
    "gpu_idle": (queueing, V100),
    "optimizer_not_fused": (optimizing, V100),
    "pageable_copies": (pageable, V100),
    "exposed_copies": (copying, V100),
    "small_grids": (small, V100),
    "off_tensor_cores": (products, V100_32),
    "mixed_precision": (precise, V100_32),
    "layout_conversions": (converting, V100),
    "elementwise_chains": (chaining, V100),
    "elementwise_chains while launching": (chaining_while_launching, V100),
    "attention_not_fused": (attending, H100),
    "below_attainable": (attainable, V100_32),
    "recompilation": (compiling, V100),
    "graph_breaks": (breaking, V100),
    "module_loading": (module_loads, V100),
    "allocator_calls": (allocating, V100),
    "communication": (communicating, V100),
    "exposed_communication": (half_hidden, V100),
    "exposed_tensor_parallelism": (splitting, V100),
    "needless_recomputation": (recomputing, V100),
    "garbage_collection": (collecting, V100),
    "checkpoint_saving": (saving, V100),
    "gradient_norm_waits": (norming, V100),
    "late_all_gathers": (gathering, V100),
    "late_reductions": (reducing, V100),
}

# What nobody can say the worth of, or what always is part of another finding.
WITHOUT = {
    "data_parallel", "ddp_backend", "low_utilisation", "memory_near_capacity", "recompiled_functions",
    "out_of_memory", "memory_growth", "fragmentation", "slow_first_step",
}  # fmt: skip
PARTS = {"tiny_kernels"}


def simulated(
    build: Build, device: dict[str, Any], folder: Path, *, cause: bool
) -> tuple[float, pl.DataFrame]:
    """How long a program takes, in us, and what is recommended for it."""
    program = Sharded(device)
    for _ in range(2):
        program.begin()
        build(program, cause)
        program.end()
    return program.length, analysis.recommendations(program.read(folder))


def test_every_rule_is_run_with_and_without_its_cause() -> None:
    assert {rule.find.__name__ for rule in RULES} == {pair.split()[0] for pair in PAIRS} | WITHOUT | PARTS


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_a_promise_is_what_the_program_takes_less_without_the_cause(tmp_path: Path, pair: str) -> None:
    (build, device), rule = PAIRS[pair], pair.split()[0]
    slow, table = simulated(build, device, tmp_path, cause=True)
    fast, without = simulated(build, device, tmp_path, cause=False)
    found = table.filter(id=rule)
    assert found.height == 1, f"{rule} did not speak, but {table['id'].to_list()}"
    assert found["table"].null_count() == 0, "evidence is cited"
    promised, gone = found["saving_ns"].item() / 1000, slow - fast
    assert LEAST * gone <= promised <= MOST * gone, f"{promised:,.0f} us of {gone:,.0f}"
    assert rule not in without["id"].to_list()


SLOW = {
    "small_grids": (small, V100),
    "off_tensor_cores": (products, V100_32),
    "below_attainable": (attainable, V100_32),
}


@pytest.mark.parametrize("rule", SLOW)
def test_nothing_is_promised_of_a_gpu_that_the_host_holds_up_anyway(tmp_path: Path, rule: str) -> None:
    build, device = SLOW[rule]

    def held_up(program: Simulated, cause: bool) -> None:
        run = program.run

        def slowly(*args: Any, **options: Any) -> float:
            return run(*args, **options | {"host": 6000})

        program.run = slowly  # type: ignore[method-assign]
        build(program, cause)
        program.run("k", 5)
        program.run = run  # type: ignore[method-assign]

    slow, table = simulated(held_up, device, tmp_path, cause=True)
    fast, _ = simulated(held_up, device, tmp_path, cause=False)
    assert slow - fast < 0.001 * slow
    (found,) = table.filter(id=rule).iter_rows(named=True)
    assert found["saving_ns"] / 1000 < 0.001 * slow
    assert found["severity"] == "low"
    assert "off the critical path" in found["evidence"]
    assert "launch_bound" in table["id"].to_list() or "host_busy" in table["id"].to_list()


def test_streams_are_not_added(tmp_path: Path) -> None:
    """Of copies on two streams at once each takes the time that both take."""

    def both(program: Simulated, cause: bool) -> None:
        kernels(program, 5)
        for stream in (20, 21) if cause else ():
            program.busy[stream] = program.busy[7]
            program.copy_in("Pinned", 600, stream=stream)
        kernels(program, 5, after=max(program.busy.values()))

    slow, table = simulated(both, V100, tmp_path, cause=True)
    fast, _ = simulated(both, V100, tmp_path, cause=False)
    row = table.filter(id="exposed_copies").to_dicts()[0]
    assert row["saving_ns"] == 1_200_000
    assert row["saving_ns"] / 1000 == pytest.approx(slow - fast, rel=0.01)


def test_what_is_hidden_remains_once_the_cause_above_it_is_gone(tmp_path: Path) -> None:
    """The loader hides the kernels, which are slow, too."""

    def both(program: Simulated, *, loads: bool, is_slow: bool) -> None:
        small(program, is_slow)
        program.work(LOADER, 3000 if loads else 5, "user_annotation")

    (tmp_path / "hidden").mkdir()
    hidden, table = simulated(
        lambda program, cause: both(program, loads=True, is_slow=cause), V100, tmp_path / "hidden", cause=True
    )
    slow, _ = simulated(
        lambda program, cause: both(program, loads=False, is_slow=cause), V100, tmp_path, cause=True
    )
    fast, _ = simulated(
        lambda program, cause: both(program, loads=False, is_slow=cause), V100, tmp_path, cause=False
    )
    rows = {row["id"]: row for row in table.iter_rows(named=True)}
    assert table["id"][0] == "data_loading"
    assert rows["data_loading"]["saving_ns"] / 1000 == pytest.approx(hidden - slow, rel=0.1)
    assert rows["small_grids"]["saving_ns"] == 0
    assert rows["small_grids"]["remaining_ns"] / 1000 == pytest.approx(slow - fast, rel=0.1)
    assert rows["data_loading"]["remaining_ns"] == rows["data_loading"]["saving_ns"]
    trace = ks.read(tmp_path / "hidden/trace.json")
    best = analysis.best_changes(trace)
    assert best["id"].to_list() == ["data_loading", "small_grids"]
    assert best["together_ns"].to_list() == [
        rows["data_loading"]["saving_ns"],
        pytest.approx(1000 * (hidden - fast), rel=0.1),
    ]
    render(trace, out=tmp_path / "text")
    text = " ".join((tmp_path / "text").read_text().split())
    for part in ("Changes that save most", "after the changes above", "This is off the critical path"):
        assert part in text


def test_each_gpu_has_its_own_evidence_and_all_one_saving(tmp_path: Path) -> None:
    """A change of the program reaches all GPUs, of which the slowest one decides."""

    def two(program: Simulated, cause: bool) -> None:
        for device, dur in ((0, 50), (1, 80)):
            for _ in range(5):
                where = {"stream": 7 + device, "device": device}
                if cause:
                    program.run("void cudnn::ops::nchwToNhwcKernel<float>", dur, **where)
                program.run("sm80_xmma_fprop", 100, **where)

    slow, table = simulated(two, V100, tmp_path, cause=True)
    fast, _ = simulated(two, V100, tmp_path, cause=False)
    found = table.filter(id="layout_conversions").sort("device")
    assert found["device"].to_list() == [0, 1]
    assert found["saving_ns"].to_list() == [pytest.approx(1000 * (slow - fast), rel=0.1)] * 2
    assert found["remaining_ns"].to_list() == found["saving_ns"].to_list()
    assert [text[:6] for text in found["evidence"]] == ["GPU 0:", "GPU 1:"]


def test_waiting_for_data_in_a_made_up_training_is_what_was_planted(tmp_path: Path) -> None:
    """The generator makes its data loader late in some steps, and says by how much."""
    made = tmp_path / "trace.json"
    assert main(["demo", "--size", "3MB", "--truth", "--seed", "3", "--out", str(made)]) == 0
    truth = json.loads(next(tmp_path.glob("*truth*")).read_text())
    late = sum(step["dataloader_ns"] for step in truth["steps"])
    trace = ks.read(made)
    (saving,) = analysis.recommendations(trace).filter(id="data_loading")["saving_ns"]
    # Launches that came after it then hide behind the GPU's work, too.
    assert late <= saving <= trace.ops.filter(activity="data_loading")["dur_ns"].sum()


def test_loading_that_begins_before_the_first_step_is_cited(tmp_path: Path) -> None:
    """It belongs to no step, and counts in the one that it reaches into."""
    database = Database(tmp_path / "report.sqlite")
    database.range(LOADER, 0, 5_000, globalTid=global_tid(7, 8))
    for step in range(2):
        database.range(f"ProfilerStep#{step}", 1_000 + 9_000 * step, 10_000 + 9_000 * step)
        database.call(6_000 + 9_000 * step, 6_010 + 9_000 * step, correlation=step + 1)
        database.kernel(6_100 + 9_000 * step, 9_000 + 9_000 * step, correlation=step + 1)
    trace = ks.read(database.close())
    (found,) = analysis.recommendations(trace).filter(id="data_loading").iter_rows(named=True)
    loading = trace.ranges.filter(pl.col("name").cast(pl.String).str.contains("DataLoader"))
    assert found["rows"] == loading["row"].to_list()
    assert loading["step"].to_list() == [None]
