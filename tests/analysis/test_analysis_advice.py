"""Every rule of the advice speaks beyond its threshold and is silent below it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from advice_programs import H100, MI300, Program, advice, launches, precise, silent, spoke

import kernelscope as ks
from events import V100, Events
from kernelscope import analysis
from kernelscope.analysis.advice.table import RULES

Advise = Callable[[Program], pl.DataFrame]
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.fixture
def advise(tmp_path: Path) -> Advise:
    return lambda program: advice(program, tmp_path)


def test_launch_bound(advise: Advise) -> None:
    table = advise(launches(Program(), gap=3))
    row = spoke(table, "launch_bound")
    assert row["saving_ns"] == 99 * 3_000
    assert row["cited"] == 99
    assert spoke(table, "tiny_kernels")["value"] == 1.0
    quiet = advise(launches(Program(), gap=0.5))
    silent(quiet, "launch_bound")
    silent(quiet, "tiny_kernels")


def test_a_host_that_is_away_is_not_launching(advise: Advise) -> None:
    program = Program(steps=4)
    program.run("k", 10, 400)
    program.op("json::loads", 500, 2900)
    program.run("k", 3500, 490, launched=3450)
    table = advise(program)
    row = spoke(table, "host_busy")
    assert row["saving_ns"] == 3_090_000
    assert "json::loads" in row["evidence"]
    silent(table, "launch_bound")


def test_synchronising_calls(advise: Advise) -> None:
    program = Program()
    program.op("aten::item", 95, 210)
    program.run("k", 10, 290)
    program.call(100, 202, 999, name="cudaStreamSynchronize")
    program.run("k", 350, 640, launched=340)
    row = spoke(advise(program), "synchronising_calls")
    assert (row["saving_ns"], row["cited"], row["table"]) == (50_000, 1, "launches")
    assert "aten::item (1 x)" in row["evidence"]


def test_small_grids(advise: Advise) -> None:
    program = Program()
    program.run("small", 10, 300, **{"blocks per SM": 0.25})
    program.run("large", 310, 600, **{"blocks per SM": 8})
    row = spoke(advise(program), "small_grids")
    assert (row["value"], row["saving_ns"]) == (pytest.approx(1 / 3), 225_000)


def test_an_idle_gpu_says_what_it_waited_for(advise: Advise) -> None:
    program = Program()
    program.run("k", 10, 300)
    program.annotation(LOADER, 300, 180)
    program.run("k", 500, 400, launched=490)
    row = spoke(advise(program), "gpu_idle")
    assert row["saving_ns"] == 190_000
    assert "190.0 us for data" in row["evidence"]


def test_time_between_steps_is_no_idle_time_of_theirs(advise: Advise) -> None:
    program = Program()
    program.annotation("ProfilerStep#1", 5000, 1000)
    program.run("k", 10, 290)
    program.run("k", 5100, 900, launched=5090)
    row = spoke(advise(program), "gpu_idle")
    assert row["saving_ns"] == 700_000 + 100_000
    assert row["value"] == pytest.approx(0.4)
    assert "800.0 us for a host that did something else" in row["evidence"]


def test_an_optimizer_that_launches_for_each_parameter(advise: Advise) -> None:
    program = Program()
    program.annotation("Optimizer.step#SGD.step", 1, 500)
    for index in range(120):
        program.op("aten::add_", 2 + 4 * index, 3)
        program.run("vectorized_elementwise_kernel<4, Add>", 10 + 4 * index, 4, launched=2.5 + 4 * index)
    table = advise(program)
    assert spoke(table, "optimizer_not_fused")["value"] == 120
    silent(table, "elementwise_chains")


def test_pageable_copies(advise: Advise) -> None:
    program = Program()
    program.transfer("Memcpy HtoD (Pageable -> Device)", 10, 40, 400_000)
    program.transfer("Memcpy HtoD (Pinned -> Device)", 50, 40, 400_000)
    program.transfer("Memcpy DtoH (Device -> Pageable)", 90, 40, 400_000)
    program.run("k", 130, 800)
    row = spoke(advise(program), "pageable_copies")
    assert (row["value"], row["cited"]) == (pytest.approx(0.04), 1)
    assert "10.0 GB/s" in row["evidence"]


def test_products_off_tensor_cores(advise: Advise) -> None:
    program = precise(V100 | {"name": "Tesla V100-SXM2-32GB"}, "volta_sgemm_128x64_nn")
    silent(advise(program), "off_tensor_cores")
    program.run("volta_h884gemm_128x64_ldg8_nn", 910, 50, launched=2)
    table = advise(program)
    row = spoke(table, "off_tensor_cores")
    assert row["value"] == pytest.approx(900 / 950)
    # 15.7 TFLOP/s without tensor cores, 125 with them.
    assert row["saving_ns"] == pytest.approx(900_000 * (1 - 15.7 / 125), rel=0.01)
    silent(table, "mixed_precision")


def test_layout_conversions(advise: Advise) -> None:
    program = Program()
    program.run("void cudnn::ops::nchwToNhwcKernel<float>", 10, 30)
    program.run("sm80_xmma_fprop", 40, 900)
    row = spoke(advise(program), "layout_conversions")
    assert (row["saving_ns"], row["cited"]) == (30_000, 1)


def test_elementwise_chains(advise: Advise) -> None:
    program = Program()
    for index, name in enumerate(
        ["gemm", "elementwise_kernel<mul>", "vectorized_elementwise_kernel<add>", "gemm"]
    ):
        program.run(name, 10 + 240 * index, 200 + 10 * index)
    row = spoke(advise(program), "elementwise_chains")
    # Of 210 and 220 us, the longer must be read and written in any case.
    assert (row["saving_ns"], row["cited"]) == (210_000, 2)


def test_compiling_in_a_step(advise: Advise) -> None:
    program = Program()
    program.annotation("entire_frame_compile (dynamo_timed)", 100, 300)
    program.annotation("_compile.compile_inner (dynamo_timed)", 110, 200)
    row = spoke(advise(program), "recompilation")
    assert (row["saving_ns"], row["cited"]) == (300_000, 2)


def test_loading_code_in_a_step(advise: Advise) -> None:
    program = Program()
    program.call(100, 30, 77, name="cuModuleLoadData")
    assert spoke(advise(program), "module_loading")["saving_ns"] == 30_000


def test_asking_the_driver_for_memory_counts_from_the_second_step_on(advise: Advise) -> None:
    program = Program(steps=2)
    program.call(100, 300, 77, name="cudaMalloc")
    silent(advise(program), "allocator_calls")
    program.call(1100, 300, 78, name="cudaFree")
    row = spoke(advise(program), "allocator_calls")
    assert (row["saving_ns"], row["value"]) == (300_000, 0.15)


def test_memory_that_ran_out(advise: Advise) -> None:
    program = Program()
    program.allocation(100, 512)
    program.events[-1]["name"] = "[OutOfMemory]"
    assert spoke(advise(program), "out_of_memory")["severity"] == "high"


def test_memory_that_grows(advise: Advise) -> None:
    def holding(*totals: int) -> pl.DataFrame:
        program = Program(steps=3)
        for step, total in enumerate(totals):
            program.allocation(1000 * step + 500, total * 1000)
        return advise(program)

    row = spoke(holding(100, 110, 125), "memory_growth")
    assert (row["value"], row["cited"]) == (0.2, 3)
    silent(holding(100, 110, 110), "memory_growth")


def test_reserved_memory_that_lies_idle(advise: Advise) -> None:
    program = Program()
    program.allocation(100, 15 * 2**30, reserved=30 * 2**30)
    row = spoke(advise(program), "fragmentation")
    assert row["value"] == 0.5
    silent(advise(program), "memory_near_capacity")


def test_only_whole_steps_count(advise: Advise) -> None:
    program = Program()
    program.annotation(LOADER, 2000, 5000)
    program.run("k", 10, 980)
    silent(advise(program), "data_loading")


@pytest.mark.parametrize("device", [V100, MI300])
def test_rules_have_nothing_to_say_about_nothing(tmp_path: Path, device: dict[str, Any]) -> None:
    empty = Events(device)
    empty.events.append({"ph": "i", "name": "start", "ts": 1, "pid": 1, "tid": 1, "s": "t"})
    table = analysis.recommendations(empty.read(tmp_path))
    assert table.is_empty()
    program = launches(Program(), gap=3)
    assert analysis.recommendations(program.read(tmp_path)).schema == table.schema


def test_only_a_gpu_and_only_a_host(tmp_path: Path) -> None:
    gpu = Events()
    gpu.kernel("k", 10, 5, 1)
    gpu.kernel("k", 100, 5, 2)
    assert set(analysis.recommendations(gpu.read(tmp_path))["id"]) == {"low_utilisation", "gpu_idle"}
    host = Events()
    host.op("aten::mm", 10, 100)
    assert analysis.recommendations(host.read(tmp_path)).is_empty()


def ranks(tmp_path: Path, kernels: dict[int, float]) -> list[ks.Trace]:
    traces = []
    for rank, dur in kernels.items():
        program = Program(steps=3)
        for step in range(3):
            program.run("k", 1000 * step + 10, dur)
            program.run("ncclDevKernel_AllReduce", 1000 * step + 10 + dur, 980 - dur)
        traces.append(
            program.read(tmp_path / str(rank), distributedInfo={"rank": rank, "world_size": len(kernels)})
        )
    return traces


def test_ranks_that_differ(tmp_path: Path) -> None:
    table = analysis.recommendations(ranks(tmp_path, {0: 500, 1: 510, 2: 800}))
    uneven = spoke(table, "uneven_ranks")
    assert uneven["value"] == pytest.approx(0.375)
    assert "rank 2" in uneven["evidence"]
    assert set(table.filter(id="communication")["rank"]) == {0, 1, 2}


def test_ranks_that_are_alike(tmp_path: Path) -> None:
    table = analysis.recommendations(ranks(tmp_path, {0: 500, 1: 510}))
    silent(table, "uneven_ranks")
    silent(table, "straggler")


def test_every_rule_says_what_it_is_about() -> None:
    assert len(RULES) >= 20
    assert all((rule.find.__doc__ or "").endswith(".") for rule in RULES)


def test_every_rule_is_documented() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/views.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert documented == {rule.find.__name__ for rule in RULES} | {"straggler", "uneven_ranks"}


def test_names_of_any_length_make_sentences_of_some(advise: Advise) -> None:
    program = launches(Program(), gap=3)
    for event in program.events:
        if event["cat"] == "kernel":
            event["name"] = "vectorized_elementwise_kernel<" + "x" * 100_000
    table = advise(program)
    assert "tiny_kernels" in table["id"].to_list()
    assert table["evidence"].str.len_chars().max() < 1_000


def test_data_loading(advise: Advise) -> None:
    def loading(dur: float) -> pl.DataFrame:
        program = Program()
        program.annotation(LOADER, 900, dur)
        program.run("k", 10, 890)
        return advise(program)

    row = spoke(loading(60), "data_loading")
    assert (row["value"], row["threshold"], row["saving_ns"], row["table"]) == (0.06, 0.05, 60_000, "ops")
    silent(loading(50), "data_loading")


def parallel(kind: str, *devices: dict[str, Any]) -> Program:
    program = Program(*devices)
    program.op(f"{kind}.forward", 100, 50)
    program.run("k", 10, 900)
    return program


def test_data_parallel_needs_two_gpus(advise: Advise) -> None:
    program = parallel("DataParallel", V100, V100 | {"id": 1})
    silent(advise(program), "data_parallel")
    program.run("k", 20, 900, device=1)
    assert spoke(advise(program), "data_parallel")["value"] == 2


def test_ddp_backend_knows_nccl_by_its_kernels(advise: Advise) -> None:
    program = parallel("DistributedDataParallel")
    assert spoke(advise(program), "ddp_backend")["value"] == 7.0
    program.run("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 920, 20)
    silent(advise(program), "ddp_backend")


@pytest.mark.parametrize("device", [MI300, V100 | {"computeMajor": 3, "computeMinor": 0}])
def test_ddp_backend_is_silent_where_there_is_no_nccl(advise: Advise, device: dict[str, Any]) -> None:
    silent(advise(parallel("DistributedDataParallel", device)), "ddp_backend")


def test_communication_that_computing_hides_does_not_count(advise: Advise) -> None:
    program = Program()
    program.run("k", 10, 700)
    program.run("ncclDevKernel_AllReduce", 640, 150, stream=9)
    table = advise(program)
    row = spoke(table, "exposed_communication")
    assert (row["value"], row["saving_ns"]) == (pytest.approx(70 / 150), 80_000)
    silent(table, "communication")


def test_communication(advise: Advise) -> None:
    program = Program()
    program.run("k", 10, 700)
    program.run("ncclDevKernel_AllReduce", 710, 200)
    table = advise(program)
    assert spoke(table, "communication")["saving_ns"] == 200_000
    assert spoke(table, "exposed_communication")["value"] == 0.0


def test_low_utilisation(advise: Advise) -> None:
    program = Program()
    program.run("k", 10, 300)
    program.run("k", 900, 90)
    row = spoke(advise(program), "low_utilisation")
    assert (row["value"], row["device"]) == (pytest.approx(0.39), 0)


def test_mixed_precision(advise: Advise) -> None:
    row = spoke(advise(precise(V100, "volta_sgemm_128x64_nn")), "mixed_precision")
    assert (row["value"], row["severity"]) == (1.0, "high")


@pytest.mark.parametrize(
    ("device", "kernel"),
    [
        (V100, "volta_h884gemm_128x64_ldg8_nn"),
        (V100 | {"computeMajor": 6}, "sgemm_128x64_nn"),
        (MI300, "Cijk_Ailk_Bljk_SB_MT128x64"),
        (MI300 | {"name": None}, "Cijk_Ailk_Bljk_SB_MT128x64"),
        # On recent GPUs the name of a product does not say what it runs on.
        (H100, "some_new_gemm_kernel"),
    ],
)
def test_mixed_precision_is_silent(advise: Advise, device: dict[str, Any], kernel: str) -> None:
    silent(advise(precise(device, kernel)), "mixed_precision")


def test_memory_near_capacity(advise: Advise) -> None:
    def allocating(size: int, **device: int) -> pl.DataFrame:
        program = Program()
        program.run("k", 10, 900)
        program.allocation(100, size)
        program.events[-1]["args"] |= {name.replace("_", " "): value for name, value in device.items()}
        return advise(program)

    row = spoke(allocating(30 * 2**30), "memory_near_capacity")
    assert row["value"] == pytest.approx(30 / 32)
    silent(allocating(28 * 2**30), "memory_near_capacity")
    # That of the host is nobody's capacity.
    silent(allocating(10**12, Device_Type=0, Device_Id=-1), "memory_near_capacity")
