"""Occupancy of kernel launches, from their size and the limits of the device."""

import polars as pl

from kernelscope.analysis.kernels.tensor_cores import is_nvidia

_WARP = 32
# Registers are handed out to warps in units of this many.
_REGISTER_UNIT = 256
# Blocks that an SM can hold at once, by compute capability (major * 10 + minor).
_MAX_BLOCKS = {
    **dict.fromkeys((30, 32, 35, 37), 16),
    **dict.fromkeys((50, 52, 53, 60, 61, 62, 70, 72, 80, 90, 100, 103, 110), 32),
    75: 16,
    86: 16,
    87: 16,
    89: 24,
    120: 24,
    121: 24,
}

LAUNCH_COLUMNS = (
    "grid", "block", "registers", "shared_memory_bytes", "blocks_per_sm", "warps_per_sm", "occupancy_pct",
)  # fmt: skip
"""Columns of ``gpu_ops``, in addition to ``device``, that :func:`launch_metrics` needs."""

# "derived" comes before "recorded": one derived value makes a figure of many derived.
_ORIGIN = pl.Enum(["derived", "recorded"])
_SIZES = ("device", "grid", "block", "registers", "shared_memory_bytes")

# What a block may use without opting in to more, on every NVIDIA GPU so far.
_DEFAULT_SHARED_BYTES = 48 * 1024

_LIMITS = ("sm_count", "max_threads_per_sm", "registers_per_sm", "shared_memory_per_sm_bytes")
_ADDED = ("_blocks", "_threads", "_slots", "_capability", *_LIMITS)
_NEEDED = ("_blocks", "_threads", "_slots", *_LIMITS, "registers", "shared_memory_bytes")
# A minimum over columns skips nulls; a launch with an unknown limit has no known occupancy.
_COMPLETE = pl.all_horizontal(pl.col(c).is_not_null() for c in _NEEDED)


IS_KERNEL = pl.col("kind") == "kernel"
"""Rows of ``gpu_ops`` that are kernels."""


