"""Which pass and which operator a kernel belongs to, from autograd's sequence numbers.

PyTorch numbers the operators that need a gradient; the node of the backward pass carries the number of
its operator. A kernel may lie in several numbered ranges.
"""

import re
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from kernelscope.compat.pyprof.markers import Markers, marker_of

_CELLS = ("LSTMCell", "GRUCell", "RNNCell")
_BACKWARD_NODE = re.compile(r"(?:Backward\d*|backward|AccumulateGrad)$")
_BACKWARD_SUFFIX = re.compile(r"(?:Backward\d*|_backward)$")
_ENGINE = "autograd::engine::evaluate_function: "
_NOT_SHOWN = ("torch", "autograd", "_backward", "::", "jit", "(anonymous namespace)")
# The backward forms that PyProf knows: later ones end in other numbers.
_COMPAT_BACKWARD = ("Backward, seq = ", "backward, seq = ", "Backward0, seq = ")


def direction(markers: Markers, *, compat: bool) -> str:
    """``bprop`` for a kernel of the backward pass, else ``fprop``."""
    if compat:
        found = any(part in text for text in markers.sequences for part in _COMPAT_BACKWARD)
    else:
        names = [text.partition(", seq = ")[0] for text in markers.sequences]
        found = any(_BACKWARD_NODE.search(name) for name in names)
        found = found or any(text.startswith(_ENGINE) for text in markers.others)
    return "bprop" if found else "fprop"


def functions(markers: Markers, *, compat: bool) -> tuple[list[str], list[str]]:
    """Modules and functions around the kernel, outermost first: from arguments, else from numbered ranges."""
    named = [marker for text in markers.arguments if (marker := marker_of(text)) is not None]
    if named:
        return [marker.mod for marker in named], [marker.op for marker in named]
    numbered = [text.partition(", seq = ")[0] for text in markers.sequences]
    if compat:
        ops = [_compat_operator(name) for name in numbered if name.endswith(("backward", "Backward"))]
    else:
        ops = [_operator(name) for name in numbered if _BACKWARD_NODE.search(name)]
    ops = ops or numbered
    if ops:
        return ["na"] * len(ops), ops
    return ["na"], markers.others[:1] if compat else _innermost(markers.others)


def _innermost(others: Sequence[str]) -> list[str]:
    """The operator among other ranges: PyTorch's own are the innermost."""
    operators = [text for text in others if text.startswith("aten::")]
    return (operators or list(others))[:1]


def _compat_operator(node: str) -> str:
    """The operator of a backward node, or of a function for one."""
    for part in _NOT_SHOWN:
        node = node.replace(part, "")
    return node.partition("Backward")[0]


def _operator(node: str) -> str:
    """``Addmm`` for ``AddmmBackward0``, ``threshold`` for ``aten::threshold_backward``."""
    name = node.rpartition("::")[2]
    return _BACKWARD_SUFFIX.sub("", name) or name


class Place(NamedTuple):
    """The numbers of a kernel and its place among the kernels of its operator."""

    ids: list[int]
    alternate: list[int]
    sub: int


class _State(NamedTuple):
    sequence: int = -1
    sub: int = -1
    ops: tuple[str, ...] = ("na",)


class CompatNumbering:
    """Tells the operators of kernels apart as PyProf does: by their numbers, in the order of the file.

    The state is one for the whole file, which mixes up the numbers of processes and threads.
    """

    def __init__(self) -> None:
        self._state = _State()

    def place(self, ids: Sequence[int], ops: Sequence[str], mods: Sequence[str], way: str) -> Place:
        """The numbers of the next kernel, whose ranges have the numbers ``ids`` in ascending order."""
        numbers = [number for number in ids if number != 0] or list(ids)
        if not numbers:
            return Place([], [], 0)
        state = self._state
        if way == "bprop":
            current = numbers[0]
        else:
            current = next((number for number in numbers if number > state.sequence), state.sequence)
        same = tuple(ops) == state.ops
        is_cell = bool(ops) and ops[0] == "forward" and bool(mods) and mods[0] in _CELLS
        sub = state.sub + 1 if same and (current == state.sequence or is_cell) else 0
        self._state = _State(current, sub, tuple(ops))
        return _split(numbers, current, sub)


def _split(numbers: list[int], current: int, sub: int) -> Place:
    """PyProf removes from the list that it walks, and so passes over the number behind each."""
    own, alternate, at = list(numbers), list[int](), 0
    while at < len(own):
        if own[at] != current:
            alternate.append(own.pop(at))
        at += 1
    return Place(own, sorted(set(alternate)), sub)


class Numbering:
    """Tells the operators of kernels apart by the ranges that they lie in, thread by thread."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[int | None, int]] = {}

    def place(self, thread: Hashable, ids: Sequence[int], node: int | None, way: str) -> Place:
        """The numbers of the thread's next kernel, which lies in the range ``node``.

        Forward, the innermost range makes the node of the backward pass, and numbers grow inwards;
        backward, the outermost is that node.
        """
        last, sub = self._last.get(thread, (None, -1))
        sub = sub + 1 if node is not None and node == last else 0
        self._last[thread] = (node, sub)
        numbers = [number for number in ids if number != 0] or list(ids)
        if not numbers:
            return Place([], [], sub)
        current = numbers[0] if way == "bprop" else numbers[-1]
        return Place([current], [number for number in numbers if number != current], sub)
