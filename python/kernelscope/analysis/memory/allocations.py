"""Memory that was allocated while an interval ran."""

import polars as pl

from kernelscope import _traceparse

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
    wanted = pl.col("device_type").is_in(device_types)
    records = memory.select("start_ns", "bytes", "device_type").filter(wanted).drop("device_type")
    if records.is_empty() or frame.is_empty():
        return pl.zeros(frame.height, dtype=pl.Int64, eager=True).alias("bytes")
    return pl.DataFrame(_traceparse.sum_records_within(records, frame.select("start_ns", "dur_ns")))["bytes"]
