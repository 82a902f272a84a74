"""Peaks follow from multiprocessors, clock and operations per clock; names find the right variant."""

import gzip
import json
from pathlib import Path

import pytest

from kernelscope.hardware import find_gpu, gpus

# Operations per clock and multiprocessor (compute unit), a multiply-add counting 2, by type.
KEPLER: tuple[dict[str, int], dict[str, int]] = ({"fp64": 128, "fp32": 384}, {})
PASCAL: tuple[dict[str, int], dict[str, int]] = ({"fp64": 64, "fp32": 128, "fp16": 256}, {})
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
A10G = (GA102[0], {"tf32": 256, "fp16": 512, "bf16": 512, "int8": 1024})
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
BLACKWELL_PRO = (
    BLACKWELL_RTX[0],
    {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "fp6": 2048, "fp4": 4096, "int8": 2048},
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
    "k80-die": KEPLER,
    **dict.fromkeys(("p100-sxm2", "p100-pcie-16gb", "p100-pcie-12gb"), PASCAL),
    **dict.fromkeys(("v100-sxm2", "v100-pcie", "v100s-pcie"), VOLTA),
    **dict.fromkeys(("t4", "quadro-rtx-5000", "quadro-rtx-6000", "quadro-rtx-8000", "titan-rtx"), TURING),
    "rtx-2080-ti": TURING_RTX,
    **dict.fromkeys(
        ("rtx-3060", "rtx-3070", "rtx-3080", "rtx-3080-ti", "rtx-3090", "rtx-3090-ti"), GA102_RTX
    ),
    **dict.fromkeys(("rtx-4070", "rtx-4070-super", "rtx-4070-ti", "rtx-4070-ti-super"), ADA_RTX),
    **dict.fromkeys(("rtx-4080", "rtx-4080-super", "rtx-4090"), ADA_RTX),
    **dict.fromkeys(("rtx-5070", "rtx-5070-ti", "rtx-5080", "rtx-5090"), BLACKWELL_RTX),
    "rtx-pro-6000-workstation": BLACKWELL_PRO,
    **dict.fromkeys(("a2", "a10", "a40", "rtx-a4000", "rtx-a5000", "rtx-a6000"), GA102),
    "a10g": A10G,
    "a30": GA100,
    **dict.fromkeys(("l4", "l40s", "rtx-5000-ada", "rtx-6000-ada"), ADA),
    **dict.fromkeys(("l20", "l40"), ADA_L40),
    "b200": BLACKWELL,
    "mi100": CDNA1,
    **dict.fromkeys(("a100-sxm4-40gb", "a100-pcie-40gb", "a100-sxm4-80gb", "a100-pcie-80gb"), GA100),
    **dict.fromkeys(("a800-sxm4-40gb", "a800-sxm4-80gb", "a800-pcie-80gb", "a800-active"), GA100),
    **dict.fromkeys(("h800-sxm5", "h800-pcie"), HOPPER),
    **dict.fromkeys(("h100-sxm5", "h100-pcie", "h100-nvl", "h200-sxm", "h200-nvl"), HOPPER),
    **dict.fromkeys(("gh200-96gb", "gh200-144gb"), HOPPER),
    **dict.fromkeys(("mi210", "mi250-die", "mi250x-die"), CDNA2),
    **dict.fromkeys(("mi300a", "mi300x", "mi325x"), CDNA3),
    **dict.fromkeys(("mi350x", "mi355x"), CDNA4),
}
# Their makers do not state clock and number of multiprocessors, or state figures below what these give.
UNSTATED = {"p40", "titan-v", "a16-die", "rtx-pro-6000-max-q", "rtx-pro-6000-server", "b100", "gb200", "b300"}
UNSTATED |= {"gb300", "h20", "h20-3e", "mi308x"}
# Nothing is stated of the figures without tensor cores, or of any.
NO_VECTOR, NO_MATRIX = {"titan-v", "mi308x"}, {"k80-die", "p40", "mi308x"}
# Double precision that is cut by more than the chip.
CUT = {("h800-sxm5", "fp64"), ("h800-pcie", "fp64")}
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
        if (key, dtype) in CUT:
            continue
        assert peak == pytest.approx(gpu.sm_count * gpu.boost_hz * vector[dtype], rel=0.02), dtype
    for dtype, peak in gpu.matrix.items():
        if (key, dtype) in CUT:
            continue
        if dtype == "fp64" and dtype not in matrix:
            assert peak == pytest.approx(gpu.vector["fp64"] * (1 if key == "b200" else 2), rel=0.02)
            continue
        assert peak == pytest.approx(gpu.sm_count * gpu.matrix_hz * matrix[dtype], rel=0.02), dtype


