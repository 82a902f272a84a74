"""What belongs to the forward and what to the backward pass, and in which module it ran."""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import Any

from slow_reader import Row, end, threads_of
from twin.calls import running_at
from twin.figures import Rows, grouped
from twin.recomputation import is_gradient, is_node, recomputed

_MODULE = "nn.Module: "


class Training:
    """What is known of each operator, by its row.

    ``forward`` has the forward operator of each gradient, ``modules`` the call of a module that an operator
    ran in, ``phases`` what part of training it is of, ``recomputed`` what the backward pass runs again.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.ops = {op["row"]: op for op in rows["ops"]}
        self.forward = self._forwards()
        frames = [frame for frame in rows["python"] if is_module(frame)]
        self.frames = {frame["row"]: frame for frame in frames}
        started_in = running_at(frames, rows["ops"])
        own = {row: frame["row"] for row, frame in started_in.items()}
        self.phases = self._phases(own)
        self.recomputed = self._recomputed(own)
        self.modules = self._of_callers() | self._inherited(own)

    def _forwards(self) -> dict[int, int]:
        """By the arrows, else by sequence number on the thread that the profiler's index means."""
        found = dict(self._by_arrows())
        threads: defaultdict[Any, set[int]] = defaultdict(set)
        for backward, forward in found.items():
            if is_gradient(self.ops[backward]):
                threads[thread_of(self.ops[backward])].add(self.ops[forward]["track"])
        pending = [op for op in self.rows["ops"] if is_gradient(op) and op["row"] not in found]
        candidates = [op for op in self.rows["ops"] if op["sequence"] is not None and not is_gradient(op)]
        numbers = grouped(candidates, lambda op: op["sequence"])
        tracks = {number: {op["track"] for op in ops} for number, ops in numbers.items()}
        if not threads:
            for op in pending:
                of_number = tracks.get(op["sequence"], set())
                if len(of_number) == 1:
                    threads[thread_of(op)] |= of_number
        for op in pending:
            of_thread = threads.get(thread_of(op), set())
            track = of_thread if len(of_thread) == 1 else tracks.get(op["sequence"], set())
            if len(track) != 1:
                continue
            before = [
                each
                for each in numbers.get(op["sequence"], ())
                if each["track"] in track and each["start_ns"] <= op["start_ns"]
            ]
            if before:
                latest = max(before, key=lambda each: (each["start_ns"], -end(each), each["row"]))
                found[op["row"]] = latest["row"]
        return found

    def _by_arrows(self) -> list[tuple[int, int]]:
        flows = [flow for flow in self.rows["flows"] if flow["category"] in ("fwdbwd", "forward_backward")]
        begins = grouped((flow for flow in flows if flow["kind"] == "s"), lambda flow: flow["id"])
        at: defaultdict[Any, list[Row]] = defaultdict(list)
        for members in threads_of(self.rows["ops"]).values():
            for op in members:
                at[op["track"], op["start_ns"]].append(op)
        found: list[tuple[int, int]] = []
        for flow in flows:
            if flow["kind"] != "f" or flow["id"] is None or flow["id"] not in begins:
                continue
            starts = sorted(begins[flow["id"]], key=lambda begin: begin["start_ns"])
            place = bisect.bisect_right([begin["start_ns"] for begin in starts], flow["start_ns"])
            begin = starts[max(place - 1, 0)]
            forwards = at[begin["track"], begin["start_ns"]]
            backwards = at[flow["track"], flow["start_ns"]]
            if not forwards or not backwards:
                continue
            backward = next((op for op in backwards if is_gradient(op)), backwards[0])
            number = backward["sequence"]
            fitting = [
                op
                for op in forwards
                if number is not None and op["sequence"] == number and not is_gradient(op)
            ]
            forward = fitting[-1] if fitting else forwards[0]
            if forward is not backward:
                found.append((backward["row"], forward["row"]))
        return found

    def _phases(self, in_module: dict[int, int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for op in sorted(self.rows["ops"], key=lambda op: op["depth"]):
            above = found.get(op["parent_row"], "other")
            name = op["name"] or ""
            phase = "other"
            if above == "backward" or is_node(op):
                phase = "backward"
            elif above == "optimizer" or name.startswith("Optimizer."):
                phase = "optimizer"
            elif op["activity"] != "step" and (
                above == "forward" or op["row"] in in_module or op["sequence"] is not None
            ):
                phase = "forward"
            found[op["row"]] = phase
        return found

    def _recomputed(self, own: dict[int, int]) -> set[int]:
        backward = [op for op in self.rows["ops"] if self.phases[op["row"]] == "backward"]
        return recomputed(self.rows["ops"], backward, self.forward, lambda op: self._start_of_module(own, op))

    def _start_of_module(self, own: dict[int, int], op: Row) -> int | None:
        frame = own.get(op["row"])
        return None if frame is None else self.frames[frame]["start_ns"]

    def _inherited(self, own: dict[int, int]) -> dict[int, int]:
        """A gradient and what it encloses have the module of its forward operator.

        Where a module is called again inside the gradient, what runs in it stays there.
        """
        found = dict(own)
        since: dict[int, int] = {}
        for op in sorted(self.rows["ops"], key=lambda op: op["depth"]):
            row, forward, above = op["row"], self.forward.get(op["row"]), op["parent_row"]
            if forward in own:
                module, since[row] = own[forward], op["start_ns"]
            elif above in since:
                module, since[row] = found[above], since[above]
            else:
                continue
            if row not in own or self.frames[own[row]]["start_ns"] < since[row]:
                found[row] = module
        return found

    def _of_callers(self) -> dict[int, int]:
        """The module that the thread which waits for an operator is in."""
        moved = [
            {**op, "track": op["caller_track"]}
            for op in self.rows["ops"]
            if op.get("caller_track") is not None
        ]
        return {row: frame["row"] for row, frame in running_at(list(self.frames.values()), moved).items()}


def is_module(frame: Row) -> bool:
    return frame["module_id"] is not None or (frame["name"] or "").startswith(_MODULE)


def thread_of(op: Row) -> Any:
    return op["pid"], op["forward_thread"]
