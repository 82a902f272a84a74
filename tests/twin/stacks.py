"""Folded stacks of operators and modules: flame graphs; those of Python are in :mod:`twin.python_stacks`."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from slow_reader import Row, threads_of
from twin.calls import own_times
from twin.figures import Figures, Rows, duration
from twin.training import Training

_SPECIAL = re.compile("[ ;\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
_HIDDEN = {
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
}
_MODULE = "nn.Module: "


def text_of(name: str | None, *, on_host: bool = True) -> str:
    text = name or ""
    if on_host:
        text = "ProfilerStep*" if text.startswith("ProfilerStep#") else text.removeprefix(_MODULE)
    return _SPECIAL.sub("_", text[:1024]) or "(no_name)"


def host_events(rows: Rows, frames: list[Row]) -> list[Row]:
    """Operators, annotations, ``frames`` and calls: these on the thread of their operator, or apart."""
    ops = {op["row"]: op for op in rows["ops"]}
    events = [dict(op) for op in rows["ops"]]
    for call in rows["launches"]:
        owner = ops.get(call["op_row"])
        track = -1 - call["track"] if owner is None else owner["track"]
        events.append({**call, "track": track})
    events += [dict(frame) for frame in frames]
    # Of what has one time, what was recorded first lies outside.
    events.sort(key=lambda event: event["row"])
    return [event for event in events if event["name"] not in _HIDDEN]


def parents_of(events: list[Row]) -> dict[int, int | None]:
    """The call around each: what does not contain the next one is closed."""
    found: dict[int, int | None] = {}
    for members in threads_of(events).values():
        stack: list[Row] = []
        for event in members:
            until = event["start_ns"] + duration(event)
            while stack and (
                event["start_ns"] >= stack[-1]["start_ns"] + duration(stack[-1])
                or until > stack[-1]["start_ns"] + duration(stack[-1])
            ):
                stack.pop()
            found[event["row"]] = stack[-1]["row"] if stack else None
            stack.append(event)
    return found


def folded_stacks(rows: Rows, metric: str, *, with_modules: bool = False) -> Figures:
    modules = [frame for frame in rows["python"] if (frame["name"] or "").startswith(_MODULE)]
    events = host_events(rows, modules if with_modules else [])
    parents = parents_of(events)
    if with_modules:
        training = Training(rows)
        for event in events:
            module = training.modules.get(event["row"])
            begun = module is not None and training.frames[module]["start_ns"] < event["start_ns"]
            if parents[event["row"]] is None and begun:
                parents[event["row"]] = module
    texts = {event["row"]: text_of(event["name"]) for event in events}
    paths: dict[int, str] = {}

    def path(row: int) -> str:
        """Of what is deeper than a recursion can go there is none in the traces that are compared."""
        if row not in paths:
            above = parents.get(row)
            paths[row] = texts[row] if above is None else f"{path(above)};{texts[row]}"
        return paths[row]

    values: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    if metric == "self_cpu":
        own = own_times(events, [])
        counted: list[tuple[str, int]] = [(path(event["row"]), own[event["row"]]) for event in events]
    else:
        counted = [(_path_of_work(work, path), duration(work)) for work in rows["gpu_ops"]]
        counted += [(path(event["row"]), 0) for event in events]
    for text, value in counted:
        values[text] += value
        numbers[text] += 1
    return {text: {"value_ns": value, "events": numbers[text]} for text, value in values.items() if value}


def _path_of_work(work: Row, path: Any) -> str:
    name = text_of(work["name"], on_host=False)
    op = work["op_row"]
    return f"(no_operator);{name}" if op is None else f"{path(op)};{name}"
