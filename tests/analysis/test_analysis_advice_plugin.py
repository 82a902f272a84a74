"""The rules of the TensorBoard plugin: each speaks beyond its threshold and is silent below it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from advice_programs import H100, MI300, Program, advice, precise, silent, spoke
from events import V100

Advise = Callable[[Program], pl.DataFrame]


@pytest.fixture
def advise(tmp_path: Path) -> Advise:
    return lambda program: advice(program, tmp_path)


@pytest.mark.parametrize(("loading", "speaks"), [(60, True), (50, False)])
def test_data_loading(advise: Advise, loading: float, speaks: bool) -> None:
    program = Program()
    program.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 900, loading)
    program.run("k", 10, 890)
    table = advise(program)
    if not speaks:
        return silent(table, "data_loading")
    row = spoke(table, "data_loading")
    assert (row["value"], row["threshold"], row["saving_ns"], row["table"]) == (0.06, 0.05, 60_000, "ops")
    return None


def test_data_parallel_needs_two_gpus(advise: Advise) -> None:
    program = Program(V100, V100 | {"id": 1})
    program.op("DataParallel.forward", 100, 50)
    program.run("k", 10, 900)
    silent(advise(program), "data_parallel")
    program.run("k", 20, 900, device=1)
    assert spoke(advise(program), "data_parallel")["value"] == 2


def test_ddp_backend_knows_nccl_by_its_kernels(advise: Advise) -> None:
    program = Program()
    program.op("DistributedDataParallel.forward", 100, 50)
    program.run("k", 10, 900)
    assert spoke(advise(program), "ddp_backend")["value"] == 7.0
    program.run("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 920, 20)
    silent(advise(program), "ddp_backend")


@pytest.mark.parametrize("device", [MI300, V100 | {"computeMajor": 3, "computeMinor": 0}])
def test_ddp_backend_is_silent_where_there_is_no_nccl(advise: Advise, device: dict[str, Any]) -> None:
    program = Program(device)
    program.op("DistributedDataParallel.forward", 100, 50)
    program.run("k", 10, 900)
    silent(advise(program), "ddp_backend")


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


@pytest.mark.parametrize(("allocated", "speaks"), [(30 * 2**30, True), (28 * 2**30, False)])
def test_memory_near_capacity(advise: Advise, allocated: int, speaks: bool) -> None:
    program = Program()
    program.run("k", 10, 900)
    program.allocation(100, allocated)
    table = advise(program)
    if speaks:
        assert spoke(table, "memory_near_capacity")["value"] == pytest.approx(allocated / 2**35)
    else:
        silent(table, "memory_near_capacity")


def test_memory_of_the_host_is_nobodys_capacity(advise: Advise) -> None:
    program = Program()
    program.run("k", 10, 900)
    program.allocation(100, 10**12)
    program.events[-1]["args"] |= {"Device Type": 0, "Device Id": -1}
    silent(advise(program), "memory_near_capacity")
