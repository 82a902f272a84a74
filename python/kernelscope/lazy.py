"""Packages that import names on first use, as listed in their stubs.

Importing everything would make ``kernelscope --help`` wait for Polars, and a small trace for the cost models.
"""

import importlib
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_NAME = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)


class _LazyPackage(ModuleType):
    """A package whose ``__init__.pyi`` says where each name is: ``from module import name as name``."""

    _module_of: dict[str, str]
    _entry: Callable[[Any, str], Any] | None
    __all__: list[str]

    def __getattr__(self, name: str) -> object:
        module = self._module_of.get(name)
        if module is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if module == self.__name__:
            return importlib.import_module(f"{module}.{name}")
        value = getattr(importlib.import_module(module), name)
        if self._entry is None:
            return value
        # One and the same each time, so that it can be pickled.
        return vars(self).setdefault(name, self._entry(value, self.__name__))

    def __setattr__(self, name: str, value: object) -> None:
        # An import binds a module in its package: not where the stub has something else of that name.
        own = self._module_of.get(name, self.__name__) == self.__name__
        if own or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self.__all__)


def import_lazily(package: str, *, entry: Callable[[Any, str], Any] | None = None) -> None:
    """Makes ``package`` import the names in its stub on first use; ``__all__`` lists them.

    ``entry(value, package)`` returns the object that the package provides in place of a value.
    """
    module = sys.modules[package]
    with open(f"{module.__file__}i", encoding="utf-8") as stub:
        found = {name: place for place, name in _NAME.findall(stub.read())}
    module.__class__ = _LazyPackage
    vars(module).update(_module_of=found, _entry=entry, __all__=sorted(found))
