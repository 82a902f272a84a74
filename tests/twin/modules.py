"""What each module of the network cost where it stands."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from slow_reader import Row, end, intersect, length, union
from twin.calls import own_times, running_at
from twin.figures import Figures, Rows, duration, grouped
from twin.training import Training

Path = tuple[str, ...]
_SUMMED = ("operators", "device_self_ns", "backward_host_ns", "backward_device_ns")


class Modules:
    """The calls of modules that are Python frames, the modules around each, and what runs in each."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.training = rows, Training(rows)
        self.calls = self.training.frames
        above = {frame["row"]: frame["parent_row"] for frame in rows["python"]}
        self.caller: dict[int, int | None] = {}
        for row in self.calls:
            at = above[row]
            while at is not None and at not in self.calls:
                at = above.get(at)
            self.caller[row] = at
        self.paths: dict[int, Path] = {}
        for row in self.calls:
            chain: list[str] = []
            at: int | None = row
            while at is not None:
                chain.append((self.calls[at]["name"] or "unnamed").removeprefix("nn.Module: "))
                at = self.caller[at]
            self.paths[row] = tuple(reversed(chain))

    def place(self, op: Row) -> tuple[int | None, bool]:
        """The call that an operator belongs to, and whether it runs in it: a gradient does not."""
        row = self.training.modules.get(op["row"])
        if row is None:
            return None, False
        call = self.calls[row]
        return row, op["track"] == call["track"] and call["start_ns"] <= op["start_ns"] < end(call)

    def outermost(self) -> dict[int, list[Row]]:
        """The operators in each call that lie in no other operator of it."""
        found: defaultdict[int, list[Row]] = defaultdict(list)
        for op in self.rows["ops"]:
            call, inside = self.place(op)
            if call is None or not inside or op["is_annotation"]:
                continue
            above = self.training.ops.get(op["parent_row"])
            while above is not None and above["is_annotation"]:
                above = self.training.ops.get(above["parent_row"])
            if above is None or self.place(above) != (call, True):
                found[call].append(op)
        return found

    def _launching(self) -> dict[int, int]:
        """The innermost call of a module that a launch lies in whole, by the row of the launch."""
        found: dict[int, int] = {}
        launches = {launch["row"]: launch for launch in self.rows["launches"]}
        for row, frame in running_at(list(self.calls.values()), self.rows["launches"]).items():
            call: int | None = frame["row"]
            while call is not None and end(self.calls[call]) < end(launches[row]):
                call = self.caller[call]
            if call is not None:
                found[row] = call
        return found

    def sums(self) -> defaultdict[Path, dict[str, int]]:
        """GPU work of operators in a module, of their gradients, and of what Python launches by itself."""
        sums: defaultdict[Path, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_SUMMED, 0))
        operators = [op for op in self.rows["ops"] if not op["is_annotation"]]
        own = own_times(operators, [])
        for op in operators:
            call, inside = self.place(op)
            if call is not None and not inside:
                sums[self.paths[call]]["backward_host_ns"] += own[op["row"]]
        for call, members in self.outermost().items():
            sums[self.paths[call]]["operators"] += len(members)
        around = self._launching()
        for work in self.rows["gpu_ops"]:
            op, launch = self.training.ops.get(work["op_row"]), work["launch_row"]
            if op is not None:
                call, inside = self.place(op)
            else:
                call, inside = around.get(launch) if launch is not None else None, True
            if call is not None:
                part = "device_self_ns" if inside else "backward_device_ns"
                sums[self.paths[call]][part] += duration(work)
        return sums


def module_table(rows: Rows) -> Figures:
    """By path; of traces whose modules are Python frames."""
    modules = Modules(rows)
    sums, operators = modules.sums(), modules.outermost()
    called = grouped(modules.calls.values(), lambda call: modules.caller[call["row"]])
    found: dict[Path, dict[str, Any]] = {}
    for path, calls in grouped(modules.calls.values(), lambda call: modules.paths[call["row"]]).items():
        own = 0
        for call in calls:
            inner = [*called.get(call["row"], ()), *operators.get(call["row"], ())]
            whole = [(call["start_ns"], end(call))]
            covered = union([(each["start_ns"], end(each)) for each in inner])
            own += length(whole) - length(intersect(whole, covered))
        found[path] = {"calls": len(calls), "host_self_ns": own, "host_total_ns": sum(map(duration, calls))}
    for path, figures in found.items():
        figures |= sums[path]
        below = [sums[each] for each in found if each[: len(path)] == path]
        figures["device_total_ns"] = sum(each["device_self_ns"] for each in below)
        for name in ("backward_host_ns", "backward_device_ns"):
            figures[name] = sum(each[name] for each in below)
        if not rows["gpu_ops"]:
            figures |= dict.fromkeys(("device_total_ns", "device_self_ns", "backward_device_ns"))
    return {"/".join(path): figures for path, figures in found.items()}
