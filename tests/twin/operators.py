"""What operators and annotations cost, by any key and call by call."""

from __future__ import annotations

import bisect
from collections import defaultdict
from itertools import accumulate
from typing import Any

from slow_reader import Row, end
from twin.calls import Tree, around, own_times
from twin.figures import Figures, Rows, duration, share
from twin.gpu import Flags

HOST, DEVICE = ("host_total_ns", "host_self_ns"), ("device_total_ns", "device_self_ns")
TENSOR = ("tc_total_ns", "tc_self_ns")
MEMORY = (
    "cpu_memory_bytes", "cpu_self_memory_bytes", "device_memory_bytes", "device_self_memory_bytes",
)  # fmt: skip
PLACES = {"cpu": (0, 2, 5), "device": (1, 6, 12, 20)}
"""PyTorch's types of devices."""
_ATEN = (
    "_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d "
    "convolution cudnn_convolution cudnn_convolution_transpose cudnn_convolution_backward "
    "cudnn_convolution_backward_input "
    "cudnn_convolution_backward_weight cudnn_convolution_transpose_backward "
    "cudnn_convolution_transpose_backward_input cudnn_convolution_transpose_backward_weight prelu "
    "addmm addmm_ addmv addr matmul mm mv linear addbmm baddbmm bmm chain_matmul linalg_multi_dot "
    "_thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"
)
_GRADIENTS = "CudnnConvolution CudnnConvolutionTranspose Mm Addmv Mv Addmm Addbmm"
ON_TENSOR_CORES = {
    *(f"aten::{name}" for name in _ATEN.split()),
    *(f"{name}Backward" for name in _GRADIENTS.split()),
    "BmmBackward0",
}
"""The operators that the plugin of TensorBoard says tensor cores can run."""
MEASURES = ("device_self_ns", "device_total_ns", "host_self_ns", "host_total_ns")


class Calls:
    """The figures of every call that stands for itself, and what the trace cannot tell."""

    def __init__(self, rows: Rows, flags: Flags, *, collapse: bool) -> None:
        self.rows, self.tree = rows, Tree(rows["ops"], collapse=collapse)
        names = (*HOST, *DEVICE, *TENSOR, *MEMORY, "eligible")
        self.figures: dict[int, dict[str, Any]] = {row: dict.fromkeys(names, 0) for row in self.tree.parent}
        own = own_times(rows["ops"], rows["launches"])
        for op in rows["ops"]:
            self.figures[self.tree.kept[op["row"]]]["host_self_ns"] += own[op["row"]]
            for row in self.tree.upwards(op["row"]) if op["name"] in ON_TENSOR_CORES else ():
                self.figures[row]["eligible"] += 1
            if self.tree.kept[op["row"]] == op["row"]:
                self.figures[op["row"]]["host_total_ns"] = duration(op)
        self._put_device_time(flags)
        self._put_memory()
        unknown = [*(MEMORY if not rows["memory"] else ()), *(() if rows["gpu_ops"] else DEVICE + TENSOR)]
        for figures in self.figures.values():
            figures |= dict.fromkeys(unknown)

    def is_annotation(self, row: int) -> bool:
        return bool(self.tree.ops[row]["is_annotation"])

    def _put_device_time(self, flags: Flags) -> None:
        for work, opened in around(self.rows):
            taken = duration(work)
            on_cores = work["kind"] == "kernel" and flags[work["name"], work["device"]]
            total, own = self.owners(work, opened)
            for row in total:
                self._add(row, "total", taken, on_cores=bool(on_cores))
            if own is not None:
                self._add(own, "self", taken, on_cores=bool(on_cores))

    def owners(self, work: Row, opened: list[Row]) -> tuple[set[int], int | None]:
        """The calls that a work counts for, and the one whose own it is.

        An operator has what it or an operator inside it launched, an annotation what was launched while it
        was open, and as its own what no operator launched.
        """
        total = {row for row in self.tree.upwards(work["op_row"]) if not self.is_annotation(row)}
        # An annotation that an id names as the operator has the work, wherever that was launched.
        inside = [op["row"] for op in opened]
        total |= {row for row in inside if self.tree.kept[row] == row}
        if work["op_row"] is not None:
            return total, self.tree.kept[work["op_row"]]
        return total, self.tree.kept[inside[-1]] if inside else None

    def _add(self, row: int, part: str, taken: int, *, on_cores: bool) -> None:
        self.figures[row][f"device_{part}_ns"] += taken
        if on_cores:
            self.figures[row][f"tc_{part}_ns"] += taken
            self.figures[row]["eligible"] += part == "total"

    def _put_memory(self) -> None:
        for place, types in PLACES.items():
            records = sorted(
                (record["start_ns"], record["bytes"])
                for record in self.rows["memory"]
                if record["device_type"] in types and record["bytes"] is not None
            )
            times = [at for at, _ in records]
            sums = [0, *accumulate(size for _, size in records)]
            for row, figures in self.figures.items():
                op = self.tree.ops[row]
                first, last = bisect.bisect_left(times, op["start_ns"]), bisect.bisect_right(times, end(op))
                figures[f"{place}_memory_bytes"] += sums[last] - sums[first]
                figures[f"{place}_self_memory_bytes"] += sums[last] - sums[first]
                above = self.tree.parent[row]
                if above is not None:
                    self.figures[above][f"{place}_self_memory_bytes"] -= sums[last] - sums[first]


