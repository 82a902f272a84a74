"""GPUs with operations in a trace, as it describes them."""

from collections.abc import Mapping
from typing import Any

from kernelscope.trace import Trace

UNNAMED = "unnamed GPU"
"""Name of a GPU that the trace does not name."""


def working_devices(trace: Trace) -> dict[int, Mapping[str, Any]]:
    """Returns the row of ``devices`` of each GPU with operations, by its number.

    It is empty if the trace has no description.

    A machine's GPUs are of one kind, and profilers omit some of them: if all named GPUs are equal, the others
    are assumed equal.
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
