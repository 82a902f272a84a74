"""The occupancy calculator, against figures worked out by hand and against Kineto's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.analysis.kernels.occupancy import launch_limits, launch_metrics

SCHEMA = {
    "device": pl.Int64,
    "grid": pl.Array(pl.Int32, 3),
    "block": pl.Array(pl.Int32, 3),
    "registers": pl.Int64,
    "shared_memory_bytes": pl.Int64,
    "blocks_per_sm": pl.Float64,
    "warps_per_sm": pl.Float64,
    "occupancy_pct": pl.Float64,
}
LIMITS = {
    "device": 0,
    "name": "NVIDIA",
    "compute_major": 7,
    "compute_minor": 0,
    "sm_count": 80,
    "warp_size": 32,
    "max_threads_per_sm": 2048,
    "registers_per_sm": 65536,
    "shared_memory_per_sm_bytes": 98304,
}


def metrics(limits: dict[str, Any] | None = None, **launch: Any) -> dict[str, Any]:
    row = {
        "device": 0,
        "grid": [800, 1, 1],
        "block": [256, 1, 1],
        "registers": 32,
        "shared_memory_bytes": 0,
    }
    kernels = pl.DataFrame([row | launch], schema=SCHEMA)
    devices = pl.DataFrame(
        [LIMITS | (limits or {})], schema={c: pl.String if c == "name" else pl.Int64 for c in LIMITS}
    )
    return launch_metrics(kernels, devices).row(0, named=True)


@pytest.mark.parametrize(
    ("launch", "blocks", "occupancy"),
    [
        # 10 blocks of 8 warps per SM, of which 64 / 8 = 8 fit: full.
        ({}, 10.0, 100.0),
        # 2 blocks of 256 threads on each SM: 512 of 2048.
        ({"grid": [160, 1, 1]}, 2.0, 25.0),
        # 128 registers: 128 * 32 = 4096 a warp; 16384 / 4096 = 4 warps in each quarter, 16 in all, 2 blocks.
        ({"registers": 128}, 10.0, 25.0),
        # 33 registers round up to 1280 a warp: 12 in each quarter, 48 in all, 6 blocks.
        ({"registers": 33}, 10.0, 75.0),
        # 40 KiB a block: 2 of 96 KiB.
        ({"shared_memory_bytes": 40960}, 10.0, 25.0),
        # 32 blocks of one warp are the most that an SM of this capability holds.
        ({"grid": [8000, 1, 1], "block": [32, 1, 1]}, 100.0, 50.0),
        # 33 threads take two warps, but only threads count as occupied.
        ({"block": [33, 1, 1]}, 10.0, 100 * 10 * 33 / 2048),
        ({"grid": [20, 20, 2], "block": [16, 4, 4]}, 10.0, 100.0),
    ],
)
def test_derived(launch: dict[str, Any], blocks: float, occupancy: float) -> None:
    row = metrics(**launch)
    assert row["blocks_per_sm"] == pytest.approx(blocks)
    assert row["occupancy_pct"] == pytest.approx(occupancy)
    assert row["launch_metrics"] == "derived"


def test_from_capability_8_on_a_block_loses_a_kibibyte() -> None:
    # 32 KiB + 1 KiB: 4 of 164 KiB, 4 * 256 of 2048 threads.
    limits = {"compute_major": 8, "sm_count": 108, "shared_memory_per_sm_bytes": 167936}
    assert metrics(limits, grid=[1080, 1, 1], shared_memory_bytes=32768)["occupancy_pct"] == 50.0


def test_recorded_values_stay() -> None:
    row = metrics(blocks_per_sm=1.5, warps_per_sm=12.0, occupancy_pct=17.0)
    assert (row["blocks_per_sm"], row["warps_per_sm"], row["occupancy_pct"]) == (1.5, 12.0, 17.0)
    assert row["launch_metrics"] == "recorded"


def test_a_recorded_zero_for_much_shared_memory_is_replaced() -> None:
    row = metrics(blocks_per_sm=10.0, warps_per_sm=80.0, occupancy_pct=0.0, shared_memory_bytes=65536)
    # One block of 64 KiB fits into 96 KiB.
    assert row["occupancy_pct"] == pytest.approx(12.5)
    assert row["launch_metrics"] == "derived"
    small = metrics(blocks_per_sm=0.001, warps_per_sm=0.001, occupancy_pct=0.0)
    assert (small["occupancy_pct"], small["launch_metrics"]) == (0.0, "recorded")


@pytest.mark.parametrize(
    ("limits", "launch"),
    [
        ({"warp_size": 64}, {}),
        ({"name": "AMD Radeon PRO W7900"}, {}),
        ({"sm_count": None}, {}),
        ({"sm_count": 0}, {}),
        ({}, {"device": 3}),
        ({}, {"grid": None}),
    ],
)
def test_unknown_is_null(limits: dict[str, Any], launch: dict[str, Any]) -> None:
    row = metrics(limits, **launch)
    assert row["occupancy_pct"] is row["blocks_per_sm"] is row["launch_metrics"] is None


def test_absurd_launch_sizes_break_nothing() -> None:
    absurd = [2**31 - 1] * 3
    assert metrics(grid=absurd)["blocks_per_sm"] == pytest.approx((2**31 - 1) ** 3 / 80)
    assert metrics(block=absurd)["occupancy_pct"] is None
    assert metrics(block=[0, 1, 1])["occupancy_pct"] == 0.0


@pytest.mark.parametrize("limits", [{"compute_major": 99}, {"registers_per_sm": None}])
def test_an_unknown_limit_leaves_only_the_occupancy_unknown(limits: dict[str, Any]) -> None:
    row = metrics(limits)
    assert row["blocks_per_sm"] == 10.0
    assert row["occupancy_pct"] is None


def test_an_infinite_number_of_blocks_is_not_recorded() -> None:
    assert metrics(blocks_per_sm=float("inf"))["blocks_per_sm"] == 10.0


def test_equals_what_kineto_recorded_on_real_gpus(shared: Path) -> None:
    compared = 0
    for path in sorted((shared / "traces" / "kineto").glob("*.json.gz")):
        trace = ks.read(path)
        recorded = trace.gpu_ops.filter((pl.col("kind") == "kernel") & pl.col("occupancy_pct").is_not_null())
        bare = recorded.with_columns(
            pl.lit(None, pl.Float64).alias(c) for c in ("blocks_per_sm", "warps_per_sm", "occupancy_pct")
        )
        derived = launch_metrics(bare, trace.devices)["occupancy_pct"]
        # Kineto rounds to whole percent in float32, and records 0 beyond 48 KiB of shared memory.
        known = (recorded["shared_memory_bytes"] <= 48 * 1024) & derived.is_not_null()
        off = (derived - recorded["occupancy_pct"]).filter(known).abs()
        assert (off <= 0.500001).all(), path.name
        compared += off.len()
    assert compared > 20_000


def limits(**launch: Any) -> dict[str, Any]:
    row = {
        "device": 0,
        "grid": [8000, 1, 1],
        "block": [256, 1, 1],
        "registers": 32,
        "shared_memory_bytes": 0,
    }
    kernels = pl.DataFrame([row | launch], schema={c: SCHEMA[c] for c in row})
    devices = pl.DataFrame([LIMITS], schema={c: pl.String if c == "name" else pl.Int64 for c in LIMITS})
    return launch_limits(kernels, devices).row(0, named=True)


@pytest.mark.parametrize(
    ("launch", "resident", "occupancy", "limited_by"),
    [
        # 65536 / (32 * 32) = 64 warps, 8 blocks of 8: all that an SM holds.
        ({}, 8, 100.0, "nothing"),
        ({"grid": [639, 1, 1]}, 8, 100.0, "grid"),
        ({"registers": 128}, 2, 25.0, "registers"),
        ({"shared_memory_bytes": 40960}, 2, 25.0, "shared memory"),
        ({"block": [32, 1, 1]}, 32, 50.0, "blocks"),
        # Two blocks of 768 threads leave 512 over.
        ({"block": [768, 1, 1]}, 2, 75.0, "threads"),
        # Registers and shared memory end at the same block: the first that is named.
        ({"registers": 128, "shared_memory_bytes": 40960}, 2, 25.0, "registers"),
    ],
)
def test_what_limits_a_launch(
    launch: dict[str, Any], resident: int, occupancy: float, limited_by: str
) -> None:
    row = limits(**launch)
    assert (row["resident_blocks"], row["limited_by"]) == (resident, limited_by)
    assert row["theoretical_occupancy_pct"] == pytest.approx(occupancy)


def test_waves_and_their_tail() -> None:
    # 8 blocks on each of 80 SMs make a wave of 640.
    row = limits(grid=[1600, 1, 1])
    assert row["waves"] == pytest.approx(2.5)
    assert row["tail_pct"] == pytest.approx(100 * 0.5 / 3)


def test_what_limits_an_unknown_launch_is_unknown() -> None:
    for launch in ({"grid": None}, {"registers": None}, {"device": 3}, {"block": [0, 1, 1]}):
        row = limits(**launch)
        found = [row[c] for c in ("resident_blocks", "theoretical_occupancy_pct", "waves", "limited_by")]
        assert found == [None] * 4
