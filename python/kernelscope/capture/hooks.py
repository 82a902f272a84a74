"""Ranges around every torch call, the forward of modules and the nodes of the backward pass.

A torch function mode observes calls, and hooks provided by torch observe the rest.
"""

import importlib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from kernelscope.capture.marks import Marks, Names
from kernelscope.capture.ranges import Ranges

_MARK = "kernelscope"
# An operator makes few nodes; a long chain belongs to operators before it.
_MOST_NODES = 64


# Functions of Python that are a whole layer: what they call gets ranges of its own.
_LAYERS = frozenset({"multi_head_attention_forward"})
_BACKWARD = frozenset({"backward", "grad"})

_torch: Any = importlib.import_module("torch")
_overrides: Any = importlib.import_module("torch.overrides")


class _Stack(threading.local):
    """What each thread is in, the innermost last."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Any] = []


class ModuleHooks:
    """Opens a range ``layer:NAME`` when a module is called and closes it when it returns or raises.

    A nested module is named by its attribute in the parent, such as ``layer1.0``; other modules are named by
    their class.
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
        self._modules = _Stack()

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()

    def _before(self, module: Any, args: object) -> None:
        del args
        if _torch.compiler.is_compiling():
            return
        stack = self._modules.items
        name = self._name(stack[-1] if stack else None, module)
        stack.append(module)
        self._ranges.path.append(name)
        self._ranges.push(module, f"layer:{name}")

    def _after(self, module: Any, args: object, result: object) -> None:
        del args, result
        stack = self._modules.items
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


class BackwardHooks:
    """Opens a range with the name and sequence number of an autograd node while it runs."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._open = _Stack()
        """Nodes, each with the pass that it belongs to."""
        self._passes = 0
        self.is_active = True

    def follow(self, result: Any, first: int) -> None:
        """Hooks the nodes created by an operator: those with numbers from ``first``."""
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
                self._open.items.append((owner, self._passes))
                self._ranges.push(owner, name, sequence)

        def after(inputs: object, outputs: object) -> None:
            del inputs, outputs
            if self._open.items and self._open.items[-1][0] is owner:
                self._open.items.pop()
            self._ranges.pop(owner)

        node.register_prehook(before)
        node.register_hook(after)

    def _drop_abandoned(self) -> None:
        """Closes ranges of nodes that raised, in a pass that is over."""
        while self._open.items and self._open.items[-1][1] != self._passes:
            self._ranges.pop(self._open.items.pop()[0])

    def end_pass(self) -> None:
        """Marks the end of a backward pass."""
        self._passes += 1
        self._drop_abandoned()


class FunctionMode(_overrides.TorchFunctionMode):  # pyright: ignore[reportUntypedBaseClass]
    """Opens a range around every relevant torch call of the thread that entered it."""

    def __init__(self, ranges: Ranges, marks: Marks, backward: BackwardHooks | None) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._ranges = ranges
        self._marks = marks
        self._backward = backward
        self._names = Names()
        self._inner: dict[object, Callable[..., Any]] = {}

    def __torch_function__(
        self,
        func: Any,
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """Calls ``func`` inside a range."""
        del types
        kwargs = kwargs or {}
        if _torch.compiler.is_compiling():
            return func(*args, **kwargs)
        name = self._names.of(func)
        if name is None:
            return self._unmarked(func, args, kwargs)
        sequence = next_sequence()
        text = self._marks.text(*name, self._ranges.path, args, kwargs)
        owner = object()
        self._ranges.push(owner, text, sequence)
        try:
            if name[1] in _LAYERS:
                with self:
                    result = self._layer(func)(*args, **kwargs)
            else:
                result = func(*args, **kwargs)
        finally:
            self._ranges.pop(owner)
        if self._backward is not None and sequence is not None:
            self._backward.follow(result, sequence)
        return result

    def _unmarked(self, func: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        if self._backward is None or not _starts_backward(func):
            return func(*args, **kwargs)
        depth = self._ranges.depth
        try:
            # What a function of the user computes in the backward pass is seen, too.
            with self:
                return self._layer(func)(*args, **kwargs)
        finally:
            self._ranges.close(depth)
            self._backward.end_pass()

    def _layer(self, func: Any) -> Callable[..., Any]:
        """``func`` as it would run without anyone watching, so that what it calls is seen."""
        found = self._inner.get(func)
        if found is None:
            unwatched = {name: _never for name in func.__globals__ if name.startswith("has_torch_function")}
            found = FunctionType(
                func.__code__,
                {**func.__globals__, **unwatched},
                func.__name__,
                func.__defaults__,
                func.__closure__,
            )
            found.__kwdefaults__ = func.__kwdefaults__
            self._inner[func] = found
        return found


def _starts_backward(func: Any) -> bool:
    return isinstance(func, FunctionType) and func.__name__ in _BACKWARD


def _never(*args: object) -> bool:
    del args
    return False


def next_sequence() -> int | None:
    """Returns the number of the next autograd node of this thread.

    It is None if this torch version does not provide it.
    """
    return None if _PEEK is None or not _torch.is_grad_enabled() else int(_PEEK())


_PEEK: Callable[[], int] | None = getattr(importlib.import_module("torch.autograd"), "_get_sequence_nr", None)
