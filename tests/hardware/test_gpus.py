"""Peaks follow from multiprocessors, clock and operations per clock; names find the right variant."""

import gzip
import json
from pathlib import Path

import pytest

from kernelscope.hardware import find_gpu, gpus

# Operations per clock and multiprocessor (compute unit), a multiply-add counting 2, by type.
VOLTA = ({"fp64": 64, "fp32": 128, "fp16": 256}, {"fp16": 1024})
TURING_RTX = ({"fp32": 128, "fp16": 256}, {"fp16": 512, "int8": 2048})
TURING = ({"fp32": 128, "fp16": 256}, {"fp16": 1024, "int8": 2048})
GA100 = (
    {"fp64": 64, "fp32": 128, "fp16": 512, "bf16": 256},
    {"fp64": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
)
GA102_RTX = (
    {"fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256},
    {"tf32": 256, "fp16": 512, "bf16": 512, "int8": 2048},
)
GA102 = ({"fp32": 256, "fp16": 256, "bf16": 256}, {"tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048})
ADA_RTX = (
    {"fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256},
    {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048},
)
ADA_L40 = (
    {"fp32": 256, "fp16": 256, "bf16": 256},
    {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 1024},
)
ADA = (
    {"fp32": 256, "fp16": 256, "bf16": 256},
    {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
)
HOPPER = (
    {"fp64": 128, "fp32": 256, "fp16": 512, "bf16": 512},
    {"tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
)
BLACKWELL_RTX = (
    {"fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256},
    {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "fp6": 1024, "fp4": 4096, "int8": 2048},
)
BLACKWELL = (
    {"fp64": 128, "fp32": 256},
    {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "fp6": 16384, "fp4": 32768, "int8": 16384},
)
CDNA1 = ({"fp64": 64, "fp32": 128}, {"fp32": 256, "fp16": 1024, "bf16": 512, "int8": 1024})
CDNA2 = ({"fp64": 128, "fp32": 128}, {"fp64": 256, "fp32": 256, "fp16": 1024, "bf16": 1024, "int8": 1024})
CDNA3 = (
    {"fp64": 128, "fp32": 256, "fp16": 256},
    {"fp64": 256, "fp32": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096, "int8": 4096},
)
CDNA4 = (
    {"fp64": 128, "fp32": 256, "fp16": 256},
    {
        "fp64": 128,
        "fp32": 256,
        "fp16": 4096,
        "bf16": 4096,
        "fp8": 8192,
        "int8": 8192,
        "fp6": 16384,
        "fp4": 16384,
    },
)

ARCHITECTURES = {
    **dict.fromkeys(("v100-sxm2", "v100-pcie"), VOLTA),
    "t4": TURING,
    "rtx-2080-ti": TURING_RTX,
    "rtx-3090": GA102_RTX,
    "rtx-4090": ADA_RTX,
    "rtx-5090": BLACKWELL_RTX,
    **dict.fromkeys(("a10", "a40"), GA102),
    "a30": GA100,
    **dict.fromkeys(("l4", "l40s"), ADA),
    "l40": ADA_L40,
    "b200": BLACKWELL,
    "mi100": CDNA1,
    **dict.fromkeys(("a100-sxm4-40gb", "a100-pcie-40gb", "a100-sxm4-80gb", "a100-pcie-80gb"), GA100),
    **dict.fromkeys(("h100-sxm5", "h100-pcie", "h100-nvl", "h200-sxm", "h200-nvl"), HOPPER),
    **dict.fromkeys(("gh200-96gb", "gh200-144gb"), HOPPER),
    **dict.fromkeys(("mi210", "mi250-die", "mi250x-die"), CDNA2),
    **dict.fromkeys(("mi300a", "mi300x", "mi325x"), CDNA3),
    **dict.fromkeys(("mi350x", "mi355x"), CDNA4),
}
# Their makers state neither clock nor number of multiprocessors.
UNSTATED = {"b100", "gb200", "b300"}
# The FP64 tensor cores of Hopper and Blackwell run at a clock of their own.
OWN_CLOCK = {("h100-sxm5", "fp64"), ("h100-pcie", "fp64"), ("h100-nvl", "fp64"), ("b200", "fp64")}


def test_every_gpu_is_checked() -> None:
    assert set(gpus()) == set(ARCHITECTURES) | UNSTATED


@pytest.mark.parametrize("key", ARCHITECTURES)
def test_peaks_follow_from_the_clock(key: str) -> None:
    gpu = gpus()[key]
    assert gpu.sm_count is not None
    assert gpu.boost_hz is not None
    assert gpu.matrix_hz is not None
    vector, matrix = ARCHITECTURES[key]
    assert set(gpu.vector) <= set(vector)
    for dtype, peak in gpu.vector.items():
        assert peak == pytest.approx(gpu.sm_count * gpu.boost_hz * vector[dtype], rel=0.02), dtype
    for dtype, peak in gpu.matrix.items():
        if dtype == "fp64" and dtype not in matrix:
            assert peak == pytest.approx(gpu.vector["fp64"] * (1 if key == "b200" else 2), rel=0.02)
            continue
        assert peak == pytest.approx(gpu.sm_count * gpu.matrix_hz * matrix[dtype], rel=0.02), dtype


@pytest.mark.parametrize("key", gpus())
def test_figures_are_whole_and_plausible(key: str) -> None:
    gpu = gpus()[key]
    assert len(gpu.source) > 15
    assert 300e9 <= gpu.bandwidth <= 8000e9
    assert {"fp32"} <= set(gpu.vector)
    assert {"fp16"} <= set(gpu.matrix)
    # Narrower types are never slower, and dense figures double at most (quadruple for fp4 on GeForce).
    for wide, narrow in (("tf32", "fp16"), ("fp16", "fp8"), ("fp8", "fp4")):
        if wide in gpu.matrix and narrow in gpu.matrix:
            assert gpu.matrix[wide] <= gpu.matrix[narrow] <= 4.01 * gpu.matrix[wide]
    for dtype, peak in gpu.half_sum.items():
        assert peak == pytest.approx(2 * gpu.matrix[dtype], rel=0.01)
    assert gpu.matrix.get("bf16", gpu.matrix["fp16"]) in {gpu.matrix["fp16"], gpu.matrix["fp16"] / 2}
    assert gpu.l2_bytes is None or gpu.l2_bytes >= 4 * 2**20


# What the name of a device says without its memory and multiprocessors.
BY_NAME = [
    *[("NVIDIA H100 80GB HBM3", "h100-sxm5"), ("NVIDIA H100 PCIe", "h100-pcie")],
    *[("NVIDIA H200 NVL", "h200-nvl"), ("NVIDIA GH200 144G HBM3e", "gh200-144gb"), ("NVIDIA GB200", "gb200")],
    *[("NVIDIA B300 SXM6 AC", "b300"), ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb")],
    *[("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"), ("A100-PCIE-40GB", "a100-pcie-40gb")],
    *[("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"), ("Tesla V100-PCIE-32GB", "v100-pcie"), ("Tesla T4", "t4")],
    *[("NVIDIA A10", "a10"), ("NVIDIA A30", "a30"), ("NVIDIA A40", "a40"), ("NVIDIA L4", "l4")],
    *[("NVIDIA L40", "l40"), ("NVIDIA L40S", "l40s"), ("NVIDIA GeForce RTX 2080 Ti", "rtx-2080-ti")],
    *[("NVIDIA GeForce RTX 3090", "rtx-3090"), ("NVIDIA GeForce RTX 5090", "rtx-5090")],
    *[("AMD Instinct MI300A", "mi300a"), ("AMD Instinct MI325X", "mi325x")],
    *[("AMD Instinct MI355X", "mi355x"), ("AMD Instinct MI210", "mi210"), ("h100-sxm5", "h100-sxm5")],
]


@pytest.mark.parametrize(
    ("name", "memory", "sms", "key"),
    [
        ("NVIDIA H100 80GB HBM3", 85_018_279_936, 132, "h100-sxm5"),
        ("NVIDIA H100", 80 * 2**30, 132, "h100-sxm5"),
        ("NVIDIA H100", 80 * 2**30, 114, "h100-pcie"),
        ("NVIDIA H100 NVL", 99_949_740_032, 132, "h100-nvl"),
        ("NVIDIA H200", 150_109_880_320, 132, "h200-sxm"),
        ("NVIDIA GH200 480GB", 101_468_602_368, 132, "gh200-96gb"),
        ("NVIDIA B200", 191_503_138_816, 148, "b200"),
        ("NVIDIA A100-PG509-200", 42_505_273_344, 108, "a100-sxm4-40gb"),
        ("Tesla V100-SXM2-16GB", 16_945_512_448, 80, "v100-sxm2"),
        ("Tesla V100-SXM2-32GB", 34_079_637_504, 80, "v100-sxm2"),
        ("Tesla V100-DGXS-32GB", 34_084_028_416, 80, "v100-sxm2"),
        ("NVIDIA GeForce RTX 4090", 25_393_692_672, 128, "rtx-4090"),
        ("AMD Instinct MI300X", 206_141_652_992, 304, "mi300x"),
        ("AMD Instinct MI300X VF", None, 304, "mi300x"),
        ("AMD Instinct MI250X/MI250", 68_702_699_520, 104, "mi250-die"),
        ("AMD Instinct MI250X / MI250", 68_702_699_520, 110, "mi250x-die"),
        *[(name, None, None, key) for name, key in BY_NAME],
    ],
)
def test_names(name: str, memory: int | None, sms: int | None, key: str) -> None:
    match = find_gpu(name, memory_bytes=memory, sm_count=sms)
    assert match.note == ""
    assert match.gpu is not None
    assert match.gpu.key == key


@pytest.mark.parametrize(
    ("name", "memory", "sms", "says"),
    [
        ("AMD Radeon Graphics", 68_702_699_520, 104, "not in the table"),
        ("", None, None, "not in the table"),
        ("NVIDIA A10G", None, None, "not in the table"),
        ("NVIDIA H20", None, None, "not in the table"),
        ("NVIDIA GeForce RTX 3090 Ti", None, None, "not in the table"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None, "not in the table"),
        ("NVIDIA GeForce RTX 2080", None, None, "not in the table"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None, None, "partition"),
        ("AMD Instinct MI300X", 24 * 2**30, 38, "partition"),
        ("NVIDIA H100", None, None, "can be any of h100-sxm5, h100-pcie, h100-nvl"),
        ("NVIDIA A100", 80 * 2**30, 108, "can be any of"),
    ],
)
def test_what_is_not_known_is_said(name: str, memory: int | None, sms: int | None, says: str) -> None:
    match = find_gpu(name, memory_bytes=memory, sm_count=sms)
    assert match.gpu is None
    assert says in match.note


def test_peaks_by_type() -> None:
    gpu = find_gpu("NVIDIA H200").gpu
    assert gpu is not None
    assert gpu.peak("bf16", tensor_cores=True) == pytest.approx(989.4e12)
    assert gpu.peak("fp32", tensor_cores=False) == pytest.approx(66.9e12)
    assert gpu.peak("fp4", tensor_cores=True) is None


def test_devices_of_real_traces(shared: Path) -> None:
    unknown: set[str] = set()
    for path in sorted((shared / "traces/kineto").glob("*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()).decode(errors="replace"))
        for device in document.get("deviceProperties", []):
            name, memory, count = device["name"], device.get("totalGlobalMem"), device.get("numSms")
            if find_gpu(name, memory_bytes=memory, sm_count=count).gpu is None:
                unknown.add(name)
    # ROCm does not always name its GPU: an MI250 in 2023, an MI300X in 2025. Artemis is no GPU.
    assert unknown == {"AMD Radeon Graphics", "", "ARTEMIS"}
