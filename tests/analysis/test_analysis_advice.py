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
from kernelscope.analysis.advice.table import RANK_RULES, RULES

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
    # That kernels are tiny is part of it.
    assert "100.0 % of 100 kernels take less than 10.00 us" in row["evidence"]
    silent(table, "tiny_kernels")
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


def test_waiting_for_a_loader_and_idling_meanwhile_are_one(advise: Advise) -> None:
    program = Program()
    program.run("k", 10, 300)
    program.annotation(LOADER, 300, 180)
    program.run("k", 500, 400, launched=490)
    table = advise(program)
    evidence = spoke(table, "data_loading")["evidence"]
    assert (
        "A GPU waited 190.0 us for data in gaps between its operations. The loader has no workers."
        in evidence
    )
    silent(table, "gpu_idle")


def test_an_idle_gpu_says_what_it_waited_for(advise: Advise) -> None:
    program = Program()
    program.run("k", 10, 300)
    program.run("k", 500, 400, launched=20)
    program.run("k", 960, 30, launched=930)
    row = spoke(advise(program), "gpu_idle")
    # The launch came late for the last 60 us, which are too little for a finding of their own. The host
    # launches the last kernel no sooner if the one before starts earlier.
    assert row["saving_ns"] == 60_000
    assert (
        "190.0 us for events, copies or their position in the queue, 60.00 us for launches" in row["evidence"]
    )


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_time_between_the_nodes_of_a_graph_is_nobodys(advise: Advise, name: str) -> None:
    program = Program()
    program.call(5, 3, 1, name=name)
    for node in range(8):
        program.kernel("k", 10 + 100 * node, 20, 1)
    # The replay after it was launched in time, and waited for its turn.
    program.call(9, 3, 2, name=name)
    program.kernel("k", 900, 20, 2)
    table = advise(program)
    row = spoke(table, "gpu_idle")
    assert row["saving_ns"] == 170_000
    assert "170.0 us for events, copies or their position in the queue." in row["evidence"]
    told = spoke(table, "low_utilisation")
    assert "560.0 us are between the nodes of graphs. The host has no part" in told["evidence"]
    # With nothing else to wait for nothing is asked of the program.
    program.events.pop()
    table = advise(program)
    silent(table, "gpu_idle")
    assert spoke(table, "low_utilisation")["remedy"].startswith("Before changing anything, measure replays")


def test_time_between_steps_is_no_idle_time_of_theirs(advise: Advise) -> None:
    program = Program()
    program.annotation("ProfilerStep#1", 5000, 1000)
    program.run("k", 10, 290)
    program.run("k", 5100, 900, launched=5090)
    row = spoke(advise(program), "host_busy")
    assert row["saving_ns"] == 700_000 + 100_000
    assert row["value"] == pytest.approx(0.4)
    assert "nothing that was recorded" in row["evidence"]


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
    for at, dur, name in (
        (10, 200, "gemm"), (210, 210, "elementwise_kernel<mul>"),
        (420, 220, "vectorized_elementwise_kernel<add>"), (640, 230, "gemm"),
    ):  # fmt: skip
        program.run(name, at, dur)
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
            program.call(1000 * step + 20 + dur, 975 - dur, 900 + step, name="cudaStreamSynchronize")
        traces.append(
            program.read(tmp_path / str(rank), distributedInfo={"rank": rank, "world_size": len(kernels)})
        )
    return traces


def test_ranks_that_differ(tmp_path: Path) -> None:
    table = analysis.recommendations(ranks(tmp_path, {0: 500, 1: 510, 2: 800}))
    row = spoke(table, "straggler")
    # The others would not have to wait 300 us in each of three steps.
    assert (row["rank"], row["saving_ns"]) == (2, 900_000)
    assert "rank 2 computes for 800.0 us, but rank 0 for 500.0 us: 37.5 % less" in row["evidence"]
    silent(table, "uneven_ranks")
    exposed = dict(table.filter(id="communication").select("rank", "saving_ns").iter_rows())
    # What the others wait for rank 2 is not won by communicating less, nor the 10 us until the host waits.
    assert exposed == {0: 3 * 170_000, 1: 3 * 170_000, 2: 3 * 170_000}


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
    assert documented == {rule.find.__name__ for rule in (*RULES, *RANK_RULES)}


