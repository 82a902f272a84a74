"""Memory that was allocated while calls ran."""

import polars as pl

from kernelscope.analysis.call_tree import CallTree

# PyTorch's device types: CPU, MKL-DNN, IDEEP; CUDA, HIP, XPU, PrivateUse1.
HOST_TYPES = (0, 2, 5)
DEVICE_TYPES = (1, 6, 12, 20)


def put_memory(tree: CallTree, calls: pl.DataFrame, memory: pl.DataFrame) -> None:
    """Puts to calls the memory allocated during each, and during it but during no child.

    Columns: of ``calls``, which are those of ``tree``, needs ``start_ns`` and ``dur_ns``; of ``memory``,
        ``start_ns``, ``bytes`` and ``device_type``. The tree has ``cpu_memory_bytes``,
        ``cpu_self_memory_bytes``, ``device_memory_bytes`` and ``device_self_memory_bytes`` afterwards.
    """
    for place, types in (("cpu", HOST_TYPES), ("device", DEVICE_TYPES)):
        column = f"{place}_memory_bytes"
        tree.put_records(calls, memory, device_types=types, into=column)
        tree.subtract_children(column, into=f"{place}_self_memory_bytes")