def _percent(figures: dict[str, Any], part: str) -> float | None:
    whole = figures[f"device_{part}_ns"]
    return 100.0 * figures.pop(f"tc_{part}_ns") / whole if whole else None


def _shown(figures: dict[str, Any]) -> dict[str, Any]:
    shown = dict(figures)
    eligible = shown.pop("eligible") > 0
    for part in ("self", "total"):
        shown[f"tc_{part}_pct"] = _percent(shown, part)
    shown = {name: value for name, value in shown.items() if not name.startswith("tc_") or "pct" in name}
    return {**shown, "tc_eligible": eligible}


def op_table(calls: Calls, *by: str, annotations: bool = False) -> Figures:
    found: dict[Any, dict[str, Any]] = {}
    for row, figures in calls.figures.items():
        if not annotations and calls.is_annotation(row):
            continue
        op = calls.tree.ops[row]
        sums = found.setdefault(tuple(op.get(name) for name in by), {"calls": 0} | dict.fromkeys(figures))
        sums["calls"] += 1
        for name, value in figures.items():
            if value is not None:
                sums[name] = (sums[name] or 0) + value
    return {key: _shown(sums) for key, sums in found.items()}


def ops(calls: Calls) -> Figures:
    """Each call by its row."""
    found: Figures = {}
    for row, figures in calls.figures.items():
        place = {"parent_row": calls.tree.parent[row], "is_operator": not calls.is_annotation(row)}
        shown = _shown(figures)
        found[row] = {**place, **{name: value for name, value in shown.items() if "_pct" not in name}}
    return found


def op_shares(table: Figures, top: int | None = None) -> Figures:
    """By measure and key; the rest of a measure has the key None."""
    found: Figures = {}
    for measure in MEASURES:
        used = {key: row[measure] for key, row in table.items() if (row[measure] or 0) > 0}
        total = sum(used.values())
        order = sorted(used, key=lambda key: (-used[key], key[0] is None, key))
        for key in order[:top]:
            # Totals overlap.
            share = None if measure.endswith("_total_ns") else used[key] / total
            found[(measure, *key, False)] = {"value_ns": used[key], "share": share}
        if top is not None and len(order) > top and not measure.endswith("_total_ns"):
            rest = sum(used[key] for key in order[top:])
            found[measure, None, True] = {"value_ns": rest, "share": rest / total}
    return found


def op_kernels(calls: Calls) -> Figures:
    sums: dict[Any, dict[str, Any]] = {}
    whole: defaultdict[Any, int] = defaultdict(int)
    for work, opened in around(calls.rows):
        total, own = calls.owners(work, opened)
        for row in total:
            name, taken = calls.tree.ops[row]["name"], duration(work)
            figures = sums.setdefault(
                (name, work["kind"], work["name"]), dict.fromkeys(("calls", "total_ns", "self_ns"), 0)
            )
            figures["calls"] += 1
            figures["total_ns"] += taken
            figures["self_ns"] += taken if row == own else 0
            figures["min_ns"] = min(figures.get("min_ns", taken), taken)
            figures["max_ns"] = max(figures.get("max_ns", taken), taken)
            whole[name] += taken
    for (name, *_), figures in sums.items():
        figures["share"] = share(figures["total_ns"], whole[name])
    return sums


def eligible_share(calls: Calls, flags: Flags) -> float | None:
    """Of the kernel time of operators, what is in those that tensor cores can run.

    The innermost counts: the name of an operator is one of these, or a kernel of its own runs on them, and
    nothing in it is of either kind.
    """
    own: defaultdict[int, list[Row]] = defaultdict(list)
    for work in calls.rows["gpu_ops"]:
        if work["kind"] == "kernel" and work["op_row"] is not None:
            own[calls.tree.kept[work["op_row"]]].append(work)
    eligible: dict[int, int] = {}
    for row in calls.figures:
        on_cores = sum(bool(flags[work["name"], work["device"]]) for work in own[row])
        eligible[row] = on_cores + (calls.tree.ops[row]["name"] in ON_TENSOR_CORES)
    inside: defaultdict[int, int] = defaultdict(int)
    for row, number in eligible.items():
        for above in calls.tree.upwards(row):
            inside[above] += number
    part, whole = 0, 0
    for row, works in own.items():
        if not calls.is_annotation(row):
            taken = sum(map(duration, works))
            whole += taken
            part += taken if eligible[row] and eligible[row] == inside[row] else 0
    return share(part, whole)