def test_names_of_any_length_make_sentences_of_some(advise: Advise) -> None:
    program = launches(Program(), gap=3)
    for event in program.events:
        if event["cat"] == "kernel":
            event["name"] = "vectorized_elementwise_kernel<" + "x" * 100_000
    table = advise(program)
    assert "take less than" in spoke(table, "launch_bound")["evidence"]
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
    row = spoke(table, "communication")
    assert row["saving_ns"] == 200_000
    assert "200.0 us of 200.0 us of communication are not hidden by computation." in row["evidence"]
    silent(table, "exposed_communication")


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


def test_an_engine_that_serves_takes_all_memory(advise: Advise) -> None:
    program = Program()
    program.run("k", 10, 900)
    program.allocation(100, 30 * 2**30)
    assert "reduce" in spoke(advise(program), "memory_near_capacity")["remedy"]
    program.op("vllm::unified_attention", 1, 5)
    row = spoke(advise(program), "memory_near_capacity")
    assert (row["severity"], "smaller" in row["remedy"]) == ("low", False)


def test_low_utilisation_is_part_of_what_causes_it(advise: Advise) -> None:
    table = advise(launches(Program(), gap=8, count=60))
    row, part = spoke(table, "launch_bound"), spoke(table, "low_utilisation")
    assert (part["same_cause_as"], part["remedy"]) == ("launch_bound", row["remedy"])
    assert row["evidence"].endswith(part["evidence"])
    assert row["same_cause_as"] is None


def test_graphs_are_advised_to_who_has_none(advise: Advise) -> None:
    program = launches(Program(), gap=3)
    assert "make_graphed_callables" in spoke(advise(program), "launch_bound")["remedy"]
    program.call(1, 3, 999, name="cudaGraphLaunch")
    assert "replayed as graphs already" in spoke(advise(program), "launch_bound")["remedy"]


def test_compiling_is_advised_to_who_does_not(advise: Advise) -> None:
    program = launches(Program(), gap=3)
    assert "Fuse them with torch.compile" in spoke(advise(program), "elementwise_chains")["remedy"]
    program.annotation("Torch-Compiled Region: 0/0", 1, 3)
    table = advise(program)
    assert "TORCH_LOGS=graph_breaks" in spoke(table, "elementwise_chains")["remedy"]
    assert "Replay compiled regions as graphs" in spoke(table, "launch_bound")["remedy"]


@pytest.mark.parametrize("cause", ["nothing", "memory", "data", "copies", "frees"])
def test_a_larger_batch_is_advised_where_there_is_room_and_data(advise: Advise, cause: str) -> None:
    program = launches(Program(), gap=3, count=60)
    if cause == "memory":
        program.allocation(100, 27 * 2**30)
    elif cause == "data":
        program.annotation(LOADER, 700, 200)
    elif cause == "copies":
        program.transfer("Memcpy HtoD (Pinned -> Device)", 700, 200, 400_000)
    elif cause == "frees":
        program.call(700, 5, 999, name="cudaFree")
    table = advise(program)
    spoke(table, "launch_bound")
    assert any("larger batch" in remedy for remedy in table["remedy"]) == (cause == "nothing")


