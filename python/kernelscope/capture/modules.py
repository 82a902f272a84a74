"""Ranges around the forward of every module, by hooks that torch offers for all modules."""

import importlib
import threading
import weakref
from typing import Any

from kernelscope.capture.state import Ranges


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