def launch_metrics(
    kernels: pl.DataFrame, devices: pl.DataFrame, *, only: pl.Expr | None = None
) -> pl.DataFrame:
    """Adds launch metrics that the profiler omitted or could not compute.

    Columns: ``kernels`` needs ``device``, ``grid``, ``block``, ``registers``, ``shared_memory_bytes``,
        ``blocks_per_sm``, ``warps_per_sm`` and ``occupancy_pct``. The last three are filled if they are null
        and the launch and the device are known. An occupancy of 0 with more than 48 KiB of shared memory, a
        profiler bug, counts as null. ``launch_metrics`` says for each row: recorded, derived, or null for
        unknown. Rows outside ``only`` are left unchanged.
    Units: ``blocks_per_sm`` and ``warps_per_sm`` in blocks and warps of the whole launch per SM;
        ``occupancy_pct`` in percent of the maximum warps of an SM, 0 to 100.
    Formula: ``min(blocks_per_sm, resident blocks) * threads per block / maximum threads per SM``.
    Source: CUDA's cuda_occupancy.h; Kineto's DeviceProperties.cpp.
    """
    limits = _device_limits(devices)
    # A recorder that does not know the device divides by zero. Kineto evaluates occupancy under the
    # default limit of shared memory and so records 0 for every kernel that opted in to more.
    wrong = (pl.col("occupancy_pct") <= 0) & (pl.col("shared_memory_bytes") > _DEFAULT_SHARED_BYTES)
    recorded = kernels.with_columns(
        *(pl.when(pl.col(c).is_finite()).then(pl.col(c)).alias(c) for c in ("blocks_per_sm", "warps_per_sm")),
        pl.when(~wrong.fill_null(value=False)).then(pl.col("occupancy_pct")).alias("occupancy_pct"),
    )
    missing = pl.any_horizontal(
        pl.col(c).is_null() for c in ("blocks_per_sm", "warps_per_sm", "occupancy_pct")
    )
    counts = pl.lit(value=True) if only is None else only.fill_null(value=False)
    missing &= counts
    known = pl.when(~missing & counts).then(pl.lit("recorded", _ORIGIN))
    if limits.is_empty() or not recorded.select(missing.any()).item():
        return recorded.with_columns(known.alias("launch_metrics"))
    # Launches of one size on one GPU fill it alike.
    sizes = recorded.filter(missing).select(_SIZES).unique()
    derived = _derived(_sized(sizes, limits))
    return (
        recorded.join(derived, on=_SIZES, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(
            *(pl.coalesce(c, f"_{c}").alias(c) for c in ("blocks_per_sm", "warps_per_sm", "occupancy_pct")),
            known.when(pl.col("_blocks_per_sm").is_not_null())
            .then(pl.lit("derived", _ORIGIN))
            .alias("launch_metrics"),
        )
        .drop("_blocks_per_sm", "_warps_per_sm", "_occupancy_pct")
    )


def _derived(sized: pl.DataFrame) -> pl.DataFrame:
    """What follows from launch sizes and limits, with ``_SIZES``."""
    blocks = pl.col("_blocks") / pl.col("sm_count")
    occupancy = (
        100.0
        * pl.min_horizontal(blocks, *_resident_blocks().values())
        * pl.col("_threads")
        / pl.col("max_threads_per_sm")
    )
    return sized.select(
        *_SIZES,
        _blocks_per_sm=blocks,
        _warps_per_sm=blocks * pl.col("_threads") / _WARP,
        _occupancy_pct=pl.when(_COMPLETE).then(occupancy),
    )


def launch_limits(kernels: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    """Adds the resource that limits the occupancy of each launch.

    Columns: ``kernels`` needs ``device``, ``grid``, ``block``, ``registers`` and ``shared_memory_bytes``;
        adds ``resident_blocks`` (blocks that fit on an SM), ``theoretical_occupancy_pct`` (of the maximum
        warps of an SM, with this number of blocks), ``waves`` (times that the launch's blocks fill the GPU),
        ``tail_pct`` (empty part of the last wave) and ``limited_by``: ``grid`` (less than one wave), else the
        resource that excludes most blocks: ``registers``, ``shared memory``, ``blocks`` (maximum blocks per
        SM) or ``threads`` (the block size does not divide the maximum threads), or ``nothing`` at full
        occupancy. All are null if the launch or the device is unknown.
    Units: percent.
    Source: CUDA's cuda_occupancy.h.
    """
    sized = _sized(kernels, _device_limits(devices))
    each = _resident_blocks()
    resident = pl.when(_COMPLETE).then(pl.min_horizontal(*each.values()))
    # Of several that end at once the one is named that only another block size moves.
    order = ("threads", "blocks", "registers", "shared memory")
    limit = pl.coalesce(pl.when(each[name] == pl.col("resident_blocks")).then(pl.lit(name)) for name in order)
    occupancy = 100.0 * pl.col("resident_blocks") * pl.col("_threads") / pl.col("max_threads_per_sm")
    waves = pl.col("_blocks") / (pl.col("resident_blocks") * pl.col("sm_count"))
    known = sized.with_columns(
        resident_blocks=pl.when((resident > 0) & (pl.col("_threads") > 0)).then(resident).cast(pl.Int64)
    )
    known = known.with_columns(theoretical_occupancy_pct=occupancy, waves=waves)
    full, last = pl.col("theoretical_occupancy_pct") >= 100.0, pl.col("waves").ceil()
    return known.with_columns(
        tail_pct=100.0 * (last - pl.col("waves")) / last,
        limited_by=pl.when(pl.col("waves") < 1)
        .then(pl.lit("grid"))
        .when(full)
        .then(pl.lit("nothing"))
        .when(pl.col("resident_blocks").is_not_null())
        .then(limit),
    ).drop(*_ADDED)


def _device_limits(devices: pl.DataFrame) -> pl.DataFrame:
    # A limit of 0 is one that the recorder could not find out.
    return is_nvidia(devices).select(
        "device",
        *(pl.when(pl.col(c) > 0).then(pl.col(c)).alias(c) for c in _LIMITS),
        _capability=pl.col("compute_major") * 10 + pl.col("compute_minor"),
    )


def _sized(kernels: pl.DataFrame, limits: pl.DataFrame) -> pl.DataFrame:
    """The launches with their sizes and the limits of their GPUs, in the columns ``_ADDED``."""
    slots = pl.col("_capability").replace_strict(_MAX_BLOCKS, default=None, return_dtype=pl.Int64)
    return kernels.join(limits, on="device", how="left", maintain_order="left").with_columns(
        _size("grid").alias("_blocks"),
        _size("block").cast(pl.Int64, strict=False).alias("_threads"),
        slots.alias("_slots"),
    )


def _size(column: str) -> pl.Expr:
    """The product of a launch size such as ``[8, 4, 1]``."""
    # Floats, since the product of three hostile numbers overflows integers.
    x, y, z = (pl.col(column).arr.get(axis).cast(pl.Float64) for axis in range(3))
    return x * y * z


def _resident_blocks() -> dict[str, pl.Expr]:
    """Blocks that an SM holds at once by each of its resources; null where one does not limit them."""
    warps = (pl.col("_threads") + _WARP - 1) // _WARP
    capability = pl.col("_capability")
    by_warps = pl.col("max_threads_per_sm") // _WARP // warps
    per_warp = (pl.col("registers") * _WARP + _REGISTER_UNIT - 1) // _REGISTER_UNIT * _REGISTER_UNIT
    parts = pl.when(capability == 60).then(2).otherwise(4)
    by_registers = pl.when(pl.col("registers") > 0).then(
        pl.col("registers_per_sm") // parts // per_warp * parts // warps
    )
    # From compute capability 8 on, the driver keeps 1 KiB of each block for itself.
    unit = pl.when(capability >= 80).then(128).otherwise(256)
    reserved = pl.when(capability >= 80).then(1024).otherwise(0)
    shared = (pl.col("shared_memory_bytes") + reserved + unit - 1) // unit * unit
    by_shared = pl.when(shared > 0).then(pl.col("shared_memory_per_sm_bytes") // shared)
    return {
        "threads": by_warps,
        "registers": by_registers,
        "shared memory": by_shared,
        "blocks": pl.col("_slots"),
    }
