"""Reads GPU profiler traces and shows where the time went.

``kernelscope.read(path)`` returns a :class:`Trace` of linked Polars frames. ``kernelscope.analysis`` contains
the questions, and ``kernelscope.schema`` documents every table and column.
"""

import warnings

from kernelscope._traceparse import is_debug_build
from kernelscope.lazy import import_lazily

if is_debug_build:
    warnings.warn(
        "kernelscope was built without optimisation and is many times slower than a release build",
        RuntimeWarning,
        stacklevel=2,
    )

import_lazily(__name__)
