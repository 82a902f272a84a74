"""Folded stacks of Python, as PyTorch exports them: recorded ones, or those of the frames in the trace.

What an event takes itself is its time without that of the events in it, of which a repeat of its name is
none. A gradient, and all in it, has the stack of its forward operator.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from slow_reader import Row, end
from twin.calls import Tree, own_times
from twin.figures import Figures, Rows, duration
from twin.stacks import host_events, parents_of, text_of
from twin.training import Training

_WRAPPER = "autograd::engine::evaluate_function: "
_LEFT_OUT = (
    ("autograd/__init__", "_make_grads"),
    ("autograd/__init__", "backward"),
    ("torch/tensor", "backward"),
    ("_internal/common_utils", "prof_callable"),
    ("_internal/common_utils", "prof_func_call"),
    ("_internal/common_utils", "prof_meth_call"),
)
Stacks = dict[int, str | None]


def _is_hidden(frame: str) -> bool:
    return any(place in frame and function in frame for place, function in _LEFT_OUT)


def _joined(frames: list[str]) -> str:
    return ";".join(text_of(frame, on_host=False) for frame in frames if frame and not _is_hidden(frame))


def folded_stacks(rows: Rows, metric: str) -> Figures:
    events = _nested(rows)
    recorded = {op["row"]: op["call_stack"] for op in rows["ops"]}
    if any(recorded.values()):
        own = {row: _recorded(recorded.get(row)) for row in events}
    else:
        own = _rebuilt(events, rows["python"])
    found = _with_gradients(rows, events, own)
    tree = Tree(list(events.values()), collapse=True)
    values = _host_times(events, tree) if metric == "self_cpu" else _device_times(rows, tree)
    sums: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    for row in tree.parent:
        text = found[row]
        if text:
            sums[text] += values[row]
            numbers[text] += 1
    return {text: {"value_ns": value, "events": numbers[text]} for text, value in sums.items() if value}


def _nested(rows: Rows) -> dict[int, Row]:
    """The events of the host with what is around them, the outer ones in front."""
    events = host_events(rows, rows["python"])
    parents = parents_of(events)
    found: dict[int, Row] = {}
    for event in sorted(events, key=lambda event: (event["start_ns"], -end(event), event["row"])):
        row, above = event["row"], parents[event["row"]]
        is_step = (event["name"] or "").startswith("ProfilerStep#")
        found[row] = {
            **event,
            "name": "ProfilerStep*" if is_step else event["name"],
            "parent_row": above,
            "depth": 0 if above is None else found[above]["depth"] + 1,
        }
    return found


def _recorded(stack: str | None) -> str | None:
    """A recorded stack has its leaf first."""
    return None if stack is None else _joined(stack.split(";")[::-1])


def _rebuilt(events: dict[int, Row], python: list[Row]) -> Stacks:
    """The frames around an event on its thread, or that called a frame, wherever they are."""
    frames = {frame["row"]: frame for frame in python}
    texts: dict[int, str] = {}

    def path(row: int) -> str:
        if row not in texts:
            caller = frames[row]["parent_row"]
            above = "" if caller is None else path(caller)
            texts[row] = ";".join(part for part in (above, _joined([frames[row]["name"] or ""])) if part)
        return texts[row]

    around: dict[int, int | None] = {}
    found: Stacks = {}
    for row, event in events.items():
        above = event["parent_row"]
        around[row] = above if above is None or above in frames else around[above]
        caller = frames[row]["parent_row"] if row in frames else around[row]
        found[row] = None if caller is None else path(caller)
    return found


def _with_gradients(rows: Rows, events: dict[int, Row], own: Stacks) -> Stacks:
    inside: dict[int, int | None] = {}
    for row, event in events.items():
        above = event["parent_row"]
        inside[row] = row if _is_gradient(row, events) else None if above is None else inside[above]
    firsts: dict[Any, int] = {}
    for row, event in events.items():
        number = event.get("sequence")
        if number is not None and inside[row] is None:
            firsts.setdefault((number, event["track"]), row)
    threads = _threads(rows)
    found: Stacks = {}
    for row, gradient in inside.items():
        if gradient is None:
            found[row] = own[row]
            continue
        number, thread = (events[gradient].get(name) for name in ("sequence", "forward_thread"))
        first = firsts.get((number, threads.get(thread)))
        found[row] = None if first is None else own[first]
    return found


def _is_gradient(row: int, events: dict[int, Row]) -> bool:
    """The call of a node of autograd, not the wrapper around it."""
    event = events[row]
    name = event["name"] or ""
    if (event.get("forward_thread") or 0) > 0 and not name.startswith(_WRAPPER):
        return True
    above = event["parent_row"]
    return above is not None and event["name"] is not None and events[above]["name"] == _WRAPPER + name


def _threads(rows: Rows) -> dict[Any, int]:
    """The thread that each of the profiler's numbers means: that of most of the forward operators."""
    training = Training(rows)
    counts: defaultdict[Any, Counter[int]] = defaultdict(Counter)
    for backward, forward in training.forward.items():
        number = training.ops[backward]["forward_thread"]
        if (number or 0) > 0:
            counts[number][training.ops[forward]["track"]] += 1
    return {
        number: min(tracks, key=lambda track: (-tracks[track], track)) for number, tracks in counts.items()
    }


def _host_times(events: dict[int, Row], tree: Tree) -> dict[int, int]:
    """Where the events inside overlap and take more than there is, the time in which none of them runs."""
    alone: Counter[int] = Counter()
    for row, taken in own_times(list(events.values()), []).items():
        alone[tree.kept[row]] += taken
    found = {row: duration(events[row]) for row in tree.parent}
    for row, above in tree.parent.items():
        if above is not None:
            found[above] -= duration(events[row])
    return {row: alone[row] if value < 0 else value for row, value in found.items()}


def _device_times(rows: Rows, tree: Tree) -> Counter[int]:
    found: Counter[int] = Counter()
    for work in rows["gpu_ops"]:
        if work["op_row"] in tree.kept:
            found[tree.kept[work["op_row"]]] += duration(work)
    return found
