"""Ranges around the nodes of the backward pass, by hooks that autograd offers for its nodes."""

import threading
from typing import Any

from kernelscope.capture.state import Ranges

_MARK = "kernelscope"
# An operator makes few nodes; a long chain belongs to operators before it.
_MOST_NODES = 64


class _Open(threading.local):
    """The nodes that each thread is in, each with the pass that it belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[tuple[object, int]] = []


class BackwardHooks:
    """Opens a range with a node's name and the sequence number of its operator while the node runs."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._open = _Open()
        self._passes = 0
        self.is_active = True

    def follow(self, result: Any, first: int) -> None:
        """Hooks the nodes that an operator made: those whose numbers start at ``first``."""
        node = getattr(result, "grad_fn", None)
        if node is None:
            if isinstance(result, (list, tuple)):
                for part in result[:_MOST_NODES]:  # pyright: ignore[reportUnknownVariableType]
                    if getattr(part, "grad_fn", None) is not None:  # pyright: ignore[reportUnknownArgumentType]
                        self.follow(part, first)
            return
        waiting = [node]
        for _ in range(_MOST_NODES):
            if not waiting:
                return
            node = waiting.pop()
            if self._is_new(node, first):
                self._hook(node, first)
                waiting += [before for before, _ in node.next_functions if before is not None]

    def _is_new(self, node: Any, first: int) -> bool:
        # Nodes that gather gradients have the greatest number there is, and belong to no operator.
        number = node._sequence_nr()  # noqa: SLF001 - the only way to learn it
        return first <= number < 2**62 and _MARK not in node.metadata

    def _hook(self, node: Any, sequence: int) -> None:
        node.metadata[_MARK] = sequence
        owner, name = object(), str(node.name()).rpartition("::")[2]

        def before(gradients: object) -> None:
            del gradients
            if self.is_active:
                self._drop_abandoned()
                self._open.nodes.append((owner, self._passes))
                self._ranges.push(owner, name, sequence)

        def after(inputs: object, outputs: object) -> None:
            del inputs, outputs
            if self._open.nodes and self._open.nodes[-1][0] is owner:
                self._open.nodes.pop()
            self._ranges.pop(owner)

        node.register_prehook(before)
        node.register_hook(after)

    def _drop_abandoned(self) -> None:
        """Closes ranges of nodes that raised, in a pass that is over."""
        while self._open.nodes and self._open.nodes[-1][1] != self._passes:
            self._ranges.pop(self._open.nodes.pop()[0])

    def end_pass(self) -> None:
        """Says that a backward pass is over."""
        self._passes += 1
        self._drop_abandoned()
