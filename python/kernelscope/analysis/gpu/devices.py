"""The GPUs that work in a trace, as it describes them."""

from collections.abc import Mapping
from typing import Any

from kernelscope.trace import Trace

UNNAMED = "unnamed GPU"
"""What a GPU is called whose name the trace does not hold."""


def working_devices(trace: Trace) -> dict[int, Mapping[str, Any]]:
    """The row of ``devices`` of each GPU that has work, by its number; empty where nothing describes it.

    A machine's GPUs are of one kind, and recorders leave some of them out: where all that are named are
    alike, so are the others.
    """
    used = trace.gpu_ops["device"].drop_nulls().unique().sort().to_list()
    described: dict[int, Mapping[str, Any]] = {
        row["device"]: row for row in trace.devices.iter_rows(named=True)
    }
    named = [row for row in described.values() if row["name"]]
    if len({(row["name"], row["total_memory_bytes"], row["sm_count"]) for row in named}) == 1:
        return {
            device: row if (row := described.get(device, {})).get("name") else named[0] for device in used
        }
    return {device: described.get(device, {}) for device in used}