@pytest.mark.parametrize("key", gpus())
def test_figures_are_whole_and_plausible(key: str) -> None:
    gpu = gpus()[key]
    assert len(gpu.source) > 15
    # An A2 and a die of an A16 have the least, half of a T4's; AMD states none of its MI308X.
    assert key == "mi308x" if gpu.bandwidth is None else 200e9 <= gpu.bandwidth <= 8000e9
    assert {"fp32"} <= set(gpu.vector) or key in NO_VECTOR
    assert {"fp16"} <= set(gpu.matrix) or key in NO_MATRIX or key.startswith("p100")
    # Narrower types are never slower, and dense figures double at most (quadruple for fp4 on GeForce).
    for wide, narrow in (("tf32", "fp16"), ("fp16", "fp8"), ("fp8", "fp4")):
        if wide in gpu.matrix and narrow in gpu.matrix:
            assert gpu.matrix[wide] <= gpu.matrix[narrow] <= 4.01 * gpu.matrix[wide]
    for dtype, peak in gpu.half_sum.items():
        assert peak == pytest.approx(2 * gpu.matrix[dtype], rel=0.01)
    half = gpu.matrix.get("fp16")
    assert half is None or gpu.matrix.get("bf16", half) in {half, half / 2}
    # Kepler's is the least.
    assert gpu.l2_bytes is None or gpu.l2_bytes >= (4 if key != "k80-die" else 1.5) * 2**20


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
    *[("NVIDIA H800", "h800-sxm5"), ("NVIDIA H800 PCIe", "h800-pcie"), ("NVIDIA H20", "h20")],
    *[
        ("NVIDIA H20-3e", "h20-3e"),
        ("NVIDIA GB300", "gb300"),
        ("NVIDIA L20", "l20"),
        ("NVIDIA A16", "a16-die"),
    ],
    *[("NVIDIA A800-SXM4-80GB", "a800-sxm4-80gb"), ("NVIDIA A800 80GB PCIe", "a800-pcie-80gb")],
    *[("NVIDIA A800-SXM4-40GB", "a800-sxm4-40gb"), ("NVIDIA A800 40GB Active", "a800-active")],
    *[("NVIDIA RTX A6000", "rtx-a6000"), ("NVIDIA RTX A5000", "rtx-a5000"), ("NVIDIA A10G", "a10g")],
    *[("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"), ("Quadro RTX 6000", "quadro-rtx-6000")],
    *[("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server")],
    *[("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-workstation")],
    *[("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q")],
    *[("NVIDIA GeForce RTX 3080", "rtx-3080"), ("NVIDIA GeForce RTX 3080 Ti", "rtx-3080-ti")],
    *[("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super"), ("NVIDIA GeForce RTX 4080", "rtx-4080")],
    *[
        ("Tesla P100-PCIE-16GB", "p100-pcie-16gb"),
        ("Tesla P100-SXM2-16GB", "p100-sxm2"),
        ("Tesla P40", "p40"),
    ],
    *[("Tesla P100-PCIE-12GB", "p100-pcie-12gb"), ("Tesla V100S-PCIE-32GB", "v100s-pcie")],
    *[("NVIDIA TITAN RTX", "titan-rtx"), ("NVIDIA TITAN V", "titan-v"), ("Tesla K80", "k80-die")],
    *[("AMD Instinct MI308X", "mi308x"), ("gfx908:sramecc+:xnack-", "mi100")],
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
        ("AMD Instinct MI308X", 206_141_652_992, 80, "mi308x"),
        ("gfx942", 206_141_652_992, 304, "mi300x"),
        ("gfx942:sramecc+:xnack-", 206_141_652_992, 80, "mi308x"),
        ("NVIDIA GB300", 300_000_000_000, 152, "gb300"),
        ("NVIDIA RTX A6000", 51_033_931_776, 84, "rtx-a6000"),
        ("NVIDIA GeForce RTX 3080", 10_495_000_576, 68, "rtx-3080"),
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
        ("NVIDIA GeForce RTX 3080", 12_622_168_064, 70, "differs in size"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", None, None, "not in the table"),
        ("NVIDIA GeForce RTX 3080 Ti Laptop GPU", None, None, "not in the table"),
        ("NVIDIA GeForce RTX 4090 D", None, None, "not in the table"),
        ("NVIDIA H100 96GB HBM3", None, None, "not in the table"),
        ("NVIDIA A100-SXM-64GB", None, None, "not in the table"),
        ("Tesla V100-SXM3-32GB", None, None, "not in the table"),
        ("NVIDIA RTX 6000", None, None, "not in the table"),
        ("NVIDIA TITAN Xp", None, None, "not in the table"),
        ("Orin", None, None, "not in the table"),
        ("NVIDIA A10-24Q", None, None, "partition"),
        ("GRID A100D-40C", None, None, "partition"),
        ("gfx942", 206_141_652_992, None, "can be any of mi300x, mi308x"),
        ("gfx950", None, None, "can be any of mi350x, mi355x"),
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
