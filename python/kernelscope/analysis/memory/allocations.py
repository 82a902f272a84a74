"""Memory that was allocated while an interval ran."""

import polars as pl

# PyTorch's device types: CPU, MKL-DNN, IDEEP; CUDA, HIP, XPU, PrivateUse1.
HOST_TYPES = (0, 2, 5)
DEVICE_TYPES = (1, 6, 12, 20)


def allocated_bytes(frame: pl.DataFrame, memory: pl.DataFrame, *, device_types: tuple[int, ...]) -> pl.Series:
    """Bytes allocated less bytes freed within each interval, both ends included, on any thread.

    Columns: of ``frame``, needs ``start_ns`` and ``dur_ns``; of ``memory``, ``start_ns``, ``bytes``
        and ``device_type``. One value per row of ``frame``.
    Units: bytes.
    Source: torch/autograd/profiler_util.py, MemRecordsAcc.
    """
    events = (
        memory.filter(pl.col("device_type").is_in(device_types) & pl.col("bytes").is_not_null())
        .sort("start_ns")
        .select("start_ns", sum=pl.col("bytes").cum_sum())
    )
    times = events["start_ns"]
    sums = pl.Series([0], dtype=pl.Int64).append(events["sum"])
    before = times.search_sorted(frame["start_ns"], side="left")
    until = times.search_sorted(frame["start_ns"] + frame["dur_ns"].fill_null(0), side="right")
    return sums.gather(until) - sums.gather(before)
