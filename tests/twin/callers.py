"""The thread that waits while a thread of autograd runs its backward pass."""

from __future__ import annotations

from typing import Any

from slow_reader import Row, end
from twin.figures import Rows, grouped
from twin.training import Training

_CALLS = ("backward", "grad")


def put_callers(rows: Rows) -> None:
    """Fills ``caller_track`` of operators and of the launches that these made on their own thread."""
    found = _callers(rows)
    ops = {op["row"]: op for op in rows["ops"]}
    for op in rows["ops"]:
        op["caller_track"] = found.get(op["row"])
    for launch in rows["launches"]:
        op = ops.get(launch["op_row"])
        launch["caller_track"] = op["caller_track"] if op and op["track"] == launch["track"] else None


def _callers(rows: Rows) -> dict[int, int]:
    training = Training(rows)
    ops = sorted(rows["ops"], key=lambda op: (op["track"], op["start_ns"], -end(op), op["row"]))
    nodes = [op for op in ops if training.phases[op["row"]] == "backward"]
    root_of: dict[int, int] = {}
    for op in sorted(nodes, key=lambda op: op["depth"]):
        # An annotation may be named as nodes are.
        root = root_of.get(op["parent_row"], None if op["is_annotation"] else op["row"])
        if root is not None:
            root_of[op["row"]] = root
    nodes = [op for op in nodes if op["row"] in root_of]
    members = grouped(nodes, lambda op: root_of[op["row"]])
    roots = [op for op in nodes if root_of[op["row"]] == op["row"]]
    found: dict[int, int] = {}
    for root in roots:
        forwards = [
            training.forward[op["row"]] for op in members[root["row"]] if op["row"] in training.forward
        ]
        caller = training.ops[forwards[0]]["track"] if forwards else _by_number(root, rows, training)
        caller = _by_frame(root, rows) if caller is None else caller
        if caller is not None:
            found[root["row"]] = caller
    known = dict(found)
    for roots_of_track in grouped(roots, lambda root: root["track"]).values():
        callers = [known.get(root["row"]) for root in roots_of_track]
        for at, root in enumerate(roots_of_track):
            before = [caller for caller in callers[:at] if caller is not None][-1:]
            after = [caller for caller in callers[at:] if caller is not None][:1]
            if len(around := {*before, *after}) == 1:
                found.setdefault(root["row"], around.pop())
    outermost = {root["row"]: _outermost(root, roots, found) for root in roots}
    callers = {row: outermost[root] for row, root in root_of.items()}
    return {row: caller for row, caller in callers.items() if caller is not None}


def _by_number(root: Row, rows: Rows, training: Training) -> int | None:
    if root["sequence"] is None or (root["forward_thread"] or 0) > 0:
        return None
    alike = [op for op in rows["ops"] if (op["pid"], op["sequence"]) == (root["pid"], root["sequence"])]
    return _only({op["track"] for op in alike if training.phases[op["row"]] != "backward"})


def _by_frame(root: Row, rows: Rows) -> int | None:
    """The frame of the engine counts before one that has only the name."""
    at, own = root["start_ns"], root["track"]
    opened = [frame for frame in rows["python"] if frame["start_ns"] <= at < end(frame)]
    names = [((frame["name"] or ""), frame["track"]) for frame in opened]
    running = {track for name, track in names if "run_backward" in name}
    calling = {track for name, track in names if name.rpartition("): ")[2] in _CALLS}
    tracks = running or calling
    return own if own in tracks else _only(tracks)


def _only(values: set[Any]) -> Any:
    return next(iter(values)) if len(values) == 1 else None


def _outermost(root: Row, roots: list[Row], found: dict[int, int]) -> int | None:
    """A thread that waits may itself run a node for another one."""
    caller = found.get(root["row"])
    for _ in range(8):
        if caller is None or caller == root["track"]:
            return None
        before = [each for each in roots if each["track"] == caller and each["start_ns"] <= root["start_ns"]]
        running = before[-1] if before and end(before[-1]) > root["start_ns"] else None
        above = None if running is None else found.get(running["row"])
        if above is None or above == caller:
            return caller
        caller = above
    return None
