"""How full a launch makes its GPU, worked out with whole numbers from CUDA's rules."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

from slow_reader import Row

WARP = 32
MOST_BLOCKS = {
    30: 16, 32: 16, 35: 16, 37: 16, 50: 32, 52: 32, 53: 32, 60: 32, 61: 32, 62: 32, 70: 32, 72: 32, 75: 16,
    80: 32, 86: 16, 87: 16, 89: 24, 90: 32, 100: 32, 103: 32, 110: 32, 120: 24, 121: 24,
}  # fmt: skip
"""Blocks that an SM holds at once, by compute capability."""


def _product(size: Any) -> int | None:
    return None if size is None else size[0] * size[1] * size[2]


def _round_up(value: int, unit: int) -> int:
    return ceil(Fraction(value, unit)) * unit


def is_amd(device: Row) -> bool:
    """Warps of 64 threads are AMD's, and so are names that say it."""
    name = (device.get("name") or "").lower()
    return device.get("warp_size") == 64 or any(word in name for word in ("amd", "radeon", "gfx"))


def _limits(device: Row | None) -> Row | None:
    """The limits of an NVIDIA GPU; those of 0 are not known."""
    if device is None or device.get("warp_size") != WARP or is_amd(device):
        return None
    limits = {name: value or None for name, value in device.items() if name.endswith(("_sm", "_sm_bytes"))}
    return {**device, **limits, "sm_count": device.get("sm_count") or None}


def resident(work: Row, device: Row) -> dict[str, int | None] | None:
    """Blocks that an SM holds at once, by each of its resources; None where one is not known."""
    threads: Any = _product(work["block"])
    registers, shared = work["registers"], work["shared_memory_bytes"]
    if device.get("compute_major") is None or device.get("compute_minor") is None:
        return None
    capability = device["compute_major"] * 10 + device["compute_minor"]
    slots = MOST_BLOCKS.get(capability)
    of_sm: list[Any] = [device.get(f"{name}_per_sm") for name in ("max_threads", "registers")]
    memory: Any = device.get("shared_memory_per_sm_bytes")
    if None in (threads, registers, shared, slots, memory, device.get("sm_count"), *of_sm) or not threads:
        return None
    warps = ceil(Fraction(threads, WARP))
    parts = 2 if capability == 60 else 4
    unit, reserved = (128, 1024) if capability >= 80 else (256, 0)
    by_registers = None
    if registers:
        by_registers = of_sm[1] // parts // _round_up(registers * WARP, 256) * parts // warps
    used = _round_up(shared + reserved, unit)
    return {
        "threads": of_sm[0] // WARP // warps,
        "blocks": slots,
        "registers": by_registers,
        "shared memory": memory // used if used else None,
    }


def launch_of(work: Row, devices: list[Row]) -> Row:
    """``blocks_per_sm`` and ``occupancy_pct`` of a kernel, as recorded, else as its launch size says."""
    blocks, occupancy = work["blocks_per_sm"], work["occupancy_pct"]
    if work["kind"] != "kernel":
        return {"blocks_per_sm": None, "occupancy_pct": None}
    if blocks is not None and blocks in (float("inf"), float("-inf")):
        blocks = None
    # Kineto takes the default limit of shared memory for the only one.
    if occupancy is not None and occupancy <= 0 and (work["shared_memory_bytes"] or 0) > 48 * 1024:
        occupancy = None
    device = _limits(next((device for device in devices if device["device"] == work["device"]), None))
    grid, threads = _product(work["grid"]), _product(work["block"])
    if device is None or grid is None or not device.get("sm_count"):
        return {"blocks_per_sm": blocks, "occupancy_pct": occupancy}
    of_launch = grid / device["sm_count"]
    if occupancy is None and (each := resident(work, device)) is not None and threads is not None:
        held = min([of_launch, *(number for number in each.values() if number is not None)])
        occupancy = 100.0 * held * threads / device["max_threads_per_sm"]
    return {"blocks_per_sm": of_launch if blocks is None else blocks, "occupancy_pct": occupancy}


def launch_limits(work: Row, devices: list[Row]) -> Row:
    """What keeps a launch from filling its GPU."""
    nothing: Row = dict.fromkeys(
        ("resident_blocks", "theoretical_occupancy_pct", "waves", "tail_pct", "limited_by")
    )
    device = _limits(next((device for device in devices if device["device"] == work["device"]), None))
    grid, threads = _product(work["grid"]), _product(work["block"])
    each = None if device is None else resident(work, device)
    if device is None or each is None or grid is None or not threads:
        return nothing
    held = min(number for number in each.values() if number is not None)
    if not held:
        return nothing
    occupancy = Fraction(100 * held * threads, device["max_threads_per_sm"])
    waves = Fraction(grid, held * device["sm_count"])
    limit = next(name for name in ("threads", "blocks", "registers", "shared memory") if each[name] == held)
    return {
        "resident_blocks": held,
        "theoretical_occupancy_pct": float(occupancy),
        "waves": float(waves),
        "tail_pct": float(100 * (ceil(waves) - waves) / ceil(waves)),
        "limited_by": "grid" if waves < 1 else "nothing" if occupancy >= 100 else limit,
    }
