"""Ranges around the forward of modules and the nodes of the backward pass, by hooks that torch offers."""

import importlib
import threading
import weakref
from typing import Any

from kernelscope.capture.ranges import Ranges

_MARK = "kernelscope"
# An operator makes few nodes; a long chain belongs to operators before it.
_MOST_NODES = 64


class _Stacks(threading.local):
    """The modules that each thread is in."""

    def __init__(self) -> None:
        super().__init__()
        self.modules: list[Any] = []


def _is_compiling() -> bool:
    torch: Any = importlib.import_module("torch")
    return bool(torch.compiler.is_compiling())


class ModuleHooks:
    """Opens a range ``layer:NAME`` when a module is called and closes it when it returns or raises.

    A module inside another is called by its name there, such as ``layer1.0``; one that no other module
    holds by its class.
    """

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._names: weakref.WeakKeyDictionary[Any, weakref.WeakKeyDictionary[Any, str]] = (
            weakref.WeakKeyDictionary()
        )
        module: Any = importlib.import_module("torch.nn.modules.module")
        self._handles: list[Any] = [
            module.register_module_forward_pre_hook(self._before),
            # Also called when the forward raises.
            module.register_module_forward_hook(self._after, always_call=True),
        ]
        self._stacks = _Stacks()

    def remove(self) -> None:
        """Takes the hooks away."""
        for handle in self._handles:
            handle.remove()

    def _before(self, module: Any, args: object) -> None:
        del args
        if _is_compiling():
            return
        stack = self._stacks.modules
        name = self._name(stack[-1] if stack else None, module)
        stack.append(module)
        self._ranges.path.append(name)
        self._ranges.push(module, f"layer:{name}")

    def _after(self, module: Any, args: object, result: object) -> None:
        del args, result
        stack = self._stacks.modules
        # A forward that raised without its hook leaves modules behind.
        while stack and stack[-1] is not module:
            self._ranges.pop(stack.pop())
            self._ranges.path.pop()
        if stack:
            stack.pop()
            self._ranges.path.pop()
            self._ranges.pop(module)

    def _name(self, parent: Any, module: Any) -> str:
        if parent is not None:
            names = self._names.get(parent)
            if names is None or module not in names:
                named = ((child, name) for name, child in parent.named_modules() if child is not parent)
                self._names[parent] = names = weakref.WeakKeyDictionary(named)
            found = names.get(module)
            if found is not None:
                return found
        return type(module).__name__


class _OpenNodes(threading.local):
    """The nodes that each thread is in, each with the pass that it belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[tuple[object, int]] = []


class BackwardHooks:
    """Opens a range with a node's name and the sequence number of its operator while the node runs."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._open = _OpenNodes()
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
