"""What the backward pass runs again, node by node."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from slow_reader import Row, end
from twin.figures import grouped

_ENGINE = "autograd::engine::evaluate_function"
# A node of the backward pass, such as MmBackward0; older recorders write no engine around it.
_NODE = re.compile(r"[^ :.#]+Backward\d*")


def is_gradient(op: Row) -> bool:
    return (op["forward_thread"] or 0) > 0


def is_node(op: Row) -> bool:
    return _is_engine(op) or bool(_NODE.fullmatch(op["name"] or "")) or is_gradient(op)


def _is_engine(op: Row) -> bool:
    return (op["name"] or "").startswith(_ENGINE)


def _is_dispatched(op: Row) -> bool:
    name = op["name"] or ""
    return "::" in name and " " not in name


def recomputed(
    ops: list[Row], backward: list[Row], forward: Mapping[int, int], module_start: Callable[[Row], int | None]
) -> set[int]:
    """Rows of the operators that are recomputed, of those of the backward pass."""
    ordered = sorted(backward, key=lambda op: (op["track"], op["start_ns"], -end(op), op["row"]))
    children = grouped(ordered, lambda op: op["parent_row"])
    by_row = {op["row"]: op for op in backward}
    numbered = {op["name"] for op in ops if op["sequence"] is not None and not is_gradient(op)}
    found: set[int] = set()
    for op in backward:
        above = by_row.get(op["parent_row"])
        inner = above is not None and _is_engine(above) and not _is_engine(op)
        if (is_node(op) and not inner) or above is None:
            node = _Node(op, children, forward, module_start)
            found |= {each["row"] for each in node.recomputed(numbered)}
    for op in sorted(backward, key=lambda op: op["depth"]):
        if op["parent_row"] in found and not is_node(op):
            found.add(op["row"])
    for op in backward:
        if op["is_annotation"] and _all_inside(op, children, found):
            found.add(op["row"])
    return found


def _all_inside(op: Row, children: Mapping[Any, list[Row]], found: set[int]) -> bool | None:
    """Whether all that an annotation encloses is recomputed; nothing if it encloses nothing."""
    states = [
        _all_inside(each, children, found) if each["is_annotation"] else each["row"] in found
        for each in children.get(op["row"], ())
    ]
    known = [state for state in states if state is not None]
    return all(known) if known else None


class _Node:
    """A node with the event of the engine that evaluates it, and what runs in it, without other nodes."""

    def __init__(
        self,
        top: Row,
        children: Mapping[Any, list[Row]],
        forward: Mapping[int, int],
        module_start: Callable[[Row], int | None],
    ) -> None:
        self.top = top
        self.children = children
        self.own: list[Row] = []
        self.inner: list[Row] = []
        self._collect(top)
        rows = {op["row"] for op in self.own}
        gradients = [*self.inner, *chain.from_iterable(map(self._engines, self.inner))]
        self.again = {forward[op["row"]] for op in gradients if forward.get(op["row"]) in rows}
        starts = {op["row"]: module_start(op) for op in self.own}
        self.certain = {
            op["row"]
            for op in self.own
            if op["name"] == "CompiledFunction"
            or ((start := starts[op["row"]]) is not None and start >= top["start_ns"])
        }
        self.again |= self.certain

    def _engines(self, op: Row) -> list[Row]:
        """The node inside an event of the engine."""
        inside = self.children.get(op["row"], ())
        return [each for each in inside if _is_engine(op) and is_node(each) and not _is_engine(each)]

    def _collect(self, op: Row) -> None:
        for each in self.children.get(op["row"], ()):
            if not is_node(each):
                self.own.append(each)
                self._collect(each)
            elif op is self.top and each in self._engines(op):
                self._collect(each)
            else:
                self.inner.append(each)

    def records(self, op: Row) -> bool:
        """Whether an operator records gradients, itself or inside."""
        own = op["row"] in self.again or (_is_dispatched(op) and op["sequence"] is not None)
        inside = self.children.get(op["row"], ())
        return own or any(self.records(each) for each in inside if not is_node(each))

    def parts(self, op: Row) -> list[Row]:
        found: list[Row] = []
        for each in self.children.get(op["row"], ()):
            if each["is_annotation"] and not is_node(each):
                found += self.parts(each)
            else:
                inner = op is self.top and each in self._engines(op)
                found += [each, *(self.parts(each) if inner else ())]
        return found

    def recomputed(self, numbered: set[str]) -> list[Row]:
        parts = self.parts(self.top)
        quiet = [
            op
            for op in parts
            if not is_node(op)
            and _is_dispatched(op)
            and not self.records(op)
            and ("_backward" in op["name"] or op["name"] in numbered)
        ]
        if not (quiet or self.certain or self.inner):
            return []
        found: list[Row] = []
        run: list[Row] = []
        for op in [*parts, None]:
            is_over = op is None or is_node(op)
            if is_over or (_is_dispatched(op) and "_backward" in op["name"] and not self.records(op)):
                found += self._between(run)
                run = []
            else:
                run.append(op)
        return found

    def _between(self, run: list[Row]) -> list[Row]:
        """From the first that records gradients to the last, with the Functions next to them."""
        marks = "".join(
            "r" if self.records(op) else "f" if op["sequence"] is not None and not _is_dispatched(op) else "-"
            for op in run
        )
        place = re.search("f*r(.*r)?f*", marks)
        return run[place.start() : place.end()] if place else []