def test_functions_that_are_compiled_again(advise: Advise) -> None:
    def compiled(*versions: str) -> pl.DataFrame:
        program = Program()
        program.run("k", 10, 900)
        for place, version in enumerate(versions):
            program.annotation(f"Torch-Compiled Region: {version}", 10 + 20 * place, 10)
        return advise(program)

    row = spoke(compiled("0/0", "0/1", "1/0", "!0/2/4_1"), "recompiled_functions")
    assert (row["value"], row["cited"], row["saving_ns"]) == (5, 1, None)
    assert "function 2 5 x" in row["evidence"]
    # The second version is that of dynamic sizes.
    silent(compiled("0/0", "0/1", "1/0"), "recompiled_functions")


def test_layers_that_are_compiled_one_by_one_are_no_graph_breaks(advise: Advise) -> None:
    def parts(*names: str, eager: str = "aten::mul") -> pl.DataFrame:
        program = Program()
        program.run("k", 700, 200)
        for place, name in enumerate(names):
            program.annotation(name, 10 + 100 * place, 50)
            program.op(eager, 70 + 100 * place, 20)
        return advise(program)

    row = spoke(parts(*(f"Torch-Compiled Region: {part}/0" for part in range(5))), "graph_breaks")
    assert (row["value"], row["saving_ns"], row["cited"]) == (4, 200_000, 4)
    assert "aten::mul" in row["evidence"]
    silent(parts(*["Torch-Compiled Region: 0/0"] * 5), "graph_breaks")
    silent(
        parts(*(f"Torch-Compiled Region: {part}/0" for part in range(5)), eager="cache lookup"),
        "graph_breaks",
    )


def test_a_router_is_no_attention(advise: Advise) -> None:
    """The softmax of a router of experts follows a product, and another comes after, but no batched ones."""

    def between(product: str, softmax: str = "aten::_softmax", *, others: int = 1) -> pl.DataFrame:
        program = Program()
        names = [product, *["aten::mul"] * others, softmax, product]
        for place, name in enumerate(names):
            program.op(name, 0.5 + 8 * place, 8)
            program.run("some_kernel", 10 + 60 * place, 60, launched=1 + 8 * place)
        return advise(program)

    row = spoke(between("aten::bmm"), "attention_not_fused")
    assert (row["saving_ns"], row["cited"]) == (120_000, 4)
    silent(between("aten::mm"), "attention_not_fused")
    silent(between("aten::bmm", "aten::_log_softmax"), "attention_not_fused")
    silent(between("aten::bmm", others=9), "attention_not_fused")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Memcpy HtoD (Pinned -> Device)", "to the GPU from pinned memory"),
        ("CopyHostToDevice", "to the GPU took"),
        ("Memcpy DtoH (Device -> Pageable)", "to the host took"),
        ("Memcpy DtoD (Device -> Device)", "within the GPU took"),
        ("Memcpy PtoP (Device -> Device)", "took"),
    ],
)
def test_copies_say_where_they_go(advise: Advise, name: str, said: str) -> None:
    program = Program()
    program.transfer(name, 10, 300, 3_000_000)
    program.run("k", 310, 600)
    row = spoke(advise(program), "exposed_copies")
    assert row["saving_ns"] == 300_000
    assert said in row["evidence"]
    assert "at 10.0 GB/s" in row["evidence"]


def test_a_call_that_does_not_return_is_named(advise: Advise) -> None:
    program = Program(steps=4)
    program.run("k", 10, 400)
    program.call(500, 2900, 999, name="hipMemcpyWithStream")
    program.run("k", 3500, 490, launched=3450)
    row = spoke(advise(program), "host_busy")
    assert "hipMemcpyWithStream (2.900 ms)" in row["evidence"]
    assert "pinned memory" in row["remedy"]


def test_what_wins_nothing_is_not_said(advise: Advise) -> None:
    program = Program(steps=40)
    program.run("void cudnn::ops::nchwToNhwcKernel<float>", 10, 100)
    program.run("sm80_xmma_fprop", 110, 100)
    program.run("k", 39_010, 10)
    # Half of the kernel time, and 0.25 % of that of the steps.
    silent(advise(program), "layout_conversions")


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
