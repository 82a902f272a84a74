"""Reads GPU profiler traces and answers where the time went.

``kernelscope.read(path)`` gives a :class:`Trace` of linked Polars frames; the questions are
in ``kernelscope.analysis``, and ``kernelscope.schema`` documents every table and column.
"""

import importlib
import warnings
from typing import TYPE_CHECKING

from kernelscope import errors
from kernelscope._traceparse import __version__, is_debug_build
from kernelscope.errors import KernelscopeError

if TYPE_CHECKING:
    from kernelscope import analysis as analysis
    from kernelscope import batch as batch
    from kernelscope import report as report
    from kernelscope import schema as schema
    from kernelscope import units as units
    from kernelscope.batch import scan as scan
    from kernelscope.meta import TraceMeta as TraceMeta
    from kernelscope.report import convert as convert
    from kernelscope.trace import Trace as Trace
    from kernelscope.trace import read as read

if is_debug_build:
    warnings.warn(
        "kernelscope was built without optimisation and is many times slower than a release build",
        RuntimeWarning,
        stacklevel=2,
    )

# Polars is imported with the first name that needs it: `kernelscope --help` must not wait for it.
_FROM_TRACE = ("Trace", "TraceMeta", "read")
_MODULES = ("analysis", "batch", "report", "schema", "units")

__all__ = [
    "KernelscopeError",
    "Trace",
    "TraceMeta",
    "__version__",
    "analysis",
    "batch",
    "convert",
    "errors",
    "read",
    "report",
    "scan",
    "schema",
    "units",
]


def __getattr__(name: str) -> object:
    if name in _FROM_TRACE:
        return getattr(importlib.import_module("kernelscope.trace"), name)
    if name == "scan":
        return importlib.import_module("kernelscope.batch.lake").scan
    if name == "convert":
        return importlib.import_module("kernelscope.report").convert
    if name in _MODULES:
        return importlib.import_module(f"kernelscope.{name}")
    raise AttributeError(f"module 'kernelscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
